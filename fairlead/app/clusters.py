"""Connected clusters: where they may be, the ways to them, and the gateways that lead people there."""

from dataclasses import dataclass

from fairlead.app.rules import SYSTEM_NAMESPACE
from fairlead.gateway.gateways import Gateways
from fairlead.registry.registry import Registry
from fairlead.settings import Settings
from fairlead.upstream.addresses import AddressPolicy
from fairlead.upstream.connected import Connected
from fairlead.upstream.limits import Limits


@dataclass(frozen=True, slots=True)
class Clusters:
    """The gateways and the controllers share the ways to clusters."""

    connected: Connected
    gateways: Gateways


def clusters(settings: Settings, registry: Registry, port: int) -> Clusters:
    """`port` is the one that this server listens on itself: no cluster is there."""
    policy = AddressPolicy(settings.cluster_networks, lambda: ((settings.listen, port),))
    limits = Limits(requests=settings.cluster_requests, sockets=settings.cluster_sockets)
    connected = Connected(registry, settings.api_group, SYSTEM_NAMESPACE, policy, limits)
    return Clusters(connected, Gateways(registry, settings.api_group, settings.namespace_prefix, connected))
