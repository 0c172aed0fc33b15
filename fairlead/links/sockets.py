"""Links over a Unix socket, between the workers of one server: a transport on a `FramedConnection`."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.core.framed_socket import FramedConnection, connect_framed, serve_framed
from fairlead.core.waiting import Signal
from fairlead.links.frames import MAX_FRAME_BYTES

MAX_QUEUED_FRAMES, MIN_QUEUED_FRAMES = 8192, 1024
"""From the first number of frames that wait for the link, until the second, nothing is read. The credit of streams
bounds what a correct peer has under way; this is for others."""


class SocketTransport:
    """A `MessageTransport`. Its reader never waits for the writer of the link, so that both ends cannot be stuck."""

    def __init__(self, connection: FramedConnection) -> None:
        self._connection = connection
        self._received: deque[bytes] = deque()
        self._signal = Signal()
        self._is_closed = self._is_held = False

    def on_frames(self, frames: list[bytes]) -> None:
        """Called by the connection."""
        self._received.extend(frames)
        self._signal.wake()
        if len(self._received) > MAX_QUEUED_FRAMES and not self._is_held:
            self._is_held = True
            self._connection.hold(True)

    def on_closed(self) -> None:
        """Called by the connection."""
        self._is_closed = True
        self._signal.wake()

    async def receive(self) -> bytes | None:
        while not self._received:
            if self._is_closed:
                return None
            await self._signal.wait()
        if self._is_held and len(self._received) <= MIN_QUEUED_FRAMES:
            self._is_held = False
            self._connection.hold(False)
        return self._received.popleft()

    async def send(self, message: bytes) -> None:
        self._connection.send(message)
        await self._connection.drain()

    async def close(self) -> None:
        self._connection.close()


async def connect_transport(path: Path) -> SocketTransport:
    """Raises OSError if no process listens there."""
    transports: list[SocketTransport] = []

    def build_handler(connection: FramedConnection) -> SocketTransport:
        transports.append(SocketTransport(connection))
        return transports[0]

    await connect_framed(path, build_handler, MAX_FRAME_BYTES)
    return transports[0]


@asynccontextmanager
async def serve_transports(path: Path, on_connect: Callable[[SocketTransport], None]) -> AsyncIterator[None]:
    """Accepts connections at `path` while the context is open. `on_connect` starts a task for each of them."""
    loop = asyncio.get_running_loop()

    def build_handler(connection: FramedConnection) -> SocketTransport:
        transport = SocketTransport(connection)
        loop.call_soon(on_connect, transport)
        return transport

    async with serve_framed(path, build_handler, MAX_FRAME_BYTES):
        yield
