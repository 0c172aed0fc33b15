"""A chart repository over HTTPS on loopback, with small charts that are written here as text.

`ChartRepository` packs its charts as `helm package` does, and serves them with an index and as an OCI registry (below
`charts/`), to everybody or to one user. A program trusts it with SSL_CERT_FILE set to `ca_file`, which Go and OpenSSL
read.
"""

import base64
import hashlib
import io
import json
import ssl
import tarfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

import yaml

from tests.fake_cluster.certificates import authority

OK, UNAUTHORIZED, NOT_FOUND = 200, 401, 404
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


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


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = "application/octet-stream"


@dataclass
class ChartRepository:
    """A context manager. With a `password`, user `ada` has to give it. `answers` are paths that answer otherwise."""

    folder: Path
    charts: tuple[Chart, ...] = ()
    password: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def __enter__(self) -> "ChartRepository":
        pair = authority().issue("127.0.0.1")
        (self.folder / "server.pem").write_text(pair.certificate + pair.key)
        self.ca_file.write_text(authority().pem)
        packed = [(each, each.pack()) for each in self.charts]
        self.answers = {**_repository_answers(packed), **_registry_answers(packed), **self.answers}
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

    @property
    def oci_url(self) -> str:
        return f"oci://{self.address}/charts"


def _repository_answers(packed: Sequence[tuple[Chart, bytes]]) -> dict[str, Answer]:
    entries: dict[str, list[dict[str, object]]] = {}
    for chart, content in packed:
        entry: dict[str, object] = {**chart.metadata, "urls": [_archive(chart)], "digest": _digest(content)[7:]}
        entries.setdefault(chart.name, []).append(entry)
    index = yaml.safe_dump({"apiVersion": "v1", "entries": entries}).encode()
    return {"/index.yaml": Answer(OK, index), **{f"/{_archive(each)}": Answer(OK, content) for each, content in packed}}


def _registry_answers(packed: Sequence[tuple[Chart, bytes]]) -> dict[str, Answer]:
    """What pulling takes of the OCI distribution specification."""
    answers = {"/v2/": Answer(OK, b"{}", "application/json")}
    for chart, content in packed:
        at, config = f"/v2/charts/{chart.name}", json.dumps(chart.metadata).encode()
        layers = [_descriptor(CONTENT, content)]
        described = {"schemaVersion": 2, "mediaType": MANIFEST, "config": _descriptor(CONFIG, config), "layers": layers}
        manifest = json.dumps(described).encode()
        tags = json.dumps({"name": f"charts/{chart.name}", "tags": [chart.version]}).encode()
        answers |= {
            f"{at}/tags/list": Answer(OK, tags, "application/json"),
            **{f"{at}/manifests/{each}": Answer(OK, manifest, MANIFEST) for each in (chart.version, _digest(manifest))},
            **{f"{at}/blobs/{_digest(each)}": Answer(OK, each) for each in (config, content)},
        }
    return answers


def _archive(chart: Chart) -> str:
    return f"{chart.name}-{chart.version}.tgz"


def _descriptor(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _handler(repository: ChartRepository) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            repository.asked.append(self.path)
            answer = repository.answers.get(self.path, Answer(NOT_FOUND, b"nothing here"))
            if repository.password and not self._is_known():
                answer = Answer(UNAUTHORIZED, b"who are you?")
            self.send_response(answer.status)
            if answer.status == UNAUTHORIZED:
                self.send_header("WWW-Authenticate", 'Basic realm="charts"')
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Docker-Content-Digest", _digest(answer.body))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(answer.body)

        do_HEAD = do_GET

        def _is_known(self) -> bool:
            given = base64.b64encode(f"ada:{repository.password}".encode()).decode()
            return self.headers.get("Authorization") == f"Basic {given}"

        def log_message(self, format: str, *args: object) -> None:
            """Requests are in `asked`."""

    return Handler
