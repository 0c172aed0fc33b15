"""A session: the WebSocket of a client, and the stream to the runner behind it.

It ends with the exit code, when one end disconnects, or when the client may not use the workspace any more, which is
checked every few seconds. What the session has started at the runner is not affected, unless it is an ssh session.

The messages on the WebSocket of a workspace's subresource: binary, and the first byte is the type.

0 stdout data   1 stdout close   2 stderr data   3 stderr close   from the server
4 stdin data    5 stdin close                                     from the client
6 exit code, a signed varint with zig-zag encoding                from the server; the last message
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from fairlead.core.call import RECHECK_SECONDS, WebSocket
from fairlead.core.errors import ApiError
from fairlead.core.waiting import end_tasks
from fairlead.links.contract import Stream
from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.requests import ResponseHead
from fairlead.links.streams import Data, Eof, Message, StreamReset
from fairlead.server.http.disconnect import dup_connection

MAX_MESSAGE_BYTES = 32 * 1024
STDOUT_DATA, STDOUT_CLOSE, STDERR_DATA, STDERR_CLOSE, STDIN_DATA, STDIN_CLOSE, EXIT_CODE = range(7)
DATA_TYPES = {STDOUT: STDOUT_DATA, STDERR: STDERR_DATA}
CLOSE_TYPES = {STDOUT: STDOUT_CLOSE, STDERR: STDERR_CLOSE}
PROTOCOL_ERROR, UNSUPPORTED_DATA, TOO_BIG = 1002, 1003, 1009


class ClientMessageError(Exception):
    """A message of the client is invalid. `code` is the WebSocket code to close with."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Framing(Protocol):
    """What the messages of one session look like on the WebSocket of its client."""

    def decode(self, message: bytes | str) -> Data | Eof | None:
        """Input of the client; None for a message without any. Raises ClientMessageError."""

    def encode(self, message: Message) -> Sequence[bytes]:
        """The messages for output, or for the end."""

    def encode_failure(self, code: int, reason: str) -> Sequence[bytes]:
        """What precedes the close of a session that ends without an exit code. `code` is the one to close with."""


class TypedFraming:
    """The messages above."""

    def __init__(self) -> None:
        self._closed_channels: set[int] = set()

    def decode(self, message: bytes | str) -> Data | Eof | None:
        content = decode_stdin(message)
        return Eof(STDIN) if content is None else Data(STDIN, content)

    def encode(self, message: Message) -> Sequence[bytes]:
        match message:
            case Data(channel, content) if channel in CLOSE_TYPES:
                return (encode_data(channel, content),)
            case Eof(channel) if channel in CLOSE_TYPES:
                self._closed_channels.add(channel)
                return (encode_close(channel),)
            case ResponseHead() | Data() | Eof():
                return ()
        unclosed = {STDOUT, STDERR} - self._closed_channels
        return *(encode_close(channel) for channel in unclosed), encode_exit_code(message.code)

    def encode_failure(self, code: int, reason: str) -> Sequence[bytes]:
        return ()


def encode_data(channel: int, content: bytes) -> bytes:
    return bytes((DATA_TYPES[channel],)) + content


def encode_close(channel: int) -> bytes:
    return bytes((CLOSE_TYPES[channel],))


def encode_exit_code(code: int) -> bytes:
    value = code << 1 if code >= 0 else (-code << 1) - 1
    encoded = bytearray((EXIT_CODE,))
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_stdin(message: bytes | str) -> bytes | None:
    """The content of a message of the client; None if it closes stdin. Raises ClientMessageError."""
    if isinstance(message, str):
        raise ClientMessageError(UNSUPPORTED_DATA, "messages must be binary")
    if len(message) > MAX_MESSAGE_BYTES:
        raise ClientMessageError(TOO_BIG, f"a message may have at most {MAX_MESSAGE_BYTES} bytes")
    if not message or message[0] not in (STDIN_DATA, STDIN_CLOSE):
        raise ClientMessageError(PROTOCOL_ERROR, "clients send messages of type 4 (stdin data) and 5 (stdin close)")
    return message[1:] if message[0] == STDIN_DATA else None


