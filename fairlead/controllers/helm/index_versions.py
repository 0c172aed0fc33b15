"""Lists the versions of one chart in the index of a repository. A program: INDEX CHART TARGET.

`fetch.py` runs it in a process of its own, with limits: an index is untrusted, may have tens of megabytes, and takes
seconds to parse. It imports nothing of this package. TARGET becomes a JSON list of [version, URL, digest]; the exit
code is 0, or one of those below.

Only the entries of that chart are built, and of them only texts as they are written, so `version: 1.10` is not a
number. Aliases and duplicate keys on the way to them are errors: what other programs make of them differs.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

INVALID, NO_SUCH_CHART, TOO_MANY = 3, 4, 5
MAX_OUTPUT_BYTES = 2 * 1024 * 1024
MAX_TEXT_LENGTH = 8 * 1024
MAX_NESTING = 100
_FIELDS = ("version", "digest")


class InvalidIndex(Exception):
    """The index is not YAML with entries, or is ambiguous."""


Events = Iterator[Any]


def find_entries(events: Events, chart: str) -> list[list[str]] | None:
    """The versions of the chart, or None if the index has no such chart. Raises InvalidIndex."""
    for event in events:  # the start of the stream and of the document
        if isinstance(event, yaml.MappingStartEvent):
            break
        if isinstance(event, yaml.NodeEvent):
            raise InvalidIndex
    else:
        raise InvalidIndex
    entries: list[list[str]] | None = None
    seen = False
    for key in _keys(events):
        if key != "entries":
            _skip(events, next(events))
            continue
        if seen:
            raise InvalidIndex
        seen = True
        entries = _find_chart(events, chart)
    if not seen:
        raise InvalidIndex
    for _ in events:  # whatever follows must be YAML, too
        pass
    return entries


def _find_chart(events: Events, chart: str) -> list[list[str]] | None:
    start = next(events)
    if _is_null(start):
        return None
    if not isinstance(start, yaml.MappingStartEvent):
        raise InvalidIndex
    entries: list[list[str]] | None = None
    for key in _keys(events):
        if key != chart:
            _skip(events, next(events))
        elif entries is not None:
            raise InvalidIndex
        else:
            entries = _read_entries(events)
    return entries


def _read_entries(events: Events) -> list[list[str]]:
    start = next(events)
    if _is_null(start):
        return []
    if not isinstance(start, yaml.SequenceStartEvent):
        raise InvalidIndex
    entries = []
    for event in events:
        if isinstance(event, yaml.SequenceEndEvent):
            break
        if not isinstance(event, yaml.MappingStartEvent):
            _skip(events, event)
            continue
        entry = _read_entry(events)
        if entry["version"] and entry["url"]:
            entries.append([entry["version"], entry["url"], entry["digest"]])
    return entries


def _read_entry(events: Events) -> dict[str, str]:
    """Of the URLs only the first: helm uses no other."""
    entry = {"version": "", "url": "", "digest": ""}
    seen = set()
    for key in _keys(events):
        value = next(events)
        if key not in (*_FIELDS, "urls"):
            _skip(events, value)
            continue
        if key in seen:
            raise InvalidIndex
        seen.add(key)
        if key in _FIELDS:
            entry[key] = _read_text(value)
        elif isinstance(value, yaml.SequenceStartEvent):
            entry["url"] = _read_first(events)
        elif not _is_null(value):
            raise InvalidIndex
    return entry


def _read_first(events: Events) -> str:
    """The first item of a sequence of texts, which has started."""
    first = ""
    for event in events:
        if isinstance(event, yaml.SequenceEndEvent):
            break
        first = first or _read_text(event)
    return first


def _read_text(event: Any) -> str:
    if not isinstance(event, yaml.ScalarEvent) or len(event.value) > MAX_TEXT_LENGTH:
        raise InvalidIndex
    return "" if _is_null(event) else str(event.value)


def _is_null(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and not event.style and event.value in ("", "~", "null")


def _keys(events: Events) -> Iterator[str]:
    """The keys of a mapping that has started. The caller reads each value before the next key."""
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            return
        if not isinstance(event, yaml.ScalarEvent):
            raise InvalidIndex
        yield str(event.value)


def _skip(events: Events, first: Any) -> None:
    """Skips a value, whose first event was read."""
    nesting = 1 if isinstance(first, yaml.CollectionStartEvent) else 0
    while nesting:
        event = next(events)
        if isinstance(event, yaml.CollectionStartEvent):
            nesting += 1
            if nesting > MAX_NESTING:
                raise InvalidIndex
        elif isinstance(event, yaml.CollectionEndEvent):
            nesting -= 1


def main(source: str, chart: str, target: str) -> int:
    parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        with Path(source).open("rb") as file:
            entries = find_entries(yaml.parse(file, Loader=parser), chart)
    except (InvalidIndex, yaml.YAMLError, StopIteration, RecursionError, MemoryError, UnicodeError, ValueError):
        return INVALID
    if entries is None:
        return NO_SUCH_CHART
    output = json.dumps(entries).encode()
    if len(output) > MAX_OUTPUT_BYTES:
        return TOO_MANY
    Path(target).write_bytes(output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
