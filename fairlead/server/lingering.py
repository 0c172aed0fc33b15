"""Slow clients: whether one still takes in what is sent to it, and time for it to read to the end.

A body is given up when its client takes nothing for a while. That cannot be seen by what was handed over: on a slow
network megabytes wait in the kernel, which asks for more only when much of it has gone. But the kernel knows how much
has arrived.

The HTTP server closes a WebSocket's connection as soon as it has written the closing frame. What a slow client has not
read by then waits in the kernel, and whatever the client says afterwards, if only a ping, makes the kernel reset the
connection and drop it all: the end of a command's output. So a handle of our own is kept on the socket, with which it
stays open until the client has everything and leaves, or takes nothing for a while. `asgi.py` and `sockets.py` call.
"""

import asyncio
import fcntl
import socket
import sys
import termios
from contextlib import suppress

from fairlead.server.connections import hold

LOOK_SECONDS = 0.05
STALLED_LOOKS = 100
"""After so many looks at a client that has taken nothing it is given up: five seconds, as with other streams."""
LEAVE_SECONDS = 2.0
"""How long a client may take to leave that has everything."""


TAKING_LOOKS = 50
"""For so many looks it is waited whether a client takes in anything at all."""
_ACKNOWLEDGED = slice(120, 128)
"""Where Linux says in its `tcp_info` how many bytes have arrived in all."""


async def takes_something(client: str) -> bool:
    """Whether what is on its way to a client goes on arriving, if slowly."""
    connection = await hold(client)
    if connection is None:
        return False
    with connection:
        before = acknowledged(connection)
        for _ in range(TAKING_LOOKS if unacknowledged(connection) else 0):
            await asyncio.sleep(LOOK_SECONDS)
            if acknowledged(connection) != before:
                return True
    return False


def acknowledged(connection: socket.socket) -> int:
    """Bytes that the other side has taken in since the beginning."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.stop)
    except OSError:
        return 0
    return int.from_bytes(info[_ACKNOWLEDGED], sys.byteorder)


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
