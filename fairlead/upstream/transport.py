"""asyncio TLS transport that delivers all received data before it reports the end of the connection.

The TLS transports of asyncio and uvloop do not guarantee that. If the peer closes while reading is paused, they drop
data that was read but not delivered; and a failed write closes the connection with all unread data: the end of a
command's output, of a file, of a log. This transport does not read the socket while reading is paused, buffers nothing
between two reads but an incomplete TLS record, and after a failed write reads on to the end of the stream.

`dial.py` creates transports; the protocols are in `connection.py` and `websocket.py`. Data is received into a buffer
that all connections of an event loop share, and is delivered to the protocol before the next read.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

GOODBYE_SECONDS = 2.0
"""Timeout for flushing written data after `close`."""
READ_BYTES = 256 * 1024
READS_AT_ONCE, TURN_SECONDS = 4, 0.005
"""A connection yields to the event loop after this many reads, or after this time."""
_RECORD_ROOM = 32 * 1024
"""More than the size of a TLS record: the rest of an earlier read is decrypted together with the next one."""
HIGH_WATER, LOW_WATER = 128 * 1024, 32 * 1024
"""Write buffer sizes at which the protocol's `pause_writing` and `resume_writing` are called."""
HANDSHAKE_BYTES = 16 * 1024


class Receiver(Protocol):
    """An asyncio protocol. The memory passed to `data_received` is reused, so the protocol must copy it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: memoryview) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class _Memory(threading.local):
    """Receive buffers per thread, and thus per event loop."""

    def __init__(self) -> None:
        self.encrypted = memoryview(bytearray(READ_BYTES))
        self.landing = memoryview(bytearray(READ_BYTES + _RECORD_ROOM))


_memory = _Memory()


class TlsTransport(asyncio.Transport):
    """Owns a non-blocking socket. Call `do_handshake` first, then `start`."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._read_into = cast(Callable[[int, memoryview], int], self._tls.read)
        self._unsent = memoryview(b"")
        self._reads = self._reads_on = self._waits_for_room = self._writers_wait = False
        self._is_deaf = False
        """Whether a write has failed. Reading may go on."""
        self._is_closing = self._is_over = False
        self._protocol: Receiver | None = None

    async def shake_hands(self) -> None:
        """Performs the TLS handshake. Raises OSError, including its subclass ssl.SSLError."""
        is_done = False
        while not is_done:
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                pass
            if data := self._outgoing.read():
                await self._loop.sock_sendall(self._socket, data)
            if not is_done:
                await self._hear()

    async def _hear(self) -> None:
        data = await self._loop.sock_recv(self._socket, HANDSHAKE_BYTES)
        if not data:
            raise ConnectionResetError("closed during the TLS handshake")
        self._incoming.write(data)

    def start(self, protocol: Receiver) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self.resume_reading()
        if self._incoming.pending:  # data that arrived with the end of the handshake
            self._loop.call_soon(self._decrypt)

    # --- for protocols -----------------------------------------------------------------------------------------------

    def hand_over(self, protocol: Receiver) -> None:
        """Delivers to another protocol from now on, after an HTTP upgrade."""
        self._protocol = protocol
        protocol.connection_made(self)

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        if not self._reads and not self._is_closing:
            self._reads = True
            self._loop.add_reader(self._socket, self._readable)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._is_deaf or not data:
            return
        try:
            written = self._tls.write(data)
            if written < len(data):
                rest = memoryview(data)[written:]
                while rest:
                    rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            self._end(error)
            return
        self._send()
        if self.get_write_buffer_size() > HIGH_WATER and not self._writers_wait and self._protocol is not None:
            self._writers_wait = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent) + self._outgoing.pending

    def close(self) -> None:
        """Stops reading, flushes written data within CLOSE_TIMEOUT_SECONDS, and closes the connection."""
        if self._is_closing:
            return
        self._is_closing = True
        self.pause_reading()
        with suppress(ssl.SSLError):  # raised because the peer's close_notify has not arrived
            self._tls.unwrap()
        self._send()
        if not self._is_over:
            self._loop.call_later(GOODBYE_SECONDS, self.abort)

    def abort(self) -> None:
        self._end(None)

    # --- for the event loop ------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        """Event loop callback, called in every iteration while data is available. Skipped if a read is scheduled."""
        if not self._reads_on:
            self._read()

    def _read(self) -> None:
        """Reads until the socket has no more data, the protocol pauses reading, or the turn is over.

        Schedules its own continuation instead of relying on the event loop: uvloop reports a reset connection as
        readable only once. At most one continuation is scheduled.
        """
        encrypted, until = _memory.encrypted, self._loop.time() + TURN_SECONDS
        for _ in range(READS_AT_ONCE):
            try:
                count = self._socket.recv_into(encrypted)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._end(error)
                return
            if not count:
                # An attacker can close TCP, but only the peer can close TLS, which `_decrypt` detects.
                self._end(ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the connection was closed without closing TLS first"))
                return
            self._incoming.write(encrypted[:count])
            self._decrypt()
            if not self._reads:
                return
            if self._loop.time() >= until:
                break
        self._reads_on = True
        self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._reads_on = False
        if self._reads:
            self._read()

    def _decrypt(self) -> None:
        """Decrypts and delivers everything received so far."""
        if self._is_closing:
            return
        tls, incoming, landing = self._tls, self._incoming, _memory.landing
        size, is_end, failure = 0, False, None
        try:
            while (incoming.pending or tls.pending()) and not is_end:
                count = self._read_into(len(landing) - size, landing[size:] if size else landing)
                is_end = not count
                size += count
        except ssl.SSLWantReadError:
            pass  # incomplete TLS record
        except ssl.SSLError as error:
            failure = error
        if size and not self._deliver(landing[:size]):
            return
        if is_end or failure is not None:
            self._end(failure)
        elif self._outgoing.pending:
            self._send()

    def _deliver(self, data: memoryview) -> bool:
        """Returns whether the protocol accepted the data. If it raised, its state is unknown: closes the connection."""
        try:
            if self._protocol is not None:
                self._protocol.data_received(data)
        except Exception as error:  # noqa: BLE001 - any exception is reported and closes the connection
            context = {"message": "a protocol failed in data_received", "exception": error, "transport": self}
            self._loop.call_exception_handler(context)
            self._end(error)
            return False
        return True

    def _send(self) -> None:
        """Sends as much as the socket accepts, and the rest when it is writable again."""
        try:
            while not self._waits_for_room and (self._unsent or self._outgoing.pending):
                if not self._unsent:
                    self._unsent = memoryview(self._outgoing.read())
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            self._waits_for_room = True
            self._loop.add_writer(self._socket, self._room)
        except OSError:
            self._stop_writing()
        if self._is_closing and not self.get_write_buffer_size():
            self._end(None)

    def _room(self) -> None:
        self._loop.remove_writer(self._socket)
        self._waits_for_room = False
        self._send()
        if self._writers_wait and self.get_write_buffer_size() <= LOW_WATER and self._protocol is not None:
            self._writers_wait = False
            self._protocol.resume_writing()

    def _stop_writing(self) -> None:
        """Discards the write buffer after a failed write. Reading goes on: unread data may explain the failure."""
        self._is_deaf = True
        self._outgoing.read()
        self._unsent = memoryview(b"")
        if self._writers_wait and self._protocol is not None:
            self._writers_wait = False
            self._protocol.resume_writing()

    def _end(self, error: Exception | None) -> None:
        if self._is_over:
            return
        self._is_over = self._is_closing = True
        self.pause_reading()
        self._loop.remove_writer(self._socket)
        self._socket.close()
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            self._loop.call_soon(protocol.connection_lost, error)
