"""The engine `kubernetes`: a workspace is a Pod and a PersistentVolumeClaim in a cluster.

kubeconfig of the runner -> Cluster -> objects named after the uid of the workspace

    engine.py                      `KubernetesEngine`: the contract of engines
    settings.py                    what the operator and the template choose
    allowed_places.py              in which contexts and namespaces, and what a template without trust cannot choose
    contexts.py, cluster.py        contexts of the kubeconfig, and what they lack; requests to one API server
    place.py                       where the objects of a workspace are; waits for them, and removes them
    records.py                     what the runner remembers of a workspace: where it is, and how its sessions run
    creation.py                    `up`: fetches the source, reads devcontainer.json, and starts the Pod
    configuration.py, policy.py    reads devcontainer.json; what of it is accepted
    manifests.py, scripts.py       the objects, and the shell scripts that run inside
    observation.py                 what the objects say
    sessions.py, ports.py          processes inside, over `pods/exec`, and ports, over `pods/portforward`

Everything of a workspace has its uid in its name and labels. The claim stays until the workspace is deleted; the Pod is
deleted when the workspace stops.
"""
