"""A row's rounds: ours, the ceiling, ours, the ceiling. Alternating, because the machine is never quiet for long."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bench.figures import Compared, Reading
from bench.servers import Server

Measure = Callable[[Server], Awaitable[Reading]]
"""One round at one of the two servers."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How many rounds at each server, and how many seconds each takes."""

    rounds: int
    seconds: int


class Row(Protocol):
    """Something to measure. `falling` figures are better when they are small."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def falling(self) -> bool: ...

    def session(self, ours: Server, ceiling: Server, seconds: int) -> AbstractAsyncContextManager[Measure]:
        """What has to stand while the rounds go on. It makes sure that both servers answer alike."""


async def compare(row: Row, ours: Server, ceiling: Server, pace: Pace) -> Compared:
    readings: tuple[list[Reading], list[Reading]] = ([], [])
    async with row.session(ours, ceiling, pace.seconds) as measure:
        for _ in range(pace.rounds):
            for server, found in zip((ours, ceiling), readings, strict=True):
                found.append(await measure(server))
    return Compared(row.name, row.unit, row.falling, *readings)
