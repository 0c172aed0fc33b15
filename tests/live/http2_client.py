"""An HTTP/2 client for unusual behaviour: closed flow-control windows, reset streams, and servers that shut down.

It reads and writes frames itself: libraries treat GOAWAY as the end of the connection, although streams in progress are
still completed, which some tests check.
"""

import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from hpack import Decoder, Encoder

from tests.harness.server_process import TIMEOUT_SECONDS, Server

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
CANCEL = 0x8
LARGE_WINDOW = 2**30


class Http2Client:
    """One connection. Received data is kept by stream."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._socket = server.connect("h2")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._encoder, self._decoder = Encoder(), Decoder()
        self._buffer = b""
        self._next = 1
        self.blocked: set[int] = set()
        """Streams whose window is not extended, as for a client that stopped reading."""
        self.bodies: dict[int, bytearray] = {}
        self.statuses: dict[int, int] = {}
        self.ended: set[int] = set()
        self.reset: set[int] = set()
        self.goaway = False
        self.closed = False
        self._socket.sendall(
            PREFACE + _build_frame(SETTINGS) + _build_frame(WINDOW_UPDATE, payload=struct.pack(">L", LARGE_WINDOW))
        )

    def close(self) -> None:
        self._socket.close()

    def request(self, method: str, path: str, *, end: bool = True, **headers: str) -> int:
        """Starts a request with the administrator's key; returns the stream id."""
        stream, self._next = self._next, self._next + 2
        fields = [(":method", method), (":path", path), (":scheme", "https"), (":authority", "server")]
        fields.append(("authorization", f"Bearer {self._server.key}"))
        fields.extend((name.replace("_", "-"), value) for name, value in headers.items())
        flags = END_HEADERS | (END_STREAM if end else 0)
        self.bodies[stream] = bytearray()
        self._socket.sendall(_build_frame(HEADERS, flags, stream, self._encoder.encode(fields)))
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        self._socket.sendall(_build_frame(DATA, END_STREAM if end else 0, stream, data))

    def reset_stream(self, stream: int) -> None:
        self._socket.sendall(_build_frame(RST_STREAM, 0, stream, struct.pack(">L", CANCEL)))

    def unblock(self, stream: int) -> None:
        """Extends the window of a blocked stream, so that its data is read again."""
        self.blocked.discard(stream)
        self._socket.sendall(_build_frame(WINDOW_UPDATE, 0, stream, struct.pack(">L", LARGE_WINDOW)))

    def lines(self, stream: int) -> list[bytes]:
        """The complete lines received on a stream."""
        return bytes(self.bodies[stream]).split(b"\n")[:-1]

    def read(self, until: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> bool:
        """Reads frames until the condition holds (True), or until a timeout or the end of the connection (False)."""
        self._socket.settimeout(seconds)
        while not until() and not self.closed:
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                return False
            self.closed = not data
            self._buffer += data
            self._process_frames()
        return until()

    def _process_frames(self) -> None:
        while len(self._buffer) >= 9:
            size = int.from_bytes(self._buffer[:3])
            if len(self._buffer) < 9 + size:
                return
            type, flags, stream = self._buffer[3], self._buffer[4], int.from_bytes(self._buffer[5:9])
            payload, self._buffer = self._buffer[9 : 9 + size], self._buffer[9 + size :]
            self._process_frame(type, flags, stream, payload)

    def _process_frame(self, type: int, flags: int, stream: int, payload: bytes) -> None:
        if type == DATA:
            self.bodies[stream] += payload
            self._extend_window(stream, len(payload))
        elif type == HEADERS:
            fields = {str(name): str(value) for name, value in self._decoder.decode(payload)}
            self.statuses[stream] = int(fields[":status"])
        elif type == RST_STREAM:
            self.reset.add(stream)
        elif type == GOAWAY:
            self.goaway = True
        elif type in (SETTINGS, PING) and not flags & ACK:
            self._send_if_open(_build_frame(type, ACK, 0, payload if type == PING else b""))
        if type in (DATA, HEADERS) and flags & END_STREAM:
            self.ended.add(stream)

    def _extend_window(self, stream: int, size: int) -> None:
        if size and stream not in self.blocked:
            self._send_if_open(_build_frame(WINDOW_UPDATE, 0, stream, struct.pack(">L", size)))

    def _send_if_open(self, frame: bytes) -> None:
        """Ignores a closed connection: the server may have closed it after its last frame."""
        with suppress(OSError):
            self._socket.sendall(frame)


def _build_frame(type: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((type, flags)) + stream.to_bytes(4) + payload
