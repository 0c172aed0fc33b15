"""What the controllers of a Kubernetes do with workloads in a `FakeKube`: pods come and go with the number of replicas.

`run_workloads` is a value of `FakeKube.after_write`. As in a real cluster, a quota without pods lets existing ones run
and refuses new ones, a DaemonSet has a pod on the single node unless its node selector asks for another, and the pods
of a suspended Job end.
"""

from fairlead.core.objects import Object, get_path
from tests.fake_cluster.kube import FakeKube

NODE_LABELS: dict[str, str] = {"kubernetes.io/os": "linux"}
APPS, BATCH = "/apis/apps/v1", "/apis/batch/v1"


def add_workload(kube: FakeKube, namespace: str, plural: str, name: str, replicas: int = 1, **meta: object) -> str:
    """Adds a Deployment, StatefulSet or ReplicaSet. Returns its path."""
    path = f"{APPS}/namespaces/{namespace}/{plural}/{name}"
    kube.add_object(path, metadata=dict(meta), spec={"replicas": replicas, "template": {"spec": {}}})
    run_workloads(kube)
    return path


def add_daemon_set(kube: FakeKube, namespace: str, name: str, **selector: str) -> str:
    path = f"{APPS}/namespaces/{namespace}/daemonsets/{name}"
    kube.add_object(path, spec={"template": {"spec": {"nodeSelector": dict(selector)}}})
    run_workloads(kube)
    return path


def add_cron_job(kube: FakeKube, namespace: str, name: str, *, suspend: bool = False) -> str:
    path = f"{BATCH}/namespaces/{namespace}/cronjobs/{name}"
    kube.add_object(path, spec={"schedule": "* * * * *", "suspend": suspend})
    return path


def add_job(kube: FakeKube, namespace: str, name: str, *, active: int = 1) -> str:
    path = f"{BATCH}/namespaces/{namespace}/jobs/{name}"
    conditions = [] if active else [{"type": "Complete", "status": "True"}]
    kube.add_object(path, spec={"suspend": False}, status={"active": active, "conditions": conditions})
    run_workloads(kube)
    return path


def add_pod(kube: FakeKube, namespace: str, name: str, **meta: object) -> str:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    kube.add_object(path, metadata=dict(meta), status={"phase": "Running"})
    return path


def pods_in(kube: FakeKube, namespace: str) -> list[str]:
    prefix = f"/api/v1/namespaces/{namespace}/pods/"
    return sorted(path.removeprefix(prefix) for path in kube.objects if path.startswith(prefix))


def run_workloads(kube: FakeKube) -> None:
    """Creates and deletes pods, and the ReplicaSets of Deployments, until they are as wanted."""
    for path, obj in list(kube.objects.items()):
        match path.removeprefix("/").split("/"):
            case ["apis", "apps", "v1", "namespaces", namespace, "deployments", name]:
                _run_deployment(kube, namespace, name, obj)
    for path, obj in list(kube.objects.items()):
        match path.removeprefix("/").split("/"):
            case ["apis", "apps", "v1", "namespaces", namespace, ("statefulsets" | "replicasets"), name]:
                _run_pods(kube, namespace, name, obj, get_path(obj, "spec.replicas"))
            case ["apis", "apps", "v1", "namespaces", namespace, "daemonsets", name]:
                selector = get_path(obj, "spec.template.spec.nodeSelector") or {}
                _run_pods(kube, namespace, name, obj, int(selector.items() <= NODE_LABELS.items()))
            case ["apis", "batch", "v1", "namespaces", namespace, "jobs", name]:
                is_over = any(each["type"] == "Complete" for each in get_path(obj, "status.conditions") or [])
                _run_pods(kube, namespace, name, obj, int(not is_over and not get_path(obj, "spec.suspend")))


def _run_deployment(kube: FakeKube, namespace: str, name: str, deployment: Object) -> None:
    path = f"{APPS}/namespaces/{namespace}/replicasets/{name}-0"
    replicas = get_path(deployment, "spec.replicas")
    if path not in kube.objects:
        kube.add_object(path, metadata={"ownerReferences": [_controlled_by(deployment)]}, spec={"replicas": replicas})
    kube.objects[path]["spec"]["replicas"] = replicas


def _run_pods(kube: FakeKube, namespace: str, name: str, owner: Object, wanted: int) -> None:
    prefix = f"/api/v1/namespaces/{namespace}/pods/"
    own = sorted(
        path
        for path, obj in kube.objects.items()
        if path.startswith(prefix) and _controlled_by(owner) in (obj["metadata"].get("ownerReferences") or [])
    )
    for path in own[wanted:]:
        kube.remove_object(path)
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas/"
    limits = [get_path(obj, "spec.hard.pods") for path, obj in kube.objects.items() if path.startswith(quotas)]
    if "0" in limits:
        return
    for number in range(len(own), wanted):
        add_pod(kube, namespace, f"{name}-{number}", ownerReferences=[_controlled_by(owner)])


def _controlled_by(owner: Object) -> Object:
    return {"uid": owner["metadata"]["uid"], "name": owner["metadata"]["name"], "controller": True}
