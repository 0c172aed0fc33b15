"""A registry of images on a machine of its own: a network namespace beside those of the workspaces.

It may be a hostile one: beside an image, a file says which requests are answered in other ways (`hostile_registry.py`).
"""

import json
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAMESPACE = "registry{number}"
"""`number` is that of the test's containers."""


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
    name, gateway = NAMESPACE.format(number=number), f"198.51.100.{4 * (number % 64) + 1}"
    address = f"198.51.100.{4 * (number % 64) + 2}"
    requests = folder.with_name("requests")
    requests.touch()
    commands = (
        f"ip netns add {name}",
        f"ip link add {name} type veth peer name eth0 netns {name}",
        f"ip address add {gateway}/30 dev {name}",
        f"ip link set {name} up",
        f"ip -n {name} address add {address}/30 dev eth0",
        f"ip -n {name} link set eth0 up",
        f"ip -n {name} route add default via {gateway}",
    )
    certificate = create_certificate(folder.with_name("registry.pem"), address) if with_tls else ""
    program = (
        *("ip", "netns", "exec", name, sys.executable, "-m", __name__),
        *(address, str(folder), str(requests), certificate),
    )
    remove_namespace(name)  # a test that was killed may have left it
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            try:
                assert server.stdout is not None and server.stdout.readline() == b"ready\n"
                yield ImageRegistry(f"{address}:5000", requests)
            finally:
                server.kill()
    finally:
        remove_namespace(name)


def create_certificate(file: Path, address: str) -> str:
    """The path of a certificate that signs itself, with its key."""
    names = ("-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    command = [
        "openssl",
        "req",
        "-x509",
        "-days",
        "1",
        *key,
        *names,
        "-keyout",
        str(file),
        "-out",
        f"{file}.certificate",
    ]
    subprocess.run(command, check=True, capture_output=True)
    with file.open("a") as content:
        content.write(Path(f"{file}.certificate").read_text())
    return str(file)


def remove_namespace(name: str) -> None:
    for command in (["ip", "link", "delete", name], ["ip", "netns", "delete", name]):
        subprocess.run(command, check=False, capture_output=True)


if __name__ == "__main__":
    Handler.folder, Handler.requests = Path(sys.argv[2]), Path(sys.argv[3])
    server = ThreadingHTTPServer((sys.argv[1], 5000), Handler)
    if certificate := sys.argv[4]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print("ready", flush=True)
    server.serve_forever()
