"""Protobuf as far as etcd's messages need it: varints and byte strings, numbered. Called by `messages.py` only.

A message is a sequence of fields; each is its number and its sort, then a varint or a length and bytes. Fields that
hold their default are left out, and fields that are not known are passed over, which is how etcd's versions get along.
"""

from collections.abc import Iterator

VARINT, BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
_SIXTY_FOUR_BITS = (1 << 64) - 1
_SIGN = 1 << 63
_TAGS = [bytes((value,)) for value in range(0x80)]
"""The varints of one byte. Those of all tags are: we send no field whose number is above 15."""


def number(field: int, value: int) -> bytes:
    """An integer, an enumeration or a truth value. Negative ones take ten bytes, as protobuf has it."""
    return _TAGS[field << 3 | VARINT] + _varint(value & _SIXTY_FOUR_BITS) if value else b""


def data(field: int, value: bytes) -> bytes:
    """A byte string or a text."""
    return _TAGS[field << 3 | BYTES] + _varint(len(value)) + value if value else b""


def message(field: int, value: bytes) -> bytes:
    """A message in a message: an empty one says something, too."""
    return _TAGS[field << 3 | BYTES] + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _TAGS[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(encoded: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Each field as (its number, its value if it is an integer, its value if it is bytes).

    ValueError where this is no protobuf.
    """
    at, end = 0, len(encoded)
    while at < end:
        tag = encoded[at]
        at += 1
        if tag >= 0x80:
            tag, at = _read_varint(encoded, at - 1)
        sort = tag & 7
        if sort == VARINT:
            value, at = _read_varint(encoded, at)
            yield tag >> 3, value - (1 << 64) if value & _SIGN else value, b""
            continue
        if sort == BYTES:
            length, at = _read_varint(encoded, at)
        elif sort in _FIXED:
            length = _FIXED[sort]
        else:
            raise ValueError(f"no field of a message is of sort {sort}")
        if at + length > end:
            raise ValueError("the message ends within a field")
        yield tag >> 3, 0, encoded[at : at + length]
        at += length


def _read_varint(encoded: bytes, at: int) -> tuple[int, int]:
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
        raise ValueError("the message ends within a number") from None
