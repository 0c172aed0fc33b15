"""What keeps things true meanwhile: controllers, the history's compaction, sealing, and the last use of keys.

Where several replicas share a store, one of them leads and does all of it. The others only heed what it has done; and
each writes down itself which keys have been used with it.
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

# DOC-MERGED app/clusters
# Connected clusters: where they may be, the ways to them, the gateways there, and who looks after them.


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Clusters:
    """The gateways and the controllers share the ways to clusters."""

    connected: Connected
    gateways: Gateways
    controllers: Callable[[Registry], tuple[Controller, ...]]
    """New ones, which write through the registry that they are given."""


def clusters(settings: Settings, registry: Registry, port: int) -> Clusters:
    """`port` is the one that this server listens on itself: no cluster is there."""
    policy = AddressPolicy(settings.cluster_networks, lambda: ((settings.listen, port),))
    # A little before the request itself is given up: then the answer says which cluster did not answer.
    head_seconds = max(1, settings.request_timeout - 1)
    limits = Limits(settings.cluster_requests, settings.cluster_sockets, head_seconds=head_seconds)
    connected = Connected(registry, settings.api_group, SYSTEM_NAMESPACE, policy, limits)
    names = ClusterNames(settings.identity_prefix)
    if not names.prefix:
        log.warning(
            "cluster_identity_prefix is off",
            consequence="users and groups of this server are the clusters' own users and groups of the same names",
            advice="set a prefix, unless every name that may be used here is meant to be that of the clusters",
        )
    gateways = Gateways(registry, settings.api_group, settings.namespace_prefix, connected, names)

    def controllers(working: Registry) -> tuple[Controller, ...]:
        return _cluster_controllers(settings, working, connected, policy)

    return Clusters(connected, gateways, controllers)


def _cluster_controllers(
    settings: Settings, registry: Registry, connected: Connected, policy: AddressPolicy
) -> tuple[Controller, ...]:
    """What looks after clusters, and after the instances that live in them."""
    group = settings.api_group
    reach = ConnectedReach(registry, group, SYSTEM_NAMESPACE, connected, policy.resolve)
    names = ClusterNames(settings.identity_prefix)
    confinement = Confinement(
        settings.space_roles,
        settings.space_metadata,
        "" if settings.space_pod_security == "none" else settings.space_pod_security,
        settings.chart_role,
    )
    setting = Setting(group, settings.namespace_prefix, names, confinement)
    return (
        ClusterController(registry, group, SYSTEM_NAMESPACE, connected, names),
        Spaces(registry, setting, reach),
        VirtualClusters(registry, setting, reach, Helm(), settings.chart_repositories),
    )


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
