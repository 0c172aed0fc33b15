"""A chart repository over HTTPS on loopback, with small charts that are written here as text.

`ChartRepository` packs its charts as `helm package` does, and serves them with an index and as an OCI registry (below
`charts/`), to anonymous clients or to one user. A program trusts it with SSL_CERT_FILE set to `ca_file`, which OpenSSL
and Go read.
"""

import base64
import gzip
import hashlib
import io
import json
import ssl
import tarfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

import yaml

from tests.fake_cluster.certificates import PemPair, get_authority

OK, UNAUTHORIZED, NOT_FOUND = 200, 401, 404
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.cncf.helm.config.v1+json"
CONTENT_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


@dataclass(frozen=True, slots=True)
class Chart:
    """`files` by their paths in the chart: `templates/x.yaml`, `values.yaml`, `values.schema.json`."""

    name: str
    files: Mapping[str, str]
    version: str = "1.2.3"

    @property
    def metadata(self) -> dict[str, str]:
        return {"apiVersion": "v2", "name": self.name, "version": self.version, "description": "for tests"}

    def pack(self) -> bytes:
        """The same bytes each time: the header of gzip would have the current time, and so another digest."""
        archives = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=archives, mode="wb", mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w") as archive,
        ):
            for path, text in {"Chart.yaml": yaml.safe_dump(self.metadata), **self.files}.items():
                entry = tarfile.TarInfo(f"{self.name}/{path}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return archives.getvalue()


@dataclass(frozen=True, slots=True)
class ChartResponse:
    """With `endless`, the body is sent again and again, after that many seconds each time, until the client closes."""

    status: int
    body: bytes = b""
    content_type: str = "application/octet-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
    endless: float | None = None


def redirect_to(url: str, status: int = 302) -> ChartResponse:
    return ChartResponse(status, headers={"Location": url})


def encode_basic(user: str, password: str) -> str:
    """An Authorization header."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@dataclass
class ChartRepository:
    """A context manager. `responses` override those of paths.

    With a `password`, only user `ada` has access; with `authorization`, only who sends that header, and `challenge`
    tells others so. Paths in `open_paths` are for everybody. The certificate is for `names` and the address.
    """

    folder: Path
    charts: tuple[Chart, ...] = ()
    password: str = ""
    responses: dict[str, ChartResponse] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    listen: str = "127.0.0.1"
    authorization: str = ""
    challenge: str = 'Basic realm="charts"'
    open_paths: set[str] = field(default_factory=set)
    certificate: PemPair | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Paths, and the Authorization headers that came with them."""

    def __enter__(self) -> "ChartRepository":
        self.authorization = encode_basic("ada", self.password) if self.password else self.authorization
        pair = self.certificate or get_authority().issue(self.listen, *self.names)
        (self.folder / "server.pem").write_text(pair.certificate + pair.key)
        self.ca_file.write_text(get_authority().pem)
        archives = [(each, each.pack()) for each in self.charts]
        self.responses = {
            **_build_repository_responses(archives),
            **_build_registry_responses(archives),
            **self.responses,
        }
        self._server = ThreadingHTTPServer((self.listen, 0), _build_handler(self))
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.pem")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        return f"{self.listen}:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    @property
    def url(self) -> str:
        return f"https://{self.address}"

    @property
    def oci_url(self) -> str:
        return f"oci://{self.address}/charts"


def _build_repository_responses(archives: Sequence[tuple[Chart, bytes]]) -> dict[str, ChartResponse]:
    entries: dict[str, list[dict[str, object]]] = {}
    for chart, content in archives:
        entry: dict[str, object] = {
            **chart.metadata,
            "urls": [_name_archive(chart)],
            "digest": _compute_digest(content)[7:],
        }
        entries.setdefault(chart.name, []).append(entry)
    index = yaml.safe_dump({"apiVersion": "v1", "entries": entries}).encode()
    return {
        "/index.yaml": ChartResponse(OK, index),
        **{f"/{_name_archive(each)}": ChartResponse(OK, content) for each, content in archives},
    }


def _build_registry_responses(archives: Sequence[tuple[Chart, bytes]]) -> dict[str, ChartResponse]:
    """The part of the OCI distribution specification that pulling needs."""
    responses = {"/v2/": ChartResponse(OK, b"{}", "application/json")}
    for chart, content in archives:
        base, config = f"/v2/charts/{chart.name}", json.dumps(chart.metadata).encode()
        layers = [_build_descriptor(CONTENT_TYPE, content)]
        description = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _build_descriptor(CONFIG_TYPE, config),
            "layers": layers,
        }
        manifest = json.dumps(description).encode()
        tags = json.dumps({"name": f"charts/{chart.name}", "tags": [chart.version]}).encode()
        responses |= {
            f"{base}/tags/list": ChartResponse(OK, tags, "application/json"),
            **{
                f"{base}/manifests/{each}": ChartResponse(OK, manifest, MANIFEST_TYPE)
                for each in (chart.version, _compute_digest(manifest))
            },
            **{f"{base}/blobs/{_compute_digest(each)}": ChartResponse(OK, each) for each in (config, content)},
        }
    return responses


def _name_archive(chart: Chart) -> str:
    return f"{chart.name}-{chart.version}.tgz"


def _build_descriptor(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _compute_digest(content), "size": len(content)}


def _compute_digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _build_handler(repository: ChartRepository) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.headers.get("Authorization", "")
            repository.requests.append((self.path, sent))
            path = self.path.partition("?")[0] if self.path not in repository.responses else self.path
            response = repository.responses.get(path, ChartResponse(NOT_FOUND, b"not found"))
            if repository.authorization not in ("", sent) and path not in repository.open_paths:
                challenge = {"WWW-Authenticate": repository.challenge}
                response = ChartResponse(UNAUTHORIZED, b"unauthorized", headers=challenge)
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", response.content_type)
            if response.endless is None:
                self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self._send_body(response)

        def _send_body(self, response: ChartResponse) -> None:
            with suppress(OSError):  # the client has enough
                self.wfile.write(response.body)
                while response.endless is not None:
                    time.sleep(response.endless)
                    self.wfile.write(response.body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are in `requests`."""

    return Handler
