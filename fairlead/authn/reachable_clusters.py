"""The clusters in which a user may use anything: the whole cluster, or a space in it. Direct tokens are bound to these.

Computed when a token is issued, not per request. It yields to the event loop in between, since there may be many
spaces.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from fairlead.core.call import MANAGEMENT, AuthorizationDecision, RequestInfo
from fairlead.core.objects import metadata
from fairlead.registry.codec import decode
from fairlead.registry.kind import Kind
from fairlead.registry.registry import Registry

CLUSTERS, SPACES = "clusters", "spaceinstances"
CLUSTER_REF_FIELD = "spec.clusterRef.cluster"
YIELD_INTERVAL = 100
"""Checks before yielding to the event loop."""

Authorize = Callable[[RequestInfo], AuthorizationDecision]


async def reachable_clusters(registry: Registry, api_group: str, authorize: Authorize) -> AsyncIterator[str]:
    """Yields the uid of each cluster once."""
    clusters, spaces = registry.resource(api_group, CLUSTERS), registry.resource(api_group, SPACES)
    others: dict[str, str] = {}
    for count, entry in enumerate(registry.view.entries(api_group, CLUSTERS), 1):
        uid, name = str(metadata(decode(entry))["uid"]), entry.key[3]
        if authorize(_use_target(clusters.kind, "", name)).allowed:
            yield uid
        else:
            others[name] = uid
        if count % YIELD_INTERVAL == 0:
            await asyncio.sleep(0)
    for count, entry in enumerate(registry.view.entries(api_group, SPACES) if others else (), 1):
        cluster = entry.selectable.get(CLUSTER_REF_FIELD, "")
        if cluster in others and authorize(_use_target(spaces.kind, *entry.key[2:])).allowed:
            yield others.pop(cluster)
        if count % YIELD_INTERVAL == 0:
            await asyncio.sleep(0)


def _use_target(kind: Kind, namespace: str, name: str) -> RequestInfo:
    return RequestInfo("use", "", MANAGEMENT, kind.group, kind.version, kind.plural, namespace=namespace, name=name)
