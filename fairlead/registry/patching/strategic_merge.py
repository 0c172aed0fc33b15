"""Strategic merge patch: a merge patch in which lists merge, too, where the schema tells their entries apart.

`server/api/patch.py` decodes the body; the registry applies the patch to the current object, again after every lost race,
so the result shares nothing with either argument and may be changed at will.

Which lists merge, and by which keys, comes from the kind's shape, so this works for every kind: sets take new entries
in, lists by keys merge entry by entry, all other lists are replaced. Structures always merge, whoever owns them. What
a merge cannot say is said by directives among the fields:

    "$patch": "replace" | "delete" | "merge"     this structure, or with its key this entry; in a list alone: the list
    "$retainKeys": [...]                         fields beside these go
    "$deleteFromPrimitiveList/<field>": [...]    entries to take out of a list of plain values
    "$setElementOrder/<field>": [...]            the order of the entries that the sender knows
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.core.errors import BadRequest, shown
from fairlead.core.objects import Object, copied
from fairlead.registry.patching.field_set import key_text
from fairlead.registry.patching.merge_schema import FREE, Shape, step_of

# DOC-MERGED registry/patching/listorder
# The order of a list after a strategic merge patch: as the patch has it, with the others in between.
#
# Both have an order of their own that stays: the entries that the patch names, and the rest. Where the list as it was
# tells which of two comes first, that decides; otherwise the patch's entries come first.


Entry = tuple[str | None, Any]
"""An entry of a list with the step that leads to it."""


def interleaved(entries: Sequence[Entry], named: Sequence[str], before: Sequence[str | None]) -> list[Any]:
    """The entries in their order. `named` is the patch's order, `before` that of the list as it was."""
    wanted = {step: place for place, step in enumerate(named)}
    was = {step: place for place, step in enumerate(before)}
    first = sorted((entry for entry in entries if entry[0] in wanted), key=lambda entry: wanted[entry[0] or ""])
    result: list[Any] = []
    waiting = iter(first)
    following = next(waiting, None)
    for step, value in entries:
        if step in wanted:
            continue
        while following is not None and not _stood_before(step, following[0], was):
            result.append(following[1])
            following = next(waiting, None)
        result.append(value)
    if following is not None:
        result.append(following[1])
    return [*result, *(value for _, value in waiting)]


def _stood_before(one: str | None, other: str | None, was: dict[str | None, int]) -> bool:
    return one in was and other in was and was[one] < was[other]


_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_MERGE, _REPLACE, _REMOVE = "merge", "replace", "delete"
_NOTHING: list[Any] = []
"""Stands for a list that a patch says nothing about but its order."""


def apply(document: Object, patch: Any, shape: Shape) -> Object:
    """The document with the patch merged in, as a new value."""
    if not isinstance(patch, dict):
        what = "null" if patch is None else "a list" if isinstance(patch, list) else "a single value"
        raise BadRequest(f"error decoding patch: the body is {what}; send a JSON object with the fields to change")
    return _merged(copied(document), copied(patch), shape)


def _merged(live: Object, patch: Object, shape: Shape) -> Object:
    """Changes and returns `live`, unless a directive puts something else in its place."""
    how = _directive(patch)
    if how != _MERGE:
        return _plain_object(patch) if how == _REPLACE else {}
    patch.pop(_PATCH, None)
    _retain(live, patch)
    orders, deletions = _lists(patch, _ORDER), _lists(patch, _DELETE)
    for name, gone in deletions.items():
        if isinstance(live.get(name), list):
            texts = set(map(key_text, gone))
            live[name] = [each for each in live[name] if key_text(each) not in texts]
    for name, wanted in {**dict.fromkeys(orders, _NOTHING), **patch}.items():
        if wanted is None:
            live.pop(name, None)
        elif wanted is not _NOTHING or name in live:
            live[name] = _merged_field(live.get(name), wanted, orders.get(name), _inner(shape, name))
    return live


def _merged_field(live: Any, wanted: Any, order: list[Any] | None, shape: Shape) -> Any:
    if isinstance(live, dict) and isinstance(wanted, dict):
        return _merged(live, wanted, shape)
    if isinstance(live, list) and isinstance(wanted, list) and shape.keys is not None:
        return _merged_lists(live, wanted, order, shape)
    return live if wanted is _NOTHING else _plain(wanted)


