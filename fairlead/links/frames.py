"""The frames of a link, encoded and decoded. Each message of the transport is one frame.

type (1 byte)   stream (4 bytes, big-endian; 0 for the link itself)   payload (at most 16 KiB; of OPEN and HEAD, 64 KiB)

HELLO    link     JSON: Hello. The first frame of both ends
OPEN     stream   JSON: OpenRequest. The end that has opened the connection uses odd streams, the other even ones
ACCEPT   stream   JSON object with details, or empty
REFUSE   stream   JSON: Refusal. The stream has ended
DATA     stream   channel (1 byte), content (at least 1 byte)
CREDIT   stream   how much more DATA may be sent (4 bytes)
EOF      stream   channel (1 byte): no more DATA for it
EXIT     stream   exit code (4 bytes, signed): the last frame of this end
RESET    stream   code (2 bytes), reason in UTF-8: the last frame of this end, also as a reply to EXIT or RESET
PING     link     8 bytes
PONG     link     the 8 bytes of a PING
GOAWAY   link     code (2 bytes), reason in UTF-8: no more streams are accepted, or the link ends
HEAD     stream   JSON: ResponseHead. Of the end that has accepted an HTTP stream, once, before its DATA. Version 2
"""

from enum import IntEnum
from typing import Any, TypeVar

import msgspec

from fairlead.links.requests import OpenRequest, ResponseHead

HEADER_BYTES = 5
MAX_PAYLOAD_BYTES = 16 * 1024
MAX_HEAD_BYTES = 64 * 1024
"""Payload of OPEN and HEAD, which have the heads of HTTP messages. With version 1, that of OPEN is as of others."""
MAX_FRAME_BYTES = HEADER_BYTES + MAX_HEAD_BYTES
MAX_DATA_BYTES = MAX_PAYLOAD_BYTES - 1
"""Content of one DATA frame, without its channel."""
MIN_DATA_COST = 64
"""A DATA frame uses at least so much credit: memory is needed for a frame of one byte, too."""
MAX_REASON_BYTES = 1024
MAX_STREAM = 2**31 - 1
STDIN, STDOUT, STDERR = CHANNELS = range(3)
LINK = 0
"""The stream number of frames about the link itself."""
PING_BYTES = 8
VERSION = 2
"""The version of the protocol that this code speaks. It also accepts the one before."""
HTTP_VERSION = 2
"""The first version with HTTP streams."""

T = TypeVar("T")


class FrameError(Exception):
    """A frame is invalid. The link cannot be used any more."""


class FrameType(IntEnum):
    HELLO = 1
    OPEN = 2
    ACCEPT = 3
    REFUSE = 4
    DATA = 5
    CREDIT = 6
    EOF = 7
    EXIT = 8
    RESET = 9
    PING = 10
    PONG = 11
    GOAWAY = 12
    HEAD = 13


LINK_FRAMES = frozenset({FrameType.HELLO, FrameType.PING, FrameType.PONG, FrameType.GOAWAY})
_HEAD_FRAMES = frozenset({FrameType.OPEN, FrameType.HEAD})


class Hello(msgspec.Struct, frozen=True, rename="camel"):
    """The versions that an end speaks, and the ID of its process, which is another one after each start."""

    min_version: int
    max_version: int
    boot_id: str


class Refusal(msgspec.Struct, frozen=True):
    code: int
    message: str = ""


_TYPES = {int(each): each for each in FrameType}
_decode_hello = msgspec.json.Decoder(Hello)
_decode_open = msgspec.json.Decoder(OpenRequest)
_decode_refusal = msgspec.json.Decoder(Refusal)
_decode_head = msgspec.json.Decoder(ResponseHead)
_decode_details = msgspec.json.Decoder(dict[str, Any])
encode_json = msgspec.json.Encoder().encode


def payload_limit(kind: FrameType) -> int:
    return MAX_HEAD_BYTES if kind in _HEAD_FRAMES else MAX_PAYLOAD_BYTES


def encode_frame(kind: FrameType, stream: int, payload: bytes = b"") -> bytes:
    limit = payload_limit(kind)
    if len(payload) > limit:
        raise FrameError(f"{kind.name} has {len(payload)} bytes; {limit} is the limit")
    return bytes((kind,)) + stream.to_bytes(4, "big") + payload


def decode_frame(message: bytes) -> tuple[FrameType, int, bytes]:
    """Type, stream and payload. Raises FrameError."""
    if not HEADER_BYTES <= len(message) <= MAX_FRAME_BYTES:
        raise FrameError(f"a frame has {len(message)} bytes; it must have {HEADER_BYTES} to {MAX_FRAME_BYTES}")
    kind = _TYPES.get(message[0])
    if kind is None:
        raise FrameError(f"a frame has the unknown type {message[0]}")
    if len(message) - HEADER_BYTES > payload_limit(kind):
        raise FrameError(f"{kind.name} has {len(message) - HEADER_BYTES} bytes; {payload_limit(kind)} is the limit")
    stream = int.from_bytes(message[1:HEADER_BYTES], "big")
    if (stream == LINK) != (kind in LINK_FRAMES) or stream > MAX_STREAM:
        raise FrameError(f"{kind.name} is not valid for stream {stream}")
    return kind, stream, message[HEADER_BYTES:]


