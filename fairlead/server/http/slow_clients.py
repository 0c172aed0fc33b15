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

from fairlead.server.http.disconnect import hold

LOOK_SECONDS = 0.25
STALLED_LOOKS = 20
"""Polls without progress after which a lingering client is disconnected: five seconds, as with other streams."""
LEAVE_SECONDS = 2.0
"""How long a client that has received everything may take to close the connection."""
LINGER_SECONDS = 60.0
"""Upper bound of the whole lingering close."""
MOST_LINGERING = 256
"""Connections that may linger at once. Beyond that, the HTTP server closes them immediately."""
TAKING_LOOKS = 10
"""Polls for the first acknowledged byte of a stalled client."""
LEAST_BYTES, LEAST_SECONDS = 16 * 1024, 30.0
"""A client must receive this many bytes of a stalled stream within this time."""

_ACKNOWLEDGED = slice(120, 128)
"""The position of `tcpi_bytes_acked` in Linux' `struct tcp_info`."""


class SlowClient:
    """Detects whether the client of one stream has stalled. Looks up its socket when the stream first stalls."""

    __slots__ = ("_at_first", "_client", "_connection", "_since")

    def __init__(self, client: str) -> None:
        self._client = client
        self._connection: socket.socket | None = None
        self._since: float | None = None
        self._at_first = 0

    async def takes_enough(self) -> bool:
        """Whether the client still receives data, if slowly. To be called while the stream is stalled."""
        if self._connection is None:
            self._connection = await hold(self._client)
        connection = self._connection
        if connection is None:
            return False
        before = acknowledged(connection)
        if not self._is_fast_enough(before):
            return False
        for _ in range(TAKING_LOOKS if unacknowledged(connection) else 0):
            await asyncio.sleep(LOOK_SECONDS)
            if acknowledged(connection) != before:
                return True
        return False

    def _is_fast_enough(self, taken: int) -> bool:
        now = asyncio.get_running_loop().time()
        if self._since is None or taken - self._at_first >= LEAST_BYTES:
            self._since, self._at_first = now, taken
        return now - self._since <= LEAST_SECONDS

    def go_on(self) -> None:
        """To be called when the stream is no longer stalled."""
        self._since = None

    def cut(self) -> bool:
        """Shuts down the connection. False if its socket was never looked up."""
        if self._connection is None:
            return False
        with suppress(OSError):  # already closed
            self._connection.shutdown(socket.SHUT_RDWR)
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def acknowledged(connection: socket.socket) -> int:
    """Bytes acknowledged by the peer since the connection was opened."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.stop)
    except OSError:
        return 0
    return int.from_bytes(info[_ACKNOWLEDGED], sys.byteorder)


_lingering = set[socket.socket]()


def can_linger() -> bool:
    return len(_lingering) < MOST_LINGERING


async def linger(connection: socket.socket) -> None:
    """Keeps a connection open until the client has received everything, then closes this socket."""
    with connection:
        if not can_linger():
            return
        _lingering.add(connection)
        try:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    if await _has_taken_everything(connection):
                        await asyncio.wait_for(_leave_together(connection), LEAVE_SECONDS)
        finally:
            _lingering.discard(connection)


async def _has_taken_everything(connection: socket.socket) -> bool:
    before, stalled_polls = sys.maxsize, 0
    while left := unacknowledged(connection):
        stalled_polls = stalled_polls + 1 if left >= before else 0
        if stalled_polls > STALLED_LOOKS:
            return False
        before = left
        await asyncio.sleep(LOOK_SECONDS)
    return True


async def _leave_together(connection: socket.socket) -> None:
    """Shuts down the write side and discards input until EOF. Unread input would cause a reset of the connection."""
    connection.setblocking(False)
    connection.shutdown(socket.SHUT_WR)
    while await asyncio.get_running_loop().sock_recv(connection, 65536):
        pass


def unacknowledged(connection: socket.socket) -> int:
    """Bytes in the send buffer that the peer has not acknowledged; 0 if the connection is closed."""
    value = bytearray(4)
    try:
        fcntl.ioctl(connection, termios.TIOCOUTQ, value)
    except OSError:
        return 0
    return int.from_bytes(value, sys.byteorder)