def _merged_lists(live: list[Any], wanted: list[Any], order: list[Any] | None, shape: Shape) -> list[Any]:
    if any(_directive(each) == _REPLACE for each in wanted):
        return _plain_list(wanted)
    before = [step_of(each, shape) for each in live]
    steps = [(_step(each, shape), each) for each in wanted]
    gone = {step for step, each in steps if _directive(each) == _REMOVE}
    entries = [(step, each) for step, each in steps if _directive(each) == _MERGE]
    found = [(step, each) for step, each in zip(before, live, strict=True) if step not in gone]
    ordered = [step for step, _ in entries] if order is None else [_step(each, shape) for each in order]
    if order is not None:
        _check_order([step for step, _ in entries], ordered)
    places = {step: place for place, (step, _) in reversed(list(enumerate(found)))}
    for step, each in entries:
        place = places.setdefault(step, len(found))
        if place == len(found):
            found.append((step, _plain(each)))
        elif shape.keys:
            found[place] = step, _merged(found[place][1], each, shape.entries or FREE)
    return interleaved(found, ordered, before)


def _check_order(steps: list[str], ordered: list[str]) -> None:
    """The entries of a patch must stand in its `$setElementOrder`, in the same order."""
    rest = iter(ordered)
    missing = next((step for step in steps if step not in rest), None)
    if missing is not None:
        raise _refused(f"the order of the list does not fit its $setElementOrder, at {missing[2:]}")


def _step(entry: Any, shape: Shape) -> str:
    """What tells an entry of a patch apart, all keys of which must be there."""
    if shape.keys:
        if not isinstance(entry, dict):
            raise _refused(f"expected an object with {' and '.join(shape.keys)} in a list, not {shown(entry):.60}")
        for key in shape.keys:
            if key not in entry and key not in shape.defaults:
                raise _refused(f"an entry of a list does not have its merge key, {key}: {shown(entry):.60}")
    elif isinstance(entry, dict | list):
        raise _refused(f"expected a plain value in a list, not {shown(entry):.60}")
    return step_of(entry, shape) or ""


def _retain(live: Object, patch: Object) -> None:
    keys = patch.pop(_RETAIN, None)
    if keys is None:
        return
    if not isinstance(keys, list):
        raise _refused(f"{_RETAIN} must be a list of field names")
    kept = {key for key in keys if isinstance(key, str)}
    for name in patch:
        if name not in kept and not name.startswith("$"):
            raise _refused(f"the patch sets {name}, which its {_RETAIN} does not name")
    for name in live.keys() - kept:
        del live[name]


def _lists(patch: Object, prefix: str) -> dict[str, list[Any]]:
    """Takes the directives with this prefix out of the patch."""
    found = {name: patch.pop(name) for name in [name for name in patch if name.startswith(prefix)]}
    for name, values in found.items():
        if not isinstance(values, list):
            raise _refused(f"{name} must be a list")
    return {name.removeprefix(prefix): values for name, values in found.items()}


def _directive(patch: Any) -> str:
    """What a part of the patch is there for."""
    how = patch.get(_PATCH, _MERGE) if isinstance(patch, dict) else _MERGE
    if how not in (_MERGE, _REPLACE, _REMOVE):
        raise _refused(f"unknown patch type: {shown(how):.60}; {_PATCH} is {_MERGE}, {_REPLACE} or {_REMOVE}")
    return str(how)


def _plain(value: Any) -> Any:
    """A value that is new to the object: without directives, and without what they or a null remove."""
    if isinstance(value, dict):
        return {} if _directive(value) == _REMOVE else _plain_object(value)
    return _plain_list(value) if isinstance(value, list) else value


def _plain_object(value: Object) -> Object:
    return {
        name: _plain(each)
        for name, each in value.items()
        if each is not None and name not in (_PATCH, _RETAIN) and not name.startswith((_DELETE, _ORDER))
    }


def _plain_list(values: list[Any]) -> list[Any]:
    """Entries with a directive other than `merge` are nothing but that."""
    return [_plain(each) for each in values if _directive(each) == _MERGE]


def _inner(shape: Shape, name: str) -> Shape:
    return shape.fields.get(name, shape.entries or FREE)


def _refused(why: str) -> BadRequest:
    return BadRequest(f"invalid strategic merge patch: {why}")
