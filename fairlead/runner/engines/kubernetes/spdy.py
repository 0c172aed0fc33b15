"""The client's end of SPDY/3.1, as far as `pods/portforward` needs it. Sans I/O.

Kubernetes tunnels it through a WebSocket. It has no flow control there: the connection below has. A frame has a head of
eight bytes. The first bit marks control frames, whose type is in the second half of the first word; in data frames the
word is the stream. Headers are compressed, ours without the dictionary, which is allowed; those of replies are empty
and are not read.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fairlead.upstream.errors import ProtocolError

SUBPROTOCOL = "SPDY/3.1+portforward.k8s.io"
VERSION = 3
SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY = 1, 2, 3, 4, 6, 7
FIN = 0x01
MAX_DATA_BYTES = 32 * 1024
MAX_FRAME_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class StreamData:
    stream: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The stream has ended; 0 stands for all streams."""

    stream: int


Event = StreamData | StreamReset


class SpdyClient:
    def __init__(self) -> None:
        self._received = bytearray()
        self._compressor = zlib.compressobj()
        self._next_stream = 1

    def open_stream(self, headers: Mapping[str, str], is_half_closed: bool = False) -> tuple[int, bytes]:
        """The number of a new stream, and the frame that opens it."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        block = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                block += struct.pack(">I", len(text)) + text
        compressed = self._compressor.compress(block) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        payload = struct.pack(">IIH", stream, 0, 0) + compressed
        return stream, _control_frame(SYN_STREAM, FIN if is_half_closed else 0, payload)

    def encode_data(self, stream: int, data: bytes, is_last: bool = False) -> bytes:
        return struct.pack(">II", stream, (FIN if is_last else 0) << 24 | len(data)) + data

    def receive(self, data: bytes) -> Iterator[Event | bytes]:
        """What the bytes mean; bytes are to be sent back. Raises ProtocolError."""
        self._received += data
        while len(self._received) >= 8:
            word, rest = struct.unpack(">II", self._received[:8])
            size = rest & 0xFFFFFF
            if size >= MAX_FRAME_BYTES:
                raise ProtocolError("the cluster sent a frame that is too large")
            if len(self._received) < 8 + size:
                return
            payload = bytes(self._received[8 : 8 + size])
            del self._received[: 8 + size]
            if word >> 31:
                yield from self._receive_control(word & 0xFFFF, rest >> 24, payload)
            else:
                yield StreamData(word, payload, bool(rest >> 24 & FIN))

    def _receive_control(self, kind: int, flags: int, payload: bytes) -> Iterator[Event | bytes]:
        if kind == PING and len(payload) == 4 and not payload[3] & 1:  # even numbers are pings of the server
            yield _control_frame(PING, 0, payload)
        elif kind in (SYN_REPLY, RST_STREAM) and len(payload) >= 4:
            stream = struct.unpack(">I", payload[:4])[0]
            if kind == RST_STREAM:
                yield StreamReset(stream)
            elif flags & FIN:
                yield StreamData(stream, b"", True)
        elif kind == GOAWAY:
            yield StreamReset(0)


def _control_frame(kind: int, flags: int, payload: bytes) -> bytes:
    return struct.pack(">HHI", 0x8000 | VERSION, kind, flags << 24 | len(payload)) + payload
