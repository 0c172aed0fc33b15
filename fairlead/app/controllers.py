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
from fairlead.app.auth import Auth
from fairlead.app.https import read_ca_certificate
from fairlead.app.runner_keys import build_runner_keys
from fairlead.app.sso import build_sign_on_controllers
from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.controllers.access.access_keys import AccessKeyController
from fairlead.controllers.access.team_membership import TeamMembershipController
from fairlead.controllers.apps.app_instances import AppInstanceController
from fairlead.controllers.apps.template_releases import TemplateReleases
from fairlead.controllers.clusters.clusters import ClusterController
from fairlead.controllers.clusters.local_cluster import LocalClusterConnector
from fairlead.controllers.core.event_ttl import EventTtlController
from fairlead.controllers.core.garbage_collector import GarbageCollector
from fairlead.controllers.core.namespaces import NamespaceController
from fairlead.controllers.core.role_aggregation import RoleAggregationController
from fairlead.controllers.helm.deploy import ReleaseManager, ReleaseRunner
from fairlead.controllers.helm.fetch import ChartFetcher
from fairlead.controllers.helm.helm import Helm
from fairlead.controllers.instances.cluster_access import RegistryClusterAccess
from fairlead.controllers.instances.confinement import Confinement
from fairlead.controllers.instances.prerequisites import InstanceConfig
from fairlead.controllers.instances.spaces import SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.controllers.instances.virtual_clusters import VirtualClusterController
from fairlead.controllers.projects.projects import ProjectController
from fairlead.controllers.runtime.leader import LeaderElector
from fairlead.controllers.runtime.loop import Controller, run_controllers
from fairlead.controllers.workspaces.runner_deployments import RunnerDeploymentConfig, RunnerDeploymentController
from fairlead.controllers.workspaces.runners import RunnerController
from fairlead.controllers.workspaces.sleep import SleepController
from fairlead.controllers.workspaces.workspaces import WorkspaceController
from fairlead.core.cluster_identity import ClusterIdentityMapper
from fairlead.core.crypto.key_file import EncryptionKeyFile
from fairlead.gateway.routes import GatewayHandler
from fairlead.registry.registry import Registry
from fairlead.settings import Settings
from fairlead.storage.compaction import follow_compaction, run_compaction
from fairlead.storage.contract import Store
from fairlead.storage.encrypted import EncryptedStore
from fairlead.storage.fenced import FencedStore
from fairlead.storage.reencrypt import run_reencryption, watch_keys
from fairlead.storage.view.view import View
from fairlead.upstream.access import Limits
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import UpstreamRegistry
from fairlead.upstream.local_cluster import api_server_address, in_cluster_source

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterServices:
    """Connections to clusters, shared by the gateways and the controllers."""

    upstreams: UpstreamRegistry
    gateways: GatewayHandler
    build_controllers: Callable[[Registry, Auth], tuple[Controller, ...]]
    """Builds new controllers that write through the given registry."""


def build_cluster_services(settings: Settings, registry: Registry, port: int) -> ClusterServices:
    """`port` is the server's own port, which the address policy blocks as the address of a cluster or runner."""
    ports = (port, settings.replica_port) if settings.replica_address else (port,)
    policy = AddressPolicy(_allowed_networks(settings), lambda: [(settings.listen, each) for each in ports])
    # Shorter than the request timeout, so that the error can name the cluster that did not respond.
    head_seconds = max(1, settings.request_timeout - 1)
    limits = Limits(settings.cluster_requests, settings.cluster_websockets, response_header_seconds=head_seconds)
    connected = UpstreamRegistry(registry, settings.api_group, SYSTEM_NAMESPACE, policy, limits)
    names = ClusterIdentityMapper(settings.identity_prefix)
    if not names.prefix:
        log.warning(
            "cluster_identity_prefix is off",
            consequence="users and groups act in clusters as the users and groups of the same name there",
            advice="set a prefix, unless users and groups are meant to be identical on this server and on all clusters",
        )
    gateways = GatewayHandler(registry, settings.api_group, settings.namespace_prefix, connected, names)

    def controllers(working: Registry, auth: Auth) -> tuple[Controller, ...]:
        access = RegistryClusterAccess(working, settings.api_group, SYSTEM_NAMESPACE, connected, policy.resolve)
        return (
            *_build_cluster_controllers(settings, working, connected, policy, access),
            RunnerDeploymentController(working, _build_runner_config(settings, working, auth), access),
        )

    return ClusterServices(connected, gateways, controllers)


def _allowed_networks(settings: Settings) -> tuple[str, ...]:
    """The networks of clusters that are allowed besides public ones: with a local cluster, also its own address."""
    address = api_server_address() if settings.local_cluster else None
    return (*settings.cluster_networks, address[0]) if address is not None else tuple(settings.cluster_networks)


