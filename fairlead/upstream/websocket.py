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
from dataclasses import replace
from os import urandom
from typing import cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import CLIENT, OPEN, Protocol
from websockets.utils import accept_key

from fairlead.upstream.access import Limits, Request
from fairlead.upstream.connection import Connection, UpgradeHandler
from fairlead.upstream.dial import ProtocolConnector
from fairlead.upstream.errors import HandshakeRejected, ProtocolError, TimedOut
from fairlead.upstream.messages import HeadEncoder, Response
from fairlead.upstream.transport import CLOSE_TIMEOUT_SECONDS, ByteTransport

MAX_MESSAGE_BYTES = 32 * 2**20
"""Much larger than the messages of exec and port-forward, which have some kilobytes."""
HIGH_WATER_BYTES = 256 * 1024
MIN_MESSAGE_WEIGHT = 64
PARSE_SLICE_BYTES, MAX_TURN_SECONDS = 2 * 1024, 0.005
"""Bytes parsed between two checks of the clock, and the time after which parsing yields to the event loop."""
MAX_IDLE_FRAMES_PER_SECOND = 2_000
"""Maximum of pings, pongs and tiny fragments per second. API servers send one every few seconds."""
MIN_FRAGMENT_BYTES = 16
"""A smaller fragment that is not the last of its message counts as an idle frame."""
MAX_REJECTION_BYTES = 64 * 1024
_UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
_MAX_REASON_BYTES = 123
"""Maximum length of the reason in a close frame (RFC 6455)."""


