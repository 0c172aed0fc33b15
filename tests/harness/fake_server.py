"""A fake server with prepared responses, over TLS on loopback, that records requests."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from fairlead.core.crypto.certificates import Certificates

M = "/kubernetes/management/apis/management.service.sh/v1"
KEY = "fairlead_a-key"

GROUPS = ["system:authenticated", "service:user:alice"]
SELF = {
    "user": {"name": "alice", "displayName": "Alice A.", "teams": [{"name": "ops"}]},
    "accessKey": "alice-key",
    "accessKeyType": "User",
    "groups": GROUPS,
    "projectNamespacePrefix": "service-p-",
}


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


Response = tuple[int, Any] | Callable[[Request], tuple[int, Any]]


@dataclass
class FakeServer:
    """`on` sets the responses to a request; of several, each is sent once, and the last one from then on."""

    url: str
    ca_file: str
    requests: list[Request] = field(default_factory=list)
    responses: dict[tuple[str, str], list[Response]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    """Values of the Warning headers of every response."""

    def on(self, method: str, path: str, *responses: Response) -> None:
        self.responses[method, path] = list(responses)

    def on_self(self, **changes: Any) -> None:
        self.on("POST", f"{M}/selves", (201, {"status": SELF | changes}))

    def requests_to(self, method: str, path: str) -> list[Request]:
        return [each for each in self.requests if (each.method, each.path) == (method, path)]

    def respond(self, request: Request) -> tuple[int, Any]:
        self.requests.append(request)
        found = self.responses.get((request.method, request.path))
        if not found:
            return 404, failure_status(404, "NotFound", f"{request.method} {request.path} not found")
        response = found.pop(0) if len(found) > 1 else found[0]
        return response(request) if callable(response) else response


def failure_status(code: int, reason: str, message: str, **details: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def list_response(*objects: dict[str, Any], token: str = "") -> tuple[int, Any]:
    return 200, {"kind": "List", "metadata": {"continue": token} if token else {}, "items": list(objects)}


def build_object(name: str, **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}, **parts}


@contextmanager
def running_fake_server(certificates: Certificates) -> Iterator[FakeServer]:
    fake = FakeServer("", str(certificates.ca_file))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert_file, certificates.key_file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    fake.url = f"https://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            content = self.rfile.read(length)
            if headers.get("content-type") == "application/x-www-form-urlencoded":
                body: Any = dict(parse_qsl(content.decode()))
            else:
                body = json.loads(content) if length else None
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            code, reply = fake.respond(Request(self.command, parts.path, query, headers, body))
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for warning in fake.warnings:
                self.send_header("Warning", warning)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_one

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nobody reads it."""

    return Handler
