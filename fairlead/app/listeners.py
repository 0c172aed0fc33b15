"""The listening sockets of workers: one each, on the same port.

The kernel distributes new connections over the sockets that listen on a port (SO_REUSEPORT). The supervisor has them
open as well, so connections that a worker had not accepted when it died are not reset: they wait for its replacement.
One socket for all workers would not need that, but then the worker that wakes up first accepts nearly all connections
of a client that opens several.
"""

import socket

from fairlead.server.http.asgi import listen_error


def bind_listener(address: str, port: int) -> socket.socket:
    """A socket that is bound to the port. It gets connections when it listens. Raises StartError."""
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((address, port))
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise listen_error(address, port, error) from None
    return listener
