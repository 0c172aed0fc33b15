"""Reads the labels and selectable fields of a stored object without decoding the rest of it.

Called for every record that enters the view, up to a million at startup. Each kind has a decoder that knows the labels
and the kind's selectable fields and skips everything else. Equal results are interned: objects share one mapping, which
must not be changed.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import msgspec
import orjson

from fairlead.core.objects import dig
from fairlead.registry.kind import Kind

KEPT = 8_192
"""How many distinct results are interned, for labels and for fields each."""
NOTHING: Mapping[str, str] = {}

_LABELS = "metadata.labels"
_LABELS_MARK = b'"labels":'
_NO_LABELS = msgspec.Raw(b"null")
_pairs = msgspec.json.Decoder(dict[str, str] | None).decode

Tree = dict[str, "Tree"]
"""Field names, each with the fields below it. A field without fields below it is one to read."""


def _attribute(name: str) -> str:
    """The attribute name of a field. The prefix avoids Python keywords."""
    return f"f_{name}"


def _attributes(path: str) -> str:
    return ".".join(map(_attribute, path.split(".")))


_raw_labels = attrgetter(_attributes(_LABELS))


class Glimpse:
    """Reads the labels and selectable fields of one kind's objects."""

    __slots__ = ("_decode", "_fields", "_kind", "_paths", "_pick")

    def __init__(self, kind: Kind | None) -> None:
        self._kind = kind
        self._paths = kind.selectable if kind is not None else ()
        # A kind with its own function for reading fields needs decoded objects.
        simple = self._paths if kind is None or kind.selectable_value is None else ()
        self._decode = msgspec.json.Decoder(_struct(_tree((_LABELS, *simple)))).decode
        self._fields = lru_cache(KEPT)(partial(_named, self._paths))
        self._pick: Callable[[Any], Any] | None = attrgetter(*map(_attributes, simple)) if simple else None

    def read(self, value: bytes) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The labels, and the selectable fields as the strings that selectors compare."""
        if not self._paths:
            return (self._labels(value) if _LABELS_MARK in value else NOTHING), NOTHING
        if self._pick is None:
            return self._labels(value), self._slowly(value)
        try:
            decoded = self._decode(value)
        except msgspec.ValidationError:  # another type where an object is expected
            return _labels_of(value), self._slowly(value)
        found = self._pick(decoded)
        values = map(_as_text, found) if len(self._paths) > 1 else (_as_text(found),)
        return _labels(bytes(_raw_labels(decoded))), self._fields(*values)

    def _labels(self, value: bytes) -> Mapping[str, str]:
        return _labels(bytes(_raw_labels(self._decode(value))))

    def _slowly(self, value: bytes) -> Mapping[str, str]:
        obj = orjson.loads(value)
        read = (self._kind.selectable_value if self._kind is not None else None) or dig
        return self._fields(*[_as_text(read(obj, path)) for path in self._paths])


def _labels_of(value: bytes) -> Mapping[str, str]:
    return _labels(orjson.dumps(dig(orjson.loads(value), _LABELS)))


@lru_cache(KEPT)
def _labels(raw: bytes) -> Mapping[str, str]:
    return {sys.intern(name): value for name, value in (_pairs(raw) or NOTHING).items()} or NOTHING


def _named(paths: Sequence[str], *values: str) -> Mapping[str, str]:
    return dict(zip(paths, values, strict=True))


def _tree(paths: Sequence[str]) -> Tree:
    tree: Tree = {}
    for path in paths:
        below = tree
        for step in path.split("."):
            below = below.setdefault(step, {})
    return tree


def _struct(tree: Tree, path: str = "") -> type[msgspec.Struct]:
    """A struct type with just these fields. Missing fields get empty defaults."""
    fields: list[tuple[str, Any, Any]] = []
    for name, below in tree.items():
        if below:
            inner = _struct(below, f"{path}{name}.")
            fields.append((_attribute(name), inner, inner()))
        elif path + name == _LABELS:
            fields.append((_attribute(name), msgspec.Raw, _NO_LABELS))
        else:
            fields.append((_attribute(name), Any, None))
    names = {_attribute(name): name for name in tree}
    return msgspec.defstruct("SelectorFields", fields, rename=names, frozen=True, gc=False)


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
