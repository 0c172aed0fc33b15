"""Rows of watches: writers, and all readers of a watch group.

A write at a real server is a patch; at the ceiling it is the finished event, which goes directly to the streams.
For throughput, writers wait until the readers have nearly caught up, because a growing queue would show
only how long the round was. Delays are measured at a fixed pace, from the scheduled time of the write:
a server that cannot keep up has longer delays.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count

import orjson

from bench.aims import PEER_RATE, Aim, PeerAim
from bench.ceiling import BROADCAST, RESPONSE, SELECTOR
from bench.compare import Measure, ServerSet
from bench.connection import Connection
from bench.figures import Reading, percentile
from bench.objects import APPS, name_object, name_team, read_revision
from bench.patches import JSON_PATCH
from bench.servers import Server
from bench.task_groups import run_together
from bench.watch_group import TIMESTAMP, WatchGroup, format_timestamp

WRITERS = 16
WINDOW = 32
"""The maximum of writes that the readers have not received yet."""

DRAIN_SECONDS = 180.0

Write = Callable[[Connection, int, str], Awaitable[bytes]]
"""Causes one event of the object with that number, with a timestamp."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Events that arrive per second, over all watches together. Each watch receives everything."""

    watchers: int
    aim: Aim | None = None
    peer_aim: PeerAim | None = PEER_RATE
    unit: str = "events/s"
    falling: bool = False

    @property
    def name(self) -> str:
        return f"WATCH by {self.watchers:,}, delivered"

    @asynccontextmanager
    async def session(self, server_set: ServerSet) -> AsyncIterator[Measure]:
        async with _open_stages(server_set, self.watchers, by_team=False, timed=False) as stages:

            async def measure(server: Server) -> Reading:
                return await stages[server.name].measure_throughput(server_set.scale.seconds)

            yield measure


@dataclass(frozen=True, slots=True)
class Delay:
    """The 99th percentile of the time from a write to reading its event, at a fixed pace."""

    watchers: int
    pace: int
    by_team: bool
    aim: Aim | None = None
    peer_aim: PeerAim | None = None
    unit: str = "ms, p99"
    falling: bool = True

    @property
    def name(self) -> str:
        description = " of one label each" if self.by_team else ""
        return f"WATCH by {self.watchers:,}{description}, delay at {self.pace} changes/s"

    @asynccontextmanager
    async def session(self, server_set: ServerSet) -> AsyncIterator[Measure]:
        async with _open_stages(server_set, self.watchers, self.by_team, timed=True) as stages:

            async def measure(server: Server) -> Reading:
                return await stages[server.name].measure_delay(server_set.scale.seconds, self.pace)

            yield measure


@dataclass(frozen=True, slots=True)
class Subject:
    """The objects that are written, and the topic of watches that receive the events."""

    objects: int
    by_team: bool

    def topic(self, number: int) -> str:
        return f"{SELECTOR}team%3D{name_team(number % self.objects)}" if self.by_team else ""


