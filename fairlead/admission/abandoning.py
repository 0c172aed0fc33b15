"""Leaving behind in a cluster what was made for an instance takes the right to change that cluster.

The annotation `service.sh/abandon` lets an instance go at once. What runs for it in the cluster goes on, and counts
towards no quota any more: whoever could abandon instances freely could have as many as he likes. So it takes the right
to update the Cluster; for one that is imported, and so is in no cluster of ours, nothing beyond that to change it.
"""

from fairlead.admission.chain import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

ABANDON = "service.sh/abandon"
INSTANCES = ("spaceinstances", "virtualclusterinstances")


def abandoning(may: May, api_group: str) -> Rule:
    """The rule, for the API group that this server uses."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER or change.arriving or not _asks(change.obj):
            return
        cluster = dig(change.obj, "spec.clusterRef.cluster")
        if _asks(change.old) and cluster == dig(change.old, "spec.clusterRef.cluster") and not _is_deployed_now(change):
            return
        if (not isinstance(cluster, str) or not cluster) and dig(change.obj, "spec.config.secretName"):
            return  # whatever is in it is its owner's own
        cluster = cluster if isinstance(cluster, str) else ""
        target = Target("update", "", "", api_group, "v1", "clusters", "", "", cluster)
        if not may(change.user, target).allowed:
            where = f'the cluster "{cluster}"' if cluster else "clusters"
            why = (
                f'User "{change.user.name}" may not update {where}, which it takes to leave something behind there '
                f"with the annotation {ABANDON}; delete it without, or have an administrator of the cluster do that"
            )
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)

    return rule


def _is_deployed_now(change: Change) -> bool:
    """Whether it was imported before, and is not any more: from then on something is made for it in a cluster."""
    was_imported, is_imported = (bool(dig(each, "spec.config.secretName")) for each in (change.old, change.obj))
    return was_imported and not is_imported


def _asks(instance: Object | None) -> bool:
    annotations = metadata(instance).get("annotations") if instance is not None else None
    return isinstance(annotations, dict) and annotations.get(ABANDON) == "true"
