"""The messages on the WebSocket of a workspace's subresource: binary, and the first byte is the type.

0 stdout data   1 stdout close   2 stderr data   3 stderr close   from the server
4 stdin data    5 stdin close                                     from the client
6 exit code, a signed varint with zig-zag encoding                from the server; the last message
"""

from fairlead.links.frames import STDERR, STDOUT

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
