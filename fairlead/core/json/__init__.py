"""JSON encoding and decoding with orjson, hardened against untrusted input.

orjson already rejects NaN, invalid UTF-8 and trailing text. Depth is limited here, so that recursive code cannot
exhaust the stack, and so is the length of numbers. Integers beyond 64 bits become floats, as in Kubernetes; orjson does
so only from 2^64 on. Duplicate keys, of which orjson silently keeps the last, can be listed.

Texts of more than `SMALL_BYTES` are only examined in slices (`outlines.py`), and bodies of requests are also
decoded in slices (`slices.py`): a call into C code over all of a large text would stop all other threads for too
long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.scanner import py_make_scanner  # type: ignore[attr-defined] # it is not in the stubs
from typing import Any

import orjson

from fairlead.core.body_errors import (
    MAX_DEPTH,
    MAX_VALUES,
    DuplicateKeys,
    Malformed,
    TooManyValues,
    depth_error,
    field_path,
)
from fairlead.core.json.outlines import LONG_INTEGER_DIGITS, Outline, outline
from fairlead.core.json.slices import decode_in_slices

__all__ = [
    "Malformed",
    "TooManyValues",
    "count_values",
    "decode",
    "decode_body",
    "decode_foreign",
    "encode",
    "encode_pretty",
    "find_duplicate_keys",
    "is_too_deep",
    "nesting_depth",
    "parse_body",
]

SMALL_BYTES = 16 * 1024
"""Up to this size, one call over the whole text takes less than 50 microseconds."""
MAX_VALUES_AT_ONCE = 8_000
"""More values are decoded in slices: orjson takes up to 0.4 microseconds for each."""

_DIGITS_TO_ZERO = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else ord(" ") for byte in range(256))
_LONG_DIGITS = b"0" * LONG_INTEGER_DIGITS
_VALUE_DELIMITERS = (b",", b"[", b"{")
_MAX_INTEGER = 2**63 - 1


def decode(data: bytes) -> Any:
    """Decode JSON; the last value of a duplicate key wins. Raises `Malformed`."""
    if len(data) > SMALL_BYTES or _LONG_DIGITS in data.translate(_DIGITS_TO_ZERO):
        return _decode_outlined(data, outline(data), orjson.loads)
    if is_too_deep(data):
        raise depth_error()
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _decode_error(data, error) from None


def decode_body(data: bytes) -> Any:
    """The same in slices, for bodies of requests."""
    return decode(data) if len(data) <= SMALL_BYTES else _decode_large_body(data, outline(data))


def parse_body(data: bytes) -> tuple[Any, list[str]]:
    """The body of a request, and the paths of duplicate keys. Raises `Malformed`, or `TooManyValues`."""
    if len(data) <= SMALL_BYTES:
        value = decode(data)
        return value, find_duplicate_keys(data, value)
    found = _outline_few(data, MAX_VALUES)
    value = _decode_large_body(data, found)
    return value, [] if found.keys == _count_keys(value) else _list_duplicate_keys(data)


def decode_foreign(data: bytes, max_values: int) -> Any:
    """What another program has answered, in slices. Raises `Malformed`, or `TooManyValues`."""
    return decode(data) if len(data) <= SMALL_BYTES else _decode_large_body(data, _outline_few(data, max_values))


def _outline_few(data: bytes, max_values: int) -> Outline:
    found = outline(data)
    if found.values > max_values:
        raise TooManyValues(f"more than {max_values} values; split it into several objects")
    return found


def _decode_large_body(data: bytes, found: Outline) -> Any:
    return _decode_outlined(data, found, decode_in_slices if found.values > MAX_VALUES_AT_ONCE else orjson.loads)


def _decode_outlined(data: bytes, found: Outline, loads: Callable[[bytes], Any]) -> Any:
    if found.depth > MAX_DEPTH:
        raise depth_error()
    try:
        value = loads(data)
    except orjson.JSONDecodeError as error:
        raise _decode_error(data, error) from None
    return _limit_integers(value) if found.may_exceed_64_bits else value


def _limit_integers(value: Any) -> Any:
    """Replaces integers beyond 64 bits by floats. The recursion is as deep as the text, which is limited."""
    if type(value) is int:
        return float(value) if value > _MAX_INTEGER else value
    if isinstance(value, dict):
        for key, child in value.items():
            if type(child) is not str:
                value[key] = _limit_integers(child)
    elif isinstance(value, list):
        value[:] = [child if type(child) is str else _limit_integers(child) for child in value]
    return value


def encode(value: Any) -> bytes:
    """Compact JSON."""
    return orjson.dumps(value)


def encode_sorted(value: Any) -> bytes:
    """Equal values have equal bytes, in whichever order their fields are. `1`, `1.0` and `true` are different."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


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
    return _list_duplicate_keys(data)


def _count_keys(value: Any) -> int:
    """The number of keys of all objects in a value."""
    count, pending = 0, [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            count += len(each)
            each = each.values()
        elif not isinstance(each, list):
            continue
        pending.extend(child for child in each if isinstance(child, dict | list))
    return count


def _list_duplicate_keys(data: bytes) -> list[str]:
    found = DuplicateKeys()
    decoder = json.JSONDecoder(object_pairs_hook=_collect_pairs)
    if len(data) > SMALL_BYTES:
        # In Python, so that other threads can run. The attribute is not in the stubs either.
        decoder.scan_once = py_make_scanner(decoder)  # type: ignore[attr-defined]
    _collect_duplicates(decoder.decode(data.decode()), "", found)
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
    if len(data) <= SMALL_BYTES and (brackets := data.count(b"[") + data.count(b"{")) <= threshold:
        return brackets
    return outline(data).depth


def count_values(data: bytes, threshold: int = 0) -> int:
    """The number of values in a JSON text, containers and their items, or an upper bound if that is at most
    `threshold`.

    Counts brackets and commas. Those inside of strings only raise the count, so if the total is small enough, the
    strings need not be left out.
    """
    if len(data) <= SMALL_BYTES and (marks := sum(map(data.count, _VALUE_DELIMITERS))) <= threshold:
        return marks
    return outline(data).values


def _decode_error(data: bytes, error: orjson.JSONDecodeError) -> Malformed:
    try:
        text = data.decode()
    except UnicodeDecodeError as invalid:
        return Malformed(f"invalid JSON: byte {invalid.start} is not UTF-8; encode the body as UTF-8")
    if error.pos >= len(text.rstrip()):
        return Malformed("unexpected end of JSON input")
    return Malformed(f"invalid JSON at line {error.lineno} column {error.colno}: {error.msg}")


# Each of these also matches what has no end, so none of them backtracks. Without possessive repeats: with these, Python
# 3.11.2, which Debian 12 has, finds other groups and ignores lookaheads.
_STRING = r'"(?:[^"\\]+|\\.?)*"?'
_COMMENTS = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMAS = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)


def parse_jsonc(text: str) -> dict[str, Any]:
    """The object that the text contains. Raises Malformed."""
    without_comments = _COMMENTS.sub(_replace_comment, text)
    without_commas = _TRAILING_COMMAS.sub(lambda match: "" if match[0] == "," else match[0], without_comments)
    value = decode(without_commas.encode())
    if not isinstance(value, dict):
        raise Malformed("it is not an object")
    return value


def _replace_comment(match: re.Match[str]) -> str:
    if match[0].startswith('"'):
        return match[0]
    if match[0].startswith("/*") and not match[0].endswith("*/", len("/*")):
        raise Malformed("a comment that begins with /* has no end")
    return " "
