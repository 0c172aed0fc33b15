"""The Helm release and the health conditions of a virtual cluster. Pure; used by `virtual_clusters.py`."""

import re
from collections.abc import Sequence

from fairlead.controllers.helm.chart import Chart, Release, parse_chart
from fairlead.controllers.instances.confinement import applied_trust, deployer_user, is_confined
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError
from fairlead.controllers.instances.remote_names import MANAGED_LABEL, MANAGED_VALUE
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX, RBAC
from fairlead.controllers.instances.status import VC_ONLINE, VC_READY, VC_SYNCED
from fairlead.core.objects import Object, get_path
from fairlead.kinds.instances.templates import CONFINED
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import RemoteApiError

SYNCED, READY = VC_SYNCED, VC_READY
ACCESS_SYNCED = "AccessSynced"
"""Whether the roles of its users are bound inside. Not required for Ready: it may have RBAC rules of its own."""

_version_pattern = re.compile(r"[0-9A-Za-z.+_-]{1,64}", re.ASCII)


def require_chart(instance: Object) -> Chart:
    """The chart of its rendered template. Raises InstanceError if there is none, or if it is invalid."""
    chart = parse_chart(get_path(instance, "status.virtualCluster") or {})
    if chart is None:
        message = (
            "its template names no chart in helmRelease.chart; fix the template, or import a running virtual cluster "
            "with spec.config"
        )
        raise InstanceError("NoChart", message, ERROR)
    return chart


def build_release(instance: Object) -> Release:
    """The release to deploy, at the place that `spec.clusterRef` names. Raises InstanceError."""
    values = get_path(instance, "status.virtualCluster.helmRelease.values") or ""
    return Release(*_release_location(instance), require_chart(instance), values, _helm_user(instance))


def build_removal_release(instance: Object) -> Release:
    return Release(*_release_location(instance), Chart("", ""), "", _helm_user(instance))


def _release_location(instance: Object) -> tuple[str, str]:
    return get_path(instance, "spec.clusterRef.virtualCluster"), get_path(instance, "spec.clusterRef.namespace")


def _helm_user(instance: Object) -> str:
    """The user that helm impersonates; empty: none. Once confined, a release stays confined, even if no chart has been
    deployed yet: the owner could have written release Secrets into the namespace, and helm trusts those."""
    was_confined = get_path(instance, "status.deployedConfined") or applied_trust(instance) == CONFINED
    if not is_confined(instance) and not was_confined:
        return ""
    return deployer_user(get_path(instance, "spec.clusterRef.namespace") or "")


def confinement_bindings(release: Release, role: str) -> Sequence[Object]:
    """The RoleBinding that grants the deployer of a confined release the role in its namespace."""
    if not release.impersonate_user:
        return ()
    meta = {
        "name": f"{BINDING_PREFIX}deployer",
        "namespace": release.namespace,
        "labels": {MANAGED_LABEL: MANAGED_VALUE},
    }
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": release.impersonate_user}],
    }
    return (binding,)


def conditions_from_probe(response: Object | UpstreamError | RemoteApiError) -> tuple[Object, Object]:
    """The conditions Online and Ready, from the response to the version request."""
    if isinstance(response, UpstreamError):
        offline = condition(VC_ONLINE, FALSE, response.reason, f"it cannot be reached: {response.message}", WARNING)
        return offline, condition(READY, UNKNOWN, response.reason, "unknown while it cannot be reached")
    online = condition(VC_ONLINE, TRUE, "Reached", "it can be reached")
    if isinstance(response, RemoteApiError):
        message = f"it returns HTTP status {response.status} for /version; check that its kubeconfig is still valid"
        return online, condition(READY, FALSE, "NotReady", message, WARNING)
    version = response.get("gitVersion")
    known = version if isinstance(version, str) and _version_pattern.fullmatch(version) else "of an unknown version"
    return online, condition(READY, TRUE, "Ready", f"it runs Kubernetes {known}")
