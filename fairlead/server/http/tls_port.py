"""Ports on which clients authenticate with certificates.

granian verifies client certificates, but does not tell the application about them. So these ports terminate TLS here,
with OpenSSL, and relay the decrypted bytes to a second listener of granian: a Unix socket that only this user can
connect to. `ClientConnections` describes how a request finds the certificate of its connection. Requests are parsed
by the same HTTP server as on the main port, so everything works as it does there: watches, WebSockets, limits.

The accept loop is ours as well. So a new certificate is used by the next connection, and nothing is restarted. When the
CAs change, connections whose certificate none of them has issued are closed.

Each worker has its own listening socket on the port. Bounds: handshakes, their duration, connections, and
what is buffered for a connection. The HTTP server bounds headers and slow requests.

Connections that have not authenticated cost memory, and a client can open them for free. Two limits apply to the
handshakes that are under way:

- Per network of the client, so that one site cannot take the place of all others. Behind a load balancer with the PROXY
  protocol, the client is known once the header has been read.
- In total.

At a limit, the oldest handshake of the network, or of all, is cancelled: connections that send nothing cannot close the
port to others behind the same address, and a handshake that makes progress ends long before dozens of others have
begun.
"""

import asyncio
import ipaddress
import itertools
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import structlog
from cryptography import x509

from fairlead.core.call import TlsPeer
from fairlead.core.waiting import end_tasks
from fairlead.server.http.origins import ClientConnection, ClientConnections
from fairlead.server.http.proxy_protocol import ProxyHeaderError, read_proxy_header
from fairlead.server.http.tls_context import TrustFiles, build_tls_context, is_issued, read_peer

MAX_HANDSHAKES, MAX_HANDSHAKES_PER_NETWORK = 512, 64


class Handshakes:
    """The tasks of handshakes, the oldest first. `on_evict` is called for each one that has to make room."""

    def __init__(self, on_evict: Callable[[], None]) -> None:
        self._networks: dict[asyncio.Task[None], str] = {}
        """The network of the client; empty as long as it is not known."""
        self._tasks: dict[str, dict[asyncio.Task[None], None]] = {}
        """The tasks of each network; none is empty."""
        self._on_evict = on_evict

    def begin(self, task: "asyncio.Task[None]") -> None:
        """Counts a handshake, and cancels the oldest one if there are too many."""
        if len(self._networks) >= MAX_HANDSHAKES:
            self._evict(next(iter(self._networks)))
        self._networks[task] = ""

    def assign(self, task: "asyncio.Task[None]", host: str) -> None:
        """Counts the handshake for the network of this address, its client's. At the limit, the oldest one ends."""
        if task not in self._networks:
            return
        network = network_of(host)
        others = self._tasks.get(network, {})
        if len(others) >= MAX_HANDSHAKES_PER_NETWORK:
            self._evict(next(iter(others)))
        self._networks[task] = network
        self._tasks.setdefault(network, {})[task] = None

    def cancel_all(self) -> None:
        for task in list(self._networks):
            self.end(task)
            task.cancel()

    def _evict(self, task: "asyncio.Task[None]") -> None:
        self.end(task)
        task.cancel()
        self._on_evict()

    def end(self, task: "asyncio.Task[None]") -> None:
        """Does nothing if the handshake has ended before."""
        network = self._networks.pop(task, "")
        if network:
            del self._tasks[network][task]
            if not self._tasks[network]:
                del self._tasks[network]