class Stage:
    """One server with its watch group and its writers."""

    def __init__(self, watch_group: WatchGroup, write: Write, subject: Subject) -> None:
        self._watch_group = watch_group
        self._write = write
        self._subject = subject
        self._numbers = count()
        self._written: Counter[str] = Counter()
        self._expected_events = 0
        """The events that all readers together must receive for the writes so far."""

    async def measure_throughput(self, seconds: int) -> Reading:
        server, before = self._watch_group.server, self._expected_events
        async with _open_writers(server) as writers:
            cpu = server.cpu_seconds()
            busy = time.process_time()
            start = time.monotonic()
            await run_together(self._write_until(writer, start + seconds) for writer in writers)
            await self._wait_until_delivered()
        events, seconds_taken = self._expected_events - before, time.monotonic() - start
        cpu_us = server.cpu_us_since(cpu, events)
        return Reading(events / seconds_taken, None, cpu_us, (time.process_time() - busy) / seconds_taken)

    async def _write_until(self, writer: Connection, end: float) -> None:
        while time.monotonic() < end:
            await self._watch_group.wait_for_events(
                self._expected_events - WINDOW * len(self._watch_group.readers), DRAIN_SECONDS
            )
            await self._write_one(writer, time.monotonic_ns())

    async def measure_delay(self, seconds: int, pace: int) -> Reading:
        server, before = self._watch_group.server, self._expected_events
        self._watch_group.delays_ms.clear()
        async with _open_writers(server) as writers:
            cpu = server.cpu_seconds()
            busy = time.process_time()
            start = time.monotonic_ns()
            scheduled_times = iter([start + turn * 1_000_000_000 // pace for turn in range(seconds * pace)])
            await run_together(self._write_at(writer, scheduled_times) for writer in writers)
            await self._wait_until_delivered()
        seconds_taken = (time.monotonic_ns() - start) / 1e9
        p50, p99, longest = (percentile(self._watch_group.delays_ms, percent) for percent in (50, 99, 100))
        cpu_us = server.cpu_us_since(cpu, self._expected_events - before)
        return Reading(
            figure=p99,
            p99_ms=p99,
            cpu_us=cpu_us,
            load_busy=(time.process_time() - busy) / seconds_taken,
            p50_ms=p50,
            max_ms=longest,
        )

    async def _write_at(self, writer: Connection, scheduled_times: Iterator[int]) -> None:
        for scheduled_time in scheduled_times:
            await asyncio.sleep(max(0, scheduled_time - time.monotonic_ns()) / 1e9)
            await self._write_one(writer, scheduled_time)

    async def _write_one(self, writer: Connection, at: int) -> None:
        number = next(self._numbers)
        topic = self._subject.topic(number)
        self._written[topic] += 1
        self._expected_events += self._watch_group.sizes[topic]
        await self._write(writer, number, format_timestamp(at))

    async def _wait_until_delivered(self) -> None:
        await self._watch_group.wait_for_events(self._expected_events, DRAIN_SECONDS)
        self._watch_group.check_complete(self._written)


@asynccontextmanager
async def _open_stages(
    server_set: ServerSet, watchers: int, by_team: bool, timed: bool
) -> AsyncIterator[dict[str, Stage]]:
    subject = Subject(server_set.scale.objects, by_team)
    topics = [subject.topic(number) for number in range(watchers)]
    patch = _build_patcher(subject.objects)
    async with AsyncExitStack() as stack:
        async with Connection.to(server_set.ours) as first, Connection.to(server_set.ceiling) as ceiling_connection:
            patched = await patch(first, 0, format_timestamp(0))
            await ceiling_connection.request("PUT", f"{RESPONSE}?200", patched)
        broadcast, stages = _build_broadcaster(patched, subject), {}
        for server in (*server_set.real, server_set.ceiling):
            write = broadcast if server is server_set.ceiling else patch
            path = f"{APPS}?watch=1"
            if server is not server_set.ceiling:
                path += f"&resourceVersion={await read_revision(server)}"
            watch_group = await stack.enter_async_context(WatchGroup.at(server, path, topics, timed))
            stages[server.name] = Stage(watch_group, write, subject)
        yield stages


@asynccontextmanager
async def _open_writers(server: Server) -> AsyncIterator[list[Connection]]:
    """Opens new connections for each round: a server may close connections that were idle during other rounds."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Connection.to(server)) for _ in range(WRITERS)]


def _build_patcher(objects: int) -> Write:
    """Patches one object after the other with a timestamp."""

    async def patch(connection: Connection, number: int, sent: str) -> bytes:
        operations = [{"op": "replace", "path": "/spec/displayName", "value": sent}]
        path = f"{APPS}/{name_object(number % objects)}"
        return await connection.request("PATCH", path, orjson.dumps(operations), JSON_PATCH)

    return patch


def _build_broadcaster(patched: bytes, subject: Subject) -> Write:
    """Sends the event of such a patch with a new timestamp."""
    event = b'{"type":"MODIFIED","object":%b}\n' % patched

    async def broadcast(connection: Connection, number: int, sent: str) -> bytes:
        path = f"{BROADCAST}?{subject.topic(number).removeprefix(SELECTOR)}"
        return await connection.request("POST", path, TIMESTAMP.sub(sent.encode(), event))

    return broadcast
