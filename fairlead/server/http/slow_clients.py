"""Slow clients: detects whether a client still receives data, and delays the close of a WebSocket until it has.

Stall detection (`StallDetector`, used by `asgi.py` and `unsent.py`). A response is aborted when its client receives
nothing for a while. The progress of `send` does not show that: on a slow network, megabytes wait in the socket buffer,
and the kernel becomes writable only when much of it has drained. So we ask the kernel how many bytes were acknowledged.

Lingering close (`linger`, used by `websocket.py`). The HTTP server closes the connection of a WebSocket right after the
close frame. If the client then sends anything, if only a ping, the kernel resets the connection and discards the
unread data, such as the end of a command's output. So we keep a duplicate of the socket open until the client has
received everything and closes, or stalls.

Both are bounded: a client that receives a few bytes now and then is disconnected as well.
"""

import asyncio
import fcntl
import socket
import sys
import termios
from contextlib import suppress

from fairlead.server.http.disconnect import dup_connection

POLL_SECONDS = 0.25
MAX_STALLED_POLLS = 20
"""Polls without progress after which a lingering client is disconnected: five seconds, as with other streams."""
CLOSE_TIMEOUT = 2.0
"""How long a client that has received everything may take to close the connection."""
LINGER_TIMEOUT = 60.0
"""Upper bound of the whole lingering close."""
MAX_LINGERING = 256
"""Connections that may linger at once. Beyond that, the HTTP server closes them immediately."""
MAX_PROGRESS_POLLS = 10
"""Polls for the first acknowledged byte of a stalled client."""
MIN_PROGRESS_BYTES, PROGRESS_WINDOW_SECONDS = 16 * 1024, 30.0
"""A client must receive this many bytes of a stalled stream within this time."""

_BYTES_ACKED = slice(120, 128)
"""The position of `tcpi_bytes_acked` in Linux' `struct tcp_info`."""


class StallDetector:
    """Detects whether the client of one stream has stalled. Looks up its socket when the stream first stalls."""

    __slots__ = ("_acked_at_window_start", "_client", "_connection", "_window_start")

    def __init__(self, client: str) -> None:
        self._client = client
        self._connection: socket.socket | None = None
        self._window_start: float | None = None
        self._acked_at_window_start = 0

    async def is_making_progress(self) -> bool:
        """Whether the client still receives data, if slowly. To be called while the stream is stalled."""
        if self._connection is None:
            self._connection = await dup_connection(self._client)
        connection = self._connection
        if connection is None:
            return False
        before = bytes_acknowledged(connection)
        if not self._is_fast_enough(before):
            return False
        for _ in range(MAX_PROGRESS_POLLS if bytes_unacknowledged(connection) else 0):
            await asyncio.sleep(POLL_SECONDS)
            if bytes_acknowledged(connection) != before:
                return True
        return False

    def _is_fast_enough(self, acked: int) -> bool:
        now = asyncio.get_running_loop().time()
        if self._window_start is None or acked - self._acked_at_window_start >= MIN_PROGRESS_BYTES:
            self._window_start, self._acked_at_window_start = now, acked
        return now - self._window_start <= PROGRESS_WINDOW_SECONDS

    def reset(self) -> None:
        """To be called when the stream is no longer stalled."""
        self._window_start = None

    def shut_down(self) -> bool:
        """Shuts down the connection. False if its socket was never looked up."""
        if self._connection is None:
            return False
        with suppress(OSError):  # already closed
            self._connection.shutdown(socket.SHUT_RDWR)
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def bytes_acknowledged(connection: socket.socket) -> int:
    """Bytes acknowledged by the peer since the connection was opened."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.stop)
    except OSError:
        return 0
    return int.from_bytes(info[_BYTES_ACKED], sys.byteorder)


_lingering_sockets = set[socket.socket]()


def can_linger() -> bool:
    return len(_lingering_sockets) < MAX_LINGERING


async def linger(connection: socket.socket) -> None:
    """Keeps a connection open until the client has received everything, then closes this socket."""
    with connection:
        if not can_linger():
            return
        _lingering_sockets.add(connection)
        try:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(LINGER_TIMEOUT):
                    if await _wait_until_acknowledged(connection):
                        await asyncio.wait_for(_half_close_and_drain(connection), CLOSE_TIMEOUT)
        finally:
            _lingering_sockets.discard(connection)


async def _wait_until_acknowledged(connection: socket.socket) -> bool:
    before, stalled_polls = sys.maxsize, 0
    while left := bytes_unacknowledged(connection):
        stalled_polls = stalled_polls + 1 if left >= before else 0
        if stalled_polls > MAX_STALLED_POLLS:
            return False
        before = left
        await asyncio.sleep(POLL_SECONDS)
    return True


async def _half_close_and_drain(connection: socket.socket) -> None:
    """Shuts down the write side and discards input until EOF. Unread input would cause a reset of the connection."""
    connection.setblocking(False)
    connection.shutdown(socket.SHUT_WR)
    while await asyncio.get_running_loop().sock_recv(connection, 65536):
        pass


def bytes_unacknowledged(connection: socket.socket) -> int:
    """Bytes in the send buffer that the peer has not acknowledged; 0 if the connection is closed."""
    value = bytearray(4)
    try:
        fcntl.ioctl(connection, termios.TIOCOUTQ, value)
    except OSError:
        return 0
    return int.from_bytes(value, sys.byteorder)
