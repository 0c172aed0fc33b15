"""YAML encoding and decoding with the semantics of Kubernetes.

libyaml parses, `composer.py` builds the value within a budget, and `scalars.py` resolves scalars. As in Kubernetes,
only the first document of a body is read, and the rest is not even parsed; an empty body is null.

libyaml reads a large text from `_Source`, 16 KiB at a time. That is Python code, so other threads can run whenever it
reads on. Otherwise, a scalar of megabytes would stop them until its end.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
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

from fairlead.core.body_errors import Malformed
from fairlead.core.yaml.composer import MAX_COST, MERGE_KEY, Composer
from fairlead.core.yaml.scalars import is_plain_string, to_json_number

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
