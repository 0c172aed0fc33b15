"""The Helm release and the health conditions of a virtual cluster. Pure; used by `virtual_clusters.py`."""

import re
from collections.abc import Sequence

from fairlead.controllers.helm.chart import Chart, Release, chart_of
from fairlead.controllers.instances.confinement import applied_trust, deployer_of, is_confined
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, Trouble
from fairlead.controllers.instances.remote_names import FAIRLEAD, MANAGED
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX, RBAC
from fairlead.controllers.instances.status import ONLINE, VC_READY, VC_SYNCED
from fairlead.core.objects import Object, dig
from fairlead.kinds.instances.templates import CONFINED
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import FarError

SYNCED, READY = VC_SYNCED, VC_READY
ACCESS = "AccessSynced"
"""Whether the roles of its users are bound inside. Not required for Ready: it may have RBAC rules of its own."""

_version = re.compile(r"[0-9A-Za-z.+_-]{1,64}", re.ASCII)


def chart_for(instance: Object) -> Chart:
    """The chart of its rendered template. Raises InstanceError if there is none, or if it is invalid."""
    chart = chart_of(dig(instance, "status.virtualCluster") or {})
    if chart is None:
        message = (
            "its template names no chart in helmRelease.chart; fix the template, or import a running virtual cluster "
            "with spec.config"
        )
        raise Trouble("NoChart", message, ERROR)
    return chart


def release_of(instance: Object) -> Release:
    """The release to deploy, at the place that `spec.clusterRef` names. Raises InstanceError."""
    values = dig(instance, "status.virtualCluster.helmRelease.values") or ""
    return Release(*_named(instance), chart_for(instance), values, _deployer(instance))


def release_to_remove(instance: Object) -> Release:
    return Release(*_named(instance), Chart("", ""), "", _deployer(instance))


def _named(instance: Object) -> tuple[str, str]:
    return dig(instance, "spec.clusterRef.virtualCluster"), dig(instance, "spec.clusterRef.namespace")


def _deployer(instance: Object) -> str:
    """The user that helm impersonates; empty: none. Once confined, a release stays confined, even if no chart has been
    deployed yet: the owner could have written release Secrets into the namespace, and helm trusts those."""
    was_confined = dig(instance, "status.deployedConfined") or applied_trust(instance) == CONFINED
    if not is_confined(instance) and not was_confined:
        return ""
    return deployer_of(dig(instance, "spec.clusterRef.namespace") or "")


def confining(release: Release, role: str) -> Sequence[Object]:
    """The RoleBinding that grants the deployer of a confined release the role in its namespace."""
    if not release.confined_to:
        return ()
    meta = {"name": f"{BINDING_PREFIX}deployer", "namespace": release.namespace, "labels": {MANAGED: FAIRLEAD}}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": release.confined_to}],
    }
    return (binding,)


def seen_from(answer: Object | UpstreamError | FarError) -> tuple[Object, Object]:
    """The conditions Online and Ready, from the response to the version request."""
    if isinstance(answer, UpstreamError):
        offline = condition(ONLINE, FALSE, answer.reason, f"it cannot be reached: {answer.message}", WARNING)
        return offline, condition(READY, UNKNOWN, answer.reason, "unknown while it cannot be reached")
    online = condition(ONLINE, TRUE, "Reached", "it can be reached")
    if isinstance(answer, FarError):
        message = f"it returns HTTP status {answer.status} for /version; check that its kubeconfig is still valid"
        return online, condition(READY, FALSE, "NotReady", message, WARNING)
    version = answer.get("gitVersion")
    known = version if isinstance(version, str) and _version.fullmatch(version) else "of an unknown version"
    return online, condition(READY, TRUE, "Ready", f"it runs Kubernetes {known}")