def network_of(host: str) -> str:
    """An IPv4 address itself, and the /64 of an IPv6 address, which one client has to itself."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return host


BUFFER_BYTES = 64 * 1024
"""Bytes that wait for a side that does not read. Beyond that, nothing more is read from the other one."""


class RelaySide(asyncio.Protocol):
    """One side of a relayed connection. It reads nothing before it is connected to the other side.

    Each side stops to read while the other one does not take more. When one side ends, the other one is closed after
    what has arrived was sent.
    """

    __slots__ = ("_other", "closed", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._other: RelaySide | None = None
        self.closed = asyncio.Event()

    def connect(self, other: "RelaySide") -> None:
        """Begins to copy in this direction."""
        self._other = other
        if self.closed.is_set() and other.transport is not None:  # it has ended before there was another side
            other.transport.close()
        elif self.transport is not None:
            self.transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self._other is not None and self._other.transport is not None:
            self._other.transport.write(data)

    def pause_writing(self) -> None:
        if (source := self._source()) is not None:
            source.pause_reading()

    def resume_writing(self) -> None:
        if (source := self._source()) is not None:
            source.resume_reading()

    def eof_received(self) -> bool:
        return False  # TLS connections cannot be closed in one direction only

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()
        if (source := self._source()) is not None:
            source.close()

    def _source(self) -> asyncio.Transport | None:
        other = self._other
        return None if other is None or other.closed.is_set() else other.transport


BACKLOG = 1024
HANDSHAKE_SECONDS, SHUTDOWN_SECONDS = 10.0, 30.0
"""How long a client may take for the handshake, and to read what was sent before its connection is closed."""
MAX_CONNECTIONS = 8_192
ACCEPT_RETRY_SECONDS = 0.1
"""How long the accept loop waits when there are too many connections, or no file descriptors."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TlsPortOptions:
    """What the certificates on a port are for, and whether connections need one.

    `is_proxy` says which peers are load balancers that begin connections with a PROXY protocol header; None if the
    port does not use it.
    """

    purpose: str
    is_required: bool
    is_proxy: Callable[[str], bool] | None = None


class UnixBackend:
    """Connections to the Unix socket of the HTTP server. `folder` must be private; it holds the sockets."""

    def __init__(self, folder: Path) -> None:
        self.connections = ClientConnections()
        self._folder = os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC)
        self._names = (f"{os.getpid()}.{secrets.token_hex(8)}.{number}" for number in itertools.count())
        _remove_stale_sockets(folder)
        # The path of a Unix socket may have 107 bytes. Relative to a descriptor, the path of the folder does not count.
        self._prefix = f"/proc/self/fd/{self._folder}"
        self._address = f"{self._prefix}/{os.getpid()}.http"

    def listen(self, backlog: int) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with suppress(FileNotFoundError):
            os.unlink(self._address)
        listener.bind(self._address)
        os.chmod(self._address, 0o600)
        listener.listen(backlog)
        listener.setblocking(False)
        return listener

    async def connect(self, side: RelaySide, connection: ClientConnection) -> str:
        """Connects to the HTTP server. Returns the address under which it knows the connection."""
        loop = asyncio.get_running_loop()
        address = f"{self._prefix}/{next(self._names)}"
        backend = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        backend.setblocking(False)
        self.connections[address] = connection
        try:
            backend.bind(address)
            try:
                await loop.sock_connect(backend, self._address)
            finally:
                os.unlink(address)
            await loop.create_unix_connection(lambda: side, sock=backend)
        except BaseException:
            backend.close()
            self.forget(address)
            raise
        return address

    def forget(self, address: str) -> None:
        self.connections.pop(address, None)

    def close(self) -> None:
        with suppress(OSError):
            os.unlink(self._address)
        os.close(self._folder)


