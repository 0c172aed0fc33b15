"""The clusters in which a user may use anything: the whole cluster, or a space in it. Direct tokens are bound to these.

Computed when a token is issued, not per request. It yields to the event loop in between, since there may be many
spaces.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from fairlead.core.call import MANAGEMENT, Target, Verdict
from fairlead.core.objects import metadata
from fairlead.registry.codec import decode
from fairlead.registry.kind import Kind
from fairlead.registry.registry import Registry

CLUSTERS, SPACES = "clusters", "spaceinstances"
IN_CLUSTER = "spec.clusterRef.cluster"
AT_ONCE = 100
"""Checks before yielding to the event loop."""

May = Callable[[Target], Verdict]


async def reachable_clusters(registry: Registry, api_group: str, may: May) -> AsyncIterator[str]:
    """Yields the uid of each cluster once."""
    clusters, spaces = registry.resource(api_group, CLUSTERS), registry.resource(api_group, SPACES)
    others: dict[str, str] = {}
    for asked, entry in enumerate(registry.view.entries(api_group, CLUSTERS), 1):
        uid, name = str(metadata(decode(entry))["uid"]), entry.key[3]
        if may(_use(clusters.kind, "", name)).allowed:
            yield uid
        else:
            others[name] = uid
        if asked % AT_ONCE == 0:
            await asyncio.sleep(0)
    for asked, entry in enumerate(registry.view.entries(api_group, SPACES) if others else (), 1):
        cluster = entry.selectable.get(IN_CLUSTER, "")
        if cluster in others and may(_use(spaces.kind, *entry.key[2:])).allowed:
            yield others.pop(cluster)
        if asked % AT_ONCE == 0:
            await asyncio.sleep(0)


def _use(kind: Kind, namespace: str, name: str) -> Target:
    return Target("use", "", MANAGEMENT, kind.group, kind.version, kind.plural, namespace=namespace, name=name)
