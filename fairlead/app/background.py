"""Runs the background work: the tasks and controllers of the features, compaction, re-encryption.

If several replicas share a store, only the elected leader runs controllers and store maintenance. The other replicas
follow its compactions and encryption keys.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fairlead.app.stores import StoreStack
from fairlead.app.workers.context import WorkerContext
from fairlead.controllers.helm.deploy import ReleaseRunner
from fairlead.controllers.helm.fetch import ChartFetcher
from fairlead.controllers.helm.helm import Helm
from fairlead.controllers.instances.cluster_access import RegistryClusterAccess
from fairlead.controllers.runtime.leader import LeaderElector, new_identity
from fairlead.controllers.runtime.loop import run_controllers
from fairlead.core.waiting import end_tasks
from fairlead.features.contract import Feature, LeaderServices, Services
from fairlead.kinds.core.lease import LEASE
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Admission
from fairlead.settings import Settings
from fairlead.storage.compaction import follow_compaction, run_compaction
from fairlead.storage.contract import Store
from fairlead.storage.open import is_shared
from fairlead.storage.reencrypt import run_reencryption, watch_keys
from fairlead.storage.view.view import View
from fairlead.storage.wrapper import FencedStore


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """Who runs the work that only one replica may do. `leader` is None if the store is not shared.

    `registry` is the one for that work. With a leader election it is fenced: writes fail after the lease is lost.
    """

    registry: Registry
    leader: LeaderElector | None

    @property
    def is_leader(self) -> bool:
        return self.leader is None or self.leader.is_leader


def build_leader_election(
    settings: Settings, worker: WorkerContext | None, store: Store, registry: Registry, admit: Admission
) -> LeaderElection:
    """The leader election, if this process takes part in one. The leader then writes through a fenced registry."""
    identity = _leader_identity(settings, worker)
    if identity is None:
        return LeaderElection(registry, None)
    leader = LeaderElector(registry.resource_for(LEASE), SYSTEM_NAMESPACE, registry.clock, identity)
    _discard_former_leader(leader, worker)
    fenced = Registry(registry.catalog, FencedStore(store, leader.fence), registry.view, admit, registry.clock)
    return LeaderElection(fenced, leader)


def _leader_identity(settings: Settings, worker: WorkerContext | None) -> str | None:
    """Identifies this process in the leader election; None if no other process uses the store."""
    if worker is not None:
        return worker.identity
    return new_identity() if is_shared(settings.store_url) else None


def _discard_former_leader(leader: LeaderElector, worker: WorkerContext | None) -> None:
    """The first worker on a store that only this server uses need not wait until the lease of a former one expires."""
    if worker is not None and worker.is_first and worker.sockets.store is not None:
        leader.ignore_holder()


COMPACTION_INTERVAL_SECONDS = 5.0


def build_leader_services(services: Services, registry: Registry) -> LeaderServices:
    return LeaderServices(
        registry=registry,
        clusters=RegistryClusterAccess(services.upstreams),
        helm=ReleaseRunner(registry.clock, Helm(ChartFetcher(services.addresses.resolve))),
    )


@asynccontextmanager
async def run_background(
    services: Services, features: Feature, stores: StoreStack, election: LeaderElection
) -> AsyncIterator[Callable[[], "asyncio.Task[None]"]]:
    """Yields a function that starts all background work, which is cancelled on exit. Start it once the server accepts
    requests: with a large store, the first pass takes a while."""
    leader = election.leader
    registry = services.registry

    async def leader_work() -> None:
        async with asyncio.TaskGroup() as group:
            shared = build_leader_services(services, election.registry)
            controllers = features.controllers(shared)
            group.create_task(run_controllers(controllers, registry.view, registry.clock))
            for task in features.leader_tasks:
                group.create_task(task(shared))
            _start_store_maintenance(group, services.settings, stores, election)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for task in features.tasks:
                group.create_task(task())
            if leader is None:
                group.create_task(leader_work())
            else:
                group.create_task(leader.run(leader_work))
                _follow_leader(group, stores, registry.view, leader)

    started: list[asyncio.Task[None]] = []

    def start() -> "asyncio.Task[None]":
        started.append(asyncio.create_task(work(), name="background"))
        return started[0]

    try:
        yield start
    finally:
        await end_tasks(*started)


def _start_store_maintenance(
    group: asyncio.TaskGroup, settings: Settings, stores: StoreStack, election: LeaderElection
) -> None:
    """Starts compaction and re-encryption, in the task group of the leader."""
    store = stores.raw if election.leader is None else FencedStore(stores.raw, election.leader.fence)
    discard = election.registry.view.discard_before
    reencryption = run_reencryption(
        store,
        stores.encrypted,
        stores.key_file,
        history_seconds=settings.history_seconds,
        on_compacted=discard,
    )
    compaction = run_compaction(
        store,
        min_seconds=settings.history_seconds,
        min_revisions=settings.history_revisions,
        interval_seconds=COMPACTION_INTERVAL_SECONDS,
        on_compacted=discard,
    )
    group.create_task(reencryption)
    group.create_task(compaction)


def _follow_leader(group: asyncio.TaskGroup, stores: StoreStack, view: View, leader: LeaderElector) -> None:
    """Follows the encryption keys and compactions of other replicas."""
    group.create_task(watch_keys(stores.encrypted, stores.key_file, is_leader=lambda: leader.is_leader))
    group.create_task(
        follow_compaction(stores.raw, interval_seconds=COMPACTION_INTERVAL_SECONDS, on_compacted=view.discard_before)
    )
