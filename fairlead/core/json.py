"""JSON bodies in and out: orjson, plus what a server that strangers talk to must know beyond it.

Called wherever a body is read or written. orjson already refuses NaN, bytes that are not UTF-8 and text after the
value; three things are added. Depth is limited, so that code walking an object cannot run out of stack. Integers beyond
64 bits are refused, as orjson would quietly round them to floats. Keys that occur twice, of which orjson keeps the last
without a word, can be listed.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

import orjson

from fairlead.core.body_errors import MAX_DEPTH, MAX_VALUES, Duplicates, Malformed, field_path, too_deep

__all__ = [
    "Malformed",
    "count_values",
    "decode",
    "depth_of",
    "duplicate_keys",
    "encode",
    "encode_pretty",
    "has_too_many_values",
]

# The closing quote is optional: a string that never ends is then one match and not a search from every quote in it.
_STRING = rb'"(?:[^"\\]+|\\.)*+"?'
_STRINGS = re.compile(_STRING, re.DOTALL)
# An integer of 19 digits or more, outside of strings, that is not the tail of a fraction or an exponent.
_LONG_INTEGERS = re.compile(_STRING + rb"|(?<![0-9.eE+-])(-?[0-9]{19,})(?![0-9.eE])", re.DOTALL)
_DIGITS_TO_ZERO = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else ord(" ") for byte in range(256))
_LONG_RUN = b"0" * 19
_STEPS = bytes({ord("["): 1, ord("{"): 1, ord("]"): 255, ord("}"): 255}.get(byte, 0) for byte in range(256))
_MARKS = (b",", b"[", b"{")
_NOT_BRACKETS = bytes(byte for byte in range(256) if chr(byte) not in "[]{}")


def decode(data: bytes) -> Any:
    """The value of a JSON text; of a key given twice the last value. Raises `Malformed`."""
    if is_too_deep(data):
        raise too_deep()
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _malformed(data, error) from None
    if _LONG_RUN in data.translate(_DIGITS_TO_ZERO):
        _refuse_large_integers(data)
    return value


def encode(value: Any) -> bytes:
    """JSON without any spaces."""
    return orjson.dumps(value)


def encode_pretty(value: Any) -> bytes:
    """JSON for people: two spaces a level and a newline at the end."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def duplicate_keys(data: bytes, value: Any = None) -> list[str]:
    """The paths of keys that occur twice in one object of `data`. `value` is what `decode` made of it, untouched.

    A colon outside of strings follows a key, and nothing else. So a text has as many colons as the text of its value,
    unless a key went missing; only escapes can hide one. That costs two microseconds, and nearly every body ends there.
    """
    if value is None:
        value = decode(data)
    if b"\\u003" not in data and data.count(b":") == orjson.dumps(value).count(b":"):
        return []
    found = Duplicates()
    _walk(json.loads(data, object_pairs_hook=_kept), "", found)
    return found.paths


class _Pairs:
    """An object of a JSON text with every occurrence of its keys."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


_HOLDERS = (_Pairs, list)


def _kept(pairs: list[tuple[str, Any]]) -> _Pairs | None:
    """What the search has to see of an object: nothing, if it neither repeats a key nor holds other things."""
    if len(dict(pairs)) == len(pairs) and not any(isinstance(value, _HOLDERS) for _, value in pairs):
        return None
    return _Pairs(pairs)


def _walk(value: Any, path: str, found: Duplicates) -> None:
    """Note every key that occurs again. The recursion is as deep as the body, and `decode` has limited that."""
    if isinstance(value, list):
        for index, child in enumerate(value):
            if isinstance(child, _HOLDERS) and not found.full:
                _walk(child, field_path(path, index), found)
    elif isinstance(value, _Pairs) and not found.full:
        keys: set[str] = set()
        for key, child in value.pairs:
            if key in keys:
                found.add(field_path(path, key))
            keys.add(key)
            if isinstance(child, _HOLDERS):
                _walk(child, field_path(path, key), found)


def is_too_deep(data: bytes) -> bool:
    """Whether JSON is nested deeper than will be read. The brackets are only counted properly where they are many."""
    return depth_of(data, MAX_DEPTH) > MAX_DEPTH


def depth_of(data: bytes, enough: int) -> int:
    """How deep JSON is nested. Where no more than `enough` levels are possible, the number of brackets will do."""
    brackets = data.count(b"[") + data.count(b"{")
    return brackets if brackets <= enough else _depth(data)


def has_too_many_values(data: bytes) -> bool:
    """Whether a body has more values than will be read."""
    # Two bytes are the least that a value takes, so that small bodies need not be looked at.
    return len(data) > 2 * MAX_VALUES and count_values(data, MAX_VALUES) > MAX_VALUES


def count_values(data: bytes, enough: int = 0) -> int:
    """How many values a JSON text holds: all that stand in lists and maps, and these themselves.

    Brackets and commas tell, outside of strings. Where even with those in strings they are no more than `enough`, that
    is the answer, and the strings need not be found.
    """
    marks = sum(map(data.count, _MARKS))
    if marks <= enough:
        return marks
    return sum(map(_STRINGS.sub(b"", data).count, _MARKS))


def _depth(data: bytes) -> int:
    """How deep brackets nest outside of strings, also in a text that is no JSON at all."""
    brackets = _STRINGS.sub(b"", data).translate(_STEPS, _NOT_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0)


def _refuse_large_integers(data: bytes) -> None:
    for match in _LONG_INTEGERS.finditer(data):
        digits = match[1]
        # Compared by length first: Python refuses to read thousands of digits.
        if digits and (len(digits) > 20 or not -(2**63) <= int(digits) < 2**63):
            shown = digits[:40].decode()
            raise Malformed(f"integer {shown} does not fit into 64 bits; send it as a string")


def _malformed(data: bytes, error: orjson.JSONDecodeError) -> Malformed:
    try:
        text = data.decode()
    except UnicodeDecodeError as invalid:
        return Malformed(f"invalid JSON: byte {invalid.start} is not UTF-8; encode the body as UTF-8")
    if error.pos >= len(text.rstrip()):
        return Malformed("unexpected end of JSON input")
    return Malformed(f"invalid JSON at line {error.lineno} column {error.colno}: {error.msg}")
