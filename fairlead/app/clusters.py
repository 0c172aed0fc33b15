"""Connected clusters: where they may be, the ways to them, the gateways there, and who looks after them."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from fairlead.app.rules import SYSTEM_NAMESPACE
from fairlead.controllers.clusters import Clusters as ClusterController
from fairlead.controllers.confinement import Confinement
from fairlead.controllers.helm import Helm
from fairlead.controllers.loop import Controller
from fairlead.controllers.reach import ConnectedReach
from fairlead.controllers.spaces import Spaces
from fairlead.controllers.surroundings import Setting
from fairlead.controllers.virtual_clusters import VirtualClusters
from fairlead.core.cluster_identity import ClusterNames
from fairlead.gateway.gateways import Gateways
from fairlead.registry.registry import Registry
from fairlead.settings import Settings
from fairlead.upstream.addresses import AddressPolicy
from fairlead.upstream.connected import Connected
from fairlead.upstream.limits import Limits

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
        return _controllers(settings, working, connected, policy)

    return Clusters(connected, gateways, controllers)


def _controllers(
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
