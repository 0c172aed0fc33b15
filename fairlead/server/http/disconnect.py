"""Closes client connections below the HTTP server, at the socket.

The HTTP server offers no way to abort a response: it terminates the body properly, and the client takes a truncated
object for a complete one. Shutting down the TCP connection is unambiguous. We find the socket among the file
descriptors of this process, by the address of its peer.

That is a scan of all descriptors, and many connections may end at once, for example when a cluster goes down or a key
is revoked. So all closes requested in one iteration of the event loop share one scan. Lookups that only need a
duplicate of the socket (`dup_connection`) are batched as well, and run in a thread.
"""

import asyncio
import os
import socket
from collections.abc import Collection
from contextlib import suppress
from weakref import WeakKeyDictionary

DESCRIPTOR_DIRECTORY = "/proc/self/fd"

_pending_closes: WeakKeyDictionary[asyncio.AbstractEventLoop, set[str]] = WeakKeyDictionary()
_pending_lookups: WeakKeyDictionary[asyncio.AbstractEventLoop, "PendingLookups"] = WeakKeyDictionary()
_lookup_tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, "asyncio.Task[None]"] = WeakKeyDictionary()

SocketFuture = asyncio.Future[socket.socket | None]
PendingLookups = dict[str, list[SocketFuture]]
"""By client. Several HTTP/2 streams may share a connection, and each gets its own duplicate of the socket."""


def close_connection(client: str) -> None:
    """Closes the connection to a client (`address:port`) in the next iteration of the event loop."""
    loop = asyncio.get_running_loop()
    clients = _pending_closes.setdefault(loop, set())
    if not clients:
        loop.call_soon(_run_pending_closes, loop)
    clients.add(client)


def _run_pending_closes(loop: asyncio.AbstractEventLoop) -> None:
    close_connections(_pending_closes.pop(loop))


async def dup_connection(client: str) -> socket.socket | None:
    """Duplicates the socket of a client's connection; the caller closes it. None if the client has disconnected."""
    loop = asyncio.get_running_loop()
    handle: SocketFuture = loop.create_future()
    _pending_lookups.setdefault(loop, {}).setdefault(client, []).append(handle)
    if loop not in _lookup_tasks:
        _lookup_tasks[loop] = loop.create_task(_run_lookups(loop))
    try:
        return await handle
    except asyncio.CancelledError:
        if not handle.cancelled() and (late := handle.result()) is not None:
            late.close()
        raise


async def _run_lookups(loop: asyncio.AbstractEventLoop) -> None:
    try:
        while wanted := _pending_lookups.pop(loop, None):
            _resolve_lookups(wanted, await asyncio.to_thread(_dup_connections, list(wanted)))
    finally:
        del _lookup_tasks[loop]


def _resolve_lookups(lookups: PendingLookups, connections: Collection[socket.socket]) -> None:
    for connection in connections:
        with connection, suppress(OSError):  # out of file descriptors
            for handle in lookups.get(peer_address(connection) or "", ()):
                if not handle.done():
                    # Not `connection.dup()`, which makes the connection itself blocking: then the HTTP server waits in
                    # a write until this client reads, and no other client is served.
                    handle.set_result(socket.socket(fileno=os.dup(connection.fileno())))
    for handle in (handle for handles in lookups.values() for handle in handles):
        if not handle.done():
            handle.set_result(None)


async def find_descriptor(client: str) -> int | None:
    """The descriptor of a client's connection. It is valid until the HTTP server closes the connection."""
    found = await asyncio.to_thread(_find_descriptors, client)
    return found[0] if found else None


def _find_descriptors(client: str) -> list[int]:
    try:
        descriptors = os.listdir(DESCRIPTOR_DIRECTORY)
    except OSError:
        return []
    return [each for each in map(int, descriptors) if _peer_of_descriptor(each) == client]


def close_connections(clients: Collection[str]) -> int:
    """Closes the connections to clients and returns how many were found. Always 0 on systems without /proc."""
    found = _dup_connections(clients)
    for connection in found:
        with connection, suppress(OSError):  # already closed
            connection.shutdown(socket.SHUT_RDWR)
    return len(found)


def _dup_connections(clients: Collection[str]) -> list[socket.socket]:
    try:
        descriptors = os.listdir(DESCRIPTOR_DIRECTORY)
    except OSError:  # no /proc on this system, or out of file descriptors
        return []
    peers = frozenset(clients)
    found = dict[int, socket.socket]()
    for descriptor in map(int, descriptors):
        # The descriptor that listdir used is in the list, and one of our duplicates may have reused its number.
        if descriptor not in found and (connection := _dup_if_client(peers, descriptor)) is not None:
            found[connection.fileno()] = connection
    return list(found.values())


def _dup_if_client(clients: frozenset[str], descriptor: int) -> socket.socket | None:
    """A duplicate of a socket, if its peer is one of the clients."""
    if _peer_of_descriptor(descriptor) not in clients:
        return None
    try:
        connection = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # closed in the meantime
        return None
    if peer_address(connection) in clients:
        return connection
    connection.close()  # the descriptor number was reused
    return None


def _peer_of_descriptor(descriptor: int) -> str | None:
    """The peer of a descriptor, without a dup, which would dominate the cost: most descriptors are not clients."""
    try:
        # The family only determines the size of the address buffer; AF_UNIX has the largest.
        borrowed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=descriptor)
    except OSError:  # not a socket
        return None
    try:
        return peer_address(borrowed)
    finally:
        borrowed.detach()


def peer_address(connection: socket.socket) -> str | None:
    """The peer as `address:port`. None if the socket has no peer, or one that is not an Internet address."""
    try:
        address = connection.getpeername()
    except OSError:  # a listening or closed socket
        return None
    if not isinstance(address, tuple) or not isinstance(address[0], str):
        return None  # not AF_INET or AF_INET6
    host, port, *_ = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
