"""The engine `kubernetes`: a workspace is a Pod and a PersistentVolumeClaim in a cluster.

kubeconfig of the runner -> Cluster -> objects named after the uid of the workspace

    engine.py                      `KubernetesEngine`: the contract of engines
    settings.py, options.py        what the operator and the template choose
    allowed_places.py              in which contexts and namespaces, and what a template without trust cannot choose
    credentials.py, cluster.py     contexts of the kubeconfig; requests to one API server
    place.py, waiting.py           where the objects of a workspace are; waits for them, and says what for
    records.py                     what the runner remembers of a workspace: where it is, and how its sessions run
    creation.py, fetching.py       `up`; its first part, which fetches the source and reads devcontainer.json
    configuration.py, policy.py    reads devcontainer.json; what of it is accepted
    manifests.py, scripts.py       the objects, and the shell scripts that run inside
    observation.py, removal.py     what the objects say; `stop` and `delete`
    line_log.py                    output of commands in the log of a task
    sessions.py, exec_protocol.py  processes inside, over `pods/exec`
    ports.py, spdy.py              ports inside, over `pods/portforward`
    diagnosis.py                   what is missing, for `fairlead runner doctor`

Everything of a workspace has its uid in its name and labels. The claim stays until the workspace is deleted; the Pod is
deleted when the workspace stops.
"""
