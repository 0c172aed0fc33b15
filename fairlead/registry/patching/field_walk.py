"""Computes field sets from objects: all fields, the fields that a configuration applies, and the fields of a change.

`managed_fields.py` records owners with these, `apply.py` finds conflicts. They follow structured-merge-diff, the
library that defines these sets, also where it is surprising: an emptied map stays with its owner, and duplicates in a
list are owned as one.
"""

from __future__ import annotations

from typing import Any

import orjson

from fairlead.core.objects import Object
from fairlead.registry.patching.field_set import SELF, FieldSet, same, tidy
from fairlead.registry.patching.merge_schema import FREE, LEAF, UNOWNED, Parts, Shape, indexed


def all_fields(obj: Object, shape: Shape) -> FieldSet:
    """All fields of an object, including parent objects: what its creator owns."""
    return _beside_metadata(_inside(obj, shape))


def _beside_metadata(fields: FieldSet) -> FieldSet:
    """Removes `metadata` itself from a new set: every object has it, so no manager owns it."""
    meta = fields.get("f:metadata")
    if meta is not None:
        meta.pop(SELF, None)
        if not meta:
            del fields["f:metadata"]
    return fields


def _inside(value: Object, shape: Shape) -> FieldSet:
    parts = shape.parts(value)
    if parts is not None:
        known = parts.flat.copy()
        for name, step, inner in parts.nested:
            known[step] = _whole(value[name], inner)
        return known
    found: FieldSet = {}
    fields, entries = shape.fields, shape.entries or FREE
    for name, each in value.items():
        inner = fields.get(name, entries)
        if inner is LEAF:
            found["f:" + name] = {}
        elif inner is not UNOWNED:
            found["f:" + name] = _whole(each, inner)
    return found


def _whole(value: Any, shape: Shape) -> FieldSet:
    """The field itself and everything in it, for a field that exists only before or only after."""
    below: FieldSet = {}
    if value and shape is not LEAF:
        if shape.keys is None and isinstance(value, dict):
            below = _inside(value, shape)
        elif shape.keys is not None and isinstance(value, list):
            below = {step: _entry(values, shape) for step, values in indexed(value, shape).items()}
    return {SELF: {}, **below} if below else below


def _entry(values: list[Any], shape: Shape) -> FieldSet:
    return _whole(values[0], shape.entries or FREE) if len(values) == 1 else {}


def applied_fields(obj: Object, shape: Shape) -> FieldSet:
    """The fields that applying an object claims: its values, but not the declared parent objects."""
    return _beside_metadata(_claimed_inside(obj, shape))


def _claimed_inside(value: Object, shape: Shape) -> FieldSet:
    found: FieldSet = {}
    parts = shape.parts(value)
    if parts is not None:
        for name, step, known in parts.owned:
            claim = {} if known is LEAF else _claimed(value[name], known, declared=True)
            if claim is not None:
                found[step] = claim
        return found
    for name, each in value.items():
        inner = shape.fields.get(name)
        below = _claimed(each, inner or shape.entries or FREE, declared=inner is not None)
        if inner is not UNOWNED and below is not None:
            found["f:" + name] = below
    return found


def _claimed(value: Any, shape: Shape, *, declared: bool) -> FieldSet | None:
    if shape.keys is None:
        if shape is LEAF or not value or not isinstance(value, dict):
            return {}
        below = _claimed_inside(value, shape)
    elif isinstance(value, list):
        inner, found = shape.entries or FREE, indexed(value, shape)
        below = {
            step: {} if len(each) > 1 else _claimed(each[0], inner, declared=False) for step, each in found.items()
        }
    else:
        return {}
    return tidy(below if declared else {SELF: {}, **below})


def changed(old: Object, new: Object, shape: Shape) -> tuple[FieldSet, FieldSet]:
    """The fields that were added or changed from `old` to `new`, and those that were removed."""
    taken, removed = _compared_maps(old, new, shape, 0)
    return _beside_metadata(taken), _beside_metadata(removed)


def _compared_maps(old: Object, new: Object, shape: Shape, level: int) -> tuple[FieldSet, FieldSet]:
    """`level` counts enclosing objects without declared fields, which may be nested as deep as a body may be."""
    before, after = shape.parts(old), shape.parts(new)
    if before is not None and after is not None and before.owned == after.owned:
        return _compared_fields(old, new, after, level)
    return _compared_names(old, new, shape, level)


