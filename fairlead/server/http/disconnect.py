"""Ends clients' connections under the HTTP server.

The HTTP server has no way to say that an answer broke off: whatever has been sent is closed properly, and the client
takes half an object for a whole one. So the connection itself is cut, which no client can mistake. The server's socket
is found among the descriptors of this process by the other side's address.

All descriptors have to be looked at for that, and where a cluster dies, or a key is revoked, many connections end at
once. So what is to be cut is gathered during one turn of the event loop, and looked for once. Handles can wait:
another thread looks for them, for all that want one by then.
"""

import asyncio
import os
import socket
from collections.abc import Collection
from contextlib import suppress
from weakref import WeakKeyDictionary

DESCRIPTORS = "/proc/self/fd"

_gathered: WeakKeyDictionary[asyncio.AbstractEventLoop, set[str]] = WeakKeyDictionary()
_wanted: WeakKeyDictionary[asyncio.AbstractEventLoop, "Wanted"] = WeakKeyDictionary()
_finding: WeakKeyDictionary[asyncio.AbstractEventLoop, "asyncio.Task[None]"] = WeakKeyDictionary()

Handle = asyncio.Future[socket.socket | None]
Wanted = dict[str, list[Handle]]
"""By client: many streams may share the connection of one, and each gets a handle of its own."""


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
    handle: Handle = loop.create_future()
    _wanted.setdefault(loop, {}).setdefault(client, []).append(handle)
    if loop not in _finding:
        _finding[loop] = loop.create_task(_find_wanted(loop))
    try:
        return await handle
    except asyncio.CancelledError:
        if not handle.cancelled() and (late := handle.result()) is not None:
            late.close()
        raise


async def _find_wanted(loop: asyncio.AbstractEventLoop) -> None:
    try:
        while wanted := _wanted.pop(loop, None):
            _hand_out(wanted, await asyncio.to_thread(_connections_to, list(wanted)))
    finally:
        del _finding[loop]


def _hand_out(wanted: Wanted, found: Collection[socket.socket]) -> None:
    for connection in found:
        with connection, suppress(OSError):  # no descriptor is left for a handle
            for handle in wanted.get(_peer(connection) or "", ()):
                if not handle.done():
                    handle.set_result(connection.dup())
    for handle in (each for handles in wanted.values() for each in handles):
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
    try:
        descriptors = os.listdir(DESCRIPTORS)
    except OSError:  # there is no such folder here, or no descriptor is left to read it with
        return []
    sought, found = frozenset(clients), dict[int, socket.socket]()
    for descriptor in map(int, descriptors):
        # A number in the list is free again by now: that of the folder itself. A handle of ours may have got it.
        if descriptor not in found and (connection := _connection_to(sought, descriptor)) is not None:
            found[connection.fileno()] = connection
    return list(found.values())


def _connection_to(clients: frozenset[str], descriptor: int) -> socket.socket | None:
    """A handle of our own on a socket, if it leads to one of the clients."""
    if _peer_at(descriptor) not in clients:
        return None
    try:
        connection = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # closed meanwhile
        return None
    if _peer(connection) in clients:
        return connection
    connection.close()  # the number has become another's
    return None


def _peer_at(descriptor: int) -> str | None:
    """Asks without a handle of our own, which takes far longer to make than to use; most descriptors are others'."""
    try:
        # The family only says how much room there is for an address, and that of Unix has the longest.
        looked_at = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=descriptor)
    except OSError:  # no socket
        return None
    try:
        return _peer(looked_at)
    finally:
        looked_at.detach()


def _peer(connection: socket.socket) -> str | None:
    """None where there is nobody to be named: that is never a client, whatever clients are called."""
    try:
        address = connection.getpeername()
    except OSError:  # it listens, or is gone
        return None
    if not isinstance(address, tuple) or not isinstance(address[0], str):
        return None  # not of the internet
    host, port, *_ = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