NORMAL, GOING_AWAY, POLICY_VIOLATION, INTERNAL_ERROR = 1000, 1001, 1008, 1011
TRY_AGAIN_LATER = 1013
ACCEPT_SECONDS = 30.0
"""Timeout for accepting the client's WebSocket: the client may disconnect before that."""
STALL_SECONDS = 600.0
"""A client that reads nothing for this time is disconnected."""
FAILURE_SECONDS = 5.0
"""How long a client may take to read why its session has ended."""
KEEPALIVE_SECONDS, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES = 10, 5, 3
"""TCP keepalive: the connection of a client that has vanished ends after 25 seconds."""

CloseReason = tuple[int, str]
CloseTask = asyncio.Task[CloseReason]


class Session:
    """`client` is the address of the client, and `recheck` raises ApiError once access is lost."""

    def __init__(
        self, stream: Stream, client: str, recheck: Callable[[], None], framing: Framing | None = None
    ) -> None:
        self._stream = stream
        self._client = client
        self._recheck = recheck
        self._framing = framing or TypedFraming()
        abandon = partial(stream.abandon, "the client has disconnected")
        self._accept_timer = asyncio.get_running_loop().call_later(ACCEPT_SECONDS, abandon)

    async def run(self, websocket: WebSocket) -> None:
        self._accept_timer.cancel()
        pumps = asyncio.create_task(self._send_stdin(websocket)), asyncio.create_task(self._send_output(websocket))
        close_reason: CloseReason = GOING_AWAY, "the server closes this connection"
        try:
            await _enable_keepalive(self._client)
            close_reason = await self._wait_closed(*pumps)
        finally:
            await end_tasks(*pumps)
            await self._stream.reset("the client has disconnected")
            if close_reason[0] != NORMAL:
                with suppress(TimeoutError):  # a client that does not read is closed without the reason
                    async with asyncio.timeout(FAILURE_SECONDS):
                        for message in self._framing.encode_failure(*close_reason):
                            await websocket.send(message)
            await websocket.close(*close_reason)

    async def _wait_closed(self, stdin: CloseTask, output: CloseTask) -> CloseReason:
        while True:
            done, _ = await asyncio.wait((stdin, output), timeout=RECHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if output in done:
                return output.result()
            if stdin in done:
                return stdin.result()
            try:
                self._recheck()
            except ApiError as error:
                return POLICY_VIOLATION, error.message

    async def _send_stdin(self, websocket: WebSocket) -> CloseReason:
        """Returns when the client has disconnected, or has violated the protocol."""
        is_open = True
        while (message := await websocket.receive()) is not None:
            try:
                received = self._framing.decode(message)
            except ClientMessageError as error:
                return error.code, error.reason
            with suppress(StreamReset):  # the other pump reports it
                match received:
                    case Eof():
                        is_open = False
                        await self._stream.send_eof(STDIN)
                    case Data(_, content) if content and is_open:
                        await self._stream.send(STDIN, content)
        return NORMAL, ""

    async def _send_output(self, websocket: WebSocket) -> CloseReason:
        """Returns after the exit code, or when the stream has ended without one."""
        try:
            while (message := await self._stream.receive()) is not None:
                async with asyncio.timeout(STALL_SECONDS):
                    for encoded in self._framing.encode(message):
                        await websocket.send(encoded)
        except StreamReset as reset:
            return INTERNAL_ERROR, f"the runner has ended the stream: {reset.reason}"
        except TimeoutError:
            return POLICY_VIOLATION, "the client does not read"
        return NORMAL, ""


async def _enable_keepalive(client: str) -> None:
    """Has the kernel check whether the client is still there: the HTTP server has no pings for WebSockets."""
    connection = await dup_connection(client)
    if connection is None:
        return
    with connection, suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
