"""A port for client certificates that serves, and its clients."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.x509.oid import ExtendedKeyUsageOID

from fairlead.core.call import CLIENT, Call, Reply
from fairlead.core.crypto.certificates import read_certificate_files
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.http_server import run_unix_server
from fairlead.server.http.listeners import bind_listener
from fairlead.server.http.origins import Origins, TrustedProxies
from fairlead.server.http.tls_context import TrustFiles, read_authorities
from fairlead.server.http.tls_port import TlsPort, TlsPortOptions, UnixBackend
from tests.harness.certificates import Authority, create_authority

CLIENT_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH
REQUEST = b"GET /path HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: root\r\n%s\r\n"
KEEPS_PROXIES_OUT = TlsPortOptions(CLIENT, is_required=False)


@dataclass(slots=True)
class Port:
    """A port that serves, and what its clients need."""

    folder: Path
    server: Authority
    clients: Authority
    files: TrustFiles
    calls: list[Call] = field(default_factory=list)
    reply: Reply = field(default_factory=lambda: Reply(200, b"{}"))
    number: int = 0
    port: TlsPort | None = None
    backend: UnixBackend | None = None
    evictions: int = 0

    def count_eviction(self) -> None:
        self.evictions += 1

    async def handle(self, call: Call) -> Reply:
        self.calls.append(call)
        if call.method == "POST":
            return Reply(200, await call.read_body())
        return self.reply

    def context(self, files: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.server.file)
        if files is not None:
            context.load_cert_chain(*files)
        return context

    async def connect(
        self, files: tuple[Path, Path] | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = self.context(files)
        return await asyncio.open_connection("127.0.0.1", self.number, ssl=context, server_hostname="localhost")

    async def get(self, files: tuple[Path, Path] | None = None, headers: bytes = b"") -> bytes:
        reader, writer = await self.connect(files)
        try:
            writer.write(REQUEST % headers)
            return await asyncio.wait_for(reader.readuntil(b"{}"), 20)
        finally:
            writer.close()


def create_port(tmp_path: Path) -> Port:
    server, clients = create_authority(tmp_path / "server"), create_authority(tmp_path / "clients", "Client CA")
    return Port(tmp_path, server, clients, read_trust_files(*server.issue("server"), clients.file))


@asynccontextmanager
async def serving(port: Port, options: TlsPortOptions = KEEPS_PROXIES_OUT) -> AsyncIterator[None]:
    backend = UnixBackend(port.folder)
    proxies = TrustedProxies(("127.0.0.0/8",)) if options.is_proxy is not None else TrustedProxies(())
    app = AsgiApp(port.handle, 1024 * 1024, origins=Origins(proxies, backend.connections))
    listener = bind_listener("127.0.0.1", 0)
    listener.listen(100)
    port.number, port.backend = listener.getsockname()[1], backend
    port.port = TlsPort(options, backend, port.files, port.count_eviction)
    with listener, closing(backend):
        async with run_unix_server(app, backend.listen(100), 5.0):
            accepting = asyncio.create_task(port.port.accept(listener))
            try:
                yield
            finally:
                accepting.cancel()
                await port.port.close(0.1)


def read_trust_files(cert_file: Path, key_file: Path, ca_file: Path) -> TrustFiles:
    return TrustFiles(read_certificate_files(cert_file, key_file), read_authorities(ca_file))
