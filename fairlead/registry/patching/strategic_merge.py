"""Strategic merge patch: a merge patch that also merges lists whose entries the schema identifies.

`server/api/patch.py` decodes the body. The registry applies the patch to the current object, again after every lost
race, so the result is a new value that shares nothing with the arguments.

The kind's merge schema says which lists merge, and by which keys: set lists get new entries, map lists merge entry by
entry, all other lists are replaced. Objects always merge, even atomic ones. Directives among the fields do the rest:

    "$patch": "replace" | "delete" | "merge"     for this object, or with its key this entry; alone in a list: the list
    "$retainKeys": [...]                         removes all other fields
    "$deleteFromPrimitiveList/<field>": [...]    entries to remove from a list of scalars
    "$setElementOrder/<field>": [...]            the order of the entries that the client knows

In a merged list, the entries of the patch keep the order of the patch, and the others keep their own. If both of two
entries were in the list before, their old order decides which comes first; otherwise the entry of the patch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.core.errors import BadRequest, shown
from fairlead.core.objects import Object, copied
from fairlead.registry.patching.field_set import key_text
from fairlead.registry.patching.merge_schema import FREE, Shape, step_of

Entry = tuple[str | None, Any]
"""A list entry with its step."""


def interleaved(entries: Sequence[Entry], named: Sequence[str], before: Sequence[str | None]) -> list[Any]:
    """The entries in their final order, from the order of the patch and the old order of the live list."""
    new_positions = {step: position for position, step in enumerate(named)}
    old_positions = {step: position for position, step in enumerate(before)}
    patched = (entry for entry in entries if entry[0] in new_positions)
    remaining = iter(sorted(patched, key=lambda entry: new_positions[entry[0] or ""]))
    result: list[Any] = []
    following = next(remaining, None)
    for step, value in entries:
        if step in new_positions:
            continue
        while following is not None and not _stood_before(step, following[0], old_positions):
            result.append(following[1])
            following = next(remaining, None)
        result.append(value)
    if following is not None:
        result.append(following[1])
    return [*result, *(value for _, value in remaining)]


def _stood_before(one: str | None, other: str | None, was: dict[str | None, int]) -> bool:
    return one in was and other in was and was[one] < was[other]


_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_MERGE, _REPLACE, _REMOVE = "merge", "replace", "delete"
_NOTHING: list[Any] = []
"""The value of a list for which the patch contains only an order."""


def apply(document: Object, patch: Any, shape: Shape) -> Object:
    """The document with the patch merged in, as a new value."""
    if not isinstance(patch, dict):
        found = "null" if patch is None else "a list" if isinstance(patch, list) else "a single value"
        raise BadRequest(f"error decoding patch: the body is {found}; send a JSON object with the fields to change")
    return _merged(copied(document), copied(patch), shape)


def _merged(live: Object, patch: Object, shape: Shape) -> Object:
    """Changes and returns `live`, unless a directive replaces it."""
    directive = _directive(patch)
    if directive != _MERGE:
        return _plain_object(patch) if directive == _REPLACE else {}
    patch.pop(_PATCH, None)
    _retain(live, patch)
    orders, deletions = _lists(patch, _ORDER), _lists(patch, _DELETE)
    for name, values in deletions.items():
        if isinstance(live.get(name), list):
            deleted = set(map(key_text, values))
            live[name] = [each for each in live[name] if key_text(each) not in deleted]
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
    deleted = {step for step, each in steps if _directive(each) == _REMOVE}
    entries = [(step, each) for step, each in steps if _directive(each) == _MERGE]
    found = [(step, each) for step, each in zip(before, live, strict=True) if step not in deleted]
    ordered = [step for step, _ in entries] if order is None else [_step(each, shape) for each in order]
    if order is not None:
        _check_order([step for step, _ in entries], ordered)
    indexes = {step: index for index, (step, _) in reversed(list(enumerate(found)))}
    for step, each in entries:
        index = indexes.setdefault(step, len(found))
        if index == len(found):
            found.append((step, _plain(each)))
        elif shape.keys:
            found[index] = step, _merged(found[index][1], each, shape.entries or FREE)
    return interleaved(found, ordered, before)


def _check_order(steps: list[str], ordered: list[str]) -> None:
    """Checks that the entries of a patch are in its `$setElementOrder`, in the same order."""
    rest = iter(ordered)
    missing = next((step for step in steps if step not in rest), None)
    if missing is not None:
        raise _refused(f"the order of the list does not match its $setElementOrder, at {missing[2:]}")


def _step(entry: Any, shape: Shape) -> str:
    """The step of an entry of the patch, which must have all keys."""
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
            raise _refused(f"the patch sets {name}, which its {_RETAIN} does not list")
    for name in live.keys() - kept:
        del live[name]


def _lists(patch: Object, prefix: str) -> dict[str, list[Any]]:
    """Removes the directives with this prefix from the patch and returns them."""
    found = {name: patch.pop(name) for name in [name for name in patch if name.startswith(prefix)]}
    for name, values in found.items():
        if not isinstance(values, list):
            raise _refused(f"{name} must be a list")
    return {name.removeprefix(prefix): values for name, values in found.items()}


def _directive(patch: Any) -> str:
    """The `$patch` directive of a part of the patch."""
    directive = patch.get(_PATCH, _MERGE) if isinstance(patch, dict) else _MERGE
    if directive not in (_MERGE, _REPLACE, _REMOVE):
        raise _refused(f"unknown patch type: {shown(directive):.60}; {_PATCH} is {_MERGE}, {_REPLACE} or {_REMOVE}")
    return str(directive)


def _plain(value: Any) -> Any:
    """A value that is new to the object: without directives, and without what a directive or null removes."""
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
    """Drops entries with a directive other than `merge`: they contain nothing else."""
    return [_plain(each) for each in values if _directive(each) == _MERGE]


def _inner(shape: Shape, name: str) -> Shape:
    return shape.fields.get(name, shape.entries or FREE)


def _refused(why: str) -> BadRequest:
    return BadRequest(f"invalid strategic merge patch: {why}")
