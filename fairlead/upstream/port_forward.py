"""Ports of a pod over `pods/portforward`: many connections in one WebSocket.

Kubernetes tunnels SPDY/3.1 through a WebSocket. A connection to the port is a pair of streams with the same
`requestID`: one for data, and one on which the node reports an error. `SpdyClient` is the client's end of SPDY as far
as this needs it, without I/O; `Forward` is the WebSocket, and its `ForwardStream`s are the connections.

SPDY has no flow control here: the connection below has, for all streams together. So a reader that does not read holds
up the others, unless its sink stores what arrives. A stream that is given up is reset, and what still arrives for it is
dropped, so that it never holds up the others.

A frame has a head of eight bytes. The first bit marks control frames, whose type is in the second half of the first
word; in data frames the word is the stream. Headers are compressed, ours without the dictionary, which is allowed;
those of replies are empty and are not read.

Container runtimes do not pass on the end of one direction: they close the connection a second later, also if the answer
is not complete.
"""

import asyncio
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from fairlead.core.waiting import end_tasks
from fairlead.upstream.errors import ProtocolError
from fairlead.upstream.websocket import UpstreamWebSocket

SUBPROTOCOL = "SPDY/3.1+portforward.k8s.io"
"""Of API servers since Kubernetes 1.31."""
VERSION = 3
SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY = 1, 2, 3, 4, 6, 7
FIN = 0x01
CANCEL = 5
"""The reason of a reset by the one who opened the stream."""
MAX_DATA_BYTES = 32 * 1024
MAX_FRAME_BYTES = 1 << 24
MAX_ERROR_BYTES = 4 * 1024
PING_SECONDS = 15.0
"""So that nothing on the way closes a connection because it is idle."""


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
        stream = self._next_stream
        self._next_stream += 2
        block = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                block += struct.pack(">I", len(text)) + text
        compressed = self._compressor.compress(block) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        payload = struct.pack(">IIH", stream, 0, 0) + compressed
        return stream, _control_frame(SYN_STREAM, FIN if is_half_closed else 0, payload)

    def encode_data(self, stream: int, data: bytes, is_last: bool = False) -> bytes:
        return struct.pack(">II", stream, (FIN if is_last else 0) << 24 | len(data)) + data

    def encode_reset(self, stream: int) -> bytes:
        return _control_frame(RST_STREAM, 0, struct.pack(">II", stream, CANCEL))

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


class StreamSink(Protocol):
    """Where the data of a stream goes."""

    async def feed(self, data: bytes, /) -> None:
        """While it waits, nothing arrives for the other streams of the forward either."""

    async def end(self) -> None:
        """No more data arrives: `ForwardStream.error` may say why. May be called twice."""


class ForwardStream:
    """One connection to the port. Without `end` of the sink, it is open."""

    def __init__(self, forward: "Forward", sink: StreamSink, error_stream: int, data_stream: int) -> None:
        self.sink = sink
        self.error = b""
        """What the node reports: for example, that nothing listens on the port."""
        self.has_reported = asyncio.Event()
        """Set with an error, or when the node has nothing to report any more."""
        self.error_stream = error_stream
        self.data_stream = data_stream
        self._forward = forward
        self._is_finished = False

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), MAX_DATA_BYTES):
            if self._is_finished:
                return
            await self._forward.send_data(self.data_stream, data[start : start + MAX_DATA_BYTES])

    async def finish(self) -> None:
        """Ends the direction to the port. The node then closes the connection soon, also if it has data to send."""
        if not self._is_finished:
            self._is_finished = True
            await self._forward.send_data(self.data_stream, b"", is_last=True)

    async def reset(self) -> None:
        """Gives the connection up."""
        self._is_finished = True
        await self._forward.reset(self)


