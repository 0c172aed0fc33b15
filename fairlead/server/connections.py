"""Ends clients' connections under the HTTP server.

The HTTP server has no way to say that an answer broke off: whatever has been sent is closed properly, and the client
takes half an object for a whole one. So the connection itself is cut, which no client can mistake. The server's socket
is found among the descriptors of this process by the other side's address.

All descriptors have to be looked at for that, and where a cluster dies, or a key is revoked, many connections end at
once. So what is to be cut is gathered during one turn of the event loop, and looked for once.
"""

import asyncio
import os
import socket
import stat
from collections.abc import Collection
from contextlib import suppress
from weakref import WeakKeyDictionary

DESCRIPTORS = "/proc/self/fd"

_gathered: WeakKeyDictionary[asyncio.AbstractEventLoop, set[str]] = WeakKeyDictionary()
_wanted: WeakKeyDictionary[asyncio.AbstractEventLoop, "dict[str, Handle]"] = WeakKeyDictionary()

Handle = asyncio.Future[socket.socket | None]


def sever(client: str) -> None:
    """Cuts the connection to a client, given as `address:port`, before anything that is begun after this call."""
    loop = asyncio.get_running_loop()
    clients = _gathered.setdefault(loop, set())
    if not clients:
        loop.call_soon(_cut_gathered, loop)
    clients.add(client)


def _cut_gathered(loop: asyncio.AbstractEventLoop) -> None:
    cut(_gathered.pop(loop))


async def hold(client: str) -> socket.socket | None:
    """A handle of our own on the connection to a client, which stays open until it is closed: None where it is gone."""
    loop = asyncio.get_running_loop()
    wanted = _wanted.setdefault(loop, {})
    if not wanted:
        loop.call_soon(_find_wanted, loop)
    if client not in wanted:
        wanted[client] = loop.create_future()
    return await wanted[client]


def _find_wanted(loop: asyncio.AbstractEventLoop) -> None:
    wanted = _wanted.pop(loop)
    for connection in _connections_to(wanted):
        handle = wanted.get(_peer(connection) or "")
        if handle is None or handle.done():
            connection.close()
        else:
            handle.set_result(connection)
    for handle in wanted.values():
        if not handle.done():
            handle.set_result(None)


def cut(clients: Collection[str]) -> int:
    """Cuts the connections to clients, and says how many there were: none where nobody tells of descriptors."""
    found = _connections_to(clients)
    for connection in found:
        with connection, suppress(OSError):  # it is gone already
            connection.shutdown(socket.SHUT_RDWR)
    return len(found)


def _connections_to(clients: Collection[str]) -> list[socket.socket]:
    if not os.path.isdir(DESCRIPTORS):
        return []
    return [each for name in os.listdir(DESCRIPTORS) if (each := _connection_to(clients, int(name)))]


def _connection_to(clients: Collection[str], descriptor: int) -> socket.socket | None:
    """A handle of our own on a socket, if it leads to one of the clients."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        connection = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # closed meanwhile
        return None
    peer = _peer(connection)
    if peer is not None and peer in clients:
        return connection
    connection.close()
    return None


def _peer(connection: socket.socket) -> str | None:
    """None where there is nobody to be named: that is never a client, whatever clients are called."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        host, port, *_ = connection.getpeername()
    except OSError:  # it listens, or is gone
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
