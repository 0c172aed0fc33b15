"""A registry of images on a machine of its own: a network namespace beside those of the workspaces.

It may be a hostile one: beside an image, a file says which requests are answered in other ways (`hostile_registry.py`).
"""

import json
import re
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.runner.harness.other_machine import TEST_NET_2, create_certificate, other_machine


@dataclass(frozen=True, slots=True)
class ImageRegistry:
    address: str
    requests: Path
    """A file with the path of every request."""

    def count(self, text: str) -> int:
        return sum(text in line for line in self.requests.read_text().splitlines())


class Handler(BaseHTTPRequestHandler):
    """Serves a folder that `podman push` to `dir:` has written, or the one below it with the name of the repository."""

    folder: Path
    requests: Path

    def do_GET(self) -> None:
        with self.requests.open("a") as file:
            file.write(f"{self.path}\n")
        name = self.path.rpartition("/")[2]
        if not self.is_authorized():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="registry"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path == "/v2/":
            self.send("application/json", b"{}")
            return
        folder = self.find_folder()
        if self.behave(folder):
            return
        manifest = (folder / "manifest.json").read_bytes()
        if "/manifests/" in self.path:
            self.send(json.loads(manifest)["mediaType"], manifest)
        elif (folder / name.removeprefix("sha256:")).exists():
            self.send("application/octet-stream", (folder / name.removeprefix("sha256:")).read_bytes())
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        """Of git, which sends what it wants to have."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.do_GET()

    def is_authorized(self) -> bool:
        """A file beside the images may have user and password, as the header of a request."""
        file = self.folder / "authorization"
        return not file.exists() or self.headers.get("Authorization") == file.read_text()

    def find_folder(self) -> Path:
        """For images and features of a registry, and for git."""
        repository = re.split("/manifests/|/blobs/|/info/refs|/git-upload-pack", self.path.removeprefix("/v2"))[0]
        own = self.folder / repository.lstrip("/")
        return own if own.is_dir() else self.folder

    def behave(self, folder: Path) -> bool:
        """Answers as the file beside the image says; whether it says something of this request."""
        try:
            behaviours = json.loads((folder / "behaviour.json").read_text())
        except FileNotFoundError:
            return False
        part, behaviour = next(((part, value) for part, value in behaviours.items() if part in self.path), ("", None))
        if behaviour is None or self.count_requests(part) <= behaviour.get("after", 0):
            return False
        time.sleep(behaviour.get("seconds", 0))
        body = behaviour.get("body", "").encode()
        self.send_response(behaviour.get("status", 200))
        for header, value in behaviour.get("headers", {}).items():
            self.send_header(header, value)
        repeated = behaviour.get("repeat", "").encode() or (bytes(1 << 20) if "endless" in behaviour else b"")
        if not repeated:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        while repeated:
            self.wfile.write(repeated)
        return True

    def count_requests(self, part: str) -> int:
        """Of this one and those before it, with this part in their paths."""
        return sum(part in line for line in self.requests.read_text().splitlines())

    def send(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        return


@contextmanager
def running_registry(number: int, folder: Path, with_tls: bool = False) -> Iterator[ImageRegistry]:
    """Serves the image in this folder under every name, at port 5000 of an address in TEST-NET-2."""
    requests = folder.with_name("requests")
    requests.touch()
    with other_machine("registry", number, TEST_NET_2) as machine:
        certificate = create_certificate(folder.with_name("registry.pem"), machine.address) if with_tls else ""
        with machine.serve(__name__, str(folder), str(requests), certificate):
            yield ImageRegistry(f"{machine.address}:5000", requests)


if __name__ == "__main__":
    Handler.folder, Handler.requests = Path(sys.argv[2]), Path(sys.argv[3])
    server = ThreadingHTTPServer((sys.argv[1], 5000), Handler)
    if certificate := sys.argv[4]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print("ready", flush=True)
    server.serve_forever()
