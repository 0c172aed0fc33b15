"""Builds the background work: controllers, connections to clusters, compaction, re-encryption, last use of keys.

If several replicas share a store, only the elected leader runs controllers and store maintenance. The other replicas
follow its compactions and encryption keys. Every replica records the last use of the access keys that it has seen.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from fairlead.app.admission import SYSTEM_NAMESPACE
from fairlead.app.auth import Identity
from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.controllers.access.access_keys import Keys
from fairlead.controllers.access.team_membership import Memberships
from fairlead.controllers.clusters.clusters import Clusters as ClusterController
from fairlead.controllers.core.event_ttl import Expiry
from fairlead.controllers.core.garbage_collector import Garbage
from fairlead.controllers.core.namespaces import Namespaces
from fairlead.controllers.core.role_aggregation import Aggregation
from fairlead.controllers.helm.helm import Helm
from fairlead.controllers.instances.cluster_access import ConnectedReach
from fairlead.controllers.instances.confinement import Confinement
from fairlead.controllers.instances.prerequisites import Setting
from fairlead.controllers.instances.spaces import Spaces
from fairlead.controllers.instances.templates import Instances
from fairlead.controllers.instances.virtual_clusters import VirtualClusters
from fairlead.controllers.projects.projects import Projects
from fairlead.controllers.runtime.leader import Leader
from fairlead.controllers.runtime.loop import Controller, run_all
from fairlead.controllers.workspaces.runners import Runners
from fairlead.controllers.workspaces.workspaces import Workspaces
from fairlead.core.cluster_identity import ClusterNames
from fairlead.core.crypto.key_file import SealKeys
from fairlead.gateway.routes import Gateways
from fairlead.registry.registry import Registry
from fairlead.settings import Settings
from fairlead.storage.compaction import heed_compaction, keep_history
from fairlead.storage.contract import Store
from fairlead.storage.encrypted import Sealed
from fairlead.storage.fenced import Fenced
from fairlead.storage.reencrypt import heed_keys, keep_sealed
from fairlead.storage.view.view import View
from fairlead.upstream.access import Limits
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import Connected

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Clusters:
    """Connections to clusters, shared by the gateways and the controllers."""

    connected: Connected
    gateways: Gateways
    controllers: Callable[[Registry], tuple[Controller, ...]]
    """Builds new controllers that write through the given registry."""


def clusters(settings: Settings, registry: Registry, port: int) -> Clusters:
    """`port` is the server's own port, which the address policy blocks as the address of a cluster."""
    policy = AddressPolicy(settings.cluster_networks, lambda: ((settings.listen, port),))
    # Shorter than the request timeout, so that the error can name the cluster that did not respond.
    head_seconds = max(1, settings.request_timeout - 1)
    limits = Limits(settings.cluster_requests, settings.cluster_sockets, head_seconds=head_seconds)
    connected = Connected(registry, settings.api_group, SYSTEM_NAMESPACE, policy, limits)
    names = ClusterNames(settings.identity_prefix)
    if not names.prefix:
        log.warning(
            "cluster_identity_prefix is off",
            consequence="users and groups act in clusters as the users and groups of the same name there",
            advice="set a prefix, unless users and groups are meant to be identical on this server and on all clusters",
        )
    gateways = Gateways(registry, settings.api_group, settings.namespace_prefix, connected, names)

    def controllers(working: Registry) -> tuple[Controller, ...]:
        return _cluster_controllers(settings, working, connected, policy)

    return Clusters(connected, gateways, controllers)


def _cluster_controllers(
    settings: Settings, registry: Registry, connected: Connected, policy: AddressPolicy
) -> tuple[Controller, ...]:
    """The controllers of clusters, and of the spaces and virtual clusters in them."""
    group = settings.api_group
    access = ConnectedReach(registry, group, SYSTEM_NAMESPACE, connected, policy.resolve)
    names = ClusterNames(settings.identity_prefix)
    confinement = Confinement(
        settings.space_roles,
        settings.space_metadata,
        "" if settings.space_pod_security == "none" else settings.space_pod_security,
        settings.chart_role,
    )
    naming = Setting(group, settings.namespace_prefix, names, confinement)
    return (
        ClusterController(registry, group, SYSTEM_NAMESPACE, connected, names),
        Spaces(registry, naming, access),
        VirtualClusters(registry, naming, access, Helm(), settings.chart_repositories),
    )


COMPACT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Stores:
    """The raw store, the wrapper that encrypts credentials at rest, and its encryption keys."""

    plain: Store
    sealed: Sealed
    keys: SealKeys


@dataclass(frozen=True, slots=True)
class Leading:
    """Who runs the work that only one replica may do. `leader` is None if the store is not shared.

    `registry` is the one for that work. With a leader election it is fenced: writes fail after the lease is lost.
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
    """Yields a function that starts all background work, which is cancelled on exit. Start it once the server accepts
    requests: with a large store, the first pass takes a while."""
    leader = leading.leader

    async def leader_work() -> None:
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
                group.create_task(leader_work())
            else:
                group.create_task(leader.run(leader_work))
                _heed_leader(group, stores, registry.view, leader)

    started: list[asyncio.Task[None]] = []

    def start() -> "asyncio.Task[None]":
        started.append(asyncio.create_task(work(), name="background"))
        return started[0]

    try:
        yield start
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def _keep_store(group: asyncio.TaskGroup, settings: Settings, stores: Stores, leading: Leading) -> None:
    """Starts compaction and re-encryption, in the task group of the leader."""
    store = stores.plain if leading.leader is None else Fenced(stores.plain, leading.leader.fence)
    seconds, forget = settings.history_seconds, leading.registry.view.forget
    group.create_task(keep_sealed(store, stores.sealed, stores.keys, seconds=seconds, on_compacted=forget))
    revisions, every = settings.history_revisions, COMPACT_SECONDS
    group.create_task(keep_history(store, seconds=seconds, revisions=revisions, every=every, on_compacted=forget))


def _heed_leader(group: asyncio.TaskGroup, stores: Stores, view: View, leader: Leader) -> None:
    """Follows the encryption keys and compactions of other replicas."""
    group.create_task(heed_keys(stores.sealed, stores.keys, unless=lambda: leader.leading))
    group.create_task(heed_compaction(stores.plain, every=COMPACT_SECONDS, on_compacted=view.forget))
