"""Merge patch and strategic merge patch: an object with the fields to change, where null removes a field.

`server/api/patch.py` decodes the body. The registry applies the patch to the current object, again after every lost
race, so the result is a new value that shares nothing with the arguments.

`apply_merge_patch` is JSON merge patch, RFC 7386. `apply_strategic_merge_patch` also merges lists whose entries the
schema identifies.

The kind's merge schema says which lists merge, and by which keys: set lists get new entries, map lists merge entry by
entry, all other lists are replaced. Objects always merge, even atomic ones. Directives among the fields do the rest:

    "$patch": "replace" | "delete"               for this object, or with its key this entry; alone in a list: the list
    "$retainKeys": [...]                         removes all other fields
    "$deleteFromPrimitiveList/<field>": [...]    entries to remove from a list of scalars
    "$setElementOrder/<field>": [...]            the order of the entries that the client knows

In a merged list, the entries of the patch keep the order of the patch, and the others keep their own. If both of two
entries were in the list before, their old order decides which comes first; otherwise the entry of the patch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from fairlead.core.errors import BadRequest, quote_value
from fairlead.core.objects import Object, deep_copy
from fairlead.registry.freeform_limits import normalize_numbers
from fairlead.registry.patching.field_set import canonical_json
from fairlead.registry.patching.merge_schema import DEDUCED, MergeSchema, entry_step


def apply_merge_patch(document: Object, patch: Any) -> Object:
    """The document with the patch merged in, as a new value."""
    if not isinstance(patch, dict):
        found = "null" if patch is None else "a list" if isinstance(patch, list) else "a single value"
        raise BadRequest(
            f"error decoding patch: the body is {found}; send a JSON object with the fields to change, "
            "and null for those to remove"
        )
    try:
        changes = deep_copy(patch)
    except orjson.JSONEncodeError as error:
        raise BadRequest(f"error decoding patch: {error}; send a patch with less nesting") from error
    return _merge(deep_copy(document), changes)


def _merge(target: Any, patch: Object) -> Object:
    """Changes and returns `target`. A target that is not an object is replaced, so nulls in new objects are dropped,
    too."""
    result: Object = target if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = _merge(result.get(name), value)
        else:
            result[name] = value
    return result


KeyedEntry = tuple[str | None, Any]
"""A list entry with its step."""


def merge_order(
    entries: Sequence[KeyedEntry], patch_order: Sequence[str], old_order: Sequence[str | None]
) -> list[Any]:
    """The entries in their final order, from the order of the patch and the old order of the live list."""
    new_positions = {step: position for position, step in enumerate(patch_order)}
    old_positions = {step: position for position, step in enumerate(old_order)}
    patched = (entry for entry in entries if entry[0] in new_positions)
    remaining = iter(sorted(patched, key=lambda entry: new_positions[entry[0] or ""]))
    result: list[Any] = []
    following = next(remaining, None)
    for step, value in entries:
        if step in new_positions:
            continue
        while following is not None and not _was_before(step, following[0], old_positions):
            result.append(following[1])
            following = next(remaining, None)
        result.append(value)
    if following is not None:
        result.append(following[1])
    return [*result, *(value for _, value in remaining)]


def _was_before(one: str | None, other: str | None, old_positions: dict[str | None, int]) -> bool:
    return one in old_positions and other in old_positions and old_positions[one] < old_positions[other]


_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_MERGE, _REPLACE, _REMOVE = "merge", "replace", "delete"
_DROPPED = object()
"""A value that has a directive, where there is nothing to which it could apply."""
_ORDER_ONLY: list[Any] = []
"""The value of a list for which the patch contains only an order."""


def apply_strategic_merge_patch(document: Object, patch: Any, schema: MergeSchema) -> Object:
    """The document with the patch merged in, as a new value."""
    if not isinstance(patch, dict):
        found = "null" if patch is None else "a list" if isinstance(patch, list) else "a single value"
        raise BadRequest(f"error decoding patch: the body is {found}; send a JSON object with the fields to change")
    changes = deep_copy(patch)
    normalize_numbers(changes)
    merged = _merge_object(deep_copy(document), changes, schema)
    for name in ("apiVersion", "kind"):  # not a decoding error in Kubernetes, but ignored
        if name in document and isinstance(merged.get(name), str | None):
            merged[name] = document[name]
    return merged


def _merge_object(live: Object, patch: Object, schema: MergeSchema) -> Object:
    """Changes and returns `live`, unless a directive replaces it."""
    directive = _directive(patch)
    patch.pop(_PATCH, None)
    if directive != _MERGE:
        return patch if directive == _REPLACE else {}
    _apply_retain_keys(live, patch)
    orders = _pop_list_directives(patch, _ORDER)
    deletions = _pop_list_directives(patch, _DELETE)
    for name, values in deletions.items():
        if isinstance(live.get(name), list):
            deleted = set(map(canonical_json, values))
            live[name] = [each for each in live[name] if canonical_json(each) not in deleted]
    for name, wanted in {**dict.fromkeys(orders, _ORDER_ONLY), **patch}.items():
        if wanted is None:
            live.pop(name, None)
        elif wanted is not _ORDER_ONLY or name in live:
            merged = _merge_field(live.get(name), wanted, orders.get(name), _field_schema(schema, name))
            if merged is _DROPPED:
                live.pop(name, None)
            else:
                live[name] = merged
    return live


def _merge_field(live: Any, wanted: Any, order: list[Any] | None, schema: MergeSchema) -> Any:
    if isinstance(live, dict) and isinstance(wanted, dict):
        return _merge_object(live, wanted, schema)
    if isinstance(live, list) and isinstance(wanted, list) and schema.keys is not None:
        return _merge_lists(live, wanted, order, schema)
    if wanted is _ORDER_ONLY:
        return live
    return wanted if isinstance(live, list) and isinstance(wanted, list) else _strip_directives(wanted)


def _merge_lists(live: list[Any], wanted: list[Any], order: list[Any] | None, schema: MergeSchema) -> list[Any]:
    if any(_directive(each) == _REPLACE for each in wanted):
        return _strip_list(wanted)
    before = [entry_step(each, schema) for each in live]
    steps = [(_patch_entry_step(each, schema), each) for each in wanted]
    deleted = {step for step, each in steps if _directive(each) == _REMOVE}
    entries = [(step, each) for step, each in steps if _directive(each) == _MERGE]
    found = [(step, each) for step, each in zip(before, live, strict=True) if step not in deleted]
    ordered = [step for step, _ in entries] if order is None else [_patch_entry_step(each, schema) for each in order]
    if order is not None:
        _check_order([step for step, _ in entries], ordered)
    indexes = {step: index for index, (step, _) in reversed(list(enumerate(found)))}
    for step, each in entries:
        index = indexes.setdefault(step, len(found))
        if index == len(found):
            found.append((step, _strip_directives(each)))
        elif schema.keys:
            found[index] = step, _merge_object(found[index][1], each, schema.entries or DEDUCED)
    return merge_order(found, ordered, before)


def _check_order(steps: list[str], ordered: list[str]) -> None:
    """Checks that the entries of a patch are in its `$setElementOrder`, in the same order."""
    rest = iter(ordered)
    missing = next((step for step in steps if step not in rest), None)
    if missing is not None:
        raise _invalid_patch(f"the order of the list does not match its $setElementOrder, at {missing[2:]}")


def _patch_entry_step(entry: Any, schema: MergeSchema) -> str:
    """The step of an entry of the patch, which must have all keys."""
    if schema.keys:
        if not isinstance(entry, dict):
            raise _invalid_patch(
                f"expected an object with {' and '.join(schema.keys)} in a list, not {quote_value(entry):.60}"
            )
        for key in schema.keys:
            if key not in entry and key not in schema.defaults:
                raise _invalid_patch(f"an entry of a list does not have its merge key, {key}: {quote_value(entry):.60}")
    elif isinstance(entry, dict | list):
        raise _invalid_patch(f"expected a plain value in a list, not {quote_value(entry):.60}")
    return entry_step(entry, schema) or ""


def _apply_retain_keys(live: Object, patch: Object) -> None:
    keys = patch.pop(_RETAIN, None)
    if keys is None:
        return
    if not isinstance(keys, list):
        raise _invalid_patch(f"{_RETAIN} must be a list of field names")
    retained = {key for key in keys if isinstance(key, str)}
    for name, value in patch.items():
        if value is not None and name not in retained and not name.startswith("$"):
            raise _invalid_patch(f"the patch sets {name}, which its {_RETAIN} does not list")
    for name in live.keys() - retained:
        del live[name]


def _pop_list_directives(patch: Object, prefix: str) -> dict[str, list[Any]]:
    """Removes the directives with this prefix from the patch and returns them."""
    found = {name: patch.pop(name) for name in [name for name in patch if name.startswith(prefix)]}
    for name, values in found.items():
        if not isinstance(values, list):
            raise _invalid_patch(f"{name} must be a list")
    return {name.removeprefix(prefix): values for name, values in found.items()}


def _directive(patch: Any) -> str:
    """The `$patch` directive of a part of the patch."""
    directive = patch.get(_PATCH) if isinstance(patch, dict) else None
    if directive is None and not (isinstance(patch, dict) and _PATCH in patch):
        return _MERGE
    if directive not in (_REPLACE, _REMOVE):
        raise _invalid_patch(f"unknown patch type: {quote_value(directive):.60}; {_PATCH} is {_REPLACE} or {_REMOVE}")
    return str(directive)


def _strip_directives(value: Any) -> Any:
    """A value that is new to the object: without nulls, and without what has a `$patch`, whatever it is. `_DROPPED` if
    it has one itself. Other directives are fields like any other there, as in Kubernetes."""
    if isinstance(value, dict):
        return _DROPPED if _PATCH in value else _strip_object(value)
    return _strip_list(value) if isinstance(value, list) else value


def _strip_object(value: Object) -> Object:
    fields = {name: _strip_directives(each) for name, each in value.items() if each is not None}
    return {name: each for name, each in fields.items() if each is not _DROPPED}


def _strip_list(values: list[Any]) -> list[Any]:
    return [each for each in map(_strip_directives, values) if each is not _DROPPED]


def _field_schema(schema: MergeSchema, name: str) -> MergeSchema:
    return schema.fields.get(name, schema.entries or DEDUCED)


def _invalid_patch(reason: str) -> BadRequest:
    return BadRequest(f"invalid strategic merge patch: {reason}")
