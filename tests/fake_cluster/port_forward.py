"""`pods/portforward` of the fake cluster: SPDY in a WebSocket, and real connections to 127.0.0.1 behind it.

As seen on a real node with containerd: when the client ends its direction, the connection is closed a second later. A
port that nothing listens on ends the data stream at once, and the error stream says why.
"""

import asyncio
import struct
import zlib
from contextlib import suppress

from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.pods import PodWebSocket

SYN_STREAM, SYN_REPLY, FIN = 1, 2, 0x01
ERROR_STREAM, DATA_STREAM = 1, 3
CLOSE_SECONDS = 1.0


async def forward_port(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    websocket = PodWebSocket(request, reader, writer)
    forward = _Forward(websocket, int(request.query["ports"]))
    async for message in websocket.messages():
        await forward.feed(message)
    forward.close()
    return False


class _Forward:
    def __init__(self, websocket: PodWebSocket, port: int) -> None:
        self._websocket = websocket
        self._port = port
        self._received = b""
        self._compressor = zlib.compressobj()
        self._target: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def feed(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 8:
            word, rest = struct.unpack(">II", self._received[:8])
            size = 8 + (rest & 0xFFFFFF)
            if len(self._received) < size:
                return
            frame, self._received = self._received[:size], self._received[size:]
            if word >> 31 and word & 0xFFFF == SYN_STREAM:
                await self._open(struct.unpack(">I", frame[8:12])[0])
            elif word == DATA_STREAM and self._target is not None:
                self._target.write(frame[8:])
                if rest >> 24 & FIN:
                    asyncio.get_running_loop().call_later(CLOSE_SECONDS, self.close)

    async def _open(self, stream: int) -> None:
        headers = self._compressor.compress(bytes(4)) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        head = struct.pack(">HHI", 0x8003, SYN_REPLY, 4 + len(headers)) + struct.pack(">I", stream)
        for part in (head[:2], head[2:4], head[4:], headers):  # a real server splits the first frame, too
            self._websocket.send(part)
        if stream != DATA_STREAM:
            return
        try:
            reader, self._target = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            self._send(DATA_STREAM, b"", FIN)
            self._send(ERROR_STREAM, f"error forwarding port {self._port} to pod: {error}".encode())
            self._send(ERROR_STREAM, b"", FIN)
            return
        self._tasks.append(asyncio.create_task(self._copy(reader)))

    async def _copy(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(32768):
                self._send(DATA_STREAM, data)
        self._send(DATA_STREAM, b"", FIN)
        self._send(ERROR_STREAM, b"", FIN)

    def _send(self, stream: int, data: bytes, flags: int = 0) -> None:
        self._websocket.send(struct.pack(">II", stream, flags << 24 | len(data)) + data)

    def close(self) -> None:
        if self._target is not None:
            self._target.transport.abort()
