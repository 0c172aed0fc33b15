"""Sensitive fields: which stored values may contain one, and how they are redacted or removed.

Kinds declare their `sensitive` paths, and among them the `write_only` ones that no response contains. The store, the
API and the audit log all use this module.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import orjson

from fairlead.core.objects import LAST_APPLIED, Object, metadata
from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Kind
from fairlead.storage.contract import Key

REDACTED = "<redacted>"


class SecretFields:
    """Finds stored values with sensitive fields, for all kinds of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._marks = {
            (kind.group, kind.plural): tuple({mark for path in (*kind.secret, *kind.sealed) for mark in _marks(path)})
            for kind in catalog.kinds
        }

    def holds(self, key: Key, value: bytes) -> bool:
        """Whether a stored value may contain a credential. Matches field names, so false positives are possible."""
        return any(map(value.__contains__, self._marks.get((key[0], key[1]), ())))


def _marks(path: str) -> Iterator[bytes]:
    """What JSON with this field contains: its key, or its escaped key in the last-applied annotation."""
    name = path.rpartition(".")[2]
    yield f'"{name}":'.encode()
    yield f'"{name}\\":'.encode()


def redact(obj: Object, paths: Sequence[str]) -> Object:
    """Redacts the values at the paths: a string as a whole, a map value by value."""
    for parent, name in _places(obj, paths):
        value = parent[name]
        parent[name] = dict.fromkeys(value, REDACTED) if isinstance(value, dict) else REDACTED
    return obj


def without_hidden(obj: Object, kind: Kind) -> Object:
    """Removes write-only fields from an object, also from the last-applied annotation of kubectl.

    Changes and returns the object.
    """
    hidden = kind.hidden_in(obj)
    if kind.conceal is not None:
        kind.conceal(obj)
    _take_out(obj, hidden)
    annotations = metadata(obj).get("annotations") or {}
    if hidden and annotations.get(LAST_APPLIED):
        with suppress(orjson.JSONDecodeError):
            applied = orjson.loads(annotations[LAST_APPLIED])
            if _take_out(applied, hidden):
                annotations[LAST_APPLIED] = orjson.dumps(applied).decode() + "\n"
    return obj


def _take_out(value: Any, paths: Sequence[str]) -> bool:
    found = list(_places(value, paths))
    for parent, name in found:
        del parent[name]
    return bool(found)


def _places(obj: Any, paths: Sequence[str]) -> Iterator[tuple[Object, str]]:
    """The maps that have a value at one of the paths, each with the key."""
    for path in paths:
        *steps, name = path.split(".")
        yield from _holders(obj, steps, name)


def _holders(value: Any, way: Sequence[str], name: str) -> Iterator[tuple[Object, str]]:
    if isinstance(value, list):
        for each in value:
            yield from _holders(each, way, name)
    elif isinstance(value, dict):
        if not way and name in value:
            yield value, name
        elif way and way[0] in value:
            yield from _holders(value[way[0]], way[1:], name)
