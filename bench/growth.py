"""Measures growth: starts, memory, and the rates with many objects compared to those with few."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.aims import Aim, PeerAim, above_ceiling, at_most, of_ceiling
from bench.compare import Measure, Row, ServerSet, compare
from bench.connection import Connection
from bench.figures import Compared, Reading, Single
from bench.fill import fill
from bench.objects import APPS, build_app, name_object, name_team, object_bytes
from bench.quiet_gets import MAX_DELAY_MS, measure_gets, send_requests
from bench.requests import Requests
from bench.rows import CREATE, GET
from bench.scale import Scale
from bench.servers import Server, run_fairlead

STARTS = 3
TIMEOUT_SECONDS = 900.0
"""The timeout of a start with many objects."""

EMPTY_START_SECONDS, START_SECONDS = 1.0, 15.0
BYTES_PER_OBJECT = 1.2 * 1024
MIN_RETAINED_RATE = 0.8
WRITING_CLIENTS = 4
"""The connections that create objects beside the quiet client."""
REST_SECONDS, IDLE_SHARE = 120, 0.1
"""The maximum wait for an idle server, and the share of a core that counts as idle."""


@dataclass(frozen=True, slots=True)
class GrowthResult:
    rows: tuple[Compared, ...]
    singles: tuple[Single, ...]


@dataclass(frozen=True, slots=True)
class RetainedRate:
    """The share of a rate that remains with many objects. The ceiling is the server with few objects."""

    requests: Requests
    few: int
    many: int

    @property
    def name(self) -> str:
        return f"{self.requests.name} with {self.many:,} objects, of the rate with {self.few:,}"

    @property
    def aim(self) -> Aim:
        return of_ceiling(MIN_RETAINED_RATE)

    @property
    def peer_aim(self) -> PeerAim | None:
        return None

    @property
    def unit(self) -> str:
        return self.requests.unit

    @property
    def falling(self) -> bool:
        return self.requests.falling

    @asynccontextmanager
    async def session(self, server_set: ServerSet) -> AsyncIterator[Measure]:
        response = await self.requests.send_first(server_set.ours)

        async def measure(server: Server) -> Reading:
            objects = self.many if server is server_set.ours else self.few
            return await self.requests.round(server, self.requests.load(server_set.scale.seconds, objects, response))

        yield measure


@dataclass(frozen=True, slots=True)
class BesideWrites:
    """The 99th percentile of a quiet client's GETs with many objects while others write: pauses for garbage collection
    show here. The ceiling is the server with few objects, with the same writes."""

    gets: Requests
    writes: Requests
    few: int
    many: int
    peer_aim: PeerAim | None = None
    unit: str = "ms, p99"
    falling: bool = True

    @property
    def name(self) -> str:
        return f"{self.gets.name} beside {self.writes.name} with {self.many:,} objects, of that with {self.few:,}"

    @property
    def aim(self) -> Aim:
        return above_ceiling(MAX_DELAY_MS)

    @asynccontextmanager
    async def session(self, server_set: ServerSet) -> AsyncIterator[Measure]:
        seconds = server_set.scale.seconds

        async def measure(server: Server) -> Reading:
            objects = self.many if server is server_set.ours else self.few
            async with send_requests(server, self.writes, seconds, objects):
                return await measure_gets(server, self.gets, seconds, objects)

        yield measure


async def measure_empty_start(folder: Path) -> Single:
    starts = []
    for number in range(STARTS):
        async with run_fairlead(_create_folder(folder / f"empty-{number}")) as server:
            starts.append(server.start_seconds)
    return Single("start with no objects", "s", median(starts), at_most(EMPTY_START_SECONDS))


async def measure_growth(folder: Path, scale: Scale, report_progress: Callable[[str], None]) -> GrowthResult:
    async with AsyncExitStack() as stack:
        report_progress(f"growth: filling stores with {scale.few:,} and {scale.many:,} objects")
        few = await stack.enter_async_context(_run_filled_server(folder / "few", scale.few))
        many = await stack.enter_async_context(_run_filled_server(folder / "many", scale.many))
        idle_seconds = await _wait_until_idle(many)
        singles = (
            Single(f"start with {scale.many:,} objects", "s", many.start_seconds, at_most(START_SECONDS)),
            Single(f"from there to rest with {scale.many:,} objects", "s", idle_seconds),
            await _measure_memory(many, scale.many),
        )
        rows: tuple[Row, ...] = (
            RetainedRate(GET, scale.few, scale.many),
            RetainedRate(CREATE, scale.few, scale.many),
            BesideWrites(GET, replace(CREATE, connections=WRITING_CLIENTS), scale.few, scale.many),
        )
        compared = []
        for row in rows:
            report_progress(f"growth: {row.name}")
            compared.append(await compare(row, ServerSet(many, few, scale), report_progress))
        return GrowthResult(tuple(compared), singles)


async def _wait_until_idle(server: Server) -> float:
    """Waits until a server is idle: after the start it still processes its objects while it serves requests."""
    start = time.perf_counter()
    for _ in range(REST_SECONDS):
        before = server.cpu_seconds() or 0.0
        await asyncio.sleep(1)
        if (server.cpu_seconds() or 0.0) - before < IDLE_SHARE:
            break
    return time.perf_counter() - start


async def _measure_memory(server: Server, objects: int) -> Single:
    """The memory of the whole process divided by the objects, without the served bytes of each."""
    overhead = (server.memory() or 0) / objects - await object_bytes(server)
    return Single(f"memory per object beyond its bytes, of {objects:,}", "bytes", overhead, at_most(BYTES_PER_OBJECT))


@asynccontextmanager
async def _run_filled_server(folder: Path, objects: int) -> AsyncIterator[Server]:
    """Starts a server on a store with this many objects."""
    async with run_fairlead(_create_folder(folder)) as server, Connection.to(server) as connection:
        await connection.request("POST", APPS, build_app(name_object(0), {"team": name_team(0)}))
    await fill(folder / "data", objects)
    async with run_fairlead(folder, TIMEOUT_SECONDS) as server:
        yield server


def _create_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder
