"""A program that listens on a port of a workspace: HTTP/1.1 and WebSockets, with responses that say what it got."""

import base64
import hashlib
import json
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = b"x" * 65536


@dataclass(slots=True)
class PortProgram:
    """`pages` are the HTML pages and scripts by path. `requests` are the paths that were requested."""

    port: int = 0
    pages: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    open_streams: int = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    program: PortProgram

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.program.requests.append(self.path)
        if self.headers.get("upgrade", "").lower() == "websocket":
            self._echo_messages()
        elif path in self.program.pages:
            media = "text/javascript" if path.endswith(".js") else "text/html"
            self._send(200, self.program.pages[path].encode(), [("Content-Type", media)])
        elif path == "/set-cookies":
            named = [
                ("Set-Cookie", "plain=one; Domain=workspaces.localhost; Path=/"),
                ("Set-Cookie", "hidden=two; HttpOnly"),
            ]
            forged = [("Set-Cookie", "__Host-fairlead_port=forged; Path=/; Secure"), ("Clear-Site-Data", '"cookies"')]
            self._send(200, b"set", [*named, *forged])
        elif path == "/redirect":
            self._send(302, b"", [("Location", f"http://localhost:{self.program.port}/after?x=1")])
        elif path == "/events":
            self._stream_events()
        elif path == "/large":
            self._send_large()
        else:
            answer = {
                "method": self.command,
                "path": self.path,
                "headers": [list(each) for each in self.headers.items()],
            }
            self._send(200, json.dumps(answer).encode(), [("Content-Type", "application/json")])

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Responds with the digest of the body, which may be chunked."""
        digest = hashlib.sha256()
        size = 0
        for chunk in self._read_body():
            digest.update(chunk)
            size += len(chunk)
        self._send(200, json.dumps({"size": size, "sha256": digest.hexdigest()}).encode(), [])

    def _read_body(self) -> Iterator[bytes]:
        if self.headers.get("transfer-encoding"):
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("content-length") or 0)
        while left:
            chunk = self.rfile.read(min(left, 65536))
            left -= len(chunk)
            yield chunk

    def _send(self, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _stream_events(self) -> None:
        """Events until the client is gone."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.program.open_streams += 1
        try:
            for number in range(10_000):
                self.wfile.write(f"data: {number}\n\n".encode())
                self.wfile.flush()
                time.sleep(0.1)
        except OSError:
            pass
        finally:
            self.program.open_streams -= 1
            self.close_connection = True

    def _send_large(self) -> None:
        """64 MiB."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(CHUNK) * 1024))
        self.end_headers()
        for _ in range(1024):
            self.wfile.write(CHUNK)

    def _echo_messages(self) -> None:
        """Text messages of at most 64 KiB are sent back, after the Origin that the handshake had."""
        digest = hashlib.sha1(
            f"{self.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()
        ).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
        self.end_headers()
        self.program.open_streams += 1
        self._send_message(self.headers.get("origin", "").encode())
        while (message := self._receive_message()) is not None:
            self._send_message(message)
        self.program.open_streams -= 1
        self.close_connection = True

    def _receive_message(self) -> bytes | None:
        head = self.rfile.read(2)
        if len(head) < 2 or head[0] & 15 == 8:
            return None
        size = head[1] & 127
        if size == 126:
            size = struct.unpack(">H", self.rfile.read(2))[0]
        mask = self.rfile.read(4)
        return bytes(each ^ mask[index % 4] for index, each in enumerate(self.rfile.read(size)))

    def _send_message(self, content: bytes) -> None:
        size = bytes([len(content)]) if len(content) < 126 else b"\x7e" + struct.pack(">H", len(content))
        self.wfile.write(b"\x81" + size + content)
        self.wfile.flush()


@contextmanager
def running_program(pages: dict[str, str] | None = None) -> Iterator[PortProgram]:
    program = PortProgram(pages=pages or {})
    handler = type("Handler", (_Handler,), {"program": program})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    program.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield program
    finally:
        server.shutdown()
        server.server_close()
