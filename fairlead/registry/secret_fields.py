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


class SensitiveFieldIndex:
    """Finds stored values with sensitive fields, for all kinds of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._markers = {
            (kind.group, kind.plural): tuple(
                {mark for path in (*kind.sensitive, *kind.encrypted) for mark in _field_markers(path)}
            )
            for kind in catalog.kinds
        }

    def may_contain(self, key: Key, value: bytes) -> bool:
        """Whether a stored value may contain a credential. Matches field names, so false positives are possible."""
        return any(map(value.__contains__, self._markers.get((key[0], key[1]), ())))


def _field_markers(path: str) -> Iterator[bytes]:
    """What JSON with this field contains: its key, or its escaped key in the last-applied annotation."""
    name = path.rpartition(".")[2]
    yield f'"{name}":'.encode()
    yield f'"{name}\\":'.encode()


def redact(obj: Object, paths: Sequence[str]) -> Object:
    """Redacts the values at the paths: a string as a whole, a map value by value."""
    for parent, name in _find_parents(obj, paths):
        value = parent[name]
        parent[name] = dict.fromkeys(value, REDACTED) if isinstance(value, dict) else REDACTED
    return obj


def strip_write_only(obj: Object, kind: Kind) -> Object:
    """Removes write-only fields from an object, also from the last-applied annotation of kubectl.

    Changes and returns the object.
    """
    hidden = kind.write_only_paths(obj)
    if kind.redact_derived is not None:
        kind.redact_derived(obj)
    _remove_paths(obj, hidden)
    annotations = metadata(obj).get("annotations") or {}
    if hidden and annotations.get(LAST_APPLIED):
        with suppress(orjson.JSONDecodeError):
            applied = orjson.loads(annotations[LAST_APPLIED])
            if _remove_paths(applied, hidden):
                annotations[LAST_APPLIED] = orjson.dumps(applied).decode() + "\n"
    return obj


def _remove_paths(value: Any, paths: Sequence[str]) -> bool:
    found = list(_find_parents(value, paths))
    for parent, name in found:
        del parent[name]
    return bool(found)


def _find_parents(obj: Any, paths: Sequence[str]) -> Iterator[tuple[Object, str]]:
    """The maps that have a value at one of the paths, each with the key."""
    for path in paths:
        *steps, name = path.split(".")
        yield from _iter_parents(obj, steps, name)


def _iter_parents(value: Any, steps: Sequence[str], name: str) -> Iterator[tuple[Object, str]]:
    if isinstance(value, list):
        for each in value:
            yield from _iter_parents(each, steps, name)
    elif isinstance(value, dict):
        if not steps and name in value:
            yield value, name
        elif steps and steps[0] in value:
            yield from _iter_parents(value[steps[0]], steps[1:], name)
