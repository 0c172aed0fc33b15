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

from fairlead.core.body_errors import MAX_DEPTH, DuplicateKeys, Malformed, depth_error, field_path
from fairlead.core.yaml.scalars import (
    TAG_PREFIX,
    Scalar,
    resolve,
    resolve_tagged,
    to_json_key,
    to_json_number,
    unknown_tag_error,
)

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
