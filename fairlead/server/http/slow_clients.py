"""Slow clients: whether one still takes in what is sent to it, and time for it to read to the end.

A body is given up when its client takes nothing for a while. That cannot be seen by what was handed over: on a slow
network megabytes wait in the kernel, which asks for more only when much of it has gone. But the kernel knows how much
has arrived.

The HTTP server closes a WebSocket's connection as soon as it has written the closing frame. What a slow client has not
read by then waits in the kernel, and whatever the client says afterwards, if only a ping, makes the kernel reset the
connection and drop it all: the end of a command's output. So a handle of our own is kept on the socket, with which it
stays open until the client has everything and leaves, or takes nothing for a while. `asgi.py` and `websocket.py` call.

None of that goes on for ever: a client that takes a little now and then is given up, too.
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
"""After so many looks at a client that has taken nothing it is given up: five seconds, as with other streams."""
LEAVE_SECONDS = 2.0
"""How long a client may take to leave that has everything."""
LINGER_SECONDS = 60.0
"""How long it may take for all of it."""
MOST_LINGERING = 256
"""So many connections are kept open in this way at once. The next ones are closed as the HTTP server closes them."""
TAKING_LOOKS = 10
"""For so many looks it is waited whether a client takes in anything at all."""
LEAST_BYTES, LEAST_SECONDS = 16 * 1024, 30.0
"""A client has to take in so much of a stream that has stalled in so much time."""

_ACKNOWLEDGED = slice(120, 128)
"""Where Linux says in its `tcp_info` how many bytes have arrived in all."""


class SlowClient:
    """The client of one stream. Its connection is found once, when the stream stalls for the first time."""

    __slots__ = ("_at_first", "_client", "_connection", "_since")

    def __init__(self, client: str) -> None:
        self._client = client
        self._connection: socket.socket | None = None
        self._since: float | None = None
        self._at_first = 0

    async def takes_enough(self) -> bool:
        """Whether what is on its way to the client goes on arriving, if slowly. Call it while the stream stalls."""
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
        """The stream does not stall any longer."""
        self._since = None

    def cut(self) -> bool:
        """Cuts the connection, if it was found before."""
        if self._connection is None:
            return False
        with suppress(OSError):  # it is gone already
            self._connection.shutdown(socket.SHUT_RDWR)
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def acknowledged(connection: socket.socket) -> int:
    """Bytes that the other side has taken in since the beginning."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.stop)
    except OSError:
        return 0
    return int.from_bytes(info[_ACKNOWLEDGED], sys.byteorder)


_lingering = set[socket.socket]()


def can_linger() -> bool:
    return len(_lingering) < MOST_LINGERING


async def linger(connection: socket.socket) -> None:
    """Takes the handle, and closes it in the end."""
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
    before, looks = sys.maxsize, 0
    while left := unacknowledged(connection):
        looks = looks + 1 if left >= before else 0
        if looks > STALLED_LOOKS:
            return False
        before = left
        await asyncio.sleep(LOOK_SECONDS)
    return True


async def _leave_together(connection: socket.socket) -> None:
    """Reads what nobody wants to know any more, to the end: unread, it would be a reason to reset the connection."""
    connection.setblocking(False)
    connection.shutdown(socket.SHUT_WR)
    while await asyncio.get_running_loop().sock_recv(connection, 65536):
        pass


def unacknowledged(connection: socket.socket) -> int:
    """Bytes that the other side has not taken in yet; none where the connection is gone."""
    counted = bytearray(4)
    try:
        fcntl.ioctl(connection, termios.TIOCOUTQ, counted)
    except OSError:
        return 0
    return int.from_bytes(counted, sys.byteorder)
