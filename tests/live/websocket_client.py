"""A WebSocket client for one thread, with any subprotocol and headers.

The client of the library reads in a second thread, and Python's TLS connections do not support two threads; it also
rejects subprotocols with a slash in their name, which Kubernetes uses.
"""

import ssl
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.uri import WebSocketURI

from tests.harness.server_process import Server

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
_MESSAGES = (Opcode.BINARY, Opcode.TEXT, Opcode.CONT)


class UpgradeRejected(Exception):
    """The status of the response was not 101."""

    def __init__(self, status: int, head: str, body: str) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.head = head
        self.body = body


class WebSocket(AbstractContextManager["WebSocket"]):
    """`code` is the close code of the server, once it has closed the connection."""

    def __init__(
        self,
        server: Server,
        path: str,
        key: str,
        protocol: str,
        headers: Sequence[tuple[str, str]] = (),
        host: str = "x",
    ) -> None:
        self._connection = server.connect("http/1.1")
        self._protocol = ClientProtocol(WebSocketURI(True, "x", 443, "/", ""), state=OPEN, max_size=None)
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket"]
        lines += [f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Protocol: {protocol}"]
        lines += [f"Authorization: Bearer {key}", *(f"{name}: {value}" for name, value in headers)]
        self._connection.sendall("\r\n".join([*lines, "", ""]).encode())
        self.head = self._read_handshake()
        self.code = 0

    def _read_handshake(self) -> str:
        received = b""
        while b"\r\n\r\n" not in received:
            data = self._connection.recv(65536)
            assert data, "no response"
            received += data
        head, _, rest = received.partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        if status != 101:
            self._connection.close()
            raise UpgradeRejected(status, head.decode().lower(), rest.decode())
        self._protocol.receive_data(rest)
        return head.decode().lower()

    def set_timeout(self, seconds: float) -> None:
        self._connection.settimeout(seconds)

    def send(self, message: bytes) -> None:
        self._protocol.send_binary(message)
        self._flush()

    def receive(self) -> bytes | None:
        """Returns the next message, or None at the end."""
        while True:
            for event in self._protocol.events_received():
                assert isinstance(event, Frame)
                if event.opcode in _MESSAGES:
                    return bytes(event.data)
            if self._protocol.close_rcvd is not None:
                self.code = self._protocol.close_rcvd.code
                return None
            data = self._connection.recv(65536)
            if not data:
                return None
            self._protocol.receive_data(data)
            self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._connection.sendall(data)

    def close(self) -> None:
        self._connection.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


CONNECTION_ERRORS = (OSError, ssl.SSLError)
"""Errors of reading from a closed connection."""
