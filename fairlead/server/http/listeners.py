"""Ports and listening sockets.

With several workers, each has a listening socket on the same port, and the kernel distributes new connections over
them (SO_REUSEPORT). The supervisor has the sockets open as well, so connections that a worker had not accepted when it
died are not reset: they wait for its replacement. One socket for all workers would not need that, but then the worker
that wakes up first accepts nearly all connections of a client that opens several.
"""

import errno
import socket

from fairlead.settings import StartError


def free_port(address: str, port: int) -> int:
    """Returns the port to bind, raising StartError if it is in use: with SO_REUSEPORT, it would be shared."""
    try:
        return _bind_once(address, port)
    except OSError as error:
        raise _listen_error(address, port, error) from None


def _bind_once(address: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
        bound: int = probe.getsockname()[1]
        return bound


def bind_listener(address: str, port: int) -> socket.socket:
    """A socket that is bound to the port. It gets connections when it listens. Raises StartError."""
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted connections inherit it
        listener.bind((address, port))
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _listen_error(address, port, error) from None
    return listener


def open_listener(address: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens on the port.

    One that is only bound does not reserve it: with SO_REUSEADDR, processes of other users can bind it and listen.
    Raises StartError.
    """
    listener = bind_listener(address, port)
    try:
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise _listen_error(address, port, error) from None
    return listener


def _listen_error(address: str, port: int, error: OSError) -> StartError:
    is_foreign = error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror)
    advice = (
        "use an address of this machine with --listen or FAIRLEAD_LISTEN, or 0.0.0.0 for all of them"
        if is_foreign
        else "choose another with --port"
    )
    return StartError(f"cannot listen on {address} port {port}: {error.strerror}; {advice}")
