"""Warnings about fields that a write sets although they have no effect.

Schemas mark these fields with `without_effect`. They are found once per kind. As for deprecated fields in Kubernetes,
each write of an object that contains one is answered with a warning: a create, an update, a patch and an apply, also
with a dry run. An empty value requests nothing, so it causes none. Writes of the status and those of the server itself
cause none either: their author cannot do anything about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.kind import Change, Kind
from fairlead.registry.schema import NO_EFFECT, Schema

STATUS = "status"


@dataclass(frozen=True, slots=True, eq=False)
class IneffectiveFields:
    """A part of an object: why it has no effect, if it has none, and its fields of which that is true for a part."""

    reason: str
    fields: Mapping[str, IneffectiveFields]


def find_ineffective_fields(kind: Kind) -> IneffectiveFields | None:
    """The fields of a kind that have no effect, for `Kind.derive`. None if there are none."""
    found = _find_inner({name: schema for name, schema in kind.fields.items() if name != STATUS})
    return IneffectiveFields("", found) if found else None


def _find_inner(properties: Mapping[str, Schema]) -> Mapping[str, IneffectiveFields]:
    found = {}
    for name, schema in properties.items():
        reason = schema.get(NO_EFFECT, "")
        inner = _find_inner(schema.get("items", schema).get("properties", {})) if not reason else {}
        if reason or inner:
            found[name] = IneffectiveFields(reason, inner)
    return found


def add_warnings(change: Change, ineffective: IneffectiveFields | None) -> None:
    """Adds a warning for each field without effect that the new object sets."""
    if ineffective is None or change.subresource or change.user is CONTROLLER_USER:
        return
    if _sets_any(ineffective, change.obj):
        change.warnings.extend(_iter_warnings(ineffective, change.obj, "", set()))


def _sets_any(ineffective: IneffectiveFields, value: Any) -> bool:
    """Whether there is anything to warn about: most objects set no such field, and generators cost more than this."""
    if ineffective.reason:
        return is_set(value)
    if isinstance(value, dict):
        for name, inner in ineffective.fields.items():
            if name in value and _sets_any(inner, value[name]):
                return True
    elif isinstance(value, list):
        for each in value:
            if _sets_any(ineffective, each):
                return True
    return False


def _iter_warnings(
    ineffective: IneffectiveFields, value: Any, path: str, reported: set[IneffectiveFields]
) -> Iterator[str]:
    """One warning for each field: of several entries of a list, the first one that sets it."""
    if ineffective.reason:
        if ineffective not in reported and is_set(value):
            reported.add(ineffective)
            yield f"{path} {ineffective.reason}"
    elif isinstance(value, dict):
        for name, inner in ineffective.fields.items():
            if name in value:
                yield from _iter_warnings(inner, value[name], f"{path}.{name}" if path else name, reported)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _iter_warnings(ineffective, each, f"{path}[{index}]", reported)


def is_set(value: Any) -> bool:
    """Whether a value requests anything: it is not false, zero, empty, or made of such values only."""
    if isinstance(value, dict):
        return any(map(is_set, value.values()))
    if isinstance(value, list):
        return any(map(is_set, value))
    return bool(value)
