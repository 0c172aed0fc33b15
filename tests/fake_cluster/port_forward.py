"""`pods/portforward` of the fake cluster: SPDY in a WebSocket, and real connections to 127.0.0.1 behind it.

As seen on a real node with containerd: a forward has any number of connections, each with an error and a data stream of
the same `requestID`. When the client ends or resets its direction, the connection is closed a second later. A port that
nothing listens on ends the data stream at once, and the error stream says why. There is no flow control per stream: a
client that does not read holds up all connections of the forward.
"""

import asyncio
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass

from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.pods import PodWebSocket

SYN_STREAM, SYN_REPLY, RST_STREAM, FIN = 1, 2, 3, 0x01
CLOSE_SECONDS = 1.0


async def forward_port(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await PodForward(PodWebSocket(request, reader, writer)).run()
    return False


@dataclass(slots=True)
class _Connection:
    error_stream: int
    data_stream: int = 0
    target: asyncio.StreamWriter | None = None


class PodForward:
    """The node's end of a forward."""

    def __init__(self, websocket: PodWebSocket) -> None:
        self._websocket = websocket
        self._received = b""
        self._compressor = zlib.compressobj()
        self._decompressor = zlib.decompressobj()
        self._by_request: dict[str, _Connection] = {}
        self._by_stream: dict[int, _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_pod_gone = False
        self.opened = 0
        self.resets = 0

    async def run(self) -> None:
        async for message in self._websocket.messages():
            await self._feed(message)
        self.close()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.end_pod()

    def end_pod(self) -> None:
        """The pod ends: its connections end, and new ones are refused. The forward itself stays."""
        self._is_pod_gone = True
        for connection in self._by_request.values():
            _close(connection)

    async def _feed(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 8:
            word, rest = struct.unpack(">II", self._received[:8])
            size = 8 + (rest & 0xFFFFFF)
            if len(self._received) < size:
                return
            frame = self._received[:size]
            self._received = self._received[size:]
            if word >> 31:
                await self._on_control(word & 0xFFFF, frame)
            elif connection := self._by_stream.get(word):
                await self._on_data(connection, frame[8:], is_last=bool(rest >> 24 & FIN))

    async def _on_control(self, kind: int, frame: bytes) -> None:
        if kind == SYN_STREAM:
            await self._open(struct.unpack(">I", frame[8:12])[0], self._read_headers(frame[18:]))
        elif kind == RST_STREAM:
            self.resets += 1
            connection = self._by_stream.pop(struct.unpack(">I", frame[8:12])[0], None)
            if connection is not None:
                asyncio.get_running_loop().call_later(CLOSE_SECONDS, _close, connection)

    def _read_headers(self, compressed: bytes) -> dict[str, str]:
        block = self._decompressor.decompress(compressed)
        (count,) = struct.unpack(">I", block[:4])
        position = 4
        texts = []
        for _ in range(2 * count):
            (length,) = struct.unpack(">I", block[position : position + 4])
            texts.append(block[position + 4 : position + 4 + length].decode())
            position += 4 + length
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def _open(self, stream: int, headers: dict[str, str]) -> None:
        reply = self._compressor.compress(bytes(4)) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        head = struct.pack(">HHI", 0x8003, SYN_REPLY, 4 + len(reply)) + struct.pack(">I", stream)
        for part in (head[:2], head[2:4], head[4:], reply):  # a real server splits the first frame, too
            self._websocket.send(part)
        if headers["streamtype"] == "error":
            self._by_request[headers["requestid"]] = _Connection(stream)
            return
        connection = self._by_request[headers["requestid"]]
        connection.data_stream = stream
        self._by_stream[stream] = connection
        self.opened += 1
        try:
            if self._is_pod_gone:
                raise ConnectionRefusedError("the network namespace of the pod is closed")
            reader, connection.target = await asyncio.open_connection("127.0.0.1", int(headers["port"]))
        except OSError as error:
            self._send(stream, b"", FIN)
            self._send(connection.error_stream, f"error forwarding port to pod: {error}".encode())
            self._send(connection.error_stream, b"", FIN)
            return
        task = asyncio.create_task(self._copy(connection, reader))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _on_data(self, connection: _Connection, data: bytes, is_last: bool) -> None:
        if connection.target is not None:
            connection.target.write(data)
            with suppress(OSError):
                await connection.target.drain()
            if is_last:
                asyncio.get_running_loop().call_later(CLOSE_SECONDS, _close, connection)

    async def _copy(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(32768):
                self._send(connection.data_stream, data)
                await self._websocket.drain()
            self._send(connection.data_stream, b"", FIN)
            self._send(connection.error_stream, b"", FIN)

    def _send(self, stream: int, data: bytes, flags: int = 0) -> None:
        self._websocket.send(struct.pack(">II", stream, flags << 24 | len(data)) + data)


def _close(connection: _Connection) -> None:
    if connection.target is not None:
        connection.target.transport.abort()
