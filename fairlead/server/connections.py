"""Ends a client's connection under the HTTP server.

The HTTP server has no way to say that an answer broke off: whatever has been sent is closed properly, and the client
takes half an object for a whole one. So the connection itself is cut, which no client can mistake. The server's socket
is found among the descriptors of this process by the other side's address.
"""

import os
import socket
import stat
from contextlib import suppress

DESCRIPTORS = "/proc/self/fd"


def sever(client: str) -> bool:
    """Cuts the connection to a client, given as `address:port`. False if there is none, or nobody tells of it here."""
    if not os.path.isdir(DESCRIPTORS):
        return False
    found = [connection for name in os.listdir(DESCRIPTORS) if (connection := _connection_to(client, int(name)))]
    for connection in found:
        with connection, suppress(OSError):  # it is gone already
            connection.shutdown(socket.SHUT_RDWR)
    return bool(found)


def _connection_to(client: str, descriptor: int) -> socket.socket | None:
    """A handle of our own on a socket, if it leads to the client."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        connection = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # closed meanwhile
        return None
    if _peer(connection) == client:
        return connection
    connection.close()
    return None


def _peer(connection: socket.socket) -> str:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return ""
    try:
        host, port, *_ = connection.getpeername()
    except OSError:  # it listens, or is gone
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
