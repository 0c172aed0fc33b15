"""A row's rounds: ours, the ceiling, the peers, and again. In turn, because the machine is never quiet for long."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bench.aims import Aim
from bench.figures import Compared, Reading
from bench.scale import Scale
from bench.servers import Server

Measure = Callable[[Server], Awaitable[Reading]]
"""One round at one of the servers."""


@dataclass(frozen=True, slots=True)
class Lineup:
    """Who is measured, and how much of everything there is."""

    ours: Server
    ceiling: Server
    scale: Scale
    peers: Sequence[Server] = ()

    @property
    def real(self) -> tuple[Server, ...]:
        """Those with objects in them."""
        return self.ours, *self.peers


class Row(Protocol):
    """Something to measure. `falling` figures are better when they are small."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def falling(self) -> bool: ...
    @property
    def aim(self) -> Aim | None: ...

    def session(self, lineup: Lineup) -> AbstractAsyncContextManager[Measure]:
        """What has to stand while the rounds go on. It makes sure that the servers answer alike."""


async def compare(row: Row, lineup: Lineup) -> Compared:
    servers = (lineup.ours, lineup.ceiling, *lineup.peers)
    readings: list[list[Reading]] = [[] for _ in servers]
    async with row.session(lineup) as measure:
        for _ in range(lineup.scale.rounds):
            for server, found in zip(servers, readings, strict=True):
                found.append(await measure(server))
    ours, ceiling, *others = readings
    peers = {server.name: found for server, found in zip(lineup.peers, others, strict=True)}
    return Compared(row.name, row.unit, row.falling, ours, ceiling, row.aim, peers)
