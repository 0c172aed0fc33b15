"""A chart repository over HTTPS on loopback, with small charts that are written here as text.

`ChartRepository` packs its charts as `helm package` does, and serves them with an index, to everybody or to one user.
A program trusts it with SSL_CERT_FILE set to `ca_file`, which Go and OpenSSL read.
"""

import base64
import hashlib
import io
import ssl
import tarfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

import yaml

from tests.far_side.certificates import authority

OK, UNAUTHORIZED, NOT_FOUND = 200, 401, 404


@dataclass(frozen=True, slots=True)
class Chart:
    """`files` by their paths in the chart: `templates/x.yaml`, `values.yaml`, `values.schema.json`."""

    name: str
    files: Mapping[str, str]
    version: str = "1.2.3"

    @property
    def metadata(self) -> dict[str, str]:
        return {"apiVersion": "v2", "name": self.name, "version": self.version, "description": "of the tests"}

    def pack(self) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path, text in {"Chart.yaml": yaml.safe_dump(self.metadata), **self.files}.items():
                entry = tarfile.TarInfo(f"{self.name}/{path}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return packed.getvalue()


@dataclass
class ChartRepository:
    """A context manager. With a `password`, user `ada` has to give it. `answers` are paths that answer otherwise."""

    folder: Path
    charts: tuple[Chart, ...] = ()
    password: str = ""
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def __enter__(self) -> "ChartRepository":
        pair = authority().issue("127.0.0.1")
        (self.folder / "server.pem").write_text(pair.certificate + pair.key)
        self.ca_file.write_text(authority().pem)
        self.answers = {**_answers([(each, each.pack()) for each in self.charts]), **self.answers}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.pem")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"https://{self.address}"


def _answers(packed: Sequence[tuple[Chart, bytes]]) -> dict[str, tuple[int, bytes]]:
    entries: dict[str, list[dict[str, object]]] = {}
    for chart, content in packed:
        digest = hashlib.sha256(content).hexdigest()
        entry: dict[str, object] = {**chart.metadata, "urls": [f"{chart.name}-{chart.version}.tgz"], "digest": digest}
        entries.setdefault(chart.name, []).append(entry)
    index = yaml.safe_dump({"apiVersion": "v1", "entries": entries}).encode()
    archives = {f"/{each.name}-{each.version}.tgz": (OK, content) for each, content in packed}
    return {"/index.yaml": (OK, index), **archives}


def _handler(repository: ChartRepository) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            repository.asked.append(self.path)
            status, body = repository.answers.get(self.path, (NOT_FOUND, b"nothing here"))
            if repository.password and not self._is_known():
                status, body = UNAUTHORIZED, b"who are you?"
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET

        def _is_known(self) -> bool:
            given = base64.b64encode(f"ada:{repository.password}".encode()).decode()
            return self.headers.get("Authorization") == f"Basic {given}"

        def log_message(self, format: str, *args: object) -> None:
            """Requests are in `asked`."""

    return Handler
