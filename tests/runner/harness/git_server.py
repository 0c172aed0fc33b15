"""A server of git repositories with TLS and a login, on a machine of its own: git's own `http-backend`."""

import base64
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.runner.harness.other_machine import TEST_NET_3, create_certificate, other_machine
from tests.runner.harness.root_programs import HARNESS_VARIABLE

PORT = 8443


@dataclass(frozen=True, slots=True)
class GitServer:
    host: str
    folder: Path
    certificate: str
    """What clients have to trust."""

    def url(self, name: str) -> str:
        return f"https://{self.host}/{name}"

    def create(self, name: str) -> None:
        """A bare repository that accepts what is pushed."""
        path = self.folder / name
        for command in (
            ["git", "init", "-q", "--bare", "-b", "main", str(path)],
            ["git", "-C", str(path), "config", "http.receivepack", "true"],
        ):
            subprocess.run(command, env={**os.environ, HARNESS_VARIABLE: "1"}, check=True, capture_output=True)

    def log(self, name: str, form: str) -> str:
        return self.run(name, "log", f"--format={form}", "main").stdout.decode()

    def run(self, name: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """Runs git in a repository."""
        command = ["git", "-C", str(self.folder / name), *arguments]
        environment = {**os.environ, HARNESS_VARIABLE: "1"}
        return subprocess.run(command, env=environment, check=True, capture_output=True)


class Handler(BaseHTTPRequestHandler):
    folder: Path
    login: str

    def do_GET(self) -> None:
        self.serve()

    def do_POST(self) -> None:
        self.serve()

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        expected = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.headers.get("Authorization") != expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        parts = urlsplit(self.path)
        environment = {
            HARNESS_VARIABLE: "1",
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_USER": self.login.partition(":")[0],
        }
        command = ["git", "http-backend"]
        result = subprocess.run(command, input=body, env=environment, capture_output=True, check=False).stdout
        head, _, content = result.partition(b"\r\n\r\n")
        headers = [line.partition(": ") for line in head.decode().split("\r\n")]
        status = next((value for name, _, value in headers if name == "Status"), "200")
        self.send_response(int(status.split()[0]))
        for name, _, value in headers:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        return


@contextmanager
def running_git_server(number: int, folder: Path, login: str) -> Iterator[GitServer]:
    """`login` is `USER:PASSWORD`, which every request needs."""
    folder.mkdir()
    with other_machine("git", number, TEST_NET_3) as machine:
        certificate = create_certificate(folder.with_name("git.pem"), machine.address)
        with machine.serve(__name__, str(folder), login, certificate):
            yield GitServer(f"{machine.address}:{PORT}", folder, Path(f"{certificate}.certificate").read_text())


if __name__ == "__main__":
    Handler.folder, Handler.login = Path(sys.argv[2]), sys.argv[3]
    server = ThreadingHTTPServer((sys.argv[1], PORT), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[4])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print("ready", flush=True)
    server.serve_forever()
