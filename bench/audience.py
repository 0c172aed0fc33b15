"""Many watches read at once, as cheaply as Python can: the reader must not be what is measured.

`fanout.py` opens an audience at each server. Events are counted by their last two bytes; only some readers, and only
where delays are asked for, look inside for the moment that the writer put there.
"""

import asyncio
import re
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

from bench.connection import head
from bench.failure import Failure
from bench.servers import Server
from bench.together import together

OPEN_SECONDS = 60.0
OPENING_AT_ONCE = 32
TIMED_EVERY = 11
"""So many readers to one that times what it hears. A prime, so that the timed ones meet every label."""

MOMENT = re.compile(rb"sent (\d{19})")
"""When something was written, in nanoseconds of the clock that all processes of a machine share."""

_EVENT_END = b"}\n"


def moment(at: int) -> str:
    """A time of `time.monotonic_ns()`, as it is written into an object."""
    return f"sent {at:019d}"


class Audience:
    """What all readers together have heard."""

    def __init__(self, server: Server, timed: bool) -> None:
        self.server = server
        self._timed = timed
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._next = 0
        self._trouble = ""
        self.readers: list[Reader] = []
        self.sizes: Counter[str] = Counter()
        """How many readers there are of each topic."""
        self.delivered = 0
        self.delays_ms: list[float] = []

    @classmethod
    @asynccontextmanager
    async def at(cls, server: Server, path: str, topics: Sequence[str], timed: bool) -> AsyncIterator["Audience"]:
        """A watch for each of the topics, which end its path; all of them answered before this goes on."""
        audience = cls(server, timed)
        tls, rest = server.trusting(), iter(topics)

        async def open_some() -> None:
            for topic in rest:
                await audience._open(path, topic, tls)

        try:
            await together(open_some() for _ in range(OPENING_AT_ONCE))
            yield audience
        finally:
            for reader in audience.readers:
                reader.close()

    async def _open(self, path: str, topic: str, tls: ssl.SSLContext) -> None:
        server, request = self.server, head(self.server, "GET", f"{path}{topic}", "", 0)
        timed = self._timed and len(self.readers) % TIMED_EVERY == 0
        reader = Reader(self, topic, request, timed)
        self.readers.append(reader)
        self.sizes[topic] += 1
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: reader, server.host, server.port, ssl=tls)
                await reader.answered.wait()
        except (OSError, TimeoutError) as error:
            raise Failure(f"a watch could not be opened at {server.name} ({error!r})") from None
        self._refuse_trouble()

    def heard(self, events: int) -> None:
        self.delivered += events
        if self.delivered >= self._next:
            self._wake()

    def failed(self, why: str) -> None:
        self._trouble = self._trouble or why
        self._wake()

    def _wake(self) -> None:
        """Those who wait are woken when they have what they wait for and not at every event: that would cost more than
        reading does."""
        due = [each for each in self._waiting if each[0] <= self.delivered or self._trouble]
        self._waiting = [each for each in self._waiting if each not in due]
        for _, waiter in due:
            if not waiter.done():
                waiter.set_result(None)
        self._next = min((wanted for wanted, _ in self._waiting), default=1 << 62)

    async def until(self, delivered: int, seconds: float) -> None:
        """Waits until so many events have been delivered, counted over all readers."""
        if self.delivered < delivered and not self._trouble:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((delivered, waiter))
            self._next = min(self._next, delivered)
            try:
                await asyncio.wait_for(waiter, seconds)
            except TimeoutError:
                told = f"delivered {self.delivered} of {delivered} events and no more"
                raise Failure(f"{self.server.name} {told}") from None
        self._refuse_trouble()

    def _refuse_trouble(self) -> None:
        if self._trouble:
            raise Failure(f"{self.server.name}: {self._trouble}")

    def check_complete(self, written: Mapping[str, int]) -> None:
        """Each reader must have heard of each write to its topic, once."""
        for reader in self.readers:
            expected = written.get(reader.topic, 0)
            if reader.events != expected:
                raise Failure(f"{self.server.name}: of {expected} events a reader has heard {reader.events}")


class Reader(asyncio.Protocol):
    """One watch. Inherits because that is how asyncio wants it; streams and tasks for each would cost twice as much."""

    def __init__(self, audience: Audience, topic: str, request: bytes, timed: bool) -> None:
        self._audience = audience
        self._request = request
        self._timed = timed
        self._transport: asyncio.BaseTransport | None = None
        self._rest = b""
        self._closed = False
        self.topic = topic
        self.answered = asyncio.Event()
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        # uvloop's transports write without being declared to.
        cast(asyncio.WriteTransport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.answered.is_set():
            self._begin(data)
            return
        whole = self._rest + data
        events, end = whole.count(_EVENT_END), whole.rfind(_EVENT_END) + len(_EVENT_END)
        if not events:
            self._rest = whole
            return
        self._rest = whole[end:]
        self.events += events
        if self._timed:
            now = time.monotonic_ns()
            sent = MOMENT.findall(whole, 0, end)
            self._audience.delays_ms.extend((now - int(each)) / 1e6 for each in sent)
        self._audience.heard(events)

    def _begin(self, data: bytes) -> None:
        """The head of the answer comes alone: nothing has happened yet that a watch could tell."""
        self._rest += data
        if b"\r\n\r\n" in self._rest:
            if b" 200 " not in self._rest.partition(b"\r\n")[0]:
                self._audience.failed(f"a watch was answered with {self._rest[:300]!r}")
            self._rest = b""
            self.answered.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed:
            self._audience.failed(f"a watch broke off ({exc!r})")
            self.answered.set()

    def close(self) -> None:
        self._closed = True
        if self._transport is not None:
            self._transport.close()
