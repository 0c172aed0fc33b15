"""Runs the rounds of a row in turn: ours, the ceiling, the peers, and again, because the load of the machine varies."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bench.aims import Aim, PeerAim
from bench.figures import Compared, Reading
from bench.scale import Scale
from bench.servers import Server

Measure = Callable[[Server], Awaitable[Reading]]
"""One round at one of the servers."""


@dataclass(frozen=True, slots=True)
class ServerSet:
    """The measured servers, and the scale of the run."""

    ours: Server
    ceiling: Server
    scale: Scale
    peers: Sequence[Server] = ()

    @property
    def real(self) -> tuple[Server, ...]:
        """The servers with objects."""
        return self.ours, *self.peers


class Row(Protocol):
    """A row of the table. `falling` figures are better when smaller."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def falling(self) -> bool: ...
    @property
    def aim(self) -> Aim | None: ...
    @property
    def peer_aim(self) -> PeerAim | None: ...

    def session(self, server_set: ServerSet) -> AbstractAsyncContextManager[Measure]:
        """Prepares the rounds, and checks that the servers respond alike."""


async def compare(row: Row, server_set: ServerSet) -> Compared:
    servers = (server_set.ours, server_set.ceiling, *server_set.peers)
    readings: list[list[Reading]] = [[] for _ in servers]
    async with row.session(server_set) as measure:
        for _ in range(server_set.scale.rounds):
            for server, server_readings in zip(servers, readings, strict=True):
                server_readings.append(await measure(server))
    ours, ceiling, *peer_readings = readings
    peers = {
        server.name: server_readings for server, server_readings in zip(server_set.peers, peer_readings, strict=True)
    }
    return Compared(row.name, row.unit, row.falling, ours, ceiling, row.aim, peers, row.peer_aim)
