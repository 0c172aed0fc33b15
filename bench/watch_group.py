"""Reads many watches at once, as cheaply as Python can: the reader must not limit the figure.

`fanout.py` opens a watch group at each server. Events are counted by their last two bytes; only some readers, and only
where delays are measured, parse the timestamp that the writer put there.
"""

import asyncio
import re
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

from bench.connection import build_head
from bench.failure import Failure
from bench.servers import Server
from bench.task_groups import run_together

OPEN_SECONDS = 60.0
OPENING_AT_ONCE = 32
TIMED_EVERY = 11
"""One of this many readers measures delays. A prime, so that every label is measured."""

TIMESTAMP = re.compile(rb"sent (\d{19})")
"""The time of a write, in nanoseconds of the monotonic clock of the machine."""

_EVENT_END = b"}\n"


def format_timestamp(at: int) -> str:
    """Formats a time of `time.monotonic_ns()` for an object."""
    return f"sent {at:019d}"


class WatchGroup:
    """The watches at one server, and the events that they have received."""

    def __init__(self, server: Server, timed: bool) -> None:
        self.server = server
        self._timed = timed
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._next = 0
        self._error = ""
        self.readers: list[Reader] = []
        self.sizes: Counter[str] = Counter()
        """The number of readers of each topic."""
        self.delivered = 0
        self.delays_ms: list[float] = []

    @classmethod
    @asynccontextmanager
    async def at(cls, server: Server, path: str, topics: Sequence[str], timed: bool) -> AsyncIterator["WatchGroup"]:
        """Opens a watch for each topic, which is the end of its path, and waits until all are open."""
        watch_group = cls(server, timed)
        tls = server.tls_context()
        remaining_topics = iter(topics)

        async def open_some() -> None:
            for topic in remaining_topics:
                await watch_group._open(path, topic, tls)

        try:
            await run_together(open_some() for _ in range(OPENING_AT_ONCE))
            yield watch_group
        finally:
            for reader in watch_group.readers:
                reader.close()

    async def _open(self, path: str, topic: str, tls: ssl.SSLContext) -> None:
        server, request = self.server, build_head(self.server, "GET", f"{path}{topic}", "", 0)
        timed = self._timed and len(self.readers) % TIMED_EVERY == 0
        reader = Reader(self, topic, request, timed)
        self.readers.append(reader)
        self.sizes[topic] += 1
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: reader, server.host, server.port, ssl=tls)
                await reader.is_open.wait()
        except (OSError, TimeoutError) as error:
            raise Failure(f"a watch could not be opened at {server.name} ({error!r})") from None
        self._raise_error()

    def count_events(self, events: int) -> None:
        self.delivered += events
        if self.delivered >= self._next:
            self._wake()

    def fail(self, reason: str) -> None:
        self._error = self._error or reason
        self._wake()

    def _wake(self) -> None:
        """Wakes only waiters whose count is reached, not at every event: that would cost more than
        reading."""
        due = [each for each in self._waiting if each[0] <= self.delivered or self._error]
        self._waiting = [each for each in self._waiting if each not in due]
        for _, waiter in due:
            if not waiter.done():
                waiter.set_result(None)
        self._next = min((count for count, _ in self._waiting), default=1 << 62)

    async def wait_for_events(self, delivered: int, seconds: float) -> None:
        """Waits until this many events have been delivered, counted over all readers."""
        if self.delivered < delivered and not self._error:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((delivered, waiter))
            self._next = min(self._next, delivered)
            try:
                await asyncio.wait_for(waiter, seconds)
            except TimeoutError:
                message = f"delivered {self.delivered} of {delivered} events"
                raise Failure(f"{self.server.name} {message}") from None
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error:
            raise Failure(f"{self.server.name}: {self._error}")

    def check_complete(self, written: Mapping[str, int]) -> None:
        """Checks that each reader has received each write to its topic once."""
        for reader in self.readers:
            expected = written.get(reader.topic, 0)
            if reader.events != expected:
                raise Failure(f"{self.server.name}: of {expected} events a reader has received {reader.events}")


class Reader(asyncio.Protocol):
    """One watch. Inherits from asyncio's Protocol, because streams and tasks would cost twice as much."""

    def __init__(self, watch_group: WatchGroup, topic: str, request: bytes, timed: bool) -> None:
        self._watch_group = watch_group
        self._request = request
        self._timed = timed
        self._transport: asyncio.BaseTransport | None = None
        self._rest = b""
        self._closed = False
        self.topic = topic
        self.is_open = asyncio.Event()
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        # uvloop's transports write without being declared to.
        cast(asyncio.WriteTransport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.is_open.is_set():
            self._read_head(data)
            return
        buffer = self._rest + data
        events = buffer.count(_EVENT_END)
        end = buffer.rfind(_EVENT_END) + len(_EVENT_END)
        if not events:
            self._rest = buffer
            return
        self._rest = buffer[end:]
        self.events += events
        if self._timed:
            now = time.monotonic_ns()
            sent = TIMESTAMP.findall(buffer, 0, end)
            self._watch_group.delays_ms.extend((now - int(each)) / 1e6 for each in sent)
        self._watch_group.count_events(events)

    def _read_head(self, data: bytes) -> None:
        """Parses the head of the response, which arrives before any event."""
        self._rest += data
        if b"\r\n\r\n" in self._rest:
            if b" 200 " not in self._rest.partition(b"\r\n")[0]:
                self._watch_group.fail(f"a watch got {self._rest[:300]!r}")
            self._rest = b""
            self.is_open.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed:
            self._watch_group.fail(f"a watch ended ({exc!r})")
            self.is_open.set()

    def close(self) -> None:
        self._closed = True
        if self._transport is not None:
            self._transport.close()
