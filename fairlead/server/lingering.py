"""Lets a WebSocket's client read all that was sent to it before its connection is closed.

The HTTP server closes a connection as soon as it has written the closing frame. What a slow client has not read by then
waits in the kernel, and whatever the client says afterwards, if only a ping, makes the kernel reset the connection and
drop it all: the end of a command's output. So a handle of our own is kept on the socket, with which it stays open until
the client has everything and leaves, or takes nothing for a while. `sockets.py` calls.
"""

import asyncio
import fcntl
import socket
import sys
import termios
from contextlib import suppress

LOOK_SECONDS = 0.05
STALLED_LOOKS = 100
"""After so many looks at a client that has taken nothing it is given up: five seconds, as with other streams."""
LEAVE_SECONDS = 2.0
"""How long a client may take to leave that has everything."""


async def linger(connection: socket.socket) -> None:
    """Takes the handle, and closes it in the end."""
    with connection:
        if await _has_taken_everything(connection):
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await _leave_together(connection)


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
