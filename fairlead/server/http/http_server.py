"""Runs the HTTP server: granian, embedded in this process and event loop. No other module talks to it.

Its threads handle TLS, HTTP/1.1 and HTTP/2. It reads its certificate once, when it starts. So for a new certificate,
another one is started on the same listening socket, and takes over (`HttpServerGenerations`):

1. The new server accepts connections from the same queue as the old one.
2. The old server gets a listening socket that nothing can connect to instead of its own. It finishes the handshakes
   that it has begun, and serves its connections as before.
3. After a while, the old server is stopped: idle connections are closed, and running responses, such as watches, end
   when they would have ended anyway.

No connection is reset: none is left in the queue of a socket that is closed, and no handshake is cut off.
"""

import asyncio
import os
import resource
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings, HTTP2Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]  # its stubs are incomplete
from granian.server.embed import Server

from fairlead.core.crypto.certificates import CertificateFiles, copy_to_memory, read_certificate_files
from fairlead.core.waiting import background_task
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.certificate_watch import count_nothing, watch_certificate
from fairlead.server.http.listeners import bind_listener
from fairlead.server.http.request import MAX_HEADER_BYTES

HEADER_TIMEOUT_MILLISECONDS = 10_000
MAX_CONNECTIONS = 65_536
"""More than there are file descriptors, so that idle connections never block new ones."""
BACKLOG = 1024
"""Connections that wait in the kernel to be accepted."""
MAX_STREAMS = 100
"""Concurrent streams per HTTP/2 connection, the same as kube-apiserver. Clients open another connection for more."""
HTTP2_WINDOW_BYTES = 256 * 1024
"""Flow control window of an HTTP/2 connection: bytes a client may send before the application reads them."""
SEND_BUFFER_BYTES = 64 * 1024
"""Bytes of one HTTP/2 response that the HTTP server buffers."""
RETIREMENT_SECONDS = 30.0
"""How long a replaced server keeps its idle connections. Longer than the timeouts of a handshake and of a header."""
START_SECONDS = 0.25
"""How long a new server gets to start before the old one stops to accept connections."""

log = structlog.get_logger(__name__)


OnCertificate = Callable[[CertificateFiles], object]


def _ignore(files: CertificateFiles) -> None:
    pass


@dataclass(frozen=True, slots=True)
class BindOptions:
    """Listen address, certificate, and how long in-flight requests may take to finish at shutdown.

    `folder` is a private folder that can be written to. `listener` is a socket that is already bound to the address;
    None to open one. `renew` renews a generated certificate when it is time. `on_certificate` gets each certificate
    when it is in use, and `count_reload` whether a changed one could be used.
    """

    address: str
    port: int
    cert_file: Path
    key_file: Path
    grace_seconds: float
    folder: Path
    listener: socket.socket | None = None
    renew: Callable[[], object] | None = None
    on_certificate: OnCertificate = _ignore
    count_reload: Callable[[bool], None] = count_nothing


