"""Builds the services that features share, on top of the registry."""

from dataclasses import dataclass
from functools import partial

from fairlead.app.background import LeaderElection
from fairlead.app.flow_control import build_flow_control
from fairlead.app.link_hubs import LinkHubs
from fairlead.app.stores import StoreStack
from fairlead.app.tls_ports import read_ca_certificate
from fairlead.app.worker_limits import build_password_hasher
from fairlead.features.auth import Auth
from fairlead.features.contract import Services
from fairlead.features.metrics import GATEWAY_TYPES, LABELLED_PATHS
from fairlead.features.single_sign_on import build_sign_on
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.registry import Registry
from fairlead.server.audit.log import AuditLog
from fairlead.server.flow.attempts import AttemptThrottle
from fairlead.server.http.event_loop_watchdog import Watchdog
from fairlead.server.metrics.installation import ServedCertificate
from fairlead.server.metrics.stage import LabelResolver, RequestMetrics
from fairlead.server.workers.client import CoordinatorClient
from fairlead.settings import Settings
from fairlead.settings.values import ON
from fairlead.signin.login_sessions import LoginSessions
from fairlead.upstream.access import Limits
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import UpstreamRegistry
from fairlead.upstream.linked import OpenStream
from fairlead.upstream.local_cluster import api_server_address


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedServices:
    """What was opened at the start, and is closed at the end."""

    stores: StoreStack
    coordinator: CoordinatorClient | None
    audit: AuditLog | None
    hubs: LinkHubs


def build_services(
    settings: Settings, opened: OpenedServices, registry: Registry, auth: Auth, election: LeaderElection, port: int
) -> Services:
    """`port` is that of the server itself."""
    coordinator = opened.coordinator
    base_url = settings.base_url(port)
    addresses = build_address_policy(settings, port)
    logins = LoginSessions(registry, settings.api_group, auth.dynamic_config.login_key_ttl)
    return Services(
        settings=settings,
        auth=auth,
        registry=registry,
        store=opened.stores.encrypted,
        base_url=base_url,
        read_authority=partial(read_ca_certificate, settings),
        audit=opened.audit,
        flow=build_flow_control(settings, registry, auth.identify, coordinator),
        coordinator=coordinator,
        upstreams=build_upstreams(settings, registry, addresses, opened.hubs.agents.open),
        addresses=addresses,
        hub=opened.hubs.runners,
        agents=opened.hubs.agents,
        logins=logins,
        throttle=coordinator or AttemptThrottle(registry.clock),
        password_hasher=build_password_hasher(coordinator.worker_count if coordinator is not None else 1),
        sign_on=build_sign_on(settings, registry, auth, logins, base_url),
        requests=RequestMetrics(LabelResolver(registry.catalog, LABELLED_PATHS), GATEWAY_TYPES),
        commit_seconds=opened.stores.commit_seconds,
        watchdog=Watchdog(),
        certificate=ServedCertificate(),
        is_leader=lambda: election.is_leader,
    )


def build_address_policy(settings: Settings, port: int) -> AddressPolicy:
    """Clusters and runners may not have the address of the server itself."""
    ports = (port, settings.replica_port) if settings.replica_address else (port,)
    return AddressPolicy(
        _allowed_networks(settings),
        lambda: [(settings.listen, each) for each in ports],
        settings.cluster_proxies,
        dials_clusters=settings.cluster_connections == ON,
    )


def _allowed_networks(settings: Settings) -> tuple[str, ...]:
    """The networks of clusters that are allowed besides public ones: with a local cluster, also its own address."""
    address = api_server_address() if settings.local_cluster else None
    return (*settings.cluster_networks, address[0]) if address is not None else tuple(settings.cluster_networks)


def build_upstreams(
    settings: Settings, registry: Registry, addresses: AddressPolicy, open_stream: OpenStream
) -> UpstreamRegistry:
    limits = Limits(
        settings.cluster_requests,
        settings.cluster_websockets,
        # Shorter than the request timeout, so that the error can name the cluster that did not respond.
        response_header_seconds=max(1, settings.request_timeout - 1),
    )
    return UpstreamRegistry(
        registry,
        settings.api_group,
        SYSTEM_NAMESPACE,
        addresses,
        limits,
        open_stream,
    )
