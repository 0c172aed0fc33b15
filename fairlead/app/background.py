"""What keeps things true meanwhile: controllers, the history's compaction, sealing, and the last use of keys."""

import asyncio
from collections.abc import AsyncIterator
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
from fairlead.controllers.loop import Controller, run_all
from fairlead.controllers.memberships import Memberships
from fairlead.controllers.namespaces import Namespaces
from fairlead.controllers.projects import Projects
from fairlead.controllers.runners import Runners
from fairlead.controllers.workspaces import Workspaces
from fairlead.core.seal_keys import SealKeys
from fairlead.registry.registry import Registry
from fairlead.settings import Settings
from fairlead.storage.contract import Store
from fairlead.storage.resealing import keep_sealed
from fairlead.storage.retention import keep_history
from fairlead.storage.sealed import Sealed

COMPACT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Stores:
    """The store as it is, the same with its credentials sealed, and the keys for that."""

    plain: Store
    sealed: Sealed
    keys: SealKeys


def _controllers(
    settings: Settings, registry: Registry, identity: Identity, clusters: Clusters
) -> tuple[Controller, ...]:
    group = settings.api_group
    return (
        Namespaces(registry),
        *clusters.controllers,
        Projects(registry, group, settings.namespace_prefix),
        Instances(registry, group),
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
    settings: Settings, stores: Stores, registry: Registry, identity: Identity, clusters: Clusters
) -> AsyncIterator["asyncio.Task[None]"]:
    """The task that does all of it, until the block ends."""
    view = registry.view

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run_all(_controllers(settings, registry, identity, clusters), view, registry.clock))
            group.create_task(identity.activity.run(registry.resource(settings.api_group, ACCESS_KEYS)))
            group.create_task(
                keep_sealed(
                    stores.plain,
                    stores.sealed,
                    stores.keys,
                    seconds=settings.history_seconds,
                    on_compacted=view.forget,
                )
            )
            group.create_task(
                keep_history(
                    stores.plain,
                    seconds=settings.history_seconds,
                    revisions=settings.history_revisions,
                    every=COMPACT_SECONDS,
                    on_compacted=view.forget,
                )
            )

    task = asyncio.create_task(work(), name="background")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
