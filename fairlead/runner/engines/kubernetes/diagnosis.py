"""What the kubeconfig of the runner lacks to run workspaces in clusters, for `fairlead runner doctor`."""

from collections.abc import Sequence

from fairlead.core.machine import Finding
from fairlead.core.objects import Object, get_path
from fairlead.runner.engines.contract import EngineError
from fairlead.runner.engines.kubernetes.cluster import Cluster
from fairlead.runner.engines.kubernetes.credentials import Contexts
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import KubeClient, RemoteApiError

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NEEDED: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("", "pods", ("get", "list", "create", "delete")),
    ("", "pods/exec", ("get", "create")),
    ("", "pods/portforward", ("get", "create")),
    ("", "pods/log", ("get",)),
    ("", "persistentvolumeclaims", ("get", "list", "create", "delete")),
    ("", "secrets", ("get", "create", "patch", "delete")),
    ("networking.k8s.io", "networkpolicies", ("get", "create", "delete")),
)
"""API group, resource and verbs in the namespace. Events are read if that is allowed."""
REMEDY = "grant a Role with these verbs in that namespace; docs/runner-kubernetes.md has it"


async def diagnose(contexts: Contexts) -> Sequence[Finding]:
    try:
        names = contexts.list_names()
    except EngineError as error:
        return [Finding("kubeconfig", error.message, "fairlead runner start --engine kubernetes --kubeconfig FILE")]
    if not names:
        return [Finding("kubeconfig", f"{contexts.path}: it has no context", "kubectl config view --raw --flatten")]
    return [Finding("kubeconfig"), *[await _check_context(contexts, name) for name in names]]


async def _check_context(contexts: Contexts, name: str) -> Finding:
    subject = f"cluster {name}"
    try:
        cluster = contexts.open(name)
        namespace = contexts.find_namespace(name)
        missing = await _find_missing(cluster, namespace) if namespace else []
        if not namespace:
            await KubeClient(cluster.upstream).get("/version")
    except EngineError as error:
        return Finding(subject, error.message, "correct the kubeconfig")
    except (RemoteApiError, UpstreamError) as error:
        return Finding(subject, str(error), "check the server, and the token, in the kubeconfig")
    if not namespace:
        problem = "the context names no namespace, so its permissions cannot be checked"
        return Finding(subject, problem, f"kubectl config set-context {name} --namespace=...", is_fatal=False)
    problem = f"the credential lacks {', '.join(missing)} in namespace {namespace}" if missing else ""
    return Finding(subject, problem, REMEDY)


async def _find_missing(cluster: Cluster, namespace: str) -> list[str]:
    client, missing = KubeClient(cluster.upstream), []
    for group, resource, verbs in NEEDED:
        plural, _, subresource = resource.partition("/")
        for verb in verbs:
            attributes = {"group": group, "resource": plural, "verb": verb, "namespace": namespace}
            attributes |= {"subresource": subresource} if subresource else {}
            review: Object = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            if not get_path(await client.create(REVIEWS, review), "status.allowed"):
                missing.append(f"{verb} {resource}")
    return missing
