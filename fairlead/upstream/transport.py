"""A TLS connection to a cluster, as its protocols see it: what has arrived is always delivered before the end is.

The event loops' own TLS transports do not promise that. When the other side closes while reading is paused, they drop
what they have read and not yet delivered, and a write that fails ends the connection with all that is still to be read:
the end of a command's output, of a file, of a log. Here the socket itself is left alone while reading is paused,
nothing is kept between two reads but an incomplete TLS record, and a side that no longer listens is read to its end.

`dial.py` makes these; `connection.py` and `websocket.py` have the protocols. Everything that arrives lands in a buffer
that all connections of an event loop share, and is handed over before anything else happens there.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

GOODBYE_SECONDS = 2.0
"""How long the other side may take to take in what was written before a connection was closed."""
READ_BYTES = 256 * 1024
READS_AT_ONCE, TURN_SECONDS = 4, 0.005
"""Others have their turn after so many reads, or after the read during which so much time has passed."""
_RECORD_ROOM = 32 * 1024
"""More than a TLS record takes: what is left of an earlier read is decrypted together with the next."""
HIGH_WATER, LOW_WATER = 128 * 1024, 32 * 1024
"""How much that was written may wait for the other side before its writers are told to wait, and to go on."""
HANDSHAKE_BYTES = 16 * 1024


class Receiver(Protocol):
    """What is told of a connection. `data_received` gets memory that is used again: it keeps nothing but copies."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: memoryview) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class _Memory(threading.local):
    """The buffers of one thread, and so of the event loop that runs in it."""

    def __init__(self) -> None:
        self.encrypted = memoryview(bytearray(READ_BYTES))
        self.landing = memoryview(bytearray(READ_BYTES + _RECORD_ROOM))


_memory = _Memory()


class TlsTransport(asyncio.Transport):
    """`shake_hands` first, then `start`. Owns its socket, which must not block."""

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
        """Whether the other side takes in nothing any more."""
        self._is_closing = self._is_over = False
        self._protocol: Receiver | None = None

    async def shake_hands(self) -> None:
        """Raises OSError, of which ssl.SSLError is one."""
        is_done = False
        while not is_done:
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                pass
            if said := self._outgoing.read():
                await self._loop.sock_sendall(self._socket, said)
            if not is_done:
                await self._hear()

    async def _hear(self) -> None:
        heard = await self._loop.sock_recv(self._socket, HANDSHAKE_BYTES)
        if not heard:
            raise ConnectionResetError("closed during the TLS handshake")
        self._incoming.write(heard)

    def start(self, protocol: Receiver) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self.resume_reading()
        if self._incoming.pending:  # what came along with the end of the handshake
            self._loop.call_soon(self._decrypt)

    # --- for protocols -----------------------------------------------------------------------------------------------

    def hand_over(self, protocol: Receiver) -> None:
        """Another protocol gets what arrives from now on."""
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
        """What was written still goes out, if the other side takes it soon. Nothing more is read."""
        if self._is_closing:
            return
        self._is_closing = True
        self.pause_reading()
        with suppress(ssl.SSLError):  # it would like to hear the same from the other side
            self._tls.unwrap()
        self._send()
        if not self._is_over:
            self._loop.call_later(GOODBYE_SECONDS, self.abort)

    def abort(self) -> None:
        self._end(None)

    # --- for the event loop ------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        """The event loop says so in every turn while there is more. Reading that goes on by itself is not doubled."""
        if not self._reads_on:
            self._read()

    def _read(self) -> None:
        """Takes in what has arrived, until there is no more or somebody has enough.

        It is not left to the event loop to say that there is more: of a connection that was reset, uvloop tells once,
        and never again. One callback at most waits for its turn to read on.
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
                # Anybody on the way can close TCP. Only the other side itself can close TLS, which `_decrypt` sees.
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
        """Hands over everything that can be read by now."""
        if self._is_closing:
            return
        tls, incoming, landing = self._tls, self._incoming, _memory.landing
        size, is_end, trouble = 0, False, None
        try:
            while (incoming.pending or tls.pending()) and not is_end:
                count = self._read_into(len(landing) - size, landing[size:] if size else landing)
                is_end = not count
                size += count
        except ssl.SSLWantReadError:
            pass  # the rest of a record is still to come
        except ssl.SSLError as error:
            trouble = error
        if size and not self._deliver(landing[:size]):
            return
        if is_end or trouble is not None:
            self._end(trouble)
        elif self._outgoing.pending:
            self._send()

    def _deliver(self, data: memoryview) -> bool:
        """Whether the protocol could do with it. One with a fault is in no known state: its connection ends."""
        try:
            if self._protocol is not None:
                self._protocol.data_received(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported, and ends the connection
            context = {"message": "a protocol failed on what it received", "exception": error, "transport": self}
            self._loop.call_exception_handler(context)
            self._end(error)
            return False
        return True

    def _send(self) -> None:
        """Sends as much as the socket takes, and the rest when it takes more."""
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
        """The other side takes in nothing any more. What it said before is still to be read, and then why it left."""
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
