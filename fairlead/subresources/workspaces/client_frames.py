"""The messages on the WebSocket of a workspace's subresource: binary, and the first byte is the type.

0 stdout data   1 stdout close   2 stderr data   3 stderr close   from the server
4 stdin data    5 stdin close                                     from the client
6 exit code, a signed varint with zig-zag encoding                from the server; the last message
"""

from collections.abc import Sequence
from typing import Protocol

from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.streams import Data, Eof, Message

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
            case Data() | Eof():
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
