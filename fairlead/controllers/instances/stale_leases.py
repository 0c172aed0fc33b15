"""Frees the leases that the controllers of a virtual cluster held when it fell asleep.

Its control plane elects leaders with leases in `kube-system`. They stay held when the pods are stopped, so the
controllers of a woken one would wait for their expiry, 15 seconds by default, before they create the first pod. That
the old holders have ended is certain: the virtual cluster was asleep only when no pod of its control plane was left.
"""

from datetime import datetime

from fairlead.core.clock import parse_rfc3339
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.domain.typed_objects import ASLEEP, VirtualClusterInstance
from fairlead.registry.conditions import TRUE
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import KubeApi, RemoteApiError

LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
MAX_LEASES = 50


async def free_stale_leases(instance: VirtualClusterInstance, api: KubeApi) -> None:
    """For one that has woken up, as soon as it answers. A failure delays its first pods and nothing else, so it is
    ignored."""
    condition = instance.condition(ASLEEP)
    stopped = parse_rfc3339(condition.get("lastTransitionTime"))
    if condition.get("status") != TRUE or stopped is None:
        return
    try:
        found = await api.get(f"{LEASES_PATH}?limit={MAX_LEASES}")
        for each in found.get("items") or ():
            if _is_stale(each, stopped):
                # With the version that was read: a holder that is new since then keeps it.
                version = {"resourceVersion": metadata(each)["resourceVersion"]}
                change = {"metadata": version, "spec": {"holderIdentity": ""}}
                await api.patch(f"{LEASES_PATH}/{name_of(each)}", change)
    except (UpstreamError, RemoteApiError):
        return


def _is_stale(lease: Object, stopped: datetime) -> bool:
    renewed = parse_rfc3339(get_path(lease, "spec.renewTime"))
    return bool(get_path(lease, "spec.holderIdentity")) and renewed is not None and renewed <= stopped