def _build_cluster_controllers(
    settings: Settings,
    registry: Registry,
    upstreams: UpstreamRegistry,
    policy: AddressPolicy,
    access: RegistryClusterAccess,
) -> tuple[Controller, ...]:
    """The controllers of clusters, and of the spaces, virtual clusters and apps in them."""
    group = settings.api_group
    names = ClusterIdentityMapper(settings.identity_prefix)
    confinement = Confinement(
        settings.space_roles, settings.space_metadata, _pod_security(settings), settings.chart_role
    )
    naming = InstanceConfig(group, settings.namespace_prefix, names, confinement)
    runner = ReleaseRunner(registry.clock, Helm(ChartFetcher(policy.resolve)))
    charts = ReleaseManager(registry, access, runner, settings.chart_repositories)
    releases = TemplateReleases(registry, group, runner, settings.chart_repositories)
    return (
        ClusterController(registry, group, SYSTEM_NAMESPACE, upstreams, names),
        SpaceController(registry, naming, access, releases),
        VirtualClusterController(registry, naming, access, charts, releases),
        AppInstanceController(registry, naming, access, runner, settings.chart_repositories),
    )


def _pod_security(settings: Settings) -> str:
    """The pod security level of namespaces that the server creates in clusters; empty for none."""
    return "" if settings.space_pod_security == "none" else settings.space_pod_security


def _build_runner_config(settings: Settings, registry: Registry, auth: Auth) -> RunnerDeploymentConfig:
    return RunnerDeploymentConfig(
        api_group=settings.api_group,
        system_namespace=SYSTEM_NAMESPACE,
        public_url=settings.public_url,
        image=settings.runner_image,
        pod_security=_pod_security(settings),
        read_authority=lambda: read_ca_certificate(settings),
        get_key=build_runner_keys(settings, registry, auth).get_or_create,
    )


COMPACTION_INTERVAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class StoreStack:
    """The raw store, the wrapper that encrypts credentials at rest, and its encryption keys."""

    raw: Store
    encrypted: EncryptedStore
    key_file: EncryptionKeyFile


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


def _build_controllers(
    settings: Settings, registry: Registry, auth: Auth, clusters: ClusterServices
) -> tuple[Controller, ...]:
    group = settings.api_group
    return (
        NamespaceController(registry),
        *clusters.build_controllers(registry, auth),
        ProjectController(registry, group, settings.namespace_prefix),
        InstanceTemplateController(
            registry, InstanceConfig(group, settings.namespace_prefix, ClusterIdentityMapper(settings.identity_prefix))
        ),
        RunnerController(registry, group),
        WorkspaceController(registry, group, settings.namespace_prefix),
        SleepController(registry, group),
        EventTtlController(registry, settings.event_ttl),
        AccessKeyController(
            registry, group, settings.access_key_retention, auth.last_used.last_use, auth.other_admin_access
        ),
        TeamMembershipController(registry, group),
        *build_sign_on_controllers(settings, registry, auth),
        RoleAggregationController(registry),
        GarbageCollector(registry),
    )


def _build_local_cluster(settings: Settings, registry: Registry) -> LocalClusterConnector:
    source = in_cluster_source("run the server in a pod with a service account, or remove the setting local_cluster")
    return LocalClusterConnector(registry, settings.api_group, settings.local_cluster, SYSTEM_NAMESPACE, source)


@asynccontextmanager
async def run_background(
    settings: Settings,
    stores: StoreStack,
    registry: Registry,
    election: LeaderElection,
    auth: Auth,
    clusters: ClusterServices,
) -> AsyncIterator[Callable[[], "asyncio.Task[None]"]]:
    """Yields a function that starts all background work, which is cancelled on exit. Start it once the server accepts
    requests: with a large store, the first pass takes a while."""
    leader = election.leader

    async def leader_work() -> None:
        async with asyncio.TaskGroup() as group:
            controllers = _build_controllers(settings, election.registry, auth, clusters)
            group.create_task(run_controllers(controllers, registry.view, registry.clock))
            if settings.local_cluster:
                group.create_task(_build_local_cluster(settings, election.registry).run())
            _start_store_maintenance(group, settings, stores, election)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(registry.view.warm_selector_fields())
            group.create_task(auth.ownership.run())
            group.create_task(auth.last_used.run(registry.resource(settings.api_group, ACCESS_KEYS)))
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
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def _start_store_maintenance(
    group: asyncio.TaskGroup, settings: Settings, stores: StoreStack, election: LeaderElection
) -> None:
    """Starts compaction and re-encryption, in the task group of the leader."""
    store = stores.raw if election.leader is None else FencedStore(stores.raw, election.leader.fence)
    seconds, forget = settings.history_seconds, election.registry.view.discard_before
    group.create_task(
        run_reencryption(store, stores.encrypted, stores.key_file, history_seconds=seconds, on_compacted=forget)
    )
    revisions, every = settings.history_revisions, COMPACTION_INTERVAL_SECONDS
    group.create_task(
        run_compaction(store, min_seconds=seconds, min_revisions=revisions, interval_seconds=every, on_compacted=forget)
    )


def _follow_leader(group: asyncio.TaskGroup, stores: StoreStack, view: View, leader: LeaderElector) -> None:
    """Follows the encryption keys and compactions of other replicas."""
    group.create_task(watch_keys(stores.encrypted, stores.key_file, is_leader=lambda: leader.is_leader))
    group.create_task(
        follow_compaction(stores.raw, interval_seconds=COMPACTION_INTERVAL_SECONDS, on_compacted=view.discard_before)
    )