class UpstreamWebSocket:
    """A `core.call.WebSocket` to a cluster. `subprotocol` is the one that the cluster chose, or empty."""

    def __init__(self, subprotocol: str) -> None:
        self.subprotocol = subprotocol
        self._frames = Protocol(CLIENT, max_size=MAX_MESSAGE_BYTES)
        self._transport: ByteTransport | None = None
        self._messages: deque[bytes | str] = deque()
        self._fragments = bytearray()
        self._is_text = False
        self._queued_bytes = 0
        self._unparsed = bytearray()
        self._is_parse_scheduled = self._is_full = self._is_connection_lost = False
        self._idle_frames, self._idle_since = 0, 0.0
        self._local_close: tuple[int, str] | None = None
        self._is_closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._pending_pong = b""
        self._close_callbacks: list[Callable[[UpstreamWebSocket], None]] = []

    # --- for gateways ------------------------------------------------------------------------------------------------

    async def receive(self) -> bytes | str | None:
        """Returns the next message, or None if the connection is closed."""
        while not self._messages:
            if self._is_closed:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._messages.popleft()
        self._queued_bytes -= _message_weight(message)
        if self._is_full and not self._messages:
            self._is_full = False
            self._continue()
        return message

    async def send(self, message: bytes | str) -> None:
        """Sends a message and waits for room in the write buffer. A closed connection is no error: see `receive`."""
        if self._is_closed or self._frames.state is not OPEN:
            return
        if isinstance(message, str):
            self._frames.send_text(message.encode())
        else:
            self._frames.send_binary(message)
        self._flush()
        if self._drain_waiter is not None:
            await self._drain_waiter

    def ping(self) -> None:
        """Sends a ping, so that nothing on the way closes the connection because it is idle. The pong is ignored."""
        if not self._is_closed and self._frames.state is OPEN and self._drain_waiter is None:
            self._frames.send_ping(b"")
            self._flush()

    async def close(self, code: int, reason: str) -> None:
        """Sends a close frame, and aborts the connection after CLOSE_TIMEOUT_SECONDS."""
        if self._frames.state is OPEN and not self._is_closed:
            text = reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
            self._frames.send_close(code if _is_sendable_close_code(code) else CloseCode.INTERNAL_ERROR, text)
            self._flush()
        self._mark_closed()
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_SECONDS, self.abort)

    @property
    def close_reason(self) -> tuple[int, str]:
        """Code and reason of the cluster's close frame, or of our own abort; 1006 without a close frame."""
        if self._local_close is not None:
            return self._local_close
        received = self._frames.close_rcvd
        return (received.code, received.reason) if received is not None else (1006, "")

    def abort(self) -> None:
        self._unparsed.clear()
        self._mark_closed()
        if self._transport is not None:
            self._transport.abort()

    def on_closed(self, callback: Callable[["UpstreamWebSocket"], None]) -> None:
        """Calls `callback` once, when the connection is closed."""
        if self._transport is None:
            callback(self)
        else:
            self._close_callbacks.append(callback)

    # --- for the event loop ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(ByteTransport, transport)

    def data_received(self, data: bytes | memoryview) -> None:
        self._unparsed += data
        if not self._is_parse_scheduled and not self._is_full:
            self._parse()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self._is_connection_lost = None, True
        if not self._unparsed:
            self._mark_closed()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback(self)

    def _parse(self) -> None:
        """Parses received data until the turn is over, or enough messages are queued."""
        self._is_parse_scheduled = False
        loop = asyncio.get_running_loop()
        until = loop.time() + MAX_TURN_SECONDS
        try:
            while self._unparsed and not self._is_full:
                piece = bytes(self._unparsed[:PARSE_SLICE_BYTES])
                del self._unparsed[:PARSE_SLICE_BYTES]
                self._parse_slice(piece)
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
        self._continue()

    def _continue(self) -> None:
        """Schedules the next step: parse the rest, resume or pause reading, or end the connection."""
        if self._unparsed and not self._is_full and not self._is_parse_scheduled:
            self._is_parse_scheduled = True
            asyncio.get_running_loop().call_soon(self._parse)
        if self._is_connection_lost and not self._unparsed:
            self._mark_closed()
        if self._transport is None:
            return
        if self._unparsed or self._is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _parse_slice(self, data: bytes) -> None:
        self._frames.receive_data(data)
        idle = 0
        for event in self._frames.events_received():
            if isinstance(event, Frame):
                self._on_frame(event)
                idle += _is_idle_frame(event)
        if idle and self._exceeds_idle_limit(idle):
            reason = f"the cluster sent more than {MAX_IDLE_FRAMES_PER_SECOND} empty frames a second"
            self._local_close = int(CloseCode.POLICY_VIOLATION), reason
            self.abort()
            return
        self._send_control_replies()
        if self._frames.state is not OPEN:
            self._on_close_received()
        else:
            self._is_full = self._queued_bytes > HIGH_WATER_BYTES

    def _exceeds_idle_limit(self, count: int) -> bool:
        """Adds `count` idle frames. Returns whether the limit per second is exceeded."""
        now = asyncio.get_running_loop().time()
        if now - self._idle_since > 1:
            self._idle_frames, self._idle_since = 0, now
        self._idle_frames += count
        return self._idle_frames > MAX_IDLE_FRAMES_PER_SECOND

    def pause_writing(self) -> None:
        self._drain_waiter = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        drained, self._drain_waiter = self._drain_waiter, None
        owed, self._pending_pong = self._pending_pong, b""
        if owed and not self._is_closed and self._transport is not None:
            self._transport.write(owed)
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _on_frame(self, frame: Frame) -> None:
        if self._is_closed:
            return  # closed by us: received messages are discarded
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._is_text = frame.opcode is Opcode.TEXT
        elif frame.opcode is not Opcode.CONT:
            return
        self._fragments += frame.data
        if not frame.fin:
            return
        data = bytes(self._fragments)
        self._fragments.clear()
        message = data.decode() if self._is_text else data
        self._messages.append(message)
        self._queued_bytes += _message_weight(message)
        self._wake()

    def _send_control_replies(self) -> None:
        """Sends pongs and close replies. While writing is paused, keeps only the last pong: a cluster that sends pings
        without reading must not fill our memory."""
        if self._drain_waiter is None or self._frames.state is not OPEN:
            self._flush()
        elif answers := self._frames.data_to_send():
            self._pending_pong = answers[-1]

    def _flush(self) -> None:
        for data in self._frames.data_to_send():
            if data and self._transport is not None and not self._transport.is_closing():
                self._transport.write(data)

    def _on_close_received(self) -> None:
        """Handles a close frame or invalid data: flushes pending writes, then closes the connection."""
        self._mark_closed()
        if not (self._frames.close_rcvd or self._frames.parser_exc):
            return  # only our own close frame was sent
        self._unparsed.clear()
        if self._transport is not None:
            self._transport.close()
            asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_SECONDS, self.abort)

    def _mark_closed(self) -> None:
        """Marks the connection as closed and wakes waiting readers and writers."""
        self._is_closed = True
        self._wake()
        self.resume_writing()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _message_weight(message: bytes | str) -> int:
    """Size of a queued message for back pressure. Empty messages count, too, because they use memory."""
    return max(MIN_MESSAGE_WEIGHT, len(message))