class TlsPort:
    """Accepts and relays the connections of one port. `on_evict` is called for handshakes that have to make room."""

    def __init__(
        self,
        options: TlsPortOptions,
        backend: UnixBackend,
        files: TrustFiles,
        on_evict: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._backend = backend
        self._files = files
        self._context = build_tls_context(files, options.is_required)
        self._relays: dict[RelaySide, bytes] = {}
        self._handshakes = Handshakes(on_evict)
        self._tasks = set[asyncio.Task[None]]()

    @property
    def files(self) -> TrustFiles:
        """The files that new connections use."""
        return self._files

    async def replace(self, files: TrustFiles) -> None:
        """Uses these files for new connections, and closes those whose certificate is not trusted any more.

        None is closed unless a CA was removed. Then handshakes under way end as well: they use the former CAs.
        """
        self._context = build_tls_context(files, self._options.is_required)
        former, self._files = self._files, files
        authorities = files.authority_certificates
        if former.authority_certificates <= authorities:
            return
        self._handshakes.cancel_all()
        for side, certificate in list(self._relays.items()):
            is_trusted = not certificate or is_issued(x509.load_der_x509_certificate(certificate), authorities)
            if not is_trusted and side.transport is not None:
                side.transport.abort()

    async def accept(self, listener: socket.socket) -> None:
        """Accepts connections until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if len(self._relays) >= MAX_CONNECTIONS:
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("cannot accept a connection", error=str(error))
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            task = loop.create_task(self._serve(connection, address[0], address[1]))
            self._handshakes.begin(task)
            if self._options.is_proxy is None:
                self._handshakes.assign(task, address[0])
            self._tasks.add(task)
            task.add_done_callback(partial(self._forget, connection))

    def _forget(self, connection: socket.socket, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._handshakes.end(task)
        if task.cancelled():  # maybe before it has begun
            connection.close()

    async def close(self, seconds: float) -> None:
        """Waits until the connections have ended, at most so long, and closes the others."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for side in self._relays:
            if side.transport is not None:
                side.transport.abort()
        await end_tasks(*self._tasks)

    async def _serve(self, connection: socket.socket, host: str, port: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        opened = await self._open(task, connection, host, port)
        self._handshakes.end(task)
        if opened is None:
            return
        side, address = opened
        try:
            await side.closed.wait()
        finally:
            self._relays.pop(side, None)
            self._backend.forget(address)

    async def _open(
        self, task: "asyncio.Task[None]", connection: socket.socket, host: str, port: int
    ) -> tuple[RelaySide, str] | None:
        """The TLS handshake, and the connection to the HTTP server. None if the client is refused."""
        front = RelaySide()
        back = RelaySide()
        try:
            async with asyncio.timeout(2 * HANDSHAKE_SECONDS):
                source = await self._read_source(task, connection, host)
                transport = await self._shake_hands(connection, front)
                certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
                peer = self._read_peer(certificate, host)
                address = await self._backend.connect(back, ClientConnection(host, port, source, peer))
        except BaseException as error:
            for side in (front, back):
                if side.transport is not None:
                    side.transport.abort()
            connection.close()
            if not isinstance(error, _REFUSALS):
                raise
            log.debug("a connection was refused", client=host, reason=str(error))
            return None
        self._relays[front] = certificate
        back.connect(front)
        front.connect(back)
        return front, address

    async def _read_source(self, task: "asyncio.Task[None]", connection: socket.socket, host: str) -> str | None:
        """The client that a load balancer names; None if the port does not use the PROXY protocol."""
        if self._options.is_proxy is None:
            return None
        if not self._options.is_proxy(host):
            raise ProxyHeaderError("the peer is not one of the load balancers that this port is for")
        source = await read_proxy_header(connection, HANDSHAKE_SECONDS)
        self._handshakes.assign(task, source or host)
        return source

    async def _shake_hands(self, connection: socket.socket, side: RelaySide) -> asyncio.Transport:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: side,
            connection,
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
        return transport

    def _read_peer(self, certificate: bytes, host: str) -> TlsPeer | None:
        if not certificate:
            return None
        peer = read_peer(certificate, self._options.purpose)
        if peer is None:
            log.warning("a client certificate has no usable name; the connection is closed", client=host)
            raise _UnusableCertificate
        return peer


class _UnusableCertificate(Exception):
    pass


_REFUSALS = (OSError, ProxyHeaderError, _UnusableCertificate)
"""Also TimeoutError and ssl.SSLError."""


def _remove_stale_sockets(folder: Path) -> None:
    """Removes what processes have left that were killed."""
    for path in folder.iterdir():
        process = path.name.partition(".")[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists():
            path.unlink(missing_ok=True)
