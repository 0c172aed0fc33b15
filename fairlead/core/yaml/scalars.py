"""What a YAML scalar means: `yes` is true, `0x1F` is 31, `2001-01-01` is text.

The rules are those of the YAML 1.1 reader inside Kubernetes, so that a file means here what it means there. Worth
knowing: sexagesimal numbers and timestamps stay text as written, a leading zero means octal, `08` (no octal) is 8, and
1.0 turns into 1 as it does on Kubernetes' way through JSON. `!!binary` is decoded and must hold UTF-8. Two rules are
our own: infinities, NaN and integers beyond 64 bits are refused, as JSON cannot carry the ones and rounds the others;
and tags that Kubernetes ignores are refused, too.

Used by `core/yaml/composer.py` for reading and by `core/yaml/__init__.py` to see which texts need quotes.
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
# The longest integer of 64 bits is a sign, 0b and 64 digits. What is much longer than any number is text.
_LONGEST_NUMBER = 400
_LONGEST_INTEGER = 80

# Texts that this reader takes as text but other YAML 1.1 readers do not: base 60, dates, merge and value keys.
_QUOTED_FOR_OTHERS = re.compile(
    r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?|<<|="
)


def resolve(text: str) -> Scalar:
    """The value of a plain scalar without a tag."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS or len(text) > _LONGEST_NUMBER:
        return text
    # Underscores group digits, but not after a leading point.
    digits = text if text[0] == "." else text.replace("_", "")
    if _INTEGER.fullmatch(digits):
        return _integer(digits)
    if _FLOAT.fullmatch(digits):
        number = float(digits)
        if digits.lstrip("+-").isdecimal() and abs(number) >= 2**63:
            raise _too_large(digits)
        return text if math.isinf(number) else number
    return text


def resolve_tagged(tag: str, text: str) -> Scalar:
    """The value of a scalar that says what it is. Tags that name anything but a plain value are refused."""
    match tag.removeprefix(TAG_PREFIX):
        case "str" | "timestamp":
            return text
        case "binary":
            return _binary(text)
        case "int" | "float" | "bool" | "null" as wanted:
            value = resolve(text)
            if wanted == "float" and type(value) is int:
                return float(value)
            if {"int": int, "float": float, "bool": bool, "null": type(None)}[wanted] is not type(value):
                raise Malformed(f"{_shown(text)} cannot be read as !!{wanted}; mend the value or drop the tag")
            return value
        case _:
            raise unknown_tag(tag)


def unknown_tag(tag: str) -> Malformed:
    return Malformed(f"tag {_shown(tag)} is not supported; remove it")


def json_number(number: float) -> int | float:
    """A float as JSON carries it: a whole one is an integer, one that is no number is refused."""
    if not math.isfinite(number):
        raise Malformed(f"{number} is a number that JSON cannot carry; quote it to make it text")
    return int(number) if number.is_integer() and abs(number) < 2**63 else number


def key_text(value: Scalar) -> str:
    """The text that a key becomes in JSON, where every key is text."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float_key(value)
        case None:
            raise Malformed("a key is null or empty; give it a name, or quote it")


def reads_as_text(text: str) -> bool:
    """Whether a plain scalar with this text would be read back as this text, here and elsewhere."""
    if text and text[0] not in _NUMBER_STARTS and text not in _WORDS and text[0] not in "<=":
        return True
    try:
        return resolve(text) == text and not _QUOTED_FOR_OTHERS.fullmatch(text)
    except Malformed:
        return False


def _integer(digits: str) -> int:
    if len(digits) <= _LONGEST_INTEGER:
        bare = digits.lstrip("+-")
        octal = bare[0] == "0" and bare.isdecimal()
        value = int(bare, 8 if octal else 0)
        value = -value if digits[0] == "-" else value
        if -(2**63) <= value < 2**63:
            return value
    raise _too_large(digits)


def _too_large(digits: str) -> Malformed:
    return Malformed(f"integer {_shown(digits)} does not fit into 64 bits; quote it to make it text")


def _binary(text: str) -> str:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True).decode()
    except (binascii.Error, ValueError):
        raise Malformed("!!binary value is no base64 of UTF-8 text; drop the tag to keep the base64 as it is") from None


def _float_key(number: float) -> str:
    """As Kubernetes prints it: the fewest digits that give back the same 32-bit float."""
    if math.isnan(number):
        return ".nan"
    single = _single(number)
    if math.isinf(single):
        return ".inf" if single > 0 else "-.inf"
    digits = next(digits for digits in range(18) if _single(float(f"{single:.{digits}e}")) == single)
    scientific = f"{single:.{digits}e}"
    exponent = int(scientific.partition("e")[2])
    return f"{single:.{max(digits - exponent, 0)}f}" if -4 <= exponent < 6 else scientific


def _single(number: float) -> float:
    """The nearest 32-bit float; beyond their range, infinity."""
    try:
        single: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return single


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
