"""The protobuf wire format: varints, tags, and length-delimited fields.

A message is a sequence of fields: a tag (field number and wire type), then a varint, a length and bytes, or 4 or 8
bytes. The messages are defined by the callers: `server/api/protobuf.py` decodes Kubernetes objects,
`storage/etcd/messages.py` has the messages of etcd, `server/discovery/openapi_v2.py` encodes OpenAPI documents.

Encoders take a field number and a value, and return the bytes of the field. Those with `nonzero` or `nonempty` in their
name omit the default value, as the protobuf encoders of other languages do.
"""

import struct
from collections.abc import Iterator

from fairlead.core.body_errors import Malformed

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_UINT64_MASK = (1 << 64) - 1
_SIGN_BIT = 1 << 63
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}


def _build_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_VARINTS = tuple(_build_varint(value) for value in range(1024))
"""The varints of small numbers. Tags are taken from this table, so field numbers must be below 128."""


def _encode_varint(value: int) -> bytes:
    return _VARINTS[value] if value < len(_VARINTS) else _build_varint(value)


def encode_int(field: int, value: int) -> bytes:
    """Encode an integer, enum or bool field. Negative values take ten bytes."""
    return _VARINTS[field << 3 | VARINT] + _encode_varint(value & _UINT64_MASK)


def encode_nonzero_int(field: int, value: int) -> bytes:
    return _VARINTS[field << 3 | VARINT] + _encode_varint(value & _UINT64_MASK) if value else b""


def encode_bytes(field: int, value: bytes) -> bytes:
    """Encode a bytes or string field, or a nested message."""
    return _VARINTS[field << 3 | BYTES] + _encode_varint(len(value)) + value


def encode_nonempty_bytes(field: int, value: bytes) -> bytes:
    return _VARINTS[field << 3 | BYTES] + _encode_varint(len(value)) + value if value else b""


def encode_double(field: int, value: float) -> bytes:
    return _VARINTS[field << 3 | FIXED64] + struct.pack("<d", value)


def decode_fields(encoded: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Iterate over the fields of a message, as (number, wire type, integer, content). Raises Malformed.

    Varints are signed 64-bit integers, and have no content. Fields of the other types have the integer 0.
    """
    at, end = 0, len(encoded)
    while at < end:
        tag = encoded[at]
        at += 1
        if tag >= 0x80:
            tag, at = _decode_varint(encoded, at - 1)
        wire_type = tag & 7
        if wire_type == VARINT:
            value, at = _decode_varint(encoded, at)
            yield tag >> 3, VARINT, value - (1 << 64) if value & _SIGN_BIT else value, b""
            continue
        if wire_type == BYTES:
            length, start = _decode_varint(encoded, at)
            at = start + length
        elif wire_type in _FIXED_SIZES:
            start = at
            at += _FIXED_SIZES[wire_type]
        else:
            raise Malformed(f"a field has the unknown wire type {wire_type}")
        if at > end:
            raise Malformed("the message ends within a field")
        yield tag >> 3, wire_type, 0, encoded[start:at]


def _decode_varint(encoded: bytes, at: int) -> tuple[int, int]:
    try:
        byte = encoded[at]
        at += 1
        if byte < 0x80:
            return byte, at
        value, shift = byte & 0x7F, 7
        while shift < 64:
            byte = encoded[at]
            at += 1
            if byte < 0x80:
                value |= byte << shift
                if value > _UINT64_MASK:
                    break
                return value, at
            value |= (byte & 0x7F) << shift
            shift += 7
    except IndexError:
        raise Malformed("the message ends within a varint") from None
    raise Malformed("a varint is longer than 64 bits")
