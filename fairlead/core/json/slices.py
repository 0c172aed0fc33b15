"""Decodes large JSON in slices, so that other threads can run in between.

A JSON parser creates all values in a single call, which holds the interpreter: 40 ms for 100,000 of them. Here the text
is divided between values into groups, each of which one call decodes. Values of containers that are larger than a group
are added to them group by group.

The result is the same as that of the parser. Whatever does not look as expected is left to the parser, which then
decodes the whole text or finds the mistake in it; that is fast, because it looks for mistakes before it creates values.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import orjson

from fairlead.core.json.outlines import iter_pieces

GROUP_VALUES = 2_000
GROUP_BYTES = 64 * 1024
"""A group ends after so many values, or so many bytes."""
LARGE_BYTES = 64 * 1024
"""Stored texts above this size are decoded in slices, outside of the event loop."""

_STRUCTURE = re.compile(rb"[\[\]{},]")
_SPACE = b" \t\r\n"
_CLOSING = {ord("]"): False, ord("}"): True}


def decode_stored(data: bytes) -> Any:
    """The value of a text that the server has encoded itself. In a thread, in slices if it is large; on the event loop,
    slices would only take longer, because nothing else runs in between."""
    if len(data) <= LARGE_BYTES or _is_on_event_loop():
        return orjson.loads(data)
    return decode_in_slices(data)


def _is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Irregular(Exception):
    """The text is not what it seems to be."""


class _Container:
    """A container that is not closed. `value` is None as long as it may still fit into a group."""

    __slots__ = ("follows_comma", "follows_container", "is_object", "last_comma", "opened", "pending", "value")

    def __init__(self, opened: int, is_object: bool) -> None:
        self.opened = opened
        self.is_object = is_object
        self.value: Any = None
        self.pending = opened + 1
        """Where the part of the text begins that has not been decoded."""
        self.last_comma = -1
        self.follows_comma = False
        self.follows_container = False
        """What precedes the pending text: a comma, or a container that was decoded on its own."""


def decode_in_slices(data: bytes) -> Any:
    """The value of a text. Raises orjson.JSONDecodeError."""
    try:
        return _Decoder(data).decode()
    except (_Irregular, orjson.JSONDecodeError):
        return orjson.loads(data)


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._open: list[_Container] = []
        self._created = 0
        """How many of the open containers have a value. They are the outermost ones."""
        self._root: Any = None

    def decode(self) -> Any:
        values, group_start = 0, 0
        for offset, mark in _iter_structure(self._data):
            if mark in b"[{":
                self._open_container(offset, mark == ord("{"))
            elif mark in _CLOSING:
                self._close_container(offset, _CLOSING[mark])
                continue
            else:
                self._innermost().last_comma = offset
            values += 1
            if mark == ord(",") and (values >= GROUP_VALUES or offset - group_start >= GROUP_BYTES):
                self._end_group(offset)
                values, group_start = 0, offset
        if self._open or self._root is None:
            raise _Irregular
        return self._root

    def _innermost(self) -> _Container:
        if not self._open:
            raise _Irregular
        return self._open[-1]

    def _open_container(self, offset: int, is_object: bool) -> None:
        if not self._open and (self._root is not None or self._data[:offset].strip(_SPACE)):
            raise _Irregular
        self._open.append(_Container(offset, is_object))

    def _close_container(self, offset: int, is_object: bool) -> None:
        closed = self._innermost()
        if closed.is_object != is_object:
            raise _Irregular
        if closed.value is None and len(self._open) > 1:
            self._open.pop()  # a part of the pending text of another container
            return
        if closed.value is None:
            self._create(closed)
        self._decode_pending(closed, offset, is_last=True)
        self._open.pop()
        self._created -= 1
        if self._open:
            outer = self._open[-1]
            outer.pending, outer.last_comma = offset + 1, -1
            outer.follows_comma, outer.follows_container = False, True
        else:
            self._root = closed.value
            if self._data[offset + 1 :].strip(_SPACE):
                raise _Irregular

    def _end_group(self, comma: int) -> None:
        """Decodes everything before a comma."""
        for container in self._open[self._created :]:
            self._create(container)
        self._decode_pending(self._open[-1], comma)

    def _create(self, container: _Container) -> None:
        """Adds an empty container to the one around it."""
        container.value = {} if container.is_object else []
        self._created += 1
        if self._created == 1:
            return
        outer = self._open[self._created - 2]
        if outer.last_comma >= outer.pending:
            self._decode_pending(outer, outer.last_comma)
        elif outer.follows_container:
            raise _Irregular
        before = self._data[outer.pending : container.opened].strip(_SPACE)
        if outer.is_object:
            outer.value[_decode_key(before)] = container.value
        elif before:
            raise _Irregular
        else:
            outer.value.append(container.value)

    def _decode_pending(self, container: _Container, end: int, *, is_last: bool = False) -> None:
        """Decodes the pending text up to a comma, or to the end of the container."""
        text = self._data[container.pending : end].strip(_SPACE)
        if container.follows_container and text:
            if not text.startswith(b","):
                raise _Irregular
            text = text[1:].strip(_SPACE)
            is_missing = not text
        else:
            may_be_empty = container.follows_container or (is_last and not container.follows_comma)
            is_missing = not text and not may_be_empty
        if is_missing:
            raise _Irregular
        if text and container.is_object:
            container.value.update(orjson.loads(b"{%b}" % text))
        elif text:
            container.value.extend(orjson.loads(b"[%b]" % text))
        container.pending, container.follows_comma, container.follows_container = end + 1, True, False


def _iter_structure(data: bytes) -> Iterator[tuple[int, int]]:
    """The offsets of brackets and commas outside of strings, and the characters themselves."""
    for offset, pieces, is_inside in iter_pieces(data):
        for piece in pieces:
            if not is_inside and piece != b":":
                for match in _STRUCTURE.finditer(piece):
                    yield offset + match.start(), piece[match.start()]
            offset += len(piece) + 1
            is_inside = not is_inside


def _decode_key(text: bytes) -> str:
    """The key in `"key":`."""
    key = orjson.loads(text[:-1]) if text.endswith(b":") else None
    if not isinstance(key, str):
        raise _Irregular
    return key
