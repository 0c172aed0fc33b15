"""What is deployed for a virtual cluster, and what its conditions say about it: pure, for the controller beside it."""

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
"""Whether those who may use it have their roles inside. It can be ready without: its own rules may say who they are."""

_version = re.compile(r"[0-9A-Za-z.+_-]{1,64}", re.ASCII)


def chart_for(instance: Object) -> Chart:
    """The chart of its rendered template. Raises Trouble."""
    chart = chart_of(dig(instance, "status.virtualCluster") or {})
    if chart is None:
        why = (
            "its template names no chart in helmRelease.chart; have the template mended, or import a virtual cluster "
            "that runs already with spec.config"
        )
        raise Trouble("NoChart", why, ERROR)
    return chart


def release_of(instance: Object) -> Release:
    """What is to be deployed where it was settled to be. Raises Trouble."""
    values = dig(instance, "status.virtualCluster.helmRelease.values") or ""
    return Release(*_named(instance), chart_for(instance), values, _deployer(instance))


def release_to_remove(instance: Object) -> Release:
    return Release(*_named(instance), Chart("", ""), "", _deployer(instance))


def _named(instance: Object) -> tuple[str, str]:
    return dig(instance, "spec.clusterRef.virtualCluster"), dig(instance, "spec.clusterRef.namespace")


def _deployer(instance: Object) -> str:
    """What was once made with an owner's rights stays so, even where no chart has been deployed yet: what is noted
    about a release in its namespace could have been written by the owner, and helm goes by that."""
    was_confined = dig(instance, "status.deployedConfined") or applied_trust(instance) == CONFINED
    if not is_confined(instance) and not was_confined:
        return ""
    return deployer_of(dig(instance, "spec.clusterRef.namespace") or "")


def confining(release: Release, role: str) -> Sequence[Object]:
    """The RoleBinding that gives the deployer of a confined release that role in its namespace."""
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
    """Online and Ready, from what came of asking for its version."""
    if isinstance(answer, UpstreamError):
        offline = condition(ONLINE, FALSE, answer.reason, f"it cannot be reached: {answer.message}", WARNING)
        return offline, condition(READY, UNKNOWN, answer.reason, "nobody can tell while it cannot be reached")
    online = condition(ONLINE, TRUE, "Reached", "it can be reached")
    if isinstance(answer, FarError):
        why = f"it answers {answer.status} when asked for its version; see that its kubeconfig is still good"
        return online, condition(READY, FALSE, "NotReady", why, WARNING)
    version = answer.get("gitVersion")
    known = version if isinstance(version, str) and _version.fullmatch(version) else "of its own kind"
    return online, condition(READY, TRUE, "Ready", f"it runs Kubernetes {known}")
