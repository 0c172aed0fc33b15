"""Rows of watches: writes at one end, and every reader of an audience at the other.

A write at our server is a patch; at the ceiling it is the finished event, which goes straight down all streams. Neither
row floods: writers wait until the readers are near, or keep a pace that leaves the machine idle most of the time. A
queue that grows all the while would say nothing but how long the round was.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle

import orjson

from bench.audience import MOMENT, Audience, moment
from bench.ceiling import BROADCAST
from bench.compare import Measure
from bench.connection import Connection
from bench.figures import Reading, percentile
from bench.objects import APPS, OBJECTS, name_of, revision
from bench.servers import Server
from bench.together import together

WATCHERS = 200
WRITERS = 8
WINDOW = 32
"""How many writes may be on their way to the readers."""

WRITES_PER_SECOND = 20
DRAIN_SECONDS = 20.0
JSON_PATCH = "application/json-patch+json"

Write = Callable[[Connection], Awaitable[bytes]]
"""Makes one event for every watch."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Events that arrive per second, over all watches together."""

    name: str = f"WATCH by {WATCHERS}, delivered"
    unit: str = "events/s"
    falling: bool = False

    @asynccontextmanager
    async def session(self, ours: Server, ceiling: Server, seconds: int) -> AsyncIterator[Measure]:
        async with _stages(ours, ceiling, timed=False) as stages:

            async def measure(server: Server) -> Reading:
                return await stages[server.name].measure_throughput(seconds)

            yield measure


@dataclass(frozen=True, slots=True)
class Delay:
    """From sending a write to reading its event, for all but the slowest percent."""

    name: str = f"WATCH by {WATCHERS}, delay"
    unit: str = "ms, p99"
    falling: bool = True

    @asynccontextmanager
    async def session(self, ours: Server, ceiling: Server, seconds: int) -> AsyncIterator[Measure]:
        async with _stages(ours, ceiling, timed=True) as stages:

            async def measure(server: Server) -> Reading:
                return await stages[server.name].measure_delay(seconds)

            yield measure


class Stage:
    """One server with its audience and its writers."""

    def __init__(self, server: Server, audience: Audience, writers: list[Connection], write: Write) -> None:
        self._server = server
        self._audience = audience
        self._writers = writers
        self._write = write
        self._written = 0

    async def measure_throughput(self, seconds: int) -> Reading:
        cpu, begun, before = self._server.cpu_seconds(), time.monotonic(), self._written
        await together(self._write_closely(writer, begun + seconds) for writer in self._writers)
        await self._delivered()
        events = (self._written - before) * WATCHERS
        return Reading(
            figure=events / (time.monotonic() - begun),
            p99_ms=None,
            cpu_us=(self._server.cpu_seconds() - cpu) / events * 1e6,
        )

    async def _write_closely(self, writer: Connection, end: float) -> None:
        while time.monotonic() < end:
            await self._audience.until((self._written - WINDOW) * WATCHERS, DRAIN_SECONDS)
            self._written += 1
            await self._write(writer)

    async def measure_delay(self, seconds: int) -> Reading:
        cpu = self._server.cpu_seconds()
        self._audience.delays_ms.clear()
        begun = time.monotonic()
        for number in range(seconds * WRITES_PER_SECOND):
            await asyncio.sleep(begun + number / WRITES_PER_SECOND - time.monotonic())
            self._written += 1
            await self._write(self._writers[0])
        await self._delivered()
        delays = self._audience.delays_ms
        p99 = percentile(delays, 99)
        return Reading(figure=p99, p99_ms=p99, cpu_us=(self._server.cpu_seconds() - cpu) / len(delays) * 1e6)

    async def _delivered(self) -> None:
        await self._audience.until(self._written * WATCHERS, DRAIN_SECONDS)
        self._audience.check_complete(self._written)


@asynccontextmanager
async def _stages(ours: Server, ceiling: Server, timed: bool) -> AsyncIterator[dict[str, Stage]]:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(Connection.to(ours))
        patch = _patcher()
        broadcast = _broadcaster(await patch(first))
        path = f"{APPS}?watch=1&resourceVersion={await revision(first)}"
        stages = {}
        for server, write in ((ours, patch), (ceiling, broadcast)):
            audience = await stack.enter_async_context(Audience.at(server, path, WATCHERS, timed))
            writers = [await stack.enter_async_context(Connection.to(server)) for _ in range(WRITERS)]
            stages[server.name] = Stage(server, audience, writers, write)
        yield stages


def _patcher() -> Write:
    """Patches one object after the other with the moment of the patch."""
    numbers = cycle(range(OBJECTS))

    async def patch(connection: Connection) -> bytes:
        operations = [{"op": "replace", "path": "/spec/displayName", "value": moment()}]
        return await connection.ask("PATCH", f"{APPS}/{name_of(next(numbers))}", orjson.dumps(operations), JSON_PATCH)

    return patch


def _broadcaster(patched: bytes) -> Write:
    """Sends the event that a watch tells of such a patch, with a moment of its own."""
    event = b'{"type":"MODIFIED","object":%b}\n' % patched

    async def broadcast(connection: Connection) -> bytes:
        return await connection.ask("POST", BROADCAST, MOMENT.sub(moment().encode(), event))

    return broadcast
