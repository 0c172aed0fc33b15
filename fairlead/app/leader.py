"""The leader election: which process runs the controllers and the maintenance of the store."""

from dataclasses import dataclass

from fairlead.app.workers.context import WorkerContext
from fairlead.controllers.runtime.leader import LeaderElector, new_identity
from fairlead.kinds.core.lease import LEASE
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Admission
from fairlead.settings import Settings
from fairlead.storage.contract import Store
from fairlead.storage.open import is_shared
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
