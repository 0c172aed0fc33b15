"""Rows of watches: writes at one end, and every reader of an audience at the other.

A write at a real server is a patch; at the ceiling it is the finished event, which goes straight down the streams.
Throughput does not flood: writers wait until the readers are near, because a queue that grows all the while would say
nothing but how long the round was. Delays are measured at a pace, from the moment at which the pace wanted the write:
a server that cannot keep it up shows that in its delays.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count

import orjson

from bench.aims import Aim
from bench.audience import MOMENT, Audience, moment
from bench.ceiling import BROADCAST, SELECTOR
from bench.compare import Lineup, Measure
from bench.connection import Connection
from bench.figures import Reading, percentile
from bench.objects import APPS, name_of, revision, team_of
from bench.patches import JSON_PATCH
from bench.servers import Server
from bench.together import together

WRITERS = 16
WINDOW = 32
"""How many writes may be on their way to the readers."""

DRAIN_SECONDS = 180.0

Write = Callable[[Connection, int, str], Awaitable[bytes]]
"""Makes one event, about the object of that number, with a moment in it."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Events that arrive per second, over all watches together. Each watch hears of everything."""

    watchers: int
    aim: Aim | None = None
    unit: str = "events/s"
    falling: bool = False

    @property
    def name(self) -> str:
        return f"WATCH by {self.watchers:,}, delivered"

    @asynccontextmanager
    async def session(self, lineup: Lineup) -> AsyncIterator[Measure]:
        async with _stages(lineup, self.watchers, by_team=False, timed=False) as stages:

            async def measure(server: Server) -> Reading:
                return await stages[server.name].measure_throughput(lineup.scale.seconds)

            yield measure


@dataclass(frozen=True, slots=True)
class Delay:
    """From a write to reading its event, for all but the slowest percent, at a pace."""

    watchers: int
    pace: int
    by_team: bool
    aim: Aim | None = None
    unit: str = "ms, p99"
    falling: bool = True

    @property
    def name(self) -> str:
        heard = " of one label each" if self.by_team else ""
        return f"WATCH by {self.watchers:,}{heard}, delay at {self.pace} changes/s"

    @asynccontextmanager
    async def session(self, lineup: Lineup) -> AsyncIterator[Measure]:
        async with _stages(lineup, self.watchers, self.by_team, timed=True) as stages:

            async def measure(server: Server) -> Reading:
                return await stages[server.name].measure_delay(lineup.scale.seconds, self.pace)

            yield measure


@dataclass(frozen=True, slots=True)
class Subject:
    """What is written about, and which topic of watches hears of it."""

    objects: int
    by_team: bool

    def topic(self, number: int) -> str:
        return f"{SELECTOR}team%3D{team_of(number % self.objects)}" if self.by_team else ""


class Stage:
    """One server with its audience and its writers."""

    def __init__(self, audience: Audience, write: Write, subject: Subject) -> None:
        self._audience = audience
        self._write = write
        self._subject = subject
        self._numbers = count()
        self._written: Counter[str] = Counter()
        self._due = 0
        """Events that all readers together are to hear of what was written."""

    async def measure_throughput(self, seconds: int) -> Reading:
        server, before = self._audience.server, self._due
        async with _writers(server) as writers:
            cpu, busy, begun = server.cpu_seconds(), time.process_time(), time.monotonic()
            await together(self._write_closely(writer, begun + seconds) for writer in writers)
            await self._delivered()
        events, taken = self._due - before, time.monotonic() - begun
        cpu_us = server.cpu_us_since(cpu, events)
        return Reading(events / taken, None, cpu_us, (time.process_time() - busy) / taken)

    async def _write_closely(self, writer: Connection, end: float) -> None:
        while time.monotonic() < end:
            await self._audience.until(self._due - WINDOW * len(self._audience.readers), DRAIN_SECONDS)
            await self._write_one(writer, time.monotonic_ns())

    async def measure_delay(self, seconds: int, pace: int) -> Reading:
        server, before = self._audience.server, self._due
        self._audience.delays_ms.clear()
        async with _writers(server) as writers:
            cpu, busy, begun = server.cpu_seconds(), time.process_time(), time.monotonic_ns()
            moments = iter([begun + turn * 1_000_000_000 // pace for turn in range(seconds * pace)])
            await together(self._write_at(writer, moments) for writer in writers)
            await self._delivered()
        taken = (time.monotonic_ns() - begun) / 1e9
        p99 = percentile(self._audience.delays_ms, 99)
        cpu_us = server.cpu_us_since(cpu, self._due - before)
        return Reading(p99, p99, cpu_us, (time.process_time() - busy) / taken)

    async def _write_at(self, writer: Connection, moments: Iterator[int]) -> None:
        for due in moments:
            await asyncio.sleep(max(0, due - time.monotonic_ns()) / 1e9)
            await self._write_one(writer, due)

    async def _write_one(self, writer: Connection, at: int) -> None:
        number = next(self._numbers)
        topic = self._subject.topic(number)
        self._written[topic] += 1
        self._due += self._audience.sizes[topic]
        await self._write(writer, number, moment(at))

    async def _delivered(self) -> None:
        await self._audience.until(self._due, DRAIN_SECONDS)
        self._audience.check_complete(self._written)


@asynccontextmanager
async def _stages(lineup: Lineup, watchers: int, by_team: bool, timed: bool) -> AsyncIterator[dict[str, Stage]]:
    subject = Subject(lineup.scale.objects, by_team)
    topics = [subject.topic(number) for number in range(watchers)]
    patch = _patcher(subject.objects)
    async with AsyncExitStack() as stack:
        async with Connection.to(lineup.ours) as first, Connection.to(lineup.ceiling) as teacher:
            patched = await patch(first, 0, moment(0))
            await teacher.ask("PUT", "/?200", patched)
        broadcast, stages = _broadcaster(patched, subject), {}
        for server in (*lineup.real, lineup.ceiling):
            write = broadcast if server is lineup.ceiling else patch
            path = f"{APPS}?watch=1"
            if server is not lineup.ceiling:
                path += f"&resourceVersion={await revision(server)}"
            audience = await stack.enter_async_context(Audience.at(server, path, topics, timed))
            stages[server.name] = Stage(audience, write, subject)
        yield stages


@asynccontextmanager
async def _writers(server: Server) -> AsyncIterator[list[Connection]]:
    """New ones for each round: a server may end connections that were silent while others had their rounds."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Connection.to(server)) for _ in range(WRITERS)]


def _patcher(objects: int) -> Write:
    """Patches one object after the other with the moment of the patch."""

    async def patch(connection: Connection, number: int, sent: str) -> bytes:
        operations = [{"op": "replace", "path": "/spec/displayName", "value": sent}]
        path = f"{APPS}/{name_of(number % objects)}"
        return await connection.ask("PATCH", path, orjson.dumps(operations), JSON_PATCH)

    return patch


def _broadcaster(patched: bytes, subject: Subject) -> Write:
    """Sends the event that a watch tells of such a patch, with a moment of its own."""
    event = b'{"type":"MODIFIED","object":%b}\n' % patched

    async def broadcast(connection: Connection, number: int, sent: str) -> bytes:
        path = f"{BROADCAST}?{subject.topic(number).removeprefix(SELECTOR)}"
        return await connection.ask("POST", path, MOMENT.sub(sent.encode(), event))

    return broadcast
