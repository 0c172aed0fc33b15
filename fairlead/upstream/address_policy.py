"""Address policy for connected clusters: protects against server-side request forgery (SSRF).

Users who connect a cluster choose where this server sends requests. Only public addresses are allowed by default;
loopback, private networks and cloud metadata services only if the setting `cluster_networks` lists them. Each new
connection resolves the host name once, checks the address, and connects to that same address. DNS rebinding therefore
has no effect. Behind a proxy, which `cluster_proxies` has to list, only addresses are checked: it resolves names.

Errors contain neither host name nor address: users of a cluster see them, and must not learn about internal DNS.
"""

import asyncio
import socket
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address, ip_network

from fairlead.core.addresses import (
    PROTECTED_NETWORKS,
    Address,
    Network,
    all_forms,
    is_no_host,
    is_private,
    is_protected,
)
from fairlead.upstream.errors import AddressBlocked, TimedOut, Unreachable, UpstreamError

RESOLVE_SECONDS = 4.0
RESOLVER_THREADS = 32
"""Threads for DNS lookups: enough that unanswered lookups do not delay the others for long."""
HTTPS_PORT, MIN_UNPRIVILEGED_PORT = 443, 1024

ADVICE = "list its network in the setting cluster_networks, or give the cluster a public address"


class AddressPolicy:
    """`networks`: allowed in addition to public addresses. `own_addresses`: returns where this server listens.
    `proxies`: those that kubeconfigs may name, as host and port. `dials_clusters`: whether the server connects to
    clusters at all."""

    def __init__(
        self,
        networks: Sequence[str],
        own_addresses: Callable[[], Collection[tuple[str, int]]],
        proxies: Collection[str] = (),
        *,
        dials_clusters: bool = True,
    ) -> None:
        self._networks = tuple(ip_network(each, strict=False) for each in networks)
        self._own_addresses = own_addresses
        self.proxies = frozenset(proxies)
        self.dials_clusters = dials_clusters
        self._executor = ThreadPoolExecutor(RESOLVER_THREADS, "resolve")

    async def resolve(self, host: str, port: int) -> str:
        """Returns an allowed address of the host. Raises AddressBlocked, Unreachable or TimedOut."""
        verdict: UpstreamError = Unreachable("the cluster's host name has no address; check the host name")
        for address in await self._resolve_addresses(host, port):
            blocked = self.check_address(address, port)
            if blocked is None:
                return str(all_forms(address)[0])
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
        faces = all_forms(address)
        if any(map(is_no_host, faces)):
            return AddressBlocked(
                "the cluster's address is unspecified or multicast; use the address of its API server"
            )
        if any(self._is_own_listener(face, port) for face in faces):
            return AddressBlocked(
                "the cluster's address is that of this server; use the address of the cluster's API server"
            )
        beyond = [face for face in faces if not self._is_allowed(face)]
        if any(map(is_protected, beyond)):
            return AddressBlocked(f"the cluster's address is link-local or a cloud's metadata service; {ADVICE}")
        if any(map(is_private, beyond)):
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
            if port == own_port and (
                all_forms(own)[0] == address or (own.is_unspecified and _is_local_address(address))
            ):
                return True
        return False


def _getaddrinfo(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


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
