"""YAML encoding and decoding with the semantics of Kubernetes.

libyaml parses, `Composer` builds the value within a budget, and scalars are resolved as the YAML 1.1 library does that
Kubernetes uses. As in Kubernetes, only the first document of a body is read, and the rest is not even parsed; an empty
body is null.

Scalars: `yes` is true, `0x1F` is 31, `2001-01-01` is a string. Notable cases: sexagesimal numbers and timestamps stay
strings, a leading zero means octal, `08` (not octal) is 8, and 1.0 becomes 1, as in Kubernetes' conversion to JSON.
Integers beyond 64 bits become floats. `!!binary` is decoded and must contain UTF-8. Two rules are stricter: infinities
and NaN are rejected, because JSON cannot represent them; and tags that Kubernetes ignores are rejected.

PyYAML's own composer is not safe for untrusted input: nested aliases expand exponentially, deep nesting exhausts the
stack, and tags can name types. This one uses an explicit stack instead of recursion and charges every node before
building it. An alias costs as much as its anchor did, so a document that would expand to gigabytes is rejected at the
alias that exceeds the budget. An alias is copied: no two parts of a value are the same object.

libyaml reads a large text from `_Source`, 16 KiB at a time. That is Python code, so other threads can run whenever it
reads on. Otherwise, a scalar of megabytes would stop them until its end.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import math
import re
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from fairlead.core.body_errors import MAX_DEPTH, DuplicateKeys, Malformed, depth_error, field_path

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


# A node costs 48, plus 1 per character. So a body of 3 MiB can be one text or 130,000 short nodes: as many as an
# object of the largest size that Kubernetes stores, and parsed in half a second.
MAX_COST = 6 * 2**20
NODE_COST = 48

MERGE_KEY = "<<"
# The non-specific tag `!`, which Kubernetes ignores.
_NO_TAG = "!"
_INCOMPLETE = -1


@dataclass(slots=True)
class _Anchor:
    """The node of an anchor. Its cost is known, and aliases are allowed, once the node is complete."""

    value: Any
    cost: int = _INCOMPLETE
    height: int = 0


@dataclass(slots=True)
class _Frame:
    """A mapping or list under construction."""

    container: Any
    expects_key: bool
    cost_before: int = 0
    height: int = 1
    anchor: _Anchor | None = None
    key: str = ""
    is_merge: bool = False
    path: str | None = None
    # Keys that come from a merge only. Setting them explicitly afterwards is an override, not a duplicate.
    merged_keys: set[str] | None = None


class Composer:
    """Consumes the events of one document, one call per event. Afterwards, `value` is the document's value."""

    __slots__ = ("_anchors", "_cost", "_frame", "_stack", "duplicates")

    def __init__(self) -> None:
        # The bottom of the stack is a list that receives the document's only value.
        self._frame = _Frame([], expects_key=False, path="")
        self._stack = [self._frame]
        self._anchors: dict[str, _Anchor] = {}
        self._cost = 0
        self.duplicates = DuplicateKeys()

    @property
    def value(self) -> Any:
        """The document's value; None for an empty document."""
        document = self._stack[0].container
        return document[0] if document else None

    def add_scalar(self, event: ScalarEvent) -> None:
        text = event.value
        self._charge(NODE_COST + len(text))
        merge = self._frame.expects_key and text == MERGE_KEY and _is_merge(event)
        value = None if merge else _scalar_value(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(value, NODE_COST + len(text))
        if merge:
            self._frame.key, self._frame.expects_key, self._frame.is_merge = MERGE_KEY, False, True
        elif self._frame.expects_key:
            self._set_key(to_json_key(value))
        else:
            self._add_value(to_json_number(value) if type(value) is float else value)

    def add_alias(self, event: AliasEvent) -> None:
        found = self._anchors.get(event.anchor or "")
        if found is None:
            raise Malformed(f"unknown anchor '{event.anchor}' referenced; define it before its use")
        if found.cost == _INCOMPLETE:
            raise Malformed(f"anchor '{event.anchor}' value contains itself; write the value out")
        self._charge(found.cost)
        if len(self._stack) - 1 + found.height > MAX_DEPTH:
            raise depth_error()
        if self._frame.expects_key:
            if found.height:
                raise _complex_key_error()
            self._set_key(to_json_key(found.value))
        elif type(found.value) is float:
            self._add_value(to_json_number(found.value))
        else:
            self._add_value(_deep_copy(found.value), found.height)

    def open_mapping(self, event: CollectionStartEvent) -> None:
        self._open_collection(event, "map", _Frame({}, expects_key=True, cost_before=self._cost))

    def open_sequence(self, event: CollectionStartEvent) -> None:
        self._open_collection(event, "seq", _Frame([], expects_key=False, cost_before=self._cost))

    def close(self, _: Event) -> None:
        frame = self._stack.pop()
        self._frame = self._stack[-1]
        if frame.anchor:
            frame.anchor.cost = self._cost - frame.cost_before
            frame.anchor.height = frame.height
        self._add_value(frame.container, frame.height)

    def _open_collection(self, event: CollectionStartEvent, kind: str, frame: _Frame) -> None:
        if event.tag not in (None, _NO_TAG, TAG_PREFIX + kind):
            raise unknown_tag_error(event.tag)
        if self._frame.expects_key:
            raise _complex_key_error()
        if len(self._stack) > MAX_DEPTH:
            raise depth_error()
        self._charge(NODE_COST)
        if event.anchor is not None:
            frame.anchor = self._anchors[event.anchor] = _Anchor(frame.container)
        if len(self._stack) == 1:
            frame.path = ""
        self._stack.append(frame)
        self._frame = frame

    def _charge(self, cost: int) -> None:
        self._cost += cost
        if self._cost > MAX_COST:
            raise Malformed("too many nodes or aliases; send a smaller object, or send it as JSON")

    def _set_key(self, key: str) -> None:
        frame = self._frame
        frame.key, frame.expects_key, frame.is_merge = key, False, False
        if key not in frame.container:
            return
        if frame.merged_keys and key in frame.merged_keys:
            frame.merged_keys.discard(key)
        elif not self.duplicates.is_full:
            self.duplicates.add(field_path(self._path(), key))

    def _path(self) -> str:
        """The path of the innermost frame. Cached in the frames, because the path of an open frame does not change."""
        known = len(self._stack) - 1
        while (path := self._stack[known].path) is None:
            known -= 1
        for outer, inner in pairwise(self._stack[known:]):
            path = field_path(path, outer.key if isinstance(outer.container, dict) else len(outer.container))
            inner.path = path
        return path

    def _add_value(self, value: Any, height: int = 0) -> None:
        frame = self._frame
        if isinstance(frame.container, list):
            frame.container.append(value)
        else:
            frame.expects_key = True
            if frame.is_merge:
                _merge(frame, value)
                height -= 1 if isinstance(value, dict) else 2
            else:
                frame.container[frame.key] = value
        if height >= frame.height:
            frame.height = height + 1


def _is_merge(event: ScalarEvent) -> bool:
    return event.tag == TAG_PREFIX + "merge" or (event.tag is None and event.implicit[0])


def _scalar_value(event: ScalarEvent) -> Scalar:
    text: str = event.value
    if event.tag == _NO_TAG or (event.tag is None and event.implicit[0]):
        return resolve(text)
    return text if event.tag is None else resolve_tagged(event.tag, text)


def _merge(frame: _Frame, source: Any) -> None:
    """Merge the keys of a mapping, or of several mappings of which the first wins.

    In document order, as in Kubernetes: a merge overrides earlier keys and is overridden by later ones.
    """
    sources = source if isinstance(source, list) else [source]
    if not all(isinstance(each, dict) for each in sources):
        raise Malformed("map merge requires map or sequence of maps as the value")
    frame.merged_keys = frame.merged_keys or set()
    for each in reversed(sources):
        frame.merged_keys.update(each.keys() - frame.container.keys())
        frame.container.update(each)


def _complex_key_error() -> Malformed:
    return Malformed("a key is a list or a mapping; use a plain value as key")


def _deep_copy(value: Any) -> Any:
    """A deep copy. The recursion is bounded by the depth limit."""
    if isinstance(value, dict):
        return {key: _deep_copy(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_deep_copy(each) for each in value]
    return value


__all__ = ["Malformed", "decode", "encode", "expanded_size"]

# Fall back to the pure Python implementation, thirty times slower, if PyYAML was built without libyaml.
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Emitter: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

# libyaml compares each %TAG line with all previous ones, which is quadratic. The line breaks are those that it
# recognizes; a byte order mark may precede the first line.
_TAG = b"%TAG"
_BEFORE_TAG = (b"\r", b"\n", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
_MAX_TAG_LINES = 16

# Texts are examined in parts of this size, and larger ones are parsed in parts.
_PART_BYTES = 32 * 1024

# Characters that a literal block does not preserve.
_NEEDS_ESCAPES = re.compile("[\r\x85\u2028\u2029\ufeff]")
_UNLIMITED_WIDTH = 2**31 - 1


def decode(
    data: bytes, substitute: Callable[[str], str] | None = None, max_events: int = sys.maxsize
) -> tuple[Any, list[str]]:
    """Decode the first document. Returns its value and the paths of duplicate keys, whose last value wins.

    `substitute` may replace the text of each scalar after parsing, so its result cannot change the structure.
    `max_events` bounds the time of texts that are parsed on the event loop: a key, a value, and the start and the end
    of a list or mapping are one event each. Raises `Malformed`, with the line if it is known.
    """
    _check_encoding(data)
    if _has_many_tag_lines(data):
        raise Malformed("yaml: too many %TAG lines; remove them")
    composer = Composer()
    try:
        _compose(composer, _Parser(data if len(data) <= _PART_BYTES else _Source(data)), substitute, max_events)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # The parser counts the end of the text as another line, which no editor shows.
        text = data.rstrip()
        last = sum(text.count(b"\n", at, at + _PART_BYTES) for at in range(0, len(text), _PART_BYTES)) + 1
        raise Malformed(f"yaml: line {min(mark.line + 1, last) if mark else last}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise Malformed(f"yaml: {' '.join(str(error).split())}") from None
    return composer.value, composer.duplicates.paths


def expanded_size(data: bytes) -> int:
    """The size to charge for a text: anchors and aliases can expand a few bytes to many."""
    return MAX_COST if b"&" in data and b"*" in data else len(data)


def encode(value: Any) -> bytes:
    """YAML as kubectl prints it: block style, sorted keys, no aliases, no folded lines, ambiguous strings quoted."""
    events: list[Event] = [StreamStartEvent(), DocumentStartEvent(explicit=False)]
    _append_events(value, events)
    events += [DocumentEndEvent(explicit=False), StreamEndEvent()]
    text: str = yaml.emit(events, Dumper=_Emitter, allow_unicode=True, width=_UNLIMITED_WIDTH)
    return text.encode()


class _Source:
    """A text as a file."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        self._at += len(part)
        return part


def _check_encoding(data: bytes) -> None:
    decoder, at, incomplete = codecs.getincrementaldecoder("utf-8")(), 0, 0
    try:
        for at in range(0, len(data), _PART_BYTES):
            incomplete = len(decoder.getstate()[0])
            decoder.decode(data[at : at + _PART_BYTES], at + _PART_BYTES >= len(data))
    except UnicodeDecodeError as error:
        raise Malformed(f"yaml: byte {at - incomplete + error.start} is not UTF-8; encode the body as UTF-8") from None


def _has_many_tag_lines(data: bytes) -> bool:
    lines, at = 0, data.find(_TAG)
    while at >= 0 and lines <= _MAX_TAG_LINES:
        lines += data[:at] in (b"", codecs.BOM_UTF8) if at <= 3 else data.endswith(_BEFORE_TAG, 0, at)
        at = data.find(_TAG, at + 1)
    return lines > _MAX_TAG_LINES


def _compose(composer: Composer, parser: Any, substitute: Callable[[str], str] | None, max_events: int) -> None:
    handlers: dict[type, Callable[[Any], None]] = {
        ScalarEvent: composer.add_scalar,
        AliasEvent: composer.add_alias,
        MappingStartEvent: composer.open_mapping,
        MappingEndEvent: composer.close,
        SequenceStartEvent: composer.open_sequence,
        SequenceEndEvent: composer.close,
    }
    event = parser.get_event()
    count = 0
    while type(event) is not DocumentEndEvent and type(event) is not StreamEndEvent:
        count += 1
        if count > max_events:
            raise Malformed(f"yaml: line {event.start_mark.line + 1}: too many keys and values; leave some out")
        handler = handlers.get(type(event))
        if substitute is not None and type(event) is ScalarEvent:
            _substitute_scalar(event, substitute)
        if handler:
            try:
                handler(event)
            except Malformed as problem:
                raise Malformed(f"yaml: line {event.start_mark.line + 1}: {problem}") from None
        event = parser.get_event()


def _substitute_scalar(event: ScalarEvent, substitute: Callable[[str], str]) -> None:
    filled = substitute(event.value)
    if filled != event.value and filled == MERGE_KEY:  # a string, not a merge key
        event.style, event.implicit = '"', (False, True)
    event.value = filled


def _append_events(value: Any, events: list[Event]) -> None:
    if isinstance(value, dict):
        events.append(MappingStartEvent(None, None, implicit=True, flow_style=False))
        for key in sorted(value):
            events.append(_string_event(key))
            _append_events(value[key], events)
        events.append(MappingEndEvent())
    elif isinstance(value, list):
        events.append(SequenceStartEvent(None, None, implicit=True, flow_style=False))
        for each in value:
            _append_events(each, events)
        events.append(SequenceEndEvent())
    elif isinstance(value, str):
        events.append(_string_event(value))
    else:
        events.append(_scalar_event(_literal(value)))


def _literal(value: bool | int | float | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(to_json_number(value)) if isinstance(value, float) else str(value)


def _string_event(text: str) -> Event:
    if _NEEDS_ESCAPES.search(text):
        return _scalar_event(text, '"')
    if "\n" in text:
        return _scalar_event(text, "|")
    return _scalar_event(text, None if is_plain_string(text) else '"')


def _scalar_event(text: str, style: str | None = None) -> Event:
    return ScalarEvent(None, None, (True, True), text, style=style)