class Forward:
    """A WebSocket with connections to ports of one pod. The caller closes it.

    `on_change` is called when a stream or the forward itself has ended, and when the node has reported an error.
    """

    def __init__(
        self, websocket: UpstreamWebSocket, on_change: Callable[["Forward"], None] = lambda forward: None
    ) -> None:
        self._websocket = websocket
        self._on_change = on_change
        self._spdy = SpdyClient()
        self._next_request = 0
        self._streams: dict[int, ForwardStream] = {}
        """By the number of the data stream."""
        self._errors: dict[int, ForwardStream] = {}
        """By the number of the error stream, which may report after the end of the data."""
        self._tasks = (
            asyncio.create_task(self._receive(), name="port-forward"),
            asyncio.create_task(self._ping(), name="ping of a port-forward"),
        )
        self.has_ended = False
        self.has_failed = False
        """Whether the node has reported an error for one of its connections."""

    @property
    def stream_count(self) -> int:
        return len(self._streams)

    async def open(self, port: int, sink: StreamSink) -> ForwardStream:
        """Opens a connection to the port. That the port refuses it is reported later."""
        headers = {"port": str(port), "requestID": str(self._next_request)}
        self._next_request += 1
        error_stream, opens_error = self._spdy.open_stream({"streamType": "error", **headers}, is_half_closed=True)
        data_stream, opens_data = self._spdy.open_stream({"streamType": "data", **headers})
        stream = ForwardStream(self, sink, error_stream, data_stream)
        self._streams[data_stream] = self._errors[error_stream] = stream
        try:
            await self._websocket.send(opens_error + opens_data)
        except BaseException:
            del self._streams[data_stream]
            del self._errors[error_stream]
            raise
        return stream

    async def send_data(self, stream: int, data: bytes, is_last: bool = False) -> None:
        if stream in self._streams:
            await self._websocket.send(self._spdy.encode_data(stream, data, is_last))

    async def reset(self, stream: ForwardStream) -> None:
        """Ends the stream at both ends. What still arrives for it is dropped."""
        is_open = self._streams.pop(stream.data_stream, None) is not None
        self._errors.pop(stream.error_stream, None)
        await stream.sink.end()
        if is_open:
            resets = self._spdy.encode_reset(stream.data_stream) + self._spdy.encode_reset(stream.error_stream)
            await self._websocket.send(resets)
            self._on_change(self)

    async def close(self) -> None:
        """Closes the WebSocket, and with it all connections."""
        await end_tasks(*self._tasks)
        await self._end_all()
        await self._websocket.close(1000, "")

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            self._websocket.ping()

    async def _receive(self) -> None:
        try:
            while (message := await self._websocket.receive()) is not None:
                content = message.encode() if isinstance(message, str) else message
                for event in self._spdy.receive(content):
                    if isinstance(event, bytes):
                        await self._websocket.send(event)
                    elif isinstance(event, StreamData):
                        await self._on_data(event)
                    elif event.stream:
                        await self._on_reset(event.stream)
                    else:
                        return
        except ProtocolError:
            self._websocket.abort()
        finally:
            await self._end_all()

    async def _on_data(self, event: StreamData) -> None:
        if stream := self._streams.get(event.stream):
            if event.data:
                await stream.sink.feed(event.data)
            if event.is_last:
                await self._end(stream)
        elif stream := self._errors.get(event.stream):
            stream.error = (stream.error + event.data)[:MAX_ERROR_BYTES]
            if event.is_last:
                self._errors.pop(event.stream, None)
            if event.is_last or stream.error:
                stream.has_reported.set()
            if stream.error:
                self.has_failed = True
                self._on_change(self)

    async def _on_reset(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            await self._end(stream)

    async def _end(self, stream: ForwardStream) -> None:
        self._streams.pop(stream.data_stream, None)
        await stream.sink.end()
        self._on_change(self)

    async def _end_all(self) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        for stream in list(self._streams.values()):
            await self._end(stream)
        for stream in self._errors.values():
            stream.has_reported.set()
        self._errors.clear()
        self._on_change(self)
