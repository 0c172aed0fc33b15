"""Bounds the handshakes that are under way on a port.

Connections that have not authenticated cost memory, and a client can open them for free. Two limits apply:

- Per network of the client, so that one site cannot take the place of all others. Behind a load balancer with the PROXY
  protocol, the client is known once the header has been read.
- In total.

At a limit, the oldest handshake of the network, or of all, is cancelled: connections that send nothing cannot close the
port to others behind the same address, and a handshake that makes progress ends long before dozens of others have
begun.
"""

import asyncio
import ipaddress
from collections.abc import Callable

MAX_HANDSHAKES, MAX_HANDSHAKES_PER_NETWORK = 512, 64


class Handshakes:
    """The tasks of handshakes, the oldest first. `on_evict` is called for each one that has to make room."""

    def __init__(self, on_evict: Callable[[], None]) -> None:
        self._networks: dict[asyncio.Task[None], str] = {}
        """The network of the client; empty as long as it is not known."""
        self._tasks: dict[str, dict[asyncio.Task[None], None]] = {}
        """The tasks of each network; none is empty."""
        self._on_evict = on_evict

    def begin(self, task: "asyncio.Task[None]") -> None:
        """Counts a handshake, and cancels the oldest one if there are too many."""
        if len(self._networks) >= MAX_HANDSHAKES:
            self._evict(next(iter(self._networks)))
        self._networks[task] = ""

    def assign(self, task: "asyncio.Task[None]", host: str) -> None:
        """Counts the handshake for the network of this address, its client's. At the limit, the oldest one ends."""
        if task not in self._networks:
            return
        network = network_of(host)
        others = self._tasks.get(network, {})
        if len(others) >= MAX_HANDSHAKES_PER_NETWORK:
            self._evict(next(iter(others)))
        self._networks[task] = network
        self._tasks.setdefault(network, {})[task] = None

    def cancel_all(self) -> None:
        for task in list(self._networks):
            self.end(task)
            task.cancel()

    def _evict(self, task: "asyncio.Task[None]") -> None:
        self.end(task)
        task.cancel()
        self._on_evict()

    def end(self, task: "asyncio.Task[None]") -> None:
        """Does nothing if the handshake has ended before."""
        network = self._networks.pop(task, "")
        if network:
            del self._tasks[network][task]
            if not self._tasks[network]:
                del self._tasks[network]


def network_of(host: str) -> str:
    """An IPv4 address itself, and the /64 of an IPv6 address, which one client has to itself."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return host
