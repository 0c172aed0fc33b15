"""The port of the server, and the listening sockets of its workers: one each, on the same port.

The kernel distributes new connections over the sockets that listen on a port (SO_REUSEPORT). The supervisor has them
open as well, so connections that a worker had not accepted when it died are not reset: they wait for its replacement.
One socket for all workers would not need that, but then the worker that wakes up first accepts nearly all connections
of a client that opens several.
"""

import socket

from fairlead.server.http.asgi import free_port
from fairlead.settings import Settings, StartError


def choose_port(settings: Settings) -> int:
    """The port to listen on. Raises StartError if it is in use."""
    try:
        return free_port(settings.listen, settings.port)
    except OSError as error:
        raise _listen_error(settings.listen, settings.port, error) from None


def bind_listener(address: str, port: int) -> socket.socket:
    """A socket that is bound to the port, but does not listen yet: only then does it get connections."""
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((address, port))
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _listen_error(address, port, error) from None
    return listener


def _listen_error(address: str, port: int, error: OSError) -> StartError:
    return StartError(f"cannot listen on {address} port {port}: {error.strerror}; choose another with --port")
