"""Spaces: when the namespace of one in its cluster may be used.

Shared by the gateway, the configuration of agents, and the controllers that set the conditions.
"""

from fairlead.core.objects import Object, get_path, metadata
from fairlead.registry.conditions import UNKNOWN, find_condition, is_true

SPACE_SYNCED, SPACE_READY = "SpaceSynced", "SpaceReady"
"""Conditions of spaces, and of virtual clusters, which also have a namespace: it exists and has its content; it can be
used."""


def is_space_usable(space: Object, *, allow_unreachable: bool = False) -> bool:
    """Whether the namespace of a space exists and belongs to it. Before that, it may belong to another owner.

    SpaceReady is Unknown while this server cannot reach the cluster. With `allow_unreachable`, the space is usable
    then: the agent of the cluster keeps serving it.
    """
    status = space.get("status")
    is_synced = is_true(status, SPACE_SYNCED) or (
        allow_unreachable and (find_condition(status, SPACE_READY) or {}).get("status") == UNKNOWN
    )
    has_name = bool(get_path(space, "spec.clusterRef.namespace"))
    return has_name and is_synced and "deletionTimestamp" not in metadata(space)
