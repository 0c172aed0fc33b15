"""Builds the value of a YAML document from parser events, within a budget.

`core/yaml/__init__.py` feeds the events. PyYAML's own composer is not safe for untrusted input: nested aliases expand
exponentially, deep nesting exhausts the stack, and tags can name types. This one uses an explicit stack instead of
recursion and charges every node before building it. An alias costs as much as its anchor did, so a document that
would expand to gigabytes is rejected at the alias that exceeds the budget. An alias is copied: no two parts of a
value are the same object.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from yaml.events import AliasEvent, CollectionStartEvent, Event, ScalarEvent

from fairlead.core.body_errors import MAX_DEPTH, Duplicates, Malformed, field_path, too_deep
from fairlead.core.yaml.scalars import TAG_PREFIX, Scalar, json_number, key_text, resolve, resolve_tagged, unknown_tag

# A node costs 48, plus 1 per character. So a body of 3 MiB can be one text or 130,000 short nodes: as many as an
# object of the largest size that Kubernetes stores, and parsed in half a second.
BUDGET = 6 * 2**20
NODE_COST = 48

MERGE_KEY = "<<"
# The non-specific tag `!`, which Kubernetes ignores.
_NO_TAG = "!"
_STILL_OPEN = -1


@dataclass(slots=True)
class _Anchored:
    """The node of an anchor. Its cost is known, and aliases are allowed, once the node is complete."""

    value: Any
    cost: int = _STILL_OPEN
    height: int = 0


@dataclass(slots=True)
class _Frame:
    """A mapping or list under construction."""

    container: Any
    wants_key: bool
    spent_before: int = 0
    height: int = 1
    anchored: _Anchored | None = None
    key: str = ""
    merging: bool = False
    path: str | None = None
    # Keys that come from a merge only. Setting them explicitly afterwards is an override, not a duplicate.
    merged: set[str] | None = None


class Composer:
    """Consumes the events of one document, one call per event. Afterwards, `value` is the document's value."""

    __slots__ = ("_anchors", "_frame", "_spent", "_stack", "duplicates")

    def __init__(self) -> None:
        # The bottom of the stack is a list that receives the document's only value.
        self._frame = _Frame([], wants_key=False, path="")
        self._stack = [self._frame]
        self._anchors: dict[str, _Anchored] = {}
        self._spent = 0
        self.duplicates = Duplicates()

    @property
    def value(self) -> Any:
        """The document's value; None for an empty document."""
        document = self._stack[0].container
        return document[0] if document else None

    def scalar(self, event: ScalarEvent) -> None:
        text = event.value
        self._spend(NODE_COST + len(text))
        merge = self._frame.wants_key and text == MERGE_KEY and _is_merge(event)
        value = None if merge else _scalar_value(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, NODE_COST + len(text))
        if merge:
            self._frame.key, self._frame.wants_key, self._frame.merging = MERGE_KEY, False, True
        elif self._frame.wants_key:
            self._take_key(key_text(value))
        else:
            self._put(json_number(value) if type(value) is float else value)

    def alias(self, event: AliasEvent) -> None:
        found = self._anchors.get(event.anchor or "")
        if found is None:
            raise Malformed(f"unknown anchor '{event.anchor}' referenced; define it before its use")
        if found.cost == _STILL_OPEN:
            raise Malformed(f"anchor '{event.anchor}' value contains itself; write the value out")
        self._spend(found.cost)
        if len(self._stack) - 1 + found.height > MAX_DEPTH:
            raise too_deep()
        if self._frame.wants_key:
            if found.height:
                raise _complex_key()
            self._take_key(key_text(found.value))
        elif type(found.value) is float:
            self._put(json_number(found.value))
        else:
            self._put(_copied(found.value), found.height)

    def open_mapping(self, event: CollectionStartEvent) -> None:
        self._open(event, "map", _Frame({}, wants_key=True, spent_before=self._spent))

    def open_sequence(self, event: CollectionStartEvent) -> None:
        self._open(event, "seq", _Frame([], wants_key=False, spent_before=self._spent))

    def close(self, _: Event) -> None:
        frame = self._stack.pop()
        self._frame = self._stack[-1]
        if frame.anchored:
            frame.anchored.cost = self._spent - frame.spent_before
            frame.anchored.height = frame.height
        self._put(frame.container, frame.height)

    def _open(self, event: CollectionStartEvent, kind: str, frame: _Frame) -> None:
        if event.tag not in (None, _NO_TAG, TAG_PREFIX + kind):
            raise unknown_tag(event.tag)
        if self._frame.wants_key:
            raise _complex_key()
        if len(self._stack) > MAX_DEPTH:
            raise too_deep()
        self._spend(NODE_COST)
        if event.anchor is not None:
            frame.anchored = self._anchors[event.anchor] = _Anchored(frame.container)
        if len(self._stack) == 1:
            frame.path = ""
        self._stack.append(frame)
        self._frame = frame

    def _spend(self, cost: int) -> None:
        self._spent += cost
        if self._spent > BUDGET:
            raise Malformed("too many nodes or aliases; send a smaller object, or send it as JSON")

    def _take_key(self, key: str) -> None:
        frame = self._frame
        frame.key, frame.wants_key, frame.merging = key, False, False
        if key not in frame.container:
            return
        if frame.merged and key in frame.merged:
            frame.merged.discard(key)
        elif not self.duplicates.full:
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

    def _put(self, value: Any, height: int = 0) -> None:
        frame = self._frame
        if isinstance(frame.container, list):
            frame.container.append(value)
        else:
            frame.wants_key = True
            if frame.merging:
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
    frame.merged = frame.merged or set()
    for each in reversed(sources):
        frame.merged.update(each.keys() - frame.container.keys())
        frame.container.update(each)


def _complex_key() -> Malformed:
    return Malformed("a key is a list or a mapping; use a plain value as key")


def _copied(value: Any) -> Any:
    """A deep copy. The recursion is bounded by the depth limit."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return value
