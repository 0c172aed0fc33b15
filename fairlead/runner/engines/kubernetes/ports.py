"""TCP ports inside a workspace: on the Pod's own 127.0.0.1, over `pods/portforward`.

A connection has two streams, one for data and one on which the node reports an error. Container runtimes do not pass on
the end of one direction: they close the connection a second later, also if the answer is not complete. So that end is
sent only after the other side has been silent for a while.

Below is the client's end of SPDY/3.1, as far as this needs it, without I/O. Kubernetes tunnels it through a WebSocket.
It has no flow control there: the connection below has. A frame has a head of eight bytes. The first bit marks control
frames, whose type is in the second half of the first word; in data frames the word is the stream. Headers are
compressed, ours without the dictionary, which is allowed; those of replies are empty and are not read.
"""

import asyncio
import contextlib
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fairlead.runner.engines.contract import EngineError, ListeningPort, Reason
from fairlead.runner.engines.devcontainer.ports import parse_listening
from fairlead.runner.engines.kubernetes.place import PODS, Place
from fairlead.runner.engines.kubernetes.sessions import Pipe, PodConnection
from fairlead.upstream.errors import ProtocolError
from fairlead.upstream.websocket import UpstreamWebSocket

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


# --- connections to ports ---------------------------------------------------------------------------------------------

REFUSAL_SECONDS = 0.05
"""How long a refusal of the port is waited for: the node connects only after it has accepted the stream. A later one
looks like the end of the connection."""


LINGER_SECONDS = 10.0
"""How long the other side must be silent before it gets the end."""


class PortConnection(PodConnection):
    """`ByteStream` of the contract; it is its own writer."""

    def __init__(self, websocket: UpstreamWebSocket, port: int) -> None:
        super().__init__(websocket)
        self.reader = Pipe()
        self.error = b""
        self.has_ended = asyncio.Event()
        self._spdy = SpdyClient()
        self._error_stream = self._data_stream = 0
        self._port = port
        self._is_closed = False
        self._received_at = 0.0

    @property
    def writer(self) -> "PortConnection":
        return self

    async def open(self) -> None:
        headers = {"port": str(self._port), "requestID": "0"}
        self._error_stream, error = self._spdy.open_stream({"streamType": "error", **headers}, is_half_closed=True)
        self._data_stream, data = self._spdy.open_stream({"streamType": "data", **headers})
        await self._websocket.send(error)
        await self._websocket.send(data)
        self._start(self._receive())

    async def write(self, data: bytes, /) -> None:
        for start in range(0, len(data), MAX_DATA_BYTES):
            if self._is_closed:
                return
            part = data[start : start + MAX_DATA_BYTES]
            await self._websocket.send(self._spdy.encode_data(self._data_stream, part))

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._start(self._linger())

    async def abort(self) -> None:
        await self.reader.end()
        await self.release()

    async def _receive(self) -> None:
        try:
            while (message := await self._websocket.receive()) is not None:
                for event in self._spdy.receive(message.encode() if isinstance(message, str) else message):
                    if isinstance(event, bytes):
                        await self._websocket.send(event)
                    elif not await self._handle(event):
                        return
        except ProtocolError:
            return
        finally:
            self.has_ended.set()
            await self.reader.end()

    async def _handle(self, event: StreamData | StreamReset) -> bool:
        """False at the end of the connection."""
        if isinstance(event, StreamReset):
            return event.stream not in (0, self._data_stream)
        if event.stream == self._error_stream:
            self.error += event.data
            if self.error:
                self.has_ended.set()
        elif event.stream == self._data_stream:
            self._received_at = asyncio.get_running_loop().time()
            await self.reader.feed(event.data)
            if event.is_last:
                await self.reader.end()
        return True

    async def _linger(self) -> None:
        clock = asyncio.get_running_loop().time
        self._received_at = clock()
        while (rest := self._received_at + LINGER_SECONDS - clock()) > 0:  # noqa: ASYNC110  # until it is silent
            await asyncio.sleep(rest)
        await self._websocket.send(self._spdy.encode_data(self._data_stream, b"", is_last=True))


async def open_port(place: Place, port: int) -> PortConnection:
    query = [("ports", str(port))]
    websocket = await place.cluster.open_websocket(f"{place.path(PODS)}/portforward", query, (SUBPROTOCOL,))
    connection = PortConnection(websocket, port)
    await connection.open()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(connection.has_ended.wait(), REFUSAL_SECONDS)
    if connection.error:
        await connection.abort()
        raise EngineError(Reason.NOT_RUNNING, f"nothing answers on port {port} of the workspace")
    return connection


def parse_ports(output: str) -> list[ListeningPort]:
    """The ports in the output of `scripts.LIST_PORTS`, which the workspace controls: other lines are ignored."""
    lines = output.splitlines()
    names = dict[str, str]()
    owners = dict[str, str]()
    pid = ""
    for line in lines:
        if line.startswith("process /proc/"):
            path, _, name = line.removeprefix("process ").partition(" ")
            names[path.split("/")[2]] = name
        elif line.startswith("/proc/"):
            pid = line.split("/")[2]
        elif " -> socket:[" in line:
            owners.setdefault(line.rpartition("[")[2].removesuffix("]"), names.get(pid, ""))
    found: dict[int, ListeningPort] = {}
    for port, address, inode in parse_listening(lines):
        found.setdefault(port, ListeningPort(port, address, owners.get(inode, "")))
    return [found[port] for port in sorted(found)]
