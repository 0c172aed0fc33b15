"""Many watches read at once, as cheaply as Python can: the reader must not be what is measured.

`fanout.py` opens an audience at each server. Events are counted by their last two bytes; only a timed audience, which
gets few of them, looks inside for the moment that the writer put there.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from bench.connection import head, trusting
from bench.failure import Failure
from bench.servers import Server

OPEN_SECONDS = 20.0
MOMENT = re.compile(rb"sent (\d{19})")
"""When something was written, in nanoseconds of the clock that all processes of a machine share."""

_EVENT_END = b"}\n"


def moment() -> str:
    """Now, as it is written into an object."""
    return f"sent {time.monotonic_ns():019d}"


class Audience:
    """What all readers together have heard."""

    def __init__(self, server: Server, timed: bool) -> None:
        self._server = server
        self._timed = timed
        self._progress = asyncio.Event()
        self._trouble = ""
        self.readers: list[Reader] = []
        self.delivered = 0
        self.delays_ms: list[float] = []

    @classmethod
    @asynccontextmanager
    async def at(cls, server: Server, path: str, size: int, timed: bool) -> AsyncIterator["Audience"]:
        """So many watches at a path, all of them answered before this goes on."""
        audience = cls(server, timed)
        request = head(server, "GET", path, "", 0)
        try:
            for _ in range(size):
                await audience._open(request)
            yield audience
        finally:
            for reader in audience.readers:
                reader.close()

    async def _open(self, request: bytes) -> None:
        loop, server = asyncio.get_running_loop(), self._server
        connect = loop.create_connection(lambda: Reader(self, request), server.host, server.port, ssl=trusting(server))
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                _, reader = await connect
                await reader.answered.wait()
        except (OSError, TimeoutError) as error:
            raise Failure(f"a watch could not be opened at {server.name} ({error!r})") from None
        self.readers.append(reader)

    def heard(self, events: int, data: bytes) -> None:
        self.delivered += events
        if self._timed:
            now = time.monotonic_ns()
            self.delays_ms.extend((now - int(sent)) / 1e6 for sent in MOMENT.findall(data))
        self._progress.set()

    def failed(self, why: str) -> None:
        self._trouble = self._trouble or why
        self._progress.set()

    async def until(self, delivered: int, seconds: float) -> None:
        """Waits until so many events have been delivered, counted over all readers."""
        try:
            async with asyncio.timeout(seconds):
                while self.delivered < delivered and not self._trouble:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            raise Failure(f"{self._server.name} delivered {self.delivered} of {delivered} events and no more") from None
        if self._trouble:
            raise Failure(f"{self._server.name}: {self._trouble}")

    def check_complete(self, written: int) -> None:
        """Each reader must have heard of each write, once."""
        counts = {reader.events for reader in self.readers}
        if counts != {written}:
            raise Failure(f"{self._server.name}: of {written} events the readers have heard {sorted(counts)}")


class Reader(asyncio.Protocol):
    """One watch. Inherits because that is how asyncio wants it; streams and tasks for each would cost twice as much."""

    def __init__(self, audience: Audience, request: bytes) -> None:
        self._audience = audience
        self._request = request
        self._transport: asyncio.BaseTransport | None = None
        self._rest = b""
        self._closed = False
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
        self._audience.heard(events, whole[:end])

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
