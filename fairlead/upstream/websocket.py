"""WebSocket connections to a cluster, for exec, attach and port-forward. `upstream.py` opens them for the gateways.

The handshake is an HTTP exchange on a separate connection (`connection.py`), which is taken over if the response is a
valid 101. Frames are parsed by the `websockets` library, but not the handshake: the library rejects subprotocols such
as `SPDY/3.1+portforward.k8s.io`, which kubectl uses.

Very small frames are expensive to parse. So received data is parsed in slices that yield to the event loop after a few
milliseconds, and reading is paused until all of it is parsed. Back pressure does not limit control frames and empty
fragments, because they never reach the reader; they have a rate limit of their own.
"""

import asyncio
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Sequence
from os import urandom
from typing import cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import CLIENT, OPEN, Protocol
from websockets.utils import accept_key

from fairlead.upstream.access import Limits, Request
from fairlead.upstream.connection import Connection
from fairlead.upstream.dial import Dialing
from fairlead.upstream.errors import Broken, Refused, TimedOut
from fairlead.upstream.messages import Wire
from fairlead.upstream.transport import GOODBYE_SECONDS, TlsTransport

MAX_MESSAGE = 32 * 2**20
"""Much larger than the messages of exec and port-forward, which have some kilobytes."""
HIGH_WATER = 256 * 1024
LEAST_WEIGHT = 64
SLICE, TURN_SECONDS = 2 * 1024, 0.005
"""Bytes parsed between two checks of the clock, and the time after which parsing yields to the event loop."""
IDLE_FRAMES = 2_000
"""Maximum of pings, pongs and tiny fragments per second. API servers send one every few seconds."""
LEAST_PIECE = 16
"""A smaller fragment that is not the last of its message counts as an idle frame."""
MAX_REFUSAL = 64 * 1024
_REASON_BYTES = 123
"""Maximum length of the reason in a close frame (RFC 6455)."""


class FarSocket:
    """A `core.call.Socket` to a cluster. `subprotocol` is the one that the cluster chose, or empty."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self._frames = Protocol(CLIENT, max_size=MAX_MESSAGE)
        self._transport: TlsTransport | None = None
        self._messages: deque[bytes | str] = deque()
        self._parts = bytearray()
        self._is_text = False
        self._size = 0
        self._unparsed = bytearray()
        self._will_parse = self._is_full = self._is_lost = False
        self._idle_frames, self._idle_since = 0, 0.0
        self._fault: tuple[int, str] | None = None
        self._over = False
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._owed = b""
        self._when_gone: list[Callable[[FarSocket], None]] = []

    # --- for gateways ------------------------------------------------------------------------------------------------

    async def receive(self) -> bytes | str | None:
        """Returns the next message, or None if the connection is closed."""
        while not self._messages:
            if self._over:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._messages.popleft()
        self._size -= _weight(message)
        if self._is_full and not self._messages:
            self._is_full = False
            self._go_on()
        return message

    async def send(self, message: bytes | str) -> None:
        """Sends a message and waits for room in the write buffer. A closed connection is no error: see `receive`."""
        if self._over or self._frames.state is not OPEN:
            return
        if isinstance(message, str):
            self._frames.send_text(message.encode())
        else:
            self._frames.send_binary(message)
        self._flush()
        if self._drained is not None:
            await self._drained

    async def close(self, code: int, reason: str) -> None:
        """Sends a close frame, and aborts the connection after CLOSE_TIMEOUT_SECONDS."""
        if self._frames.state is OPEN and not self._over:
            text = reason.encode()[:_REASON_BYTES].decode(errors="ignore")
            self._frames.send_close(code if _can_be_sent(code) else CloseCode.INTERNAL_ERROR, text)
            self._flush()
        self._end()
        asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self.abort)

    @property
    def goodbye(self) -> tuple[int, str]:
        """Code and reason of the cluster's close frame, or of our own abort; 1006 without a close frame."""
        if self._fault is not None:
            return self._fault
        received = self._frames.close_rcvd
        return (received.code, received.reason) if received is not None else (1006, "")

    def abort(self) -> None:
        self._unparsed.clear()
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def when_gone(self, tell: Callable[["FarSocket"], None]) -> None:
        """Calls `callback` once, when the connection is closed."""
        if self._transport is None:
            tell(self)
        else:
            self._when_gone.append(tell)

    # --- for the event loop ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(TlsTransport, transport)

    def data_received(self, data: bytes | memoryview) -> None:
        self._unparsed += data
        if not self._will_parse and not self._is_full:
            self._parse()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self._is_lost = None, True
        if not self._unparsed:
            self._end()
        callbacks, self._when_gone = self._when_gone, []
        for callback in callbacks:
            callback(self)

    def _parse(self) -> None:
        """Parses received data until the turn is over, or enough messages are queued."""
        self._will_parse = False
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_SECONDS
        try:
            while self._unparsed and not self._is_full:
                piece = bytes(self._unparsed[:SLICE])
                del self._unparsed[:SLICE]
                self._parse_piece(piece)
                if loop.time() >= until:
                    break
        except Exception as error:  # noqa: BLE001 - any exception is reported and closes the connection
            if not isinstance(
                error, UnicodeDecodeError
            ):  # invalid UTF-8 is the cluster's fault, all else a bug of ours
                loop.call_exception_handler(
                    {"message": "a WebSocket failed to parse received data", "exception": error}
                )
            self.abort()
            return
        self._go_on()

    def _go_on(self) -> None:
        """Schedules the next step: parse the rest, resume or pause reading, or end the connection."""
        if self._unparsed and not self._is_full and not self._will_parse:
            self._will_parse = True
            asyncio.get_running_loop().call_soon(self._parse)
        if self._is_lost and not self._unparsed:
            self._end()
        if self._transport is None:
            return
        if self._unparsed or self._is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _parse_piece(self, piece: bytes) -> None:
        self._frames.receive_data(piece)
        idle = 0
        for event in self._frames.events_received():
            if isinstance(event, Frame):
                self._take(event)
                idle += _is_idle(event)
        if idle and self._is_idle_talk(idle):
            reason = f"the cluster sent more than {IDLE_FRAMES} empty frames a second"
            self._fault = int(CloseCode.POLICY_VIOLATION), reason
            self.abort()
            return
        self._answer()
        if self._frames.state is not OPEN:
            self._part()
        else:
            self._is_full = self._size > HIGH_WATER

    def _is_idle_talk(self, count: int) -> bool:
        """Adds `count` idle frames. Returns whether the limit per second is exceeded."""
        now = asyncio.get_running_loop().time()
        if now - self._idle_since > 1:
            self._idle_frames, self._idle_since = 0, now
        self._idle_frames += count
        return self._idle_frames > IDLE_FRAMES

    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        owed, self._owed = self._owed, b""
        if owed and not self._over and self._transport is not None:
            self._transport.write(owed)
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _take(self, frame: Frame) -> None:
        if self._over:
            return  # closed by us: received messages are discarded
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._is_text = frame.opcode is Opcode.TEXT
        elif frame.opcode is not Opcode.CONT:
            return
        self._parts += frame.data
        if not frame.fin:
            return
        data = bytes(self._parts)
        self._parts.clear()
        message = data.decode() if self._is_text else data
        self._messages.append(message)
        self._size += _weight(message)
        self._wake()

    def _answer(self) -> None:
        """Sends pongs and close replies. While writing is paused, keeps only the last pong: a cluster that sends pings
        without reading must not fill our memory."""
        if self._drained is None or self._frames.state is not OPEN:
            self._flush()
        elif answers := self._frames.data_to_send():
            self._owed = answers[-1]

    def _flush(self) -> None:
        for data in self._frames.data_to_send():
            if data and self._transport is not None and not self._transport.is_closing():
                self._transport.write(data)

    def _part(self) -> None:
        """Handles a close frame or invalid data: flushes pending writes, then closes the connection."""
        self._end()
        if not (self._frames.close_rcvd or self._frames.parser_exc):
            return  # only our own close frame was sent
        self._unparsed.clear()
        if self._transport is not None:
            self._transport.close()
            asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self.abort)

    def _end(self) -> None:
        """Marks the connection as closed and wakes waiting readers and writers."""
        self._over = True
        self._wake()
        self.resume_writing()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _weight(message: bytes | str) -> int:
    """Size of a queued message for back pressure. Empty messages count, too, because they use memory."""
    return max(LEAST_WEIGHT, len(message))


