"""Where credentials are: the one register that the store, the API and the audit log go by.

Kinds declare their `secret` paths and, among them, the `hidden` ones that no answer ever has. Everything that must
treat them differently asks here, so that a field is declared secret once and is secret everywhere.
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
    """The register of a catalog's kinds."""

    def __init__(self, catalog: Catalog) -> None:
        self._marks = {
            (kind.group, kind.plural): tuple({mark for path in (*kind.secret, *kind.sealed) for mark in _marks(path)})
            for kind in catalog.kinds
        }

    def holds(self, key: Key, value: bytes) -> bool:
        """Whether a stored value may hold a credential. Rather once too often: it is told by the names of fields."""
        return any(map(value.__contains__, self._marks.get((key[0], key[1]), ())))


def _marks(path: str) -> Iterator[bytes]:
    """What JSON holds that has such a field: as it is, or within a text, where `kubectl apply` writes it down again."""
    name = path.rpartition(".")[2]
    yield f'"{name}":'.encode()
    yield f'"{name}\\":'.encode()


def redact(obj: Object, paths: Sequence[str]) -> Object:
    """Replaces what stands at the paths: a text by a mark, the values of a map each by a mark."""
    for holder, name in _places(obj, paths):
        value = holder[name]
        holder[name] = dict.fromkeys(value, REDACTED) if isinstance(value, dict) else REDACTED
    return obj


def without_hidden(obj: Object, kind: Kind) -> Object:
    """The object as answers have it: hidden fields taken out, also where kubectl has written them down again.

    Changes and returns what it is given.
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
    for holder, name in found:
        del holder[name]
    return bool(found)


def _places(obj: Any, paths: Sequence[str]) -> Iterator[tuple[Object, str]]:
    """The maps that hold something at a path, with the name it has there."""
    for path in paths:
        *way, name = path.split(".")
        yield from _holders(obj, way, name)


def _holders(value: Any, way: Sequence[str], name: str) -> Iterator[tuple[Object, str]]:
    if isinstance(value, list):
        for each in value:
            yield from _holders(each, way, name)
    elif isinstance(value, dict):
        if not way and name in value:
            yield value, name
        elif way and way[0] in value:
            yield from _holders(value[way[0]], way[1:], name)
