"""Sensitive fields: which stored values may contain one, how they are redacted or removed, and how updates keep them.

Kinds declare their `sensitive` paths, and among them the `write_only` ones that no response contains. The store, the
API and the audit log all use this module.

An update that omits write-only fields keeps them, but only for their original purpose. A credential belongs to its
sibling fields: the URL it is sent to, its user, whether the server certificate is verified. If a requester could change
those and keep the credential, the server would send it to a host of the requester's choice. So a change to any sibling
field requires the credential to be sent again, unless the kind exempts the field (`Kind.safe_siblings`). Values are
compared literally. Even an exempt name counts if it is an address: a chart name can be the full URL of a registry.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from fairlead.core.errors import Problem
from fairlead.core.objects import LAST_APPLIED, Object, deep_copy, metadata
from fairlead.core.validators import is_registry_address
from fairlead.registry.kind import Catalog, Kind
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


_JSON_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
_ENVELOPE = ("apiVersion", "kind", "metadata", "status", "immutable")
"""Top-level fields that do not affect what a top-level credential is used for."""


def restore_write_only(old: Object, new: Object, kind: Kind) -> list[Problem]:
    """Restores write-only fields in `new` if their siblings are unchanged; returns where they must be sent again.

    An empty value removes a credential, and so does a reference in its place (`passwordRef` for `password`).
    """
    hidden = kind.write_only_paths(old)
    problems: list[Problem] = []
    for path in hidden:
        parent, _, name = path.rpartition(".")
        siblings = {each.rpartition(".")[2] for each in hidden if each.rpartition(".")[0] == parent}
        unbound = kind.safe_siblings.get(path, () if parent else _ENVELOPE)
        _WriteOnlyField(name, siblings, unbound, problems).restore(old, new, path.split("."), "", True)
    if kind.redact_derived is not None:
        _restore_redacted(old, new, kind.redact_derived, kind.redacted_paths)
    return problems


def _restore_redacted(old: Object, new: Object, redact: Callable[[Object], None], paths: Sequence[str]) -> None:
    """Restores fields that the client sent back as they were served, with redacted content."""
    served = deep_copy(old)
    redact(served)
    for path in paths:
        *steps, name = path.split(".")
        before, after, redacted = (_get_structure(each, steps) for each in (old, new, served))
        if before and after and redacted and name in before and name in after and after[name] == redacted.get(name):
            after[name] = before[name]


def _get_structure(value: Any, steps: Sequence[str]) -> Object | None:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class _WriteOnlyField:
    """Restores one write-only field. `write_only_siblings` includes the field itself; `safe_siblings` may change
    freely."""

    name: str
    write_only_siblings: set[str]
    safe_siblings: Collection[str]
    problems: list[Problem] = field(repr=False)

    def restore(self, old: Any, new: Any, steps: Sequence[str], path: str, is_same: bool) -> None:
        """`is_same`: whether `old` and `new` are certainly the same item, and not different entries of a list."""
        if isinstance(old, list) and isinstance(new, list):
            for before, after, same in _match_entries(old, new, steps):
                self.restore(old[before], new[after], steps, f"{path}[{after}]", is_same and same)
        elif isinstance(old, dict) and isinstance(new, dict) and steps[0] in old:
            field_path = f"{path}.{steps[0]}" if path else steps[0]
            if len(steps) == 1:
                self._restore_value(old, new, field_path, is_same)
            elif steps[0] in new:
                self.restore(old[steps[0]], new[steps[0]], steps[1:], field_path, is_same)

    def _restore_value(self, old: Object, new: Object, path: str, is_same: bool) -> None:
        if self.name in new or new.get(f"{self.name}Ref"):
            return
        changed = self._changed_siblings(old, new)
        if not changed:
            new[self.name] = old[self.name]
        elif is_same and old[self.name]:
            parent = path.removesuffix(self.name)
            reason = (
                f"must be sent again because {', '.join(f'{parent}{each}' for each in changed)} changed: a write-only "
                "credential is not kept for another destination. Send the value, or an empty one to remove it"
            )
            self.problems.append(Problem.required(path, reason))

    def _changed_siblings(self, old: Object, new: Object) -> list[str]:
        names = sorted({*old, *new} - self.write_only_siblings)
        changed = (name for name in names if (old.get(name) or None) != (new.get(name) or None))
        return [name for name in changed if name not in self.safe_siblings or _has_address(name, old, new)]


def _has_address(name: str, *structures: Object) -> bool:
    return any(is_registry_address(name, each.get(name)) for each in structures)


def _match_entries(old: Sequence[Any], new: Sequence[Any], steps: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """Matches the entries of two lists, and tells whether each match is certain.

    Unchanged entries match first, then entries with the same name, then those at the same index.
    """
    left = dict(enumerate(old))
    right = dict(enumerate(new))
    identities: tuple[Callable[[Any], Any], ...] = (partial(_without_field, steps=steps), _entry_identity)
    for identify in identities:
        indexes: dict[bytes, list[int]] = {}
        for index in reversed(left):
            if (identity := identify(left[index])) is not None:
                indexes.setdefault(orjson.dumps(identity, option=_JSON_OPTIONS), []).append(index)
        for index, entry in list(right.items()):
            identity = identify(entry)
            found = indexes.get(orjson.dumps(identity, option=_JSON_OPTIONS)) if identity is not None else None
            if found:
                before = found.pop()
                del left[before], right[index]
                yield before, index, True
    for index in right:
        if index in left:
            yield index, index, False


def _entry_identity(entry: Any) -> Any:
    """What identifies an entry: its name, or its version if it has no name."""
    if not isinstance(entry, dict):
        return None
    name = entry.get("name")
    return ["name", name, entry.get("releaseName")] if name else ["version", entry.get("version")]


def _without_field(value: Any, steps: Sequence[str]) -> Any:
    """The value without the field at the path, for comparison."""
    if isinstance(value, list):
        return [_without_field(each, steps) for each in value]
    if not isinstance(value, dict) or steps[0] not in value:
        return value
    rest = {name: each for name, each in value.items() if name != steps[0]}
    return rest if len(steps) == 1 else {**rest, steps[0]: _without_field(value[steps[0]], steps[1:])}