def _is_idle(frame: Frame) -> bool:
    """Whether the frame never reaches the reader: a ping, a pong, or a tiny fragment that is not the last."""
    if frame.opcode in (Opcode.PING, Opcode.PONG):
        return True
    return not frame.fin and len(frame.data) < LEAST_PIECE


def _can_be_sent(code: int) -> bool:
    """Some close codes are for local use only and must not be sent, such as 1006."""
    return code in (1000, 1001, 1002, 1003) or 1007 <= code <= 1014 or 3000 <= code <= 4999


class _Handshake:
    """A client handshake: validates the 101, and takes over the connection."""

    def __init__(self, protocols: Sequence[str]) -> None:
        self.key = b64encode(urandom(16)).decode()
        self.far: FarSocket | None = None
        self._protocols = protocols

    def headers(self) -> str:
        offered = f"Sec-WebSocket-Protocol: {', '.join(self._protocols)}\r\n" if self._protocols else ""
        fixed = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        return f"{fixed}Sec-WebSocket-Key: {self.key}\r\n{offered}"

    def switch(self, transport: TlsTransport, headers: Sequence[tuple[str, str]], rest: bytes) -> None:
        found = dict(headers)
        chosen = found.get("sec-websocket-protocol", "")
        if found.get("sec-websocket-accept") != accept_key(self.key):
            raise Broken("the cluster's WebSocket handshake is invalid")
        if "sec-websocket-extensions" in found or (chosen and chosen not in self._protocols):
            raise Broken("the cluster chose a WebSocket subprotocol or extension that was not offered")
        self.far = FarSocket(chosen)
        transport.hand_over(self.far)
        if rest:
            self.far.data_received(rest)


async def opened(dialing: Dialing, wire: Wire, request: Request, protocols: Sequence[str], limits: Limits) -> FarSocket:
    handshake = _Handshake(protocols)
    headers = [each for each in request.headers if not each[0].lower().startswith("sec-websocket-")]
    head = wire.head("GET", request.target, headers, handshake.headers())
    connection = await dialing(lambda: Connection(_nobody), limits.connect_seconds)
    try:
        async with asyncio.timeout(limits.head_seconds):
            response = connection.start(False, 0, 0)
            connection.switch = handshake.switch
            connection.write(head)
            await response.arrival
            if handshake.far is not None:
                return handshake.far
            body = await response.read(MAX_REFUSAL)
    except TimeoutError:
        raise TimedOut("the cluster did not respond in time; check whether it is overloaded") from None
    finally:
        connection.fail(Broken("the handshake is over"))
    raise Refused(response.status, response.headers, body)


def _nobody(connection: Connection) -> None:
    """No pool owns this connection."""
