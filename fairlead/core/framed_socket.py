"""Frames of bytes over a Unix socket, between processes of one server that run as the same user.

A frame is its length in four bytes (little-endian), and then its content. The socket has mode 0600, and both ends
check the user of the other. Frames that are sent during one iteration of the event loop are written together.

    async with serve_framed(path, build_handler, MAX_FRAME_BYTES): ...
    connection = await connect_framed(path, build_handler, MAX_FRAME_BYTES)

`build_handler` gets each new `FramedConnection` and returns the `FrameHandler` that receives its frames.

Back-pressure: an accepted connection stops reading while its peer does not read what was sent to it, so a peer that
sends requests must read the responses. The other end always reads (two ends that both stop would wait for each other
forever), so it has to bound what it sends by itself, for example by the number of requests without a response.
"""

import asyncio
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Protocol, cast

import structlog

LENGTH = struct.Struct("<I")
MAX_PATH_BYTES = 100
"""Longer paths do not fit into the address of a Unix socket on every system."""
HIGH_WATER_BYTES, LOW_WATER_BYTES = 1024 * 1024, 256 * 1024
"""A connection counts as congested from the first size of its write buffer until the second."""
CLOSE_SECONDS = 2.0
"""How long a closing server waits for its peers to read what was sent to them."""

log = structlog.get_logger(__name__)


class FrameHandler(Protocol):
    """Receives what arrives on one connection, on the event loop. An exception closes the connection."""

    def on_frames(self, frames: list[bytes]) -> None:
        """The content of one or more frames, in order."""

    def on_closed(self) -> None:
        """The connection has been closed, by either end. Called once."""


HandlerBuilder = Callable[["FramedConnection"], FrameHandler]


def encode_frame(*parts: bytes) -> bytes:
    """One frame as bytes, for `FramedConnection.send_encoded`."""
    return b"".join((LENGTH.pack(sum(map(len, parts))), *parts))


class FramedConnection(asyncio.Protocol):
    """One end of a connection, which reads and writes frames. Call it on the event loop only."""

    def __init__(
        self, build_handler: HandlerBuilder, max_frame_bytes: int, *, is_accepted: bool, is_local: bool = True
    ) -> None:
        """`is_local`: over a Unix socket, whose other end must belong to this user."""
        self._build_handler = build_handler
        self._max_frame_bytes = max_frame_bytes
        self._is_accepted = is_accepted
        self._checks_user = is_accepted and is_local
        self._is_congested = self._is_full = False
        self._loop = asyncio.get_running_loop()
        self._handler: FrameHandler | None = None
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._incoming: list[bytes] = []
        """The received parts of an incomplete frame."""
        self._incoming_bytes = 0
        self._incoming_needed = 0
        self._uncongested = asyncio.Event()
        self._uncongested.set()
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def pending_bytes(self) -> int:
        """Bytes that were sent here but not yet passed to the kernel."""
        buffered = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._outgoing_bytes + buffered

    def send(self, *parts: bytes) -> None:
        """Send one frame. Frames to a closed connection are discarded. Raises ValueError if it is too large."""
        size = sum(map(len, parts))
        if size > self._max_frame_bytes:
            raise ValueError(f"a frame may have at most {self._max_frame_bytes:,} bytes; this one has {size:,}")
        self._enqueue(size + LENGTH.size, LENGTH.pack(size), *parts)

    def send_encoded(self, frames: bytes) -> None:
        """Send frames from `encode_frame`. Many connections can send the same bytes."""
        self._enqueue(len(frames), frames)

    async def drain(self) -> None:
        """Wait while the connection is congested. Returns immediately once it is closed."""
        await self._uncongested.wait()

    def close(self) -> None:
        """Close the connection after everything that was sent."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        if self._checks_user and not _belongs_to_this_user(transport.get_extra_info("socket").fileno()):
            log.error("rejected a connection of another user to a socket of this server")
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(HIGH_WATER_BYTES, LOW_WATER_BYTES)
        self._handler = self._build_handler(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by asyncio."""
        self._uncongested.set()
        self._closed.set()
        self._outgoing.clear()
        self._outgoing_bytes = 0
        if self._handler is not None:
            self._handler.on_closed()
        self._handler = None

    def eof_received(self) -> None:
        """Called by asyncio. The connection is then closed in both directions."""

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        if self._incoming:
            self._incoming.append(data)
            self._incoming_bytes += len(data)
            if self._incoming_bytes < self._incoming_needed:
                return
            data = b"".join(self._incoming)
            self._incoming.clear()
        frames = self._split(data)
        if frames and self._handler is not None:
            self._handler.on_frames(frames)

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self._uncongested.clear()
        self._is_congested = self._is_accepted
        self._set_reading()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._uncongested.set()
        self._is_congested = False
        self._set_reading()

    def hold(self, is_full: bool) -> None:
        """Stops reading while the handler has enough to do, or reads again."""
        self._is_full = is_full
        self._set_reading()

    def _set_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_congested or self._is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _split(self, data: bytes) -> list[bytes]:
        """The complete frames in `data`. The rest waits for more data."""
        frames: list[bytes] = []
        start, end = 0, len(data)
        needed = LENGTH.size
        while start + LENGTH.size <= end:
            (size,) = LENGTH.unpack_from(data, start)
            if size > self._max_frame_bytes:
                log.error("closing a connection that sent a frame that is too large", bytes=size)
                self.abort()
                return []
            needed = LENGTH.size + size
            if start + needed > end:
                break
            frames.append(data[start + LENGTH.size : start + needed])
            start += needed
            needed = LENGTH.size
        if start < end:
            self._incoming.append(data[start:])
            self._incoming_bytes = end - start
            self._incoming_needed = needed
        return frames

    def _enqueue(self, size: int, *parts: bytes) -> None:
        if self.is_closed:
            return
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing += parts
        self._outgoing_bytes += size

    def _flush(self) -> None:
        outgoing, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
        if outgoing and self._transport is not None and not self._transport.is_closing():
            self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))


