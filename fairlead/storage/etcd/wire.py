"""The subset of the protobuf encoding that etcd's messages need: varints and byte strings.

A message is a sequence of fields: number and wire type, then a varint, or a length and bytes. Fields with default
values are omitted, and unknown fields are skipped.
"""

from collections.abc import Iterator

VARINT, BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
_UINT64_MASK = (1 << 64) - 1
_SIGN_BIT = 1 << 63
_ONE_BYTE_VARINTS = [bytes((value,)) for value in range(0x80)]
"""The one-byte varints. All our tags are among them, because we send no field with a number above 15."""


def encode_int(field: int, value: int) -> bytes:
    """Encode an integer, enum or bool field. Negative values take ten bytes."""
    return _ONE_BYTE_VARINTS[field << 3 | VARINT] + _encode_varint(value & _UINT64_MASK) if value else b""


def encode_bytes(field: int, value: bytes) -> bytes:
    """Encode a bytes or string field."""
    return _ONE_BYTE_VARINTS[field << 3 | BYTES] + _encode_varint(len(value)) + value if value else b""


def encode_message(field: int, value: bytes) -> bytes:
    """Encode a nested message. Empty ones are not omitted."""
    return _ONE_BYTE_VARINTS[field << 3 | BYTES] + _encode_varint(len(value)) + value


def _encode_varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE_VARINTS[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_fields(encoded: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Iterate over fields as (number, integer value, bytes value). Raises ValueError for invalid protobuf."""
    at, end = 0, len(encoded)
    while at < end:
        tag = encoded[at]
        at += 1
        if tag >= 0x80:
            tag, at = _decode_varint(encoded, at - 1)
        wire_type = tag & 7
        if wire_type == VARINT:
            value, at = _decode_varint(encoded, at)
            yield tag >> 3, value - (1 << 64) if value & _SIGN_BIT else value, b""
            continue
        if wire_type == BYTES:
            length, at = _decode_varint(encoded, at)
        elif wire_type in _FIXED:
            length = _FIXED[wire_type]
        else:
            raise ValueError(f"unknown wire type {wire_type}")
        if at + length > end:
            raise ValueError("the message ends within a field")
        yield tag >> 3, 0, encoded[at : at + length]
        at += length


def _decode_varint(encoded: bytes, at: int) -> tuple[int, int]:
    try:
        byte = encoded[at]
        at += 1
        if byte < 0x80:
            return byte, at
        value, shift = byte & 0x7F, 7
        while True:
            byte = encoded[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
    except IndexError:
        raise ValueError("the message ends within a varint") from None