def _is_idle_frame(frame: Frame) -> bool:
    """Whether the frame never reaches the reader: a ping, a pong, or a tiny fragment that is not the last."""
    if frame.opcode in (Opcode.PING, Opcode.PONG):
        return True
    return not frame.fin and len(frame.data) < MIN_FRAGMENT_BYTES


def _is_sendable_close_code(code: int) -> bool:
    """Some close codes are for local use only and must not be sent, such as 1006."""
    return code in (1000, 1001, 1002, 1003) or 1007 <= code <= 1014 or 3000 <= code <= 4999


class Handshake:
    """A client handshake: validates the 101, and takes over the connection."""

    def __init__(self, subprotocols: Sequence[str]) -> None:
        self.key = b64encode(urandom(16)).decode()
        self.websocket: UpstreamWebSocket | None = None
        self._subprotocols = subprotocols

    def headers(self) -> list[tuple[str, str]]:
        """Those of the WebSocket, without those of the upgrade."""
        offered = [("sec-websocket-protocol", ", ".join(self._subprotocols))] if self._subprotocols else []
        return [("sec-websocket-version", "13"), ("sec-websocket-key", self.key), *offered]

    def on_upgrade(self, transport: ByteTransport, headers: Sequence[tuple[str, str]], rest: bytes) -> None:
        found = dict(headers)
        chosen = found.get("sec-websocket-protocol", "")
        if found.get("sec-websocket-accept") != accept_key(self.key):
            raise ProtocolError("the cluster's WebSocket handshake is invalid")
        if "sec-websocket-extensions" in found or (chosen and chosen not in self._subprotocols):
            raise ProtocolError("the cluster chose a WebSocket subprotocol or extension that was not offered")
        self.websocket = UpstreamWebSocket(chosen)
        transport.switch_protocol(self.websocket)
        if rest:
            self.websocket.data_received(rest)


async def connect_websocket(
    connector: ProtocolConnector,
    head_encoder: HeadEncoder,
    request: Request,
    subprotocols: Sequence[str],
    limits: Limits,
) -> UpstreamWebSocket:
    handshake = Handshake(subprotocols)
    headers = [each for each in request.headers if not each[0].lower().startswith("sec-websocket-")]
    offer = replace(request, headers=[*headers, *handshake.headers()])
    try:
        async with asyncio.timeout(limits.response_header_seconds):
            response = await request_upgrade(connector, head_encoder, offer, handshake.on_upgrade, limits)
            if handshake.websocket is not None:
                return handshake.websocket
            try:
                body = await response.read(MAX_REJECTION_BYTES)
            finally:
                await response.close()
    except TimeoutError:
        raise TimedOut("the cluster did not respond in time; check whether it is overloaded") from None
    raise HandshakeRejected(response.status, response.headers, body)


async def request_upgrade(
    connector: ProtocolConnector,
    head_encoder: HeadEncoder,
    request: Request,
    on_upgrade: UpgradeHandler,
    limits: Limits,
) -> Response:
    """Requests another protocol on a connection of its own. Returns the response; with status 101, `on_upgrade` has
    taken over the connection."""
    head = head_encoder.encode("GET", request.target, request.headers, _UPGRADE)
    connection = await connector(lambda: Connection(Connection.close), limits.connect_seconds, is_exclusive=True)
    response = connection.start_exchange(False, 0, 0)
    connection.on_upgrade = on_upgrade
    try:
        connection.write(head)
        await response.head_received
    except BaseException:
        connection.fail(ProtocolError("the handshake is over"))
        raise
    return response
