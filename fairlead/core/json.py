"""JSON encoding and decoding with orjson, hardened against untrusted input.

orjson already rejects NaN, invalid UTF-8 and trailing text. Depth is limited here, so that recursive code cannot
exhaust the stack. Integers beyond 64 bits become floats, as in Kubernetes; orjson does so only from 2^64 on. Duplicate
keys, of which orjson silently keeps the last, can be listed.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

import orjson

from fairlead.core.body_errors import MAX_DEPTH, MAX_VALUES, DuplicateKeys, Malformed, depth_error, field_path

__all__ = [
    "Malformed",
    "count_values",
    "decode",
    "encode",
    "encode_pretty",
    "find_duplicate_keys",
    "has_too_many_values",
    "nesting_depth",
]

# The closing quote is optional: an unterminated string is then one match, not a search from every quote in it.
_STRING = rb'"(?:[^"\\]+|\\.)*+"?'
_STRINGS = re.compile(_STRING, re.DOTALL)
# An integer of 19 digits or more outside of strings, which is not part of a fraction or an exponent.
_LONG_INTEGERS = re.compile(_STRING + rb"|(?<![0-9.eE+-])(-?[0-9]{19,})(?![0-9.eE])", re.DOTALL)
_DIGITS_TO_ZERO = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else ord(" ") for byte in range(256))
_LONG_DIGITS = b"0" * 19
_MAX_INTEGER_CHARS = 20
_DEPTH_DELTAS = bytes({ord("["): 1, ord("{"): 1, ord("]"): 255, ord("}"): 255}.get(byte, 0) for byte in range(256))
_VALUE_DELIMITERS = (b",", b"[", b"{")
_NOT_BRACKETS = bytes(byte for byte in range(256) if chr(byte) not in "[]{}")


def decode(data: bytes) -> Any:
    """Decode JSON; the last value of a duplicate key wins. Raises `Malformed`."""
    if is_too_deep(data):
        raise depth_error()
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _decode_error(data, error) from None
    if _LONG_DIGITS in data.translate(_DIGITS_TO_ZERO) and _has_long_integers(data):
        return json.loads(data, parse_int=_parse_integer)
    return value


def encode(value: Any) -> bytes:
    """Compact JSON."""
    return orjson.dumps(value)


def encode_pretty(value: Any) -> bytes:
    """Indented JSON with a trailing newline."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def find_duplicate_keys(data: bytes, value: Any = None) -> list[str]:
    """The paths of duplicate keys in `data`. `value` is the unmodified result of `decode`.

    Outside of strings, a colon occurs exactly once per key. So the text has as many colons as its re-encoded value,
    unless a key was dropped; only escape sequences can hide a colon. This comparison takes two microseconds and
    settles nearly every body.
    """
    if value is None:
        value = decode(data)
    if b"\\u003" not in data and data.count(b":") == orjson.dumps(value).count(b":"):
        return []
    found = DuplicateKeys()
    _collect_duplicates(json.loads(data, object_pairs_hook=_collect_pairs), "", found)
    return found.paths


class _Pairs:
    """A JSON object with all occurrences of its keys."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


_CONTAINERS = (_Pairs, list)


def _collect_pairs(pairs: list[tuple[str, Any]]) -> _Pairs | None:
    """Keep an object only if it has duplicate keys or nested containers; otherwise the search can skip it."""
    if len(dict(pairs)) == len(pairs) and not any(isinstance(value, _CONTAINERS) for _, value in pairs):
        return None
    return _Pairs(pairs)


def _collect_duplicates(value: Any, path: str, found: DuplicateKeys) -> None:
    """Collect duplicate keys. The recursion is as deep as the body, which `decode` has limited."""
    if isinstance(value, list):
        for index, child in enumerate(value):
            if isinstance(child, _CONTAINERS) and not found.is_full:
                _collect_duplicates(child, field_path(path, index), found)
    elif isinstance(value, _Pairs) and not found.is_full:
        keys: set[str] = set()
        for key, child in value.pairs:
            if key in keys:
                found.add(field_path(path, key))
            keys.add(key)
            if isinstance(child, _CONTAINERS):
                _collect_duplicates(child, field_path(path, key), found)


def is_too_deep(data: bytes) -> bool:
    """Whether JSON exceeds the depth limit."""
    return nesting_depth(data, MAX_DEPTH) > MAX_DEPTH


def nesting_depth(data: bytes, threshold: int) -> int:
    """The nesting depth of JSON, or an upper bound if that does not exceed `threshold`.

    The number of opening brackets is an upper bound and is cheap to compute.
    """
    brackets = data.count(b"[") + data.count(b"{")
    return brackets if brackets <= threshold else _exact_depth(data)


def has_too_many_values(data: bytes) -> bool:
    """Whether a body exceeds the limit on values."""
    # A value takes at least two bytes, so small bodies need no count.
    return len(data) > 2 * MAX_VALUES and count_values(data, MAX_VALUES) > MAX_VALUES


def count_values(data: bytes, threshold: int = 0) -> int:
    """The number of values in a JSON text, containers and their items, or an upper bound if that is at most
    `threshold`.

    Counts brackets and commas outside of strings. Those inside of strings only raise the count, so if the total is
    small enough, the strings need not be removed.
    """
    marks = sum(map(data.count, _VALUE_DELIMITERS))
    if marks <= threshold:
        return marks
    return sum(map(_STRINGS.sub(b"", data).count, _VALUE_DELIMITERS))


def _exact_depth(data: bytes) -> int:
    """The nesting depth of brackets outside of strings; the text need not be valid JSON."""
    brackets = _STRINGS.sub(b"", data).translate(_DEPTH_DELTAS, _NOT_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0)


def _has_long_integers(data: bytes) -> bool:
    return any(match[1] and type(_parse_integer(match[1])) is float for match in _LONG_INTEGERS.finditer(data))


def _parse_integer(digits: str | bytes) -> int | float:
    """An integer; a float if it does not fit into 64 bits."""
    # Checks the length first: Python refuses to parse thousands of digits.
    if len(digits) > _MAX_INTEGER_CHARS or not -(2**63) <= int(digits) < 2**63:
        return float(digits)
    return int(digits)


def _decode_error(data: bytes, error: orjson.JSONDecodeError) -> Malformed:
    try:
        text = data.decode()
    except UnicodeDecodeError as invalid:
        return Malformed(f"invalid JSON: byte {invalid.start} is not UTF-8; encode the body as UTF-8")
    if error.pos >= len(text.rstrip()):
        return Malformed("unexpected end of JSON input")
    return Malformed(f"invalid JSON at line {error.lineno} column {error.colno}: {error.msg}")
