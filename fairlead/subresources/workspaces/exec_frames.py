"""The messages of `exec`: those of `pods/exec` in Kubernetes, so that its clients and libraries can be used.

Binary, and the first byte is the channel: 0 stdin, 1 stdout, 2 stderr, 3 the Status at the end, 4 the size of the
terminal as JSON. In version 5, 255 and a channel closes that channel.
"""

from collections.abc import Callable, Sequence

import msgspec

from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.streams import Data, Eof, Exit, Message
from fairlead.subresources.workspaces.client_frames import (
    PROTOCOL_ERROR,
    TOO_BIG,
    UNSUPPORTED_DATA,
    ClientMessageError,
)

V5, V4 = PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
ERROR_CHANNEL, RESIZE_CHANNEL, CLOSE_CHANNEL = 3, 4, 255
MAX_MESSAGE_BYTES = 64 * 1024
"""Clients of Kubernetes send 32 KiB of input and the channel."""
MAX_TERMINAL = 4096
POLICY_VIOLATION = 1008


class _Size(msgspec.Struct):
    Width: int
    Height: int


_decode_size = msgspec.json.Decoder(_Size)


class ExecFraming:
    """`outputs` are the channels that the client wants, and `on_resize` gets the size of its terminal."""

    def __init__(self, has_stdin: bool, outputs: frozenset[int], on_resize: Callable[[int, int], None]) -> None:
        self._has_stdin = has_stdin
        self._outputs = outputs
        self._on_resize = on_resize

    def decode(self, message: bytes | str) -> Data | Eof | None:
        if isinstance(message, str):
            raise ClientMessageError(UNSUPPORTED_DATA, "messages must be binary")
        if len(message) > MAX_MESSAGE_BYTES:
            raise ClientMessageError(TOO_BIG, f"a message may have at most {MAX_MESSAGE_BYTES} bytes")
        channel, content = message[:1], message[1:]
        if channel == bytes((STDIN,)):
            return Data(STDIN, content) if self._has_stdin else None
        if channel == bytes((RESIZE_CHANNEL,)):
            self._resize(content)
            return None
        if channel == bytes((CLOSE_CHANNEL,)):
            return Eof(STDIN) if content == bytes((STDIN,)) and self._has_stdin else None
        raise ClientMessageError(PROTOCOL_ERROR, "clients send the channels 0 (stdin), 4 (size) and 255 (close)")

    def _resize(self, content: bytes) -> None:
        try:
            size = _decode_size.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ClientMessageError(PROTOCOL_ERROR, 'a size is {"Width": 80, "Height": 24}') from None
        if 0 < min(size.Width, size.Height) <= max(size.Width, size.Height) <= MAX_TERMINAL:
            self._on_resize(size.Width, size.Height)

    def encode(self, message: Message) -> Sequence[bytes]:
        match message:
            case Data(channel, content) if channel in self._outputs:
                return (bytes((channel,)) + content,)
            case Exit(code):
                return (encode_status(build_exit_status(code)),)
        return ()

    def encode_failure(self, code: int, reason: str) -> Sequence[bytes]:
        is_denied = code == POLICY_VIOLATION
        status = build_failure(403, "Forbidden", reason) if is_denied else build_failure(500, "InternalError", reason)
        return (encode_status(status),)


def build_failure(code: int, reason: str, message: str) -> dict[str, object]:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def build_exit_status(code: int) -> dict[str, object]:
    """The Status at the end of a command, as Kubernetes sends it."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def encode_status(status: dict[str, object]) -> bytes:
    return bytes((ERROR_CHANNEL,)) + msgspec.json.encode(status)


OUTPUTS = {"stdout": STDOUT, "stderr": STDERR}
"""The query parameters that select output, and their channels."""
