"""Runs the rounds of a row in turn: ours, the ceiling, the peers, and again, because the load of the machine varies."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bench.aims import Aim, PeerAim
from bench.failure import Failure
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


async def compare(row: Row, server_set: ServerSet, report_progress: Callable[[str], None]) -> Compared:
    """Raises Failure. A peer that fails is left out of the row: it may not be able to do what the row asks for."""
    ours: list[Reading] = []
    ceiling: list[Reading] = []
    peers: dict[str, list[Reading]] = {each.name: [] for each in server_set.peers}
    async with row.session(server_set) as measure:
        for _ in range(server_set.scale.rounds):
            ours.append(await measure(server_set.ours))
            ceiling.append(await measure(server_set.ceiling))
            for peer in server_set.peers:
                if peer.name not in peers:
                    continue
                try:
                    peers[peer.name].append(await measure(peer))
                except Failure as failure:
                    report_progress(f"  {peer.name} is left out of this row: {failure}")
                    del peers[peer.name]
    return Compared(
        name=row.name,
        unit=row.unit,
        falling=row.falling,
        ours=ours,
        ceiling=ceiling,
        aim=row.aim,
        peers=peers,
        peer_aim=row.peer_aim,
    )
