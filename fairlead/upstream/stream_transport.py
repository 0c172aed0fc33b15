"""A stream of a link as the transport of a connection: what is written is its stdin, what arrives is its stdout.

It leads to a port of a workspace, or is a WebSocket to a cluster through its agent.
Back pressure goes both ways: while the protocol does not read, the stream is not read, so the other end gets no credit;
and the protocol is asked to pause while the other end gives none.
"""

import asyncio
from contextlib import suppress

from fairlead.links.contract import Stream
from fairlead.links.frames import STDIN, STDOUT
from fairlead.links.streams import Data, Eof, Exit, StreamReset
from fairlead.upstream.transport import CLOSE_TIMEOUT_SECONDS, HIGH_WATER_BYTES, LOW_WATER_BYTES, TransportProtocol

MAX_SEND_BYTES = 64 * 1024


class StreamTransport(asyncio.Transport):
    """Implements `ByteTransport`. Call `start` once, or `switch_protocol` and then `run`."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._stream = stream
        self._protocol: TransportProtocol | None = None
        self._unsent = bytearray()
        self._has_unsent = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_closing = self._is_closed = self._is_writing_paused = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, protocol: TransportProtocol) -> None:
        self.switch_protocol(protocol)
        self.run()

    def run(self) -> None:
        self._tasks = [self._loop.create_task(self._read()), self._loop.create_task(self._send())]

    def switch_protocol(self, protocol: TransportProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        self._unsent += data
        self._has_unsent.set()
        if len(self._unsent) > HIGH_WATER_BYTES and not self._is_writing_paused and self._protocol is not None:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self._unsent:
            self._loop.call_later(CLOSE_TIMEOUT_SECONDS, self.abort)
        else:
            self.abort()

    def abort(self) -> None:
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._is_closed:
            return
        self._is_closing = self._is_closed = True
        self._stream.abandon("the connection has ended")
        for task in self._tasks:
            task.cancel()
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error)

    async def _read(self) -> None:
        error: Exception | None = None
        try:
            while (message := await self._stream.receive()) is not None:
                match message:
                    case Data(channel, content) if channel == STDOUT:
                        await self._may_read.wait()
                        if self._protocol is not None:
                            self._protocol.data_received(memoryview(content))
                    case Eof(channel) if channel == STDOUT:
                        break
                    case Exit(code):
                        error = ConnectionRefusedError("nothing answers") if code else None
                        break
        except StreamReset as reset:
            error = ConnectionResetError(reset.reason)
        await self._may_read.wait()
        self._end(error)

    async def _send(self) -> None:
        with suppress(StreamReset):  # the reader reports it
            while True:
                await self._has_unsent.wait()
                data = bytes(self._unsent[:MAX_SEND_BYTES])
                del self._unsent[: len(data)]
                await self._stream.send(STDIN, data)
                if self._is_writing_paused and len(self._unsent) < LOW_WATER_BYTES and self._protocol is not None:
                    self._is_writing_paused = False
                    self._protocol.resume_writing()
                if not self._unsent:
                    self._has_unsent.clear()
                    if self._is_closing:
                        self.abort()
                        return