def encode_data(stream: int, channel: int, content: bytes) -> bytes:
    return encode_frame(FrameType.DATA, stream, bytes((channel,)) + content)


def decode_data(payload: bytes) -> tuple[int, bytes]:
    """Channel and content."""
    if len(payload) < 2:
        raise FrameError("DATA without content")
    return _check_channel(payload[0]), payload[1:]


def data_cost(size: int) -> int:
    """The credit that a DATA frame with so many bytes of content uses."""
    return max(size, MIN_DATA_COST)


def encode_eof(stream: int, channel: int) -> bytes:
    return encode_frame(FrameType.EOF, stream, bytes((channel,)))


def decode_eof(payload: bytes) -> int:
    if len(payload) != 1:
        raise FrameError("EOF without a channel")
    return _check_channel(payload[0])


def encode_credit(stream: int, credit: int) -> bytes:
    return encode_frame(FrameType.CREDIT, stream, credit.to_bytes(4, "big"))


def decode_credit(payload: bytes) -> int:
    if len(payload) != 4:
        raise FrameError("CREDIT must have 4 bytes")
    return int.from_bytes(payload, "big")


def encode_exit(stream: int, code: int) -> bytes:
    return encode_frame(FrameType.EXIT, stream, code.to_bytes(4, "big", signed=True))


def decode_exit(payload: bytes) -> int:
    if len(payload) != 4:
        raise FrameError("EXIT must have 4 bytes")
    return int.from_bytes(payload, "big", signed=True)


def encode_reason(kind: FrameType, stream: int, code: int, reason: str) -> bytes:
    """A RESET or GOAWAY."""
    text = reason.encode(errors="replace")[:MAX_REASON_BYTES]
    return encode_frame(kind, stream, code.to_bytes(2, "big") + text)


def decode_reason(payload: bytes) -> tuple[int, str]:
    if not 2 <= len(payload) <= 2 + MAX_REASON_BYTES:
        raise FrameError(f"a reason must have a code and at most {MAX_REASON_BYTES} bytes")
    return int.from_bytes(payload[:2], "big"), clean_text(payload[2:].decode(errors="replace"))


def clean_text(text: str) -> str:
    """What the other end says, for people: without characters that control a terminal or reverse the text."""
    return "".join(each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text)


def encode_hello(hello: Hello) -> bytes:
    return encode_frame(FrameType.HELLO, LINK, encode_json(hello))


def decode_hello(payload: bytes) -> Hello:
    hello = _decode(_decode_hello, payload, "HELLO")
    if not 1 <= len(hello.boot_id) <= 128 or not hello.boot_id.isprintable():
        raise FrameError("HELLO: bootId must have 1 to 128 printable characters")
    return hello


def encode_open(stream: int, request: OpenRequest, version: int = VERSION) -> bytes:
    """Raises FrameError if the request is too large for this version of the protocol."""
    payload = encode_json(request)
    if version < HTTP_VERSION and len(payload) > MAX_PAYLOAD_BYTES:
        raise FrameError(f"OPEN has {len(payload)} bytes; {MAX_PAYLOAD_BYTES} is the limit")
    return encode_frame(FrameType.OPEN, stream, payload)


def decode_open(payload: bytes) -> OpenRequest:
    return _decode(_decode_open, payload, "OPEN")


def encode_accept(stream: int, details: dict[str, Any]) -> bytes:
    return encode_frame(FrameType.ACCEPT, stream, encode_json(details) if details else b"")


def decode_accept(payload: bytes) -> dict[str, Any]:
    return _decode(_decode_details, payload, "ACCEPT") if payload else {}


def encode_head(stream: int, head: ResponseHead) -> bytes:
    """Raises FrameError if the head is too large."""
    return encode_frame(FrameType.HEAD, stream, encode_json(head))


def decode_head(payload: bytes) -> ResponseHead:
    head = _decode(_decode_head, payload, "HEAD")
    if not 100 <= head.status <= 999:
        raise FrameError(f"HEAD: {head.status} is no HTTP status")
    return head


def encode_refuse(stream: int, code: int, message: str) -> bytes:
    return encode_frame(FrameType.REFUSE, stream, encode_json(Refusal(code, message[:MAX_REASON_BYTES])))


def decode_refuse(payload: bytes) -> Refusal:
    refusal = _decode(_decode_refusal, payload, "REFUSE")
    if not 400 <= refusal.code <= 599:
        raise FrameError(f"REFUSE: the code {refusal.code} is no HTTP status of an error")
    return Refusal(refusal.code, clean_text(refusal.message[:MAX_REASON_BYTES]))


def encode_ping(kind: FrameType, payload: bytes) -> bytes:
    return encode_frame(kind, LINK, payload)


def check_ping(payload: bytes) -> bytes:
    if len(payload) != PING_BYTES:
        raise FrameError(f"PING and PONG must have {PING_BYTES} bytes")
    return payload


def _check_channel(channel: int) -> int:
    if channel not in CHANNELS:
        raise FrameError(f"there is no channel {channel}")
    return channel


def _decode(decoder: msgspec.json.Decoder[T], payload: bytes, name: str) -> T:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"{name} is not valid: {error}") from None