@asynccontextmanager
async def serve_framed(path: Path, build_handler: HandlerBuilder, max_frame_bytes: int) -> AsyncIterator[None]:
    """Accept connections at `path`, replacing the socket of an earlier process. At the end, all are closed.

    The caller must be the only server of this path, for example because it holds a lock.
    """
    connections: set[FramedConnection] = set()

    def build_connection() -> FramedConnection:
        connections.difference_update([connection for connection in connections if connection.is_closed])
        connection = FramedConnection(build_handler, max_frame_bytes, is_accepted=True)
        connections.add(connection)
        return connection

    listener = _listen(path)
    server = await asyncio.get_running_loop().create_unix_server(build_connection, sock=listener)
    try:
        yield
    finally:
        _remove(path)
        server.close()
        await _close_all([connection for connection in connections if not connection.is_closed])


async def connect_framed(path: Path, build_handler: HandlerBuilder, max_frame_bytes: int) -> FramedConnection:
    """Connect to a server of `serve_framed`. Raises OSError."""
    loop = asyncio.get_running_loop()
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        with _short_address(path) as address:
            await loop.sock_connect(connected, address)
        if not _belongs_to_this_user(connected.fileno()):
            raise PermissionError(f"{path}: belongs to a process of another user")
        _, connection = await loop.create_unix_connection(
            lambda: FramedConnection(build_handler, max_frame_bytes, is_accepted=False),
            sock=connected,
        )
    except BaseException:
        connected.close()
        raise
    return connection


async def _close_all(connections: list[FramedConnection]) -> None:
    for connection in connections:
        connection.close()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            for connection in connections:
                await connection.wait_closed()
    except TimeoutError:
        for connection in connections:
            connection.abort()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        _remove(path)
        # Linux gives the mode of the unbound socket to the file, so it never has another one. Other systems need the
        # second call.
        os.fchmod(listener.fileno(), 0o600)
        with _short_address(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()


@contextmanager
def _short_address(path: Path) -> Iterator[str]:
    """An address of the path that fits into a Unix socket's: Linux can address a file by its opened folder."""
    if len(os.fsencode(path)) <= MAX_PATH_BYTES or sys.platform != "linux":
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _belongs_to_this_user(descriptor: int) -> bool:
    """Whether the other end belongs to this user. Only Linux tells; elsewhere, the mode of the file has to suffice."""
    if sys.platform != "linux":
        return True
    with socket.fromfd(descriptor, socket.AF_UNIX, socket.SOCK_STREAM) as connected:
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.geteuid())
