"""JSON encoding and decoding with orjson, hardened against untrusted input.

orjson already rejects NaN, invalid UTF-8 and trailing text. This module adds three checks. Depth is limited, so that
recursive code cannot exhaust the stack. Integers beyond 64 bits are rejected, because orjson silently rounds them to
floats. Duplicate keys, of which orjson silently keeps the last, can be listed.
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

# The closing quote is optional: an unterminated string is then one match, not a search from every quote in it.
_STRING = rb'"(?:[^"\\]+|\\.)*+"?'
_STRINGS = re.compile(_STRING, re.DOTALL)
# An integer of 19 digits or more outside of strings, which is not part of a fraction or an exponent.
_LONG_INTEGERS = re.compile(_STRING + rb"|(?<![0-9.eE+-])(-?[0-9]{19,})(?![0-9.eE])", re.DOTALL)
_DIGITS_TO_ZERO = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else ord(" ") for byte in range(256))
_LONG_RUN = b"0" * 19
_STEPS = bytes({ord("["): 1, ord("{"): 1, ord("]"): 255, ord("}"): 255}.get(byte, 0) for byte in range(256))
_MARKS = (b",", b"[", b"{")
_NOT_BRACKETS = bytes(byte for byte in range(256) if chr(byte) not in "[]{}")


def decode(data: bytes) -> Any:
    """Decode JSON; the last value of a duplicate key wins. Raises `Malformed`."""
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
    """Compact JSON."""
    return orjson.dumps(value)


def encode_pretty(value: Any) -> bytes:
    """Indented JSON with a trailing newline."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def duplicate_keys(data: bytes, value: Any = None) -> list[str]:
    """The paths of duplicate keys in `data`. `value` is the unmodified result of `decode`.

    Outside of strings, a colon occurs exactly once per key. So the text has as many colons as its re-encoded value,
    unless a key was dropped; only escape sequences can hide a colon. This comparison takes two microseconds and
    settles nearly every body.
    """
    if value is None:
        value = decode(data)
    if b"\\u003" not in data and data.count(b":") == orjson.dumps(value).count(b":"):
        return []
    found = Duplicates()
    _walk(json.loads(data, object_pairs_hook=_kept), "", found)
    return found.paths


class _Pairs:
    """A JSON object with all occurrences of its keys."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


_HOLDERS = (_Pairs, list)


def _kept(pairs: list[tuple[str, Any]]) -> _Pairs | None:
    """Keep an object only if it has duplicate keys or nested containers; otherwise the search can skip it."""
    if len(dict(pairs)) == len(pairs) and not any(isinstance(value, _HOLDERS) for _, value in pairs):
        return None
    return _Pairs(pairs)


def _walk(value: Any, path: str, found: Duplicates) -> None:
    """Collect duplicate keys. The recursion is as deep as the body, which `decode` has limited."""
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
    """Whether JSON exceeds the depth limit."""
    return depth_of(data, MAX_DEPTH) > MAX_DEPTH


def depth_of(data: bytes, enough: int) -> int:
    """The nesting depth of JSON, or an upper bound if that does not exceed `threshold`.

    The number of opening brackets is an upper bound and is cheap to compute.
    """
    brackets = data.count(b"[") + data.count(b"{")
    return brackets if brackets <= enough else _depth(data)


def has_too_many_values(data: bytes) -> bool:
    """Whether a body exceeds the limit on values."""
    # A value takes at least two bytes, so small bodies need no count.
    return len(data) > 2 * MAX_VALUES and count_values(data, MAX_VALUES) > MAX_VALUES


def count_values(data: bytes, enough: int = 0) -> int:
    """The number of values in a JSON text, containers and their items, or an upper bound if that is at most
    `threshold`.

    Counts brackets and commas outside of strings. Those inside of strings only raise the count, so if the total is
    small enough, the strings need not be removed.
    """
    marks = sum(map(data.count, _MARKS))
    if marks <= enough:
        return marks
    return sum(map(_STRINGS.sub(b"", data).count, _MARKS))


def _depth(data: bytes) -> int:
    """The nesting depth of brackets outside of strings; the text need not be valid JSON."""
    brackets = _STRINGS.sub(b"", data).translate(_STEPS, _NOT_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0)


def _refuse_large_integers(data: bytes) -> None:
    for match in _LONG_INTEGERS.finditer(data):
        digits = match[1]
        # Checks the length first: Python refuses to parse thousands of digits.
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
