"""The ports of the server: HTTPS with its certificate, and those for client certificates that are configured.

`server/http/tls_port.py` describes how the latter work.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog

from fairlead.app.host_cluster import HostAuthentication
from fairlead.app.workers.context import WorkerContext
from fairlead.authn.request_headers import RequestHeaderConfig
from fairlead.core.call import CLIENT, FRONT_PROXY
from fairlead.core.crypto.certificates import (
    Certificates,
    ensure_certificates,
    load_certificates,
    read_certificate_files,
)
from fairlead.core.files import FileProblem, ensure_private_folder, read_file
from fairlead.core.waiting import background_task
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.certificate_watch import MAIN_PORT, POLL_SECONDS, sign_files, watch_files
from fairlead.server.http.http_server import BindOptions, run_http_server, run_unix_server
from fairlead.server.http.listeners import free_port, open_listener
from fairlead.server.http.origins import IdentityHeaderFilter, Origins, TrustedProxies
from fairlead.server.http.tls_context import AuthorityFile, AuthoritySource, TrustFiles, share_authority
from fairlead.server.http.tls_port import BACKLOG, TlsPort, TlsPortOptions, UnixBackend
from fairlead.server.metrics.installation import ServedCertificate
from fairlead.settings import Settings, StartError
from fairlead.settings.values import ON


def load_server_certificates(settings: Settings) -> Certificates:
    """The configured certificate, or the generated one, which is renewed if it is time."""
    if settings.tls_cert and settings.tls_key:
        return load_certificates(settings.tls_cert, settings.tls_key, settings.tls_ca)
    return ensure_certificates(settings.data / "tls", settings.certificate_names)


def read_ca_certificate(settings: Settings) -> str:
    """The CA certificate of the server: the configured one, or the generated one. Empty if there is none."""
    file = settings.tls_ca if settings.tls_cert else settings.data / "tls" / "ca.crt"
    content = read_file(file) if file is not None else None
    return content.decode(errors="replace") if content else ""


def serve_https(
    app: AsgiApp,
    settings: Settings,
    port: int,
    certificates: Certificates,
    worker: WorkerContext | None,
    served: ServedCertificate,
) -> AbstractAsyncContextManager[int]:
    """Serves while the context is open. `served` records the certificate that is in use."""
    # One process renews the generated certificate; all of them read it again when it has changed.
    renews = not settings.tls_cert and (worker is None or worker.index == 1)
    options = BindOptions(
        address=settings.listen,
        port=port,
        cert_file=certificates.cert_file,
        key_file=certificates.key_file,
        grace_seconds=settings.shutdown_grace,
        folder=settings.data,
        listener=worker.listener if worker is not None else None,
        renew=partial(load_server_certificates, settings) if renews else None,
        on_certificate=served.record,
        count_reload=partial(served.reloads.count, MAIN_PORT),
    )
    return run_http_server(app, options)


SOCKET_FOLDER = "connections"
CLOSE_SECONDS = 1.0
"""How long connections may take to end after the HTTP server has ended them."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


def request_header_config(settings: Settings) -> RequestHeaderConfig | None:
    """How front proxies name users; None if there are none."""
    if settings.requestheader_client_ca is None:
        return None
    return RequestHeaderConfig(
        allowed_names=frozenset(settings.requestheader_allowed_names),
        username_headers=_lower(settings.requestheader_username_headers),
        group_headers=_lower(settings.requestheader_group_headers),
        extra_prefixes=_lower(settings.requestheader_extra_headers_prefix),
        uid_headers=_lower(settings.requestheader_uid_headers),
        links_users=settings.requestheader_link_users == ON,
    )


def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


