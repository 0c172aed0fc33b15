"""Links over TLS, between replicas: a listener with bounded handshakes, and the other end.

    async with serve_tls(listener, find_context, on_connect): ...
    transport = await connect_tls(("10.0.0.7", 8444), context, "name.in.the.certificate", seconds=2)

The frames are those of `core/framed_socket.py`, as over a Unix socket. Who the other end is, the TLS contexts decide;
with `CERT_REQUIRED`, a connection without an acceptable certificate never reaches `on_connect`.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import structlog

from fairlead.core.errors import ApiError
from fairlead.core.framed_socket import FramedConnection
from fairlead.core.waiting import background_task, end_tasks
from fairlead.links.frames import MAX_FRAME_BYTES
from fairlead.links.sockets import SocketTransport

HANDSHAKE_SECONDS = 3.0
MAX_HANDSHAKES = 32
"""Handshakes at a time: unauthenticated peers must not use more than that."""
PROTECTED_SECONDS = 0.25
"""When there is no place, a further connection takes that of the oldest handshake from the busiest address: at once if
it is from another address, else if that handshake is older than this. So clients that do not go on keep no one else
from connecting, and those that connect again and again cost little: their connections are closed at once."""
MAX_CONNECTIONS = 1024
ACCEPT_RETRY_SECONDS = 0.5

log = structlog.get_logger(__name__)

FindContext = Callable[[], Awaitable[ssl.SSLContext]]


class TlsError(Exception):
    """No connection, or not with the process that was expected."""


@dataclass(frozen=True, slots=True)
class TlsLimits:
    handshakes: int = MAX_HANDSHAKES
    connections: int = MAX_CONNECTIONS
    handshake_seconds: float = HANDSHAKE_SECONDS


async def connect_tls(address: tuple[str, int], context: ssl.SSLContext, name: str, seconds: float) -> SocketTransport:
    """A connection to the process whose certificate has this name. Raises TlsError."""
    loop = asyncio.get_running_loop()
    transports = list[SocketTransport]()
    try:
        async with asyncio.timeout(seconds):
            raw, _ = await loop.create_connection(
                lambda: _new_connection(transports, is_accepted=False), *address, ssl=context, server_hostname=name
            )
    except OSError as error:  # also TimeoutError and SSLError
        raise TlsError(error.strerror or type(error).__name__) from None  # its text would contain the address
    _set_options(raw)
    return transports[0]


@asynccontextmanager
async def serve_tls(
    listener: socket.socket,
    find_context: FindContext,
    on_connect: Callable[[SocketTransport], None],
    limits: TlsLimits | None = None,
) -> AsyncIterator[None]:
    """Accepts connections while the context is open; `find_context` is called for each. Closes `listener`."""
    server = _TlsServer(listener, find_context, on_connect, limits or TlsLimits())
    try:
        async with background_task(server.run()):
            yield
    finally:
        listener.close()
        await server.close()


class _TlsServer:
    def __init__(
        self,
        listener: socket.socket,
        find_context: FindContext,
        on_connect: Callable[[SocketTransport], None],
        limits: TlsLimits,
    ) -> None:
        self._listener = listener
        self._find_context = find_context
        self._on_connect = on_connect
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], tuple[str, float]] = {}
        """With the address of the other end, and when it began; the oldest first."""
        self._connections: set[asyncio.BaseTransport] = set()

    async def run(self) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(self._listener)
            except OSError as error:  # too many open files, for example
                log.warning("cannot accept a connection", reason=str(error))
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            self._connections = {each for each in self._connections if not each.is_closing()}
            if len(self._connections) >= self._limits.connections:
                accepted.close()
                continue
            host = str(address[0])
            if len(self._handshakes) >= self._limits.handshakes and not self._make_room(host):
                accepted.close()
                continue
            task = asyncio.create_task(self._shake_hands(accepted))
            self._handshakes[task] = (host, self._loop.time())
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    def _make_room(self, newcomer: str) -> bool:
        """Ends a handshake for one of another client. Returns False if all have to be left alone."""
        counts = Counter(host for host, _ in self._handshakes.values())
        (busiest, count), *_ = counts.most_common(1)
        oldest, began = next((task, began) for task, (host, began) in self._handshakes.items() if host == busiest)
        is_for_another = newcomer not in counts and count > 1
        if not is_for_another and self._loop.time() - began < PROTECTED_SECONDS:
            return False
        del self._handshakes[oldest]
        oldest.cancel()
        return True

    async def close(self) -> None:
        await end_tasks(*self._handshakes)
        for connection in self._connections:
            connection.close()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        transports: list[SocketTransport] = []
        try:
            async with asyncio.timeout(self._limits.handshake_seconds):
                context = await self._find_context()
                raw, _ = await self._loop.connect_accepted_socket(
                    lambda: _new_connection(transports, is_accepted=True),
                    accepted,
                    ssl=context,
                )
        except (OSError, ApiError) as error:  # TimeoutError and SSLError are OSErrors
            log.info("a TLS connection was rejected", reason=str(error) or type(error).__name__)
            with suppress(OSError):
                accepted.close()
            return
        except asyncio.CancelledError:
            accepted.close()
            raise
        _set_options(raw)
        self._connections.add(raw)
        self._on_connect(transports[0])


def _new_connection(transports: list[SocketTransport], *, is_accepted: bool) -> FramedConnection:
    def build_handler(connection: FramedConnection) -> SocketTransport:
        transports.append(SocketTransport(connection))
        return transports[0]

    return FramedConnection(build_handler, MAX_FRAME_BYTES, is_accepted=is_accepted, is_local=False)


def _set_options(raw: asyncio.BaseTransport) -> None:
    connected = raw.get_extra_info("socket")
    with suppress(OSError):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
