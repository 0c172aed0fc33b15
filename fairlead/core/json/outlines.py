"""The outline of a JSON text: how many values and keys it has, how deep it is, and whether it has long numbers.

Used before a text is parsed, so that a parser never sees what exceeds a limit. The text is read in slices: a call into
C code holds the interpreter until it returns, and other threads, among them the event loop, wait for it. No call here
reads more than `SLICE_BYTES`, whatever the text is. It need not be valid JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from fairlead.core.body_errors import MAX_NUMBER_CHARS, NumberTooLong

SLICE_BYTES = 32 * 1024
LONG_INTEGER_DIGITS = 19
"""Integers with fewer digits fit into 64 bits."""

_DEPTH_DELTAS = bytes({ord("["): 1, ord("{"): 1, ord("]"): 255, ord("}"): 255}.get(byte, 0) for byte in range(256))
_NOT_BRACKETS = bytes(byte for byte in range(256) if chr(byte) not in "[]{}")
_NUMBER_MARKS = bytes(ord("0") if chr(byte) in "0123456789+-.eE" else ord(" ") for byte in range(256))
_LONG_INTEGER, _LONG_NUMBER = b"0" * LONG_INTEGER_DIGITS, b"0" * (MAX_NUMBER_CHARS + 1)


@dataclass(slots=True)
class Outline:
    """`values` counts containers and their items, `keys` those of all objects, also if they are repeated.

    `may_exceed_64_bits` says that there is a number of so many characters that it may be an integer beyond 64 bits.
    """

    values: int = 0
    keys: int = 0
    depth: int = 0
    may_exceed_64_bits: bool = False


def outline(data: bytes) -> Outline:
    """The outline of a text. Raises `NumberTooLong`."""
    found, level, unfinished = Outline(), 0, b""
    for _, pieces, starts_inside in iter_pieces(data):
        # A quote stands for each string, so that what is before it and after it does not become one number.
        outside = b'"'.join(pieces[starts_inside::2])
        found.values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        found.keys += outside.count(b":")
        if brackets := outside.translate(_DEPTH_DELTAS, _NOT_BRACKETS):
            levels = list(accumulate(memoryview(brackets).cast("b"), initial=level))
            level, found.depth = levels[-1], max(found.depth, *levels)
        numbers = unfinished + outside.translate(_NUMBER_MARKS)
        if _LONG_INTEGER in numbers:
            found.may_exceed_64_bits = True
            if _LONG_NUMBER in numbers:
                raise NumberTooLong(
                    f"a number has more than {MAX_NUMBER_CHARS} characters; write it shorter, or as a string"
                )
        ends_inside = starts_inside ^ (len(pieces) % 2 == 0)
        unfinished = b"" if ends_inside else numbers.rpartition(b" ")[2]
    return found


def iter_pieces(data: bytes) -> Iterator[tuple[int, list[bytes], bool]]:
    """The text in slices: the offset of each, its pieces between quotes, and whether the first piece is in a string.

    Escaped quotes and backslashes are blanked out. So pieces are alternately inside and outside of strings, and have
    the same length as in the text.
    """
    start, is_inside = 0, False
    while start < len(data):
        part = data[start : start + SLICE_BYTES]
        if (len(part) - len(part.rstrip(b"\\"))) % 2:  # do not separate a backslash from what it escapes
            part = data[start : start + SLICE_BYTES + 1]
        offset, start = start, start + len(part)
        if b"\\" in part:
            part = part.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        pieces = part.split(b'"')
        yield offset, pieces, is_inside
        is_inside ^= len(pieces) % 2 == 0