def _compared_fields(old: Object, new: Object, parts: Parts, level: int) -> tuple[FieldSet, FieldSet]:
    """For objects with the same declared fields before and after."""
    taken: FieldSet = {}
    removed: FieldSet = {}
    for name, step, inner in parts.owned:
        before, after = old[name], new[name]
        if inner is not LEAF:
            _note(step, _compared(before, after, inner, level), taken, removed)
        elif before != after or (after.__class__ is not str and not same(before, after)):
            taken[step] = {}
    return taken, removed


def _compared_names(old: Object, new: Object, shape: Shape, level: int) -> tuple[FieldSet, FieldSet]:
    """For objects where fields were added or removed, or with undeclared fields."""
    taken: FieldSet = {}
    removed: FieldSet = {}
    fields, entries, stayed = shape.fields, shape.entries or FREE, 0
    for name, after in new.items():
        stayed += name in old
        inner = fields.get(name, entries)
        if inner is UNOWNED:
            continue
        if name not in old:
            taken["f:" + name] = _whole(after, inner)
        elif inner is not LEAF:
            _note("f:" + name, _compared(old[name], after, inner, level), taken, removed)
        elif not same(old[name], after):
            taken["f:" + name] = {}
    if stayed < len(old):
        removed.update(_inside({name: each for name, each in old.items() if name not in new}, shape))
    return taken, removed


def _note(step: str, outcome: tuple[FieldSet | None, FieldSet], taken: FieldSet, removed: FieldSet) -> None:
    """Adds the result for a field that exists before and after."""
    more, less = outcome
    if more is not None:
        taken[step] = more
    if less:
        removed[step] = less


def _compared(old: Any, new: Any, shape: Shape, level: int) -> tuple[FieldSet | None, FieldSet]:
    """What was set (None: nothing; empty: the field as a whole) and what was removed below the field."""
    if (old or new) and shape is not LEAF:
        if shape.keys is not None:
            if isinstance(old, list | None) and isinstance(new, list | None):
                taken, removed = _compared_lists(indexed(old or [], shape), indexed(new or [], shape), shape, level)
                return taken or None, removed
        elif isinstance(old, dict) and isinstance(new, dict):
            level = 0 if shape.fields else level + 1
            # Most parts of most objects are equal, so compare before walking. For deeply nested values not at every
            # level (only at powers of two): otherwise a difference at the bottom would take quadratic time.
            if level & (level - 1) == 0 and old == new and orjson.dumps(old) == orjson.dumps(new):
                return None, {}
            taken, removed = _compared_maps(old, new, shape, level)
            return taken or None, removed
        elif isinstance(new, dict) and new:
            return (_inside(new, shape) if old is None else _whole(new, shape)), {}
        elif isinstance(old, dict) and old:
            return (None if new is None else {}), _inside(old, shape)
    return None if same(old, new) else {}, {}


def _compared_lists(
    old: dict[str, list[Any]], new: dict[str, list[Any]], shape: Shape, level: int
) -> tuple[FieldSet, FieldSet]:
    taken: FieldSet = {}
    removed = {step: _entry(before, shape) for step, before in old.items() if step not in new}
    for step, after in new.items():
        before = old.get(step)
        if before is None:
            taken[step] = _entry(after, shape)
        elif len(before) == len(after) == 1:
            _note(step, _compared(before[0], after[0], shape.entries or FREE, level), taken, removed)
        elif len(before) == 1 or len(after) == 1:
            taken[step], removed[step] = _entry(after, shape), _entry(before, shape)
        elif not same(before, after):
            taken[step] = {}
    return taken, removed


def with_parents(fields: FieldSet, shape: Shape) -> FieldSet:
    """The set plus every declared parent of its paths. Apply leaves parents out; removal needs them."""
    return _beside_metadata(_with_parents(fields, shape))


def _with_parents(fields: FieldSet, shape: Shape) -> FieldSet:
    full = {}
    for step, below in fields.items():
        if below:
            named = step.startswith("f:") and step[2:] in shape.fields
            inner = shape.fields.get(step[2:]) if named else shape.entries
            below = _with_parents(below, inner or FREE)
            if named:
                below = {SELF: {}, **below}
        full[step] = below
    return full
