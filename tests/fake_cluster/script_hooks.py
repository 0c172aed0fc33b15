"""Runs the hooks of a release in a fake cluster as Helm 4.1 does, and its Job as the Job controller and kubelet do.

Hooks are created by their weight, after an object of the same name is deleted. Helm waits for the end of a Job. If it
fails, the hooks before it are deleted by the policy `hook-succeeded`, and the Job stays.
"""

from dataclasses import dataclass

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.instances.remote_objects import parse_objects
from fairlead.core.objects import Object
from tests.fake_cluster.kube import FakeKube

_PLURALS = {
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
}
POLICY = "helm.sh/hook-delete-policy"


@dataclass(frozen=True)
class ScriptEnd:
    """How a script ends. `reason` is that of the failed Job; with DeadlineExceeded, its pod is deleted. With
    `is_forgotten`, the Job says nothing, and Helm takes it for a success nevertheless. With `keeps_hooks`, Helm deletes
    no hooks after a failure, as older versions."""

    exit_code: int = 0
    output: str = ""
    reason: str = "BackoffLimitExceeded"
    container_reason: str = "Error"
    is_forgotten: bool = False
    keeps_hooks: bool = False


def run_hooks(kube: FakeKube, release: Release, end: ScriptEnd) -> str:
    """Returns the error of Helm; empty if there is none."""
    hooks = parse_objects(release.chart.manifests, 10)
    done: list[tuple[str, Object]] = []
    error = ""
    for hook in sorted(hooks, key=lambda each: int(each["metadata"]["annotations"]["helm.sh/hook-weight"])):
        folder = _PLURALS[hook["kind"]].format(release.namespace)
        path = f"{folder}/{hook['metadata']['name']}"
        if path in kube.objects:
            kube.remove_object(path)
        user = release.impersonate_user if "/namespaces/" in folder else ""
        status, answer = kube.handle_request("POST", folder, hook, user)
        if status >= 400:
            error = f"failed post-install: warning: Hook post-install {release.name}: {answer['message']}"
            break
        if hook["kind"] == "Job":
            error = _run_job(kube, path, release, end)
            if error:
                break
        done.append((path, hook))
    for path, hook in () if error and end.keeps_hooks else done:
        if "hook-succeeded" in hook["metadata"]["annotations"][POLICY]:
            kube.remove_object(path)
    return error


def _run_job(kube: FakeKube, path: str, release: Release, end: ScriptEnd) -> str:
    job = kube.objects[path]
    name = job["metadata"]["name"]
    pod = f"/api/v1/namespaces/{release.namespace}/pods/{name}-x7k2p"
    if pod in kube.objects:
        kube.remove_object(pod)
    if end.is_forgotten:
        return ""
    has_failed = end.exit_code != 0 or end.reason == "DeadlineExceeded"
    condition = {"type": "Failed" if has_failed else "Complete", "status": "True"}
    if has_failed:
        condition["reason"] = end.reason
    job["status"] = {"conditions": [condition]}
    if end.reason != "DeadlineExceeded":
        terminated = {"exitCode": end.exit_code, "reason": end.container_reason if has_failed else "Completed"}
        statuses = [{"name": "script", "state": {"terminated": terminated}}]
        kube.add_object(pod, metadata={"labels": {"job-name": name}}, status={"containerStatuses": statuses})
        kube.logs[f"{pod}/log"] = end.output
    if not has_failed:
        return ""
    return f"failed post-install: resource Job/{release.namespace}/{name} not ready. status: Failed"
