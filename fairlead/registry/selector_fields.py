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

from fairlead.core.objects import format_scalar, get_path
from fairlead.registry.kind import Kind

SELECTOR_CACHE_SIZE = 8_192
"""How many distinct results are interned, for labels and for fields each."""
NO_FIELDS: Mapping[str, str] = {}

_LABELS = "metadata.labels"
_LABELS_MARKER = b'"labels":'
_NO_LABELS = msgspec.Raw(b"null")
_decode_labels = msgspec.json.Decoder(dict[str, str] | None).decode

FieldTree = dict[str, "FieldTree"]
"""Field names, each with the fields below it. A field without fields below it is one to read."""


def _attribute_name(name: str) -> str:
    """The attribute name of a field. The prefix avoids Python keywords."""
    return f"f_{name}"


def _attribute_path(path: str) -> str:
    return ".".join(map(_attribute_name, path.split(".")))


_raw_labels = attrgetter(_attribute_path(_LABELS))


class SelectorFieldReader:
    """Reads the labels and selectable fields of one kind's objects."""

    __slots__ = ("_decode", "_get_fields", "_intern_fields", "_kind", "_paths")

    def __init__(self, kind: Kind | None) -> None:
        self._kind = kind
        self._paths = kind.selectable if kind is not None else ()
        # A kind with its own function for reading fields needs decoded objects.
        simple = self._paths if kind is None or kind.read_selectable_field is None else ()
        self._decode = msgspec.json.Decoder(_build_struct(_build_tree((_LABELS, *simple)))).decode
        self._intern_fields = lru_cache(SELECTOR_CACHE_SIZE)(partial(_zip_fields, self._paths))
        self._get_fields: Callable[[Any], Any] | None = attrgetter(*map(_attribute_path, simple)) if simple else None

    def read(self, value: bytes) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The labels, and the selectable fields as the strings that selectors compare."""
        if not self._paths:
            return (self._read_labels(value) if _LABELS_MARKER in value else NO_FIELDS), NO_FIELDS
        if self._get_fields is None:
            return self._read_labels(value), self._read_fields_slow(value)
        try:
            decoded = self._decode(value)
        except msgspec.ValidationError:  # another type where an object is expected
            return _labels_from_json(value), self._read_fields_slow(value)
        found = self._get_fields(decoded)
        values = map(format_scalar, found) if len(self._paths) > 1 else (format_scalar(found),)
        return _intern_labels(bytes(_raw_labels(decoded))), self._intern_fields(*values)

    def _read_labels(self, value: bytes) -> Mapping[str, str]:
        return _intern_labels(bytes(_raw_labels(self._decode(value))))

    def _read_fields_slow(self, value: bytes) -> Mapping[str, str]:
        obj = orjson.loads(value)
        read = (self._kind.read_selectable_field if self._kind is not None else None) or get_path
        return self._intern_fields(*[format_scalar(read(obj, path)) for path in self._paths])


def _labels_from_json(value: bytes) -> Mapping[str, str]:
    return _intern_labels(orjson.dumps(get_path(orjson.loads(value), _LABELS)))


@lru_cache(SELECTOR_CACHE_SIZE)
def _intern_labels(raw: bytes) -> Mapping[str, str]:
    return {sys.intern(name): value for name, value in (_decode_labels(raw) or NO_FIELDS).items()} or NO_FIELDS


def _zip_fields(paths: Sequence[str], *values: str) -> Mapping[str, str]:
    return dict(zip(paths, values, strict=True))


def _build_tree(paths: Sequence[str]) -> FieldTree:
    tree: FieldTree = {}
    for path in paths:
        below = tree
        for step in path.split("."):
            below = below.setdefault(step, {})
    return tree


def _build_struct(tree: FieldTree, path: str = "") -> type[msgspec.Struct]:
    """A struct type with just these fields. Missing fields get empty defaults."""
    fields: list[tuple[str, Any, Any]] = []
    for name, below in tree.items():
        if below:
            inner = _build_struct(below, f"{path}{name}.")
            fields.append((_attribute_name(name), inner, inner()))
        elif path + name == _LABELS:
            fields.append((_attribute_name(name), msgspec.Raw, _NO_LABELS))
        else:
            fields.append((_attribute_name(name), Any, None))
    names = {_attribute_name(name): name for name in tree}
    return msgspec.defstruct("SelectorFields", fields, rename=names, frozen=True, gc=False)
