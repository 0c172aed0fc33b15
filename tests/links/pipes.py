"""Two connected transports in memory, which a test can slow down, cut, or let drop messages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fairlead.links.connection import Link, refuse_streams
from fairlead.links.contract import LinkEnd, OpenHandler
from fairlead.links.limits import LinkLimits


class Pipe:
    """A transport. `is_silent` drops what is sent without an error, as a broken network does."""

    def __init__(self, incoming: "asyncio.Queue[bytes | None]", outgoing: "asyncio.Queue[bytes | None]") -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._is_closed = False
        self.is_silent = False
        self.writable = asyncio.Event()
        self.writable.set()

    async def receive(self) -> bytes | None:
        if self._is_closed:
            return None
        return await self._incoming.get()

    async def send(self, message: bytes) -> None:
        await self.writable.wait()
        if not self.is_silent and not self._is_closed:
            await self._outgoing.put(message)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._outgoing._maxsize = 0  # type: ignore[attr-defined]  # the end always fits
            self._outgoing.put_nowait(None)
            self._incoming._maxsize = 0  # type: ignore[attr-defined]
            self._incoming.put_nowait(None)


def pipe_pair() -> tuple[Pipe, Pipe]:
    there: asyncio.Queue[bytes | None] = asyncio.Queue(8)
    back: asyncio.Queue[bytes | None] = asyncio.Queue(8)
    return Pipe(back, there), Pipe(there, back)


@dataclass(slots=True)
class LinkPair:
    server: Link
    runner: Link
    server_pipe: Pipe
    runner_pipe: Pipe
    server_end: "asyncio.Task[LinkEnd]"
    runner_end: "asyncio.Task[LinkEnd]"


@asynccontextmanager
async def linked(on_open: OpenHandler, limits: LinkLimits | None = None) -> AsyncIterator[LinkPair]:
    """A server and a runner that serves streams with `on_open`."""
    server_pipe, runner_pipe = pipe_pair()
    server = Link(server_pipe, refuse_streams, boot_id="server", is_dialer=False, limits=limits)
    runner = Link(runner_pipe, on_open, boot_id="runner", is_dialer=True, limits=limits)
    ends = asyncio.create_task(server.run()), asyncio.create_task(runner.run())
    try:
        yield LinkPair(server, runner, server_pipe, runner_pipe, *ends)
    finally:
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