@dataclass(frozen=True, slots=True)
class TlsPorts:
    """The ports, as configured. `backend` is None if there is none. `host` has the CAs that the host publishes."""

    settings: Settings
    worker: WorkerContext | None
    backend: UnixBackend | None
    host: HostAuthentication | None = None

    def origins(self) -> Origins:
        """Where requests come from, on these ports and on the main one."""
        settings = self.settings
        names = (
            *settings.requestheader_username_headers,
            *settings.requestheader_group_headers,
            *settings.requestheader_extra_headers_prefix,
            *settings.requestheader_uid_headers,
        )
        proxies = TrustedProxies(settings.trusted_proxies)
        headers = IdentityHeaderFilter(names)
        return Origins(proxies, self.backend.connections, headers) if self.backend else Origins(proxies, filter=headers)

    @asynccontextmanager
    async def serve(self, app: AsgiApp, certificates: Certificates, served: ServedCertificate) -> AsyncIterator[None]:
        """Serves the ports while the context is open."""
        settings = self.settings
        backend = self.backend
        if backend is None:
            yield
            return
        async with AsyncExitStack() as stack:
            listener = backend.listen(BACKLOG)
            openers: list[PortOpener] = []
            for number, source, options in configured_ports(settings, self.host):
                counters = PortCounters(options.purpose.replace(" ", "-"), served)
                opener = PortOpener(
                    options=options,
                    backend=backend,
                    certificates=certificates,
                    source=source,
                    openers=openers,
                    counters=counters,
                )
                openers.append(opener)
                await stack.enter_async_context(self._run(opener, number))
            # Stopped first: it closes idle connections, and the relays end with those of the HTTP server.
            await stack.enter_async_context(run_unix_server(app, listener, settings.shutdown_grace))
            yield

    @asynccontextmanager
    async def _run(self, opener: "PortOpener", number: int) -> AsyncIterator[None]:
        settings = self.settings
        if self.worker is None or self.worker.is_first:  # the other workers share the port
            free_port(settings.listen, number)
        # It listens at once, because otherwise another process could take the port. As long as the CAs are not known,
        # connections wait.
        with open_listener(settings.listen, number, BACKLOG) as listener:
            if opener.source.is_known:
                opener.open()
            try:
                async with background_task(opener.serve(listener), f"port {number}"):
                    yield
            finally:
                listener.close()
                if opener.port is not None:
                    await opener.port.close(CLOSE_SECONDS)


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Counts for the metrics what happens on a port."""

    port: str
    served: ServedCertificate

    def count_reload(self, is_success: bool) -> None:
        self.served.reloads.count(self.port, is_success)

    def count_eviction(self) -> None:
        self.served.evicted_handshakes[self.port] += 1


@dataclass(slots=True, eq=False)
class PortOpener:
    """Opens a port once its CAs are known, and follows changes of its files.

    `openers` are those of all ports: they must not have a CA in common.
    """

    options: TlsPortOptions
    backend: UnixBackend
    certificates: Certificates
    source: AuthoritySource
    openers: Sequence["PortOpener"]
    counters: PortCounters
    port: TlsPort | None = None

    def read(self) -> TrustFiles:
        """Raises FileProblem, also if a CA is in use on another port."""
        server = read_certificate_files(self.certificates.cert_file, self.certificates.key_file)
        files = TrustFiles(server, self.source.read())
        for other in self.openers:
            if other is self or other.port is None:
                continue
            if share_authority(files.authorities, other.port.files.authorities):
                raise FileProblem(describe_shared_authority(self.source, other.source))
        return files

    def open(self) -> TlsPort:
        """Raises FileProblem."""
        self.port = TlsPort(self.options, self.backend, self.read(), self.counters.count_eviction)
        return self.port

    async def serve(self, listener: socket.socket) -> None:
        """Never returns, whatever fails: the port would not be served, and nothing would say so."""
        port = self.port
        if port is None:
            port = await self._retry(self._open_when_known)
        await asyncio.gather(self._retry(partial(port.accept, listener)), self._retry(partial(self._watch, port)))

    async def _open_when_known(self) -> TlsPort:
        await self.source.wait()
        return self.open()

    async def _watch(self, port: TlsPort) -> None:
        await watch_files(self._sign, port.files, self.read, port.replace, self.counters.count_reload)

    async def _retry(self, action: Callable[[], Awaitable[T]]) -> T:
        reported = ""
        while True:
            try:
                return await action()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next attempt may succeed
                problem = str(error) if isinstance(error, FileProblem) else repr(error)
                if problem != reported:
                    log.error("a port cannot be served; trying again", port=self.counters.port, problem=problem)
                    reported = problem
                await asyncio.sleep(POLL_SECONDS)

    def _sign(self) -> tuple[object, ...]:
        paths = self.certificates.cert_file, self.certificates.key_file
        return *sign_files(paths), *self.source.sign()


def describe_shared_authority(one: AuthoritySource, other: AuthoritySource) -> str:
    return (
        f"{one}, {other}: have a CA in common; use another CA for front proxies: users with a certificate could act "
        "as one"
    )


def configured_ports(
    settings: Settings, host: HostAuthentication | None = None
) -> list[tuple[int, AuthoritySource, TlsPortOptions]]:
    ports: list[tuple[int, AuthoritySource, TlsPortOptions]] = []
    if settings.client_ca is not None:
        balancers = settings.proxy_protocol_networks
        is_proxy = TrustedProxies(balancers).is_trusted if balancers else None
        options = TlsPortOptions(CLIENT, False, is_proxy)
        ports.append((settings.client_cert_port, AuthorityFile(settings.client_ca), options))
    authorities = AuthorityFile(settings.requestheader_client_ca) if settings.requestheader_client_ca else host
    if authorities is not None:
        ports.append((settings.requestheader_port, authorities, TlsPortOptions(FRONT_PROXY, True)))
    return ports


@asynccontextmanager
async def open_tls_ports(
    settings: Settings, worker: WorkerContext | None, host: HostAuthentication | None = None
) -> AsyncIterator[TlsPorts]:
    """The ports, not yet open. Raises StartError or FileProblem if their CAs are not usable."""
    ports = configured_ports(settings, host)
    if not ports:
        yield TlsPorts(settings, worker, None)
        return
    known = [source for _, source, _ in ports if source.is_known]
    authorities = [source.read() for source in known]
    if len(known) == 2 and share_authority(*authorities):
        raise StartError(describe_shared_authority(*known))
    backend = UnixBackend(ensure_private_folder(settings.data / SOCKET_FOLDER))
    try:
        yield TlsPorts(settings, worker, backend, host)
    finally:
        backend.close()
