"""Resolves YAML scalars: `yes` is true, `0x1F` is 31, `2001-01-01` is a string.

The rules are those of the YAML 1.1 library that Kubernetes uses. Notable cases: sexagesimal numbers and timestamps
stay strings, a leading zero means octal, `08` (not octal) is 8, and 1.0 becomes 1, as in Kubernetes' conversion to
JSON. Integers beyond 64 bits become floats. `!!binary` is decoded and must contain UTF-8. Two rules are stricter:
infinities and NaN are rejected, because JSON cannot represent them; and tags that Kubernetes ignores are rejected.

`core/yaml/composer.py` uses this for decoding, and `core/yaml/__init__.py` to decide which strings need quotes.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Mapping

from fairlead.core.body_errors import Malformed

Scalar = str | int | float | bool | None

TAG_PREFIX = "tag:yaml.org,2002:"

_SPELLINGS: dict[bool | float | None, str] = {
    True: "y Y yes Yes YES true True TRUE on On ON",
    False: "n N no No NO false False FALSE off Off OFF",
    None: "~ null Null NULL",
    math.nan: ".nan .NaN .NAN",
    math.inf: ".inf .Inf .INF +.inf +.Inf +.INF",
    -math.inf: "-.inf -.Inf -.INF",
}
_WORDS: Mapping[str, Scalar] = {word: value for value, words in _SPELLINGS.items() for word in words.split()} | {
    "": None
}
_NUMBER_STARTS = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
# A text that is much longer than any number is a string.
_MAX_NUMBER_CHARS = 400

# Strings that other YAML 1.1 parsers resolve to other types: base 60, dates, merge and value keys.
_AMBIGUOUS_ELSEWHERE = re.compile(
    r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?|<<|="
)


def resolve(text: str) -> Scalar:
    """Resolve a plain scalar without a tag."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS or len(text) > _MAX_NUMBER_CHARS:
        return text
    # Underscores may separate digits, but not after a leading point.
    digits = text if text[0] == "." else text.replace("_", "")
    if _INTEGER.fullmatch(digits):
        return _parse_integer(digits)
    if _FLOAT.fullmatch(digits):
        number = float(digits)
        return text if math.isinf(number) else number
    return text


def resolve_tagged(tag: str, text: str) -> Scalar:
    """Resolve a scalar with a tag. Tags other than those of the basic types are rejected."""
    match tag.removeprefix(TAG_PREFIX):
        case "str" | "timestamp":
            return text
        case "binary":
            return _decode_binary(text)
        case "int" | "float" | "bool" | "null" as wanted:
            value = resolve(text)
            if wanted == "float" and type(value) is int:
                return float(value)
            if {"int": int, "float": float, "bool": bool, "null": type(None)}[wanted] is not type(value):
                raise Malformed(f"{_quote(text)} cannot be read as !!{wanted}; fix the value or remove the tag")
            return value
        case _:
            raise unknown_tag_error(tag)


def unknown_tag_error(tag: str) -> Malformed:
    return Malformed(f"tag {_quote(tag)} is not supported; remove it")


def to_json_number(number: float) -> int | float:
    """A float as a JSON number: integral floats become integers, infinities and NaN are rejected."""
    if not math.isfinite(number):
        raise Malformed(f"{number} cannot be represented in JSON; quote it to make it a string")
    return int(number) if number.is_integer() and abs(number) < 2**63 else number


def to_json_key(value: Scalar) -> str:
    """Convert a key to a string, as JSON requires."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _format_float_key(value)
        case None:
            raise Malformed("a key is null or empty; give it a name, or quote it")


def is_plain_string(text: str) -> bool:
    """Whether the text needs no quotes, because this and other parsers resolve it to the same string."""
    if text and text[0] not in _NUMBER_STARTS and text not in _WORDS and text[0] not in "<=":
        return True
    try:
        return resolve(text) == text and not _AMBIGUOUS_ELSEWHERE.fullmatch(text)
    except Malformed:
        return False


def _parse_integer(digits: str) -> int | float:
    """An integer; a float if it does not fit into 64 bits."""
    bare = digits.lstrip("+-")
    octal = bare[0] == "0" and bare.isdecimal()
    value = int(bare, 8 if octal else 0)
    value = -value if digits[0] == "-" else value
    return value if -(2**63) <= value < 2**63 else _to_float(value, digits)


def _to_float(value: int, digits: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Malformed(f"integer {_quote(digits)} is too large; quote it to make it a string") from None


def _decode_binary(text: str) -> str:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True).decode()
    except (binascii.Error, ValueError):
        raise Malformed("!!binary value is not base64 of UTF-8 text; remove the tag to keep the base64 text") from None


def _format_float_key(number: float) -> str:
    """Format a float key as Kubernetes does: the fewest digits that round-trip as a 32-bit float."""
    if math.isnan(number):
        return ".nan"
    single = _to_float32(number)
    if math.isinf(single):
        return ".inf" if single > 0 else "-.inf"
    digits = next(digits for digits in range(18) if _to_float32(float(f"{single:.{digits}e}")) == single)
    scientific = f"{single:.{digits}e}"
    exponent = int(scientific.partition("e")[2])
    return f"{single:.{max(digits - exponent, 0)}f}" if -4 <= exponent < 6 else scientific


def _to_float32(number: float) -> float:
    """The nearest 32-bit float; infinity if out of range."""
    try:
        single: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return single


def _quote(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
