"""A client of HTTP/2 that does what no library would: leaves windows shut, breaks off, and watches a server go.

It reads and writes frames itself. Libraries take the announcement that a server is going for the end of everything,
although the streams under way are still to be finished, and that is what some tests are about.
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
WIDE = 2**30


class Http2:
    """One connection. What came in is kept by stream."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._socket = server.connect("h2")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._encoder, self._decoder = Encoder(), Decoder()
        self._arrived = b""
        self._next = 1
        self.shut: set[int] = set()
        """Streams whose window is not opened again, as by somebody who has stopped reading."""
        self.bodies: dict[int, bytearray] = {}
        self.statuses: dict[int, int] = {}
        self.ended: set[int] = set()
        self.reset: set[int] = set()
        self.going = False
        self.closed = False
        self._socket.sendall(PREFACE + _frame(SETTINGS) + _frame(WINDOW_UPDATE, payload=struct.pack(">L", WIDE)))

    def close(self) -> None:
        self._socket.close()

    def request(self, method: str, path: str, *, end: bool = True, **headers: str) -> int:
        """Begins a request with the administrator's key; the stream's number."""
        stream, self._next = self._next, self._next + 2
        fields = [(":method", method), (":path", path), (":scheme", "https"), (":authority", "server")]
        fields.append(("authorization", f"Bearer {self._server.key}"))
        fields.extend((name.replace("_", "-"), value) for name, value in headers.items())
        flags = END_HEADERS | (END_STREAM if end else 0)
        self.bodies[stream] = bytearray()
        self._socket.sendall(_frame(HEADERS, flags, stream, self._encoder.encode(fields)))
        return stream

    def send(self, stream: int, piece: bytes, *, end: bool = False) -> None:
        self._socket.sendall(_frame(DATA, END_STREAM if end else 0, stream, piece))

    def break_off(self, stream: int) -> None:
        self._socket.sendall(_frame(RST_STREAM, 0, stream, struct.pack(">L", CANCEL)))

    def open(self, stream: int) -> None:
        """Reads on where reading had stopped."""
        self.shut.discard(stream)
        self._socket.sendall(_frame(WINDOW_UPDATE, 0, stream, struct.pack(">L", WIDE)))

    def lines(self, stream: int) -> list[bytes]:
        """The whole lines that have come in on a stream."""
        return bytes(self.bodies[stream]).split(b"\n")[:-1]

    def read(self, until: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> bool:
        """Takes in frames until the condition holds (True), or the time is over or the connection closed (False)."""
        self._socket.settimeout(seconds)
        while not until() and not self.closed:
            try:
                piece = self._socket.recv(1 << 18)
            except TimeoutError:
                return False
            self.closed = not piece
            self._arrived += piece
            self._take_frames()
        return until()

    def _take_frames(self) -> None:
        while len(self._arrived) >= 9:
            size = int.from_bytes(self._arrived[:3])
            if len(self._arrived) < 9 + size:
                return
            type, flags, stream = self._arrived[3], self._arrived[4], int.from_bytes(self._arrived[5:9])
            payload, self._arrived = self._arrived[9 : 9 + size], self._arrived[9 + size :]
            self._take(type, flags, stream, payload)

    def _take(self, type: int, flags: int, stream: int, payload: bytes) -> None:
        if type == DATA:
            self.bodies[stream] += payload
            self._widen(stream, len(payload))
        elif type == HEADERS:
            fields = {str(name): str(value) for name, value in self._decoder.decode(payload)}
            self.statuses[stream] = int(fields[":status"])
        elif type == RST_STREAM:
            self.reset.add(stream)
        elif type == GOAWAY:
            self.going = True
        elif type in (SETTINGS, PING) and not flags & ACK:
            self._tell(_frame(type, ACK, 0, payload if type == PING else b""))
        if type in (DATA, HEADERS) and flags & END_STREAM:
            self.ended.add(stream)

    def _widen(self, stream: int, size: int) -> None:
        if size and stream not in self.shut:
            self._tell(_frame(WINDOW_UPDATE, 0, stream, struct.pack(">L", size)))

    def _tell(self, frame: bytes) -> None:
        """What nobody is there to hear any more is no fault: the server may have gone after its last frame."""
        with suppress(OSError):
            self._socket.sendall(frame)


def _frame(type: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((type, flags)) + stream.to_bytes(4) + payload
