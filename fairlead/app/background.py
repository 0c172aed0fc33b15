"""What keeps things true meanwhile: controllers, the history's compaction, sealing, and the last use of keys.

Where several replicas share a store, one of them leads and does all of it. The others only heed what it has done; and
each writes down itself which keys have been used with it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fairlead.app.clusters import Clusters
from fairlead.app.identity import Identity
from fairlead.authn.accesskeys import ACCESS_KEYS
from fairlead.controllers.aggregation import Aggregation
from fairlead.controllers.expiry import Expiry
from fairlead.controllers.garbage import Garbage
from fairlead.controllers.instances import Instances
from fairlead.controllers.keys import Keys
from fairlead.controllers.leader import Leader
from fairlead.controllers.loop import Controller, run_all
from fairlead.controllers.memberships import Memberships
from fairlead.controllers.namespaces import Namespaces
from fairlead.controllers.projects import Projects
from fairlead.controllers.runners import Runners
from fairlead.controllers.surroundings import Setting
from fairlead.controllers.workspaces import Workspaces
from fairlead.core.cluster_identity import ClusterNames
from fairlead.core.seal_keys import SealKeys
from fairlead.registry.registry import Registry
from fairlead.settings import Settings
from fairlead.storage.contract import Store
from fairlead.storage.fenced import Fenced
from fairlead.storage.resealing import heed_keys, keep_sealed
from fairlead.storage.retention import heed_compaction, keep_history
from fairlead.storage.sealed import Sealed
from fairlead.storage.view import View

COMPACT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Stores:
    """The store as it is, the same with its credentials sealed, and the keys for that."""

    plain: Store
    sealed: Sealed
    keys: SealKeys


@dataclass(frozen=True, slots=True)
class Leading:
    """How the work of one is done: by whoever leads where replicas share the store, without `leader` by us alone.

    `registry` is the one to work with; where there is a leader, it is fenced.
    """

    registry: Registry
    leader: Leader | None


def _controllers(
    settings: Settings, registry: Registry, identity: Identity, clusters: Clusters
) -> tuple[Controller, ...]:
    group = settings.api_group
    return (
        Namespaces(registry),
        *clusters.controllers(registry),
        Projects(registry, group, settings.namespace_prefix),
        Instances(registry, Setting(group, settings.namespace_prefix, ClusterNames(settings.identity_prefix))),
        Runners(registry, group),
        Workspaces(registry, group, settings.namespace_prefix),
        Expiry(registry, settings.event_ttl),
        Keys(registry, group, settings.access_key_retention, identity.activity.last_use),
        Memberships(registry, group),
        Aggregation(registry),
        Garbage(registry),
    )


@asynccontextmanager
async def background(
    settings: Settings, stores: Stores, registry: Registry, leading: Leading, identity: Identity, clusters: Clusters
) -> AsyncIterator[Callable[[], "asyncio.Task[None]"]]:
    """What begins the task that does all of it, until the block ends. With a large store there is much to look through,
    so the server had better answer by then."""
    leader = leading.leader

    async def work_of_one() -> None:
        async with asyncio.TaskGroup() as group:
            controllers = _controllers(settings, leading.registry, identity, clusters)
            group.create_task(run_all(controllers, registry.view, registry.clock))
            _keep_store(group, settings, stores, leading)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(registry.view.look_over())
            group.create_task(identity.sharing.run())
            group.create_task(identity.activity.run(registry.resource(settings.api_group, ACCESS_KEYS)))
            if leader is None:
                group.create_task(work_of_one())
            else:
                group.create_task(leader.run(work_of_one))
                _heed_leader(group, stores, registry.view, leader)

    begun: list[asyncio.Task[None]] = []

    def begin() -> "asyncio.Task[None]":
        begun.append(asyncio.create_task(work(), name="background"))
        return begun[0]

    try:
        yield begin
    finally:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


def _keep_store(group: asyncio.TaskGroup, settings: Settings, stores: Stores, leading: Leading) -> None:
    """In a group that ends with the lead."""
    store = stores.plain if leading.leader is None else Fenced(stores.plain, leading.leader.fence)
    seconds, forget = settings.history_seconds, leading.registry.view.forget
    group.create_task(keep_sealed(store, stores.sealed, stores.keys, seconds=seconds, on_compacted=forget))
    revisions, every = settings.history_revisions, COMPACT_SECONDS
    group.create_task(keep_history(store, seconds=seconds, revisions=revisions, every=every, on_compacted=forget))


def _heed_leader(group: asyncio.TaskGroup, stores: Stores, view: View, leader: Leader) -> None:
    """What others do with the store concerns us, too."""
    group.create_task(heed_keys(stores.sealed, stores.keys, unless=lambda: leader.leading))
    group.create_task(heed_compaction(stores.plain, every=COMPACT_SECONDS, on_compacted=view.forget))