def raise_descriptor_limit() -> None:
    """Raises the soft limit of open files to the hard limit: every connection needs a descriptor."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


@asynccontextmanager
async def run_http_server(
    app: AsgiApp, options: BindOptions, interface: Interfaces = Interfaces.ASGINL
) -> AsyncIterator[int]:
    """Serves HTTPS while the context is open, and yields the port. On exit, in-flight requests finish first.

    A certificate that is replaced in its files is used for new connections. Only the benchmarks pass another
    `interface`, for comparison.
    """
    raise_descriptor_limit()
    listener = options.listener or bind_listener(options.address, options.port)
    files = read_certificate_files(options.cert_file, options.key_file)
    servers = HttpServerGenerations(app, listener, options.folder, interface)
    servers.start(files)
    options.on_certificate(files)

    async def replace(found: CertificateFiles) -> None:
        await servers.replace(found)
        options.on_certificate(found)

    watch = watch_certificate(files, replace, options.renew, options.count_reload)
    try:
        async with background_task(watch, "certificate"):
            yield options.port
    finally:
        await servers.stop(options.grace_seconds)
        if options.listener is None:
            listener.close()


@asynccontextmanager
async def run_unix_server(app: AsgiApp, listener: socket.socket, grace_seconds: float) -> AsyncIterator[None]:
    """Serves HTTP/1.1 without TLS on a listening Unix socket while the context is open, and closes the socket."""
    server: Any = Server(app, **{**_server_options(Interfaces.ASGINL), "http": HTTPModes.http1})
    _listen_on(server, os.dup(listener.fileno()), is_unix=True)
    serving = asyncio.create_task(server.serve(), name="http on a Unix socket")
    try:
        yield
    finally:
        listener.close()
        server.stop()
        await asyncio.wait((serving,), timeout=grace_seconds)


@dataclass(slots=True)
class _Generation:
    """One running server, and the descriptor of its listening socket."""

    server: Any
    listener: int
    serving: "asyncio.Task[None]"
    retirement: asyncio.TimerHandle | None = field(default=None)

    @property
    def is_running(self) -> bool:
        return not self.serving.done() and all(worker.is_alive() for worker in self.server.wrks)

    def stop(self) -> None:
        if self.retirement is not None:
            self.retirement.cancel()
        self.server.stop()


class HttpServerGenerations:
    """The server that accepts connections, and those that still have some from before the latest certificate."""

    def __init__(
        self, app: AsgiApp, listener: socket.socket, folder: Path, interface: Interfaces = Interfaces.ASGINL
    ) -> None:
        """`folder` must be private and writable: it holds a socket for a moment."""
        self._app = app
        self._folder = folder
        self._listener = listener
        self._interface = interface
        self._current: _Generation | None = None
        self._retired: list[_Generation] = []
        listener.listen(BACKLOG)

    def start(self, files: CertificateFiles) -> None:
        """Starts a server with this certificate. It reads copies, because the files may be replaced meanwhile."""
        server: Any = Server(self._app, **_server_options(self._interface))
        copies = copy_to_memory(files)
        # What its constructor makes of `ssl_cert` and `ssl_key`, which it would resolve to paths that do not exist.
        server.ssl_ctx = (True, *copies.paths, None, str(SSLProtocols.tls13), None, [], False)
        listener = os.dup(self._listener.fileno())
        _listen_on(server, listener)
        serving = asyncio.get_running_loop().create_task(server.serve(), name="http")
        serving.add_done_callback(lambda _: copies.close())
        self._current = _Generation(server, listener, serving)

    async def replace(self, files: CertificateFiles) -> None:
        """Has new connections use this certificate."""
        with _dead_listener(self._folder) as dead:  # first: if there can be none, no second server must run
            await self._replace(files, dead)

    async def _replace(self, files: CertificateFiles, dead: socket.socket) -> None:
        old = self._current
        self.start(files)
        await asyncio.sleep(START_SECONDS)
        new = self._current
        if old is None or not old.is_running or new is None:
            return
        if not new.is_running:
            log.error("the HTTP server does not start with the new certificate; the previous one stays in use")
            self._current = old
            return
        self._retired = [each for each in self._retired if not each.serving.done()]
        self._retired.append(old)
        os.dup2(dead.fileno(), old.listener, inheritable=False)
        old.retirement = asyncio.get_running_loop().call_later(RETIREMENT_SECONDS, old.stop)

    async def stop(self, grace_seconds: float) -> None:
        running = [each for each in (*self._retired, self._current) if each is not None and not each.serving.done()]
        for each in running:
            each.stop()
        if running:
            await asyncio.wait([each.serving for each in running], timeout=grace_seconds)


def _server_options(interface: Interfaces) -> dict[str, Any]:
    return {
        "interface": interface,
        "http": HTTPModes.auto,
        "websockets": True,
        "backlog": BACKLOG,
        "backpressure": MAX_CONNECTIONS,
        "log_enabled": False,
        "http1_settings": HTTP1Settings(
            max_buffer_size=MAX_HEADER_BYTES, header_read_timeout=HEADER_TIMEOUT_MILLISECONDS
        ),
        "http2_settings": HTTP2Settings(
            initial_connection_window_size=HTTP2_WINDOW_BYTES,
            initial_stream_window_size=HTTP2_WINDOW_BYTES,
            max_concurrent_streams=MAX_STREAMS,
            max_headers_size=MAX_HEADER_BYTES,
            max_send_buffer_size=SEND_BUFFER_BYTES,
        ),
    }


def _listen_on(server: Any, descriptor: int, is_unix: bool = False) -> None:
    """Has the HTTP server accept connections from a socket that it has not opened. It has no public way to do that."""

    def use_descriptor() -> None:
        new_holder: Any = SocketHolder
        server._shd = new_holder(descriptor, is_unix, BACKLOG)

    server._init_shared_socket = use_descriptor


@contextmanager
def _dead_listener(folder: Path) -> Iterator[socket.socket]:
    """A listening socket without an address: nothing can connect to it, and `accept` just waits."""
    directory = os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            # The path of a Unix socket may have 107 bytes. Relative to a descriptor, that of the folder does not count.
            path = f"/proc/self/fd/{directory}/.{secrets.token_hex(8)}.socket"
            dead.bind(path)
            os.unlink(path)
            dead.listen(1)
            dead.setblocking(False)
            yield dead
    finally:
        os.close(directory)
