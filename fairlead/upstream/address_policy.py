"""Address policy for connected clusters: protects against server-side request forgery (SSRF).

Users who connect a cluster choose where this server sends requests. Only public addresses are allowed by default;
loopback, private networks and cloud metadata services only if the setting `cluster_networks` lists them. Each new
connection resolves the host name once, checks the address, and connects to that same address. DNS rebinding therefore
has no effect.

Errors contain neither host name nor address: users of a cluster see them, and must not learn about internal DNS.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from fairlead.upstream.errors import AddressBlocked, TimedOut, Unreachable, UpstreamError

Address = IPv4Address | IPv6Address
Network = ipaddress.IPv4Network | IPv6Network

RESOLVE_SECONDS = 4.0
RESOLVER_THREADS = 32
"""Threads for DNS lookups: enough that unanswered lookups do not delay the others for long."""
HTTPS_PORT, MIN_UNPRIVILEGED_PORT = 443, 1024

# In addition to the networks for which Python's `is_global` is false, which vary between Python versions.
EXTRA_PRIVATE_NETWORKS = tuple(
    map(ip_network, ("100.64.0.0/10", "192.0.0.0/24", "64:ff9b:1::/48", "fec0::/10", "2001::/23"))
)
PROTECTED_NETWORKS = tuple(
    map(
        ip_network,
        (
            *("169.254.0.0/16", "fe80::/10"),
            *("168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128"),
        ),
    )
)
"""Link-local networks and cloud metadata services: allowed only by a listed network that is a subnet of these."""

NAT64 = IPv6Network("64:ff9b::/96")
SIX_TO_FOUR = IPv6Network("2002::/16")
IPV4_COMPATIBLE = IPv6Network("::/96")

ADVICE = "list its network in the setting cluster_networks, or give the cluster a public address"


class AddressPolicy:
    """`networks`: allowed in addition to public addresses. `own_addresses`: returns where this server listens."""

    def __init__(self, networks: Sequence[str], own_addresses: Callable[[], Collection[tuple[str, int]]]) -> None:
        self._networks = tuple(ip_network(each, strict=False) for each in networks)
        self._own_addresses = own_addresses
        self._executor = ThreadPoolExecutor(RESOLVER_THREADS, "resolve")

    async def resolve(self, host: str, port: int) -> str:
        """Returns an allowed address of the host. Raises AddressBlocked, Unreachable or TimedOut."""
        verdict: UpstreamError = Unreachable("the cluster's host name has no address; check the host name")
        for address in await self._resolve_addresses(host, port):
            blocked = self.check_address(address, port)
            if blocked is None:
                return str(unmap_ipv4(address))
            verdict = blocked
        raise verdict

    async def _resolve_addresses(self, host: str, port: int) -> list[Address]:
        try:
            return [ip_address(host)]
        except ValueError:
            pass
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await loop.run_in_executor(self._executor, _getaddrinfo, host, port)
        except TimeoutError:
            raise TimedOut("the DNS lookup of the cluster's host name timed out; check this server's DNS") from None
        except (OSError, UnicodeError):
            raise Unreachable("the cluster's host name does not resolve; check the host name and DNS") from None
        return [ip_address(each) for each in dict.fromkeys(found)]

    def check_address(self, address: Address, port: int) -> AddressBlocked | None:
        """Returns why the address is blocked, or None if it is allowed."""
        faces = (unmap_ipv4(address), *embedded_ipv4(address))
        if any(face.is_unspecified or face.is_multicast for face in faces):
            return AddressBlocked(
                "the cluster's address is unspecified or multicast; use the address of its API server"
            )
        if any(self._is_own_listener(face, port) for face in faces):
            return AddressBlocked(
                "the cluster's address is that of this server; use the address of the cluster's API server"
            )
        beyond = [face for face in faces if not self._is_allowed(face)]
        if any(_is_protected(face) for face in beyond):
            return AddressBlocked(f"the cluster's address is link-local or a cloud's metadata service; {ADVICE}")
        if any(_is_private(face) for face in beyond):
            return AddressBlocked(f"the cluster's address is loopback or private, which is not allowed here; {ADVICE}")
        if beyond and port != HTTPS_PORT and port < MIN_UNPRIVILEGED_PORT:
            return AddressBlocked(
                f"the cluster's port is a privileged port; use {HTTPS_PORT}, or {MIN_UNPRIVILEGED_PORT} or above"
            )
        return None

    def _is_allowed(self, address: Address) -> bool:
        guards = [guard for guard in PROTECTED_NETWORKS if address in guard]
        return any(
            address in network and all(_is_subnet(network, guard) for guard in guards) for network in self._networks
        )

    def _is_own_listener(self, address: Address, port: int) -> bool:
        for host, own_port in self._own_addresses():
            own = ip_address(host)
            if port == own_port and (unmap_ipv4(own) == address or (own.is_unspecified and _is_local_address(address))):
                return True
        return False


def _getaddrinfo(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def unmap_ipv4(address: Address) -> Address:
    """Returns the IPv4 address of an IPv4-mapped IPv6 address, and any other address unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def embedded_ipv4(address: Address) -> tuple[Address, ...]:
    """The IPv4 address that a NAT64 or 6to4 gateway would translate an IPv6 address to, if any."""
    if not isinstance(address, IPv6Address):
        return ()
    if address in NAT64 or (address in IPV4_COMPATIBLE and int(address) > 1):
        return (IPv4Address(int(address) & 0xFFFFFFFF),)
    return (address.sixtofour,) if address in SIX_TO_FOUR and address.sixtofour else ()


def _is_private(address: Address) -> bool:
    if isinstance(address, IPv6Address) and (address in NAT64 or address in SIX_TO_FOUR):
        return False  # the embedded IPv4 address is checked separately
    return not address.is_global or any(address in network for network in EXTRA_PRIVATE_NETWORKS)


def _is_protected(address: Address) -> bool:
    return any(address in guard for guard in PROTECTED_NETWORKS)


def _is_subnet(network: Network, parent: Network) -> bool:
    return network.version == parent.version and network.subnet_of(parent)  # type: ignore[arg-type]


def _is_local_address(address: Address) -> bool:
    """Whether this host has the address: only local addresses can be bound."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
