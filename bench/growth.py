"""How cost grows: starts, memory, and the rates with many objects beside those with few."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.aims import Aim, at_most, of_ceiling
from bench.compare import Lineup, Measure, compare
from bench.connection import Connection
from bench.figures import Compared, Reading, Single
from bench.fill import fill
from bench.objects import APPS, app, name_of, object_bytes, seed, team_of
from bench.requests import Requests
from bench.rows import CREATE, GET
from bench.scale import Scale
from bench.servers import Server, fairlead

MIB = 1024 * 1024
STARTS = 3
PATIENCE = 900.0
"""Seconds that a start with many objects may take before the run gives up on it."""

EMPTY_START_SECONDS, START_SECONDS = 1.0, 15.0
RESTING_MIB = 190
BYTES_PER_OBJECT = 1.2 * 1024
KEPT_RATE = 0.8
REST_SECONDS, IDLE_SHARE = 120, 0.1
"""How long a server is given to come to rest, and how much of a second's processor time is rest."""


@dataclass(frozen=True, slots=True)
class Grown:
    rows: tuple[Compared, ...]
    singles: tuple[Single, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """How much of a rate is left with many objects: the server with few of them stands in the ceiling's place."""

    requests: Requests
    few: int
    many: int

    @property
    def name(self) -> str:
        return f"{self.requests.name} with {self.many:,} objects, of the rate with {self.few:,}"

    @property
    def aim(self) -> Aim:
        return of_ceiling(KEPT_RATE)

    @property
    def unit(self) -> str:
        return self.requests.unit

    @property
    def falling(self) -> bool:
        return self.requests.falling

    @asynccontextmanager
    async def session(self, lineup: Lineup) -> AsyncIterator[Measure]:
        answer = await self.requests.first_answer(lineup.ours)

        async def measure(server: Server) -> Reading:
            objects = self.many if server is lineup.ours else self.few
            return await self.requests.round(server, self.requests.load(lineup.scale.seconds, objects, answer))

        yield measure


async def at_rest(folder: Path, scale: Scale) -> tuple[Single, ...]:
    """Starts on nothing, and the memory of a server that was given its objects over HTTP."""
    starts = []
    for number in range(STARTS):
        async with fairlead(_new(folder / f"empty-{number}")) as server:
            starts.append(server.start_seconds)
            if number == STARTS - 1:
                await seed(server, scale.resting)
                memory = server.memory()
    return (
        Single("start with no objects", "s", median(starts), at_most(EMPTY_START_SECONDS)),
        Single(f"memory with {scale.resting:,} objects", "MiB", memory / MIB, at_most(RESTING_MIB)),
    )


async def growth(folder: Path, scale: Scale, say: Callable[[str], None]) -> Grown:
    async with AsyncExitStack() as stack:
        say(f"growth: filling stores with {scale.few:,} and {scale.many:,} objects")
        few = await stack.enter_async_context(_filled(folder / "few", scale.few))
        many = await stack.enter_async_context(_filled(folder / "many", scale.many))
        resting = await _until_at_rest(many)
        singles = (
            Single(f"start with {scale.many:,} objects", "s", many.start_seconds, at_most(START_SECONDS)),
            Single(f"from there to rest with {scale.many:,} objects", "s", resting),
            await _memory(many, scale.many),
        )
        found = []
        for requests in (GET, CREATE):
            say(f"growth: {requests.name}")
            found.append(await compare(Kept(requests, scale.few, scale.many), Lineup(many, few, scale)))
        return Grown(tuple(found), singles)


async def _until_at_rest(server: Server) -> float:
    """Waits until a server does nothing any more: it looks through what it has found while it already answers."""
    begun = time.perf_counter()
    for _ in range(REST_SECONDS):
        before = server.cpu_seconds() or 0.0
        await asyncio.sleep(1)
        if (server.cpu_seconds() or 0.0) - before < IDLE_SHARE:
            break
    return time.perf_counter() - begun


async def _memory(server: Server, objects: int) -> Single:
    """All of the process is counted, divided by the objects, without the bytes that are served for each."""
    over = server.memory() / objects - await object_bytes(server)
    return Single(f"memory per object beyond its bytes, of {objects:,}", "bytes", over, at_most(BYTES_PER_OBJECT))


@asynccontextmanager
async def _filled(folder: Path, objects: int) -> AsyncIterator[Server]:
    """A server that finds so many objects when it starts."""
    async with fairlead(_new(folder)) as server, Connection.to(server) as connection:
        await connection.ask("POST", APPS, app(name_of(0), {"team": team_of(0)}))
    await fill(folder / "data", objects)
    async with fairlead(folder, PATIENCE) as server:
        yield server


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder
