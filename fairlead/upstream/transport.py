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

CLOSE_TIMEOUT_SECONDS = 2.0
"""Timeout for flushing written data after `close`."""
READ_BUFFER_BYTES = 256 * 1024
MAX_READS_PER_TURN, MAX_TURN_SECONDS = 4, 0.005
"""A connection yields to the event loop after this many reads, or after this time."""
_RECORD_SLACK_BYTES = 32 * 1024
"""More than the size of a TLS record: the rest of an earlier read is decrypted together with the next one."""
HIGH_WATER_BYTES, LOW_WATER_BYTES = 128 * 1024, 32 * 1024
"""Write buffer sizes at which the protocol's `pause_writing` and `resume_writing` are called."""
HANDSHAKE_READ_BYTES = 16 * 1024


class TransportProtocol(Protocol):
    """An asyncio protocol. The memory passed to `data_received` is reused, so the protocol must copy it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: memoryview) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class ByteTransport(Protocol):
    """What protocols use of a transport. It delivers all received data before it reports the end."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def is_closing(self) -> bool: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def switch_protocol(self, protocol: TransportProtocol) -> None:
        """Delivers to another protocol from now on, after an HTTP upgrade."""

    def close(self) -> None:
        """Closes the connection after what was written is sent."""

    def abort(self) -> None: ...


class _ThreadBuffers(threading.local):
    """Receive buffers per thread, and thus per event loop."""

    def __init__(self) -> None:
        self.encrypted = memoryview(bytearray(READ_BUFFER_BYTES))
        self.decrypted = memoryview(bytearray(READ_BUFFER_BYTES + _RECORD_SLACK_BYTES))


_buffers = _ThreadBuffers()


class TlsTransport(asyncio.Transport):
    """Owns a non-blocking socket. Call `do_handshake` first, then `start`."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._read_into = cast(Callable[[int, memoryview], int], self._tls.read)
        self._unsent = memoryview(b"")
        self._is_reading = self._is_read_scheduled = self._is_write_blocked = self._is_writing_paused = False
        self._is_write_broken = False
        """Whether a write has failed. Reading may go on."""
        self._is_closing = self._is_closed = False
        self._protocol: TransportProtocol | None = None

    async def do_handshake(self, *, signs: bool) -> None:
        """Performs the TLS handshake. Raises OSError, including its subclass ssl.SSLError.

        With a client certificate (`signs`), the steps after the first are done in a thread: to sign with an RSA key of
        4096 bits takes 25 ms."""
        is_done = self._continue_handshake()
        while not is_done:
            await self._send_handshake_data()
            await self._receive_handshake_data()
            is_done = await asyncio.to_thread(self._continue_handshake) if signs else self._continue_handshake()
        await self._send_handshake_data()

    def _continue_handshake(self) -> bool:
        """Returns whether it is done; otherwise it needs more data."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def _send_handshake_data(self) -> None:
        if data := self._outgoing.read():
            await self._loop.sock_sendall(self._socket, data)

    async def _receive_handshake_data(self) -> None:
        data = await self._loop.sock_recv(self._socket, HANDSHAKE_READ_BYTES)
        if not data:
            raise ConnectionResetError("closed during the TLS handshake")
        self._incoming.write(data)

    def start(self, protocol: TransportProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self.resume_reading()
        if self._incoming.pending:  # data that arrived with the end of the handshake
            self._loop.call_soon(self._decrypt)

    # --- for protocols -----------------------------------------------------------------------------------------------

    def switch_protocol(self, protocol: TransportProtocol) -> None:
        """Delivers to another protocol from now on, after an HTTP upgrade."""
        self._protocol = protocol
        protocol.connection_made(self)

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._loop.add_reader(self._socket, self._on_readable)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._is_write_broken or not data:
            return
        try:
            written = self._tls.write(data)
            if written < len(data):
                rest = memoryview(data)[written:]
                while rest:
                    rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            self._terminate(error)
            return
        self._flush()
        if (
            self.get_write_buffer_size() > HIGH_WATER_BYTES
            and not self._is_writing_paused
            and self._protocol is not None
        ):
            self._is_writing_paused = True
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
        self._flush()
        if not self._is_closed:
            self._loop.call_later(CLOSE_TIMEOUT_SECONDS, self.abort)

    def abort(self) -> None:
        self._terminate(None)

    # --- for the event loop ------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        """Event loop callback, called in every iteration while data is available. Skipped if a read is scheduled."""
        if not self._is_read_scheduled:
            self._read()

    def _read(self) -> None:
        """Reads until the socket has no more data, the protocol pauses reading, or the turn is over.

        Schedules its own continuation instead of relying on the event loop: uvloop reports a reset connection as
        readable only once. At most one continuation is scheduled.
        """
        encrypted, until = _buffers.encrypted, self._loop.time() + MAX_TURN_SECONDS
        for _ in range(MAX_READS_PER_TURN):
            try:
                count = self._socket.recv_into(encrypted)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._terminate(error)
                return
            if not count:
                # An attacker can close TCP, but only the peer can close TLS, which `_decrypt` detects.
                self._terminate(
                    ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the connection was closed without closing TLS first")
                )
                return
            self._incoming.write(encrypted[:count])
            self._decrypt()
            if not self._is_reading:
                return
            if self._loop.time() >= until:
                break
        self._is_read_scheduled = True
        self._loop.call_soon(self._continue_reading)

    def _continue_reading(self) -> None:
        self._is_read_scheduled = False
        if self._is_reading:
            self._read()

    def _decrypt(self) -> None:
        """Decrypts and delivers everything received so far."""
        if self._is_closing:
            return
        tls, incoming, landing = self._tls, self._incoming, _buffers.decrypted
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
            self._terminate(failure)
        elif self._outgoing.pending:
            self._flush()

    def _deliver(self, data: memoryview) -> bool:
        """Returns whether the protocol accepted the data. If it raised, its state is unknown: closes the connection."""
        try:
            if self._protocol is not None:
                self._protocol.data_received(data)
        except Exception as error:  # noqa: BLE001 - any exception is reported and closes the connection
            context = {"message": "a protocol failed in data_received", "exception": error, "transport": self}
            self._loop.call_exception_handler(context)
            self._terminate(error)
            return False
        return True

    def _flush(self) -> None:
        """Sends as much as the socket accepts, and the rest when it is writable again."""
        try:
            while not self._is_write_blocked and (self._unsent or self._outgoing.pending):
                if not self._unsent:
                    self._unsent = memoryview(self._outgoing.read())
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            self._is_write_blocked = True
            self._loop.add_writer(self._socket, self._on_writable)
        except OSError:
            self._stop_writing()
        if self._is_closing and not self.get_write_buffer_size():
            self._terminate(None)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._socket)
        self._is_write_blocked = False
        self._flush()
        if self._is_writing_paused and self.get_write_buffer_size() <= LOW_WATER_BYTES and self._protocol is not None:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def _stop_writing(self) -> None:
        """Discards the write buffer after a failed write. Reading goes on: unread data may explain the failure."""
        self._is_write_broken = True
        self._outgoing.read()
        self._unsent = memoryview(b"")
        if self._is_writing_paused and self._protocol is not None:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def _terminate(self, error: Exception | None) -> None:
        if self._is_closed:
            return
        self._is_closed = self._is_closing = True
        self.pause_reading()
        self._loop.remove_writer(self._socket)
        self._socket.close()
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            self._loop.call_soon(protocol.connection_lost, error)
