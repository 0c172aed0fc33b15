"""Computes field sets from objects: all fields, the fields that a configuration applies, and the fields of a change.

`managed_fields.py` records owners with these, `apply.py` finds conflicts. They follow structured-merge-diff, the
library that defines these sets, also where it is surprising: an emptied map stays with its owner, and duplicates in a
list are owned as one.
"""

from __future__ import annotations

from typing import Any

import orjson

from fairlead.core.objects import Object
from fairlead.registry.patching.field_set import SELF, FieldSet, is_equal_json, normalize_part
from fairlead.registry.patching.merge_schema import ATOMIC, DEDUCED, UNOWNED, FieldPlan, MergeSchema, entries_by_step


def all_fields(obj: Object, schema: MergeSchema) -> FieldSet:
    """All fields of an object, including parent objects: what its creator owns."""
    return _without_metadata_itself(_fields_inside(obj, schema))


def _without_metadata_itself(fields: FieldSet) -> FieldSet:
    """Removes `metadata` itself from a new set: every object has it, so no manager owns it."""
    meta = fields.get("f:metadata")
    if meta is not None:
        meta.pop(SELF, None)
        if not meta:
            del fields["f:metadata"]
    return fields


def _fields_inside(value: Object, schema: MergeSchema) -> FieldSet:
    parts = schema.field_plan(value)
    if parts is not None:
        known = parts.flat_set.copy()
        for name, step, inner in parts.nested:
            known[step] = _field_with_children(value[name], inner)
        return known
    found: FieldSet = {}
    fields, entries = schema.fields, schema.entries or DEDUCED
    for name, each in value.items():
        inner = fields.get(name, entries)
        if inner is ATOMIC:
            found["f:" + name] = {}
        elif inner is not UNOWNED:
            found["f:" + name] = _field_with_children(each, inner)
    return found


def _field_with_children(value: Any, schema: MergeSchema) -> FieldSet:
    """The field itself and everything in it, for a field that exists only before or only after."""
    below: FieldSet = {}
    if value and schema is not ATOMIC:
        if schema.keys is None and isinstance(value, dict):
            below = _fields_inside(value, schema)
        elif schema.keys is not None and isinstance(value, list):
            below = {step: _entry_fields(values, schema) for step, values in entries_by_step(value, schema).items()}
    return {SELF: {}, **below} if below else below


def _entry_fields(values: list[Any], schema: MergeSchema) -> FieldSet:
    return _field_with_children(values[0], schema.entries or DEDUCED) if len(values) == 1 else {}


def applied_fields(obj: Object, schema: MergeSchema) -> FieldSet:
    """The fields that applying an object claims: its values, but not the declared parent objects."""
    return _without_metadata_itself(_applied_inside(obj, schema))


def _applied_inside(value: Object, schema: MergeSchema) -> FieldSet:
    found: FieldSet = {}
    parts = schema.field_plan(value)
    if parts is not None:
        for name, step, known in parts.owned:
            claim = {} if known is ATOMIC else _applied_value(value[name], known, declared=True)
            if claim is not None:
                found[step] = claim
        return found
    for name, each in value.items():
        inner = schema.fields.get(name)
        below = _applied_value(each, inner or schema.entries or DEDUCED, declared=inner is not None)
        if inner is not UNOWNED and below is not None:
            found["f:" + name] = below
    return found


def _applied_value(value: Any, schema: MergeSchema, *, declared: bool) -> FieldSet | None:
    if schema.keys is None:
        if schema is ATOMIC or not value or not isinstance(value, dict):
            return {}
        below = _applied_inside(value, schema)
    elif isinstance(value, list):
        inner, found = schema.entries or DEDUCED, entries_by_step(value, schema)
        below = {
            step: {} if len(each) > 1 else _applied_value(each[0], inner, declared=False)
            for step, each in found.items()
        }
    else:
        return {}
    return normalize_part(below if declared else {SELF: {}, **below})


def compare_objects(old: Object, new: Object, schema: MergeSchema) -> tuple[FieldSet, FieldSet]:
    """The fields that were added or changed from `old` to `new`, and those that were removed."""
    changed, removed = _compare_maps(old, new, schema, 0)
    return _without_metadata_itself(changed), _without_metadata_itself(removed)


def _compare_maps(old: Object, new: Object, schema: MergeSchema, level: int) -> tuple[FieldSet, FieldSet]:
    """`level` counts enclosing objects without declared fields, which may be nested as deep as a body may be."""
    before = schema.field_plan(old)
    after = schema.field_plan(new)
    if before is not None and after is not None and before.owned == after.owned:
        return _compare_declared(old, new, after, level)
    return _compare_names(old, new, schema, level)


def _compare_declared(old: Object, new: Object, plan: FieldPlan, level: int) -> tuple[FieldSet, FieldSet]:
    """For objects with the same declared fields before and after."""
    changed: FieldSet = {}
    removed: FieldSet = {}
    for name, step, inner in plan.owned:
        before, after = old[name], new[name]
        if inner is not ATOMIC:
            _add_outcome(step, _compare_values(before, after, inner, level), changed, removed)
        elif before != after or (after.__class__ is not str and not is_equal_json(before, after)):
            changed[step] = {}
    return changed, removed


def _compare_names(old: Object, new: Object, schema: MergeSchema, level: int) -> tuple[FieldSet, FieldSet]:
    """For objects where fields were added or removed, or with undeclared fields."""
    changed: FieldSet = {}
    removed: FieldSet = {}
    fields, entries, stayed = schema.fields, schema.entries or DEDUCED, 0
    for name, after in new.items():
        stayed += name in old
        inner = fields.get(name, entries)
        if inner is UNOWNED:
            continue
        if name not in old:
            changed["f:" + name] = _field_with_children(after, inner)
        elif inner is not ATOMIC:
            _add_outcome("f:" + name, _compare_values(old[name], after, inner, level), changed, removed)
        elif not is_equal_json(old[name], after):
            changed["f:" + name] = {}
    if stayed < len(old):
        removed.update(_fields_inside({name: each for name, each in old.items() if name not in new}, schema))
    return changed, removed


def _add_outcome(step: str, outcome: tuple[FieldSet | None, FieldSet], changed: FieldSet, removed: FieldSet) -> None:
    """Adds the result for a field that exists before and after."""
    more, less = outcome
    if more is not None:
        changed[step] = more
    if less:
        removed[step] = less


def _compare_values(old: Any, new: Any, schema: MergeSchema, level: int) -> tuple[FieldSet | None, FieldSet]:
    """What was set (None: nothing; empty: the field as a whole) and what was removed below the field."""
    if (old or new) and schema is not ATOMIC:
        if schema.keys is not None:
            if isinstance(old, list | None) and isinstance(new, list | None):
                changed, removed = _compare_lists(
                    entries_by_step(old or [], schema), entries_by_step(new or [], schema), schema, level
                )
                return changed or None, removed
        elif isinstance(old, dict) and isinstance(new, dict):
            level = 0 if schema.fields else level + 1
            # Most parts of most objects are equal, so compare before walking. For deeply nested values not at every
            # level (only at powers of two): otherwise a difference at the bottom would take quadratic time.
            if level & (level - 1) == 0 and old == new and orjson.dumps(old) == orjson.dumps(new):
                return None, {}
            changed, removed = _compare_maps(old, new, schema, level)
            return changed or None, removed
        elif isinstance(new, dict) and new:
            return (_fields_inside(new, schema) if old is None else _field_with_children(new, schema)), {}
        elif isinstance(old, dict) and old:
            return (None if new is None else {}), _fields_inside(old, schema)
    return None if is_equal_json(old, new) else {}, {}


def _compare_lists(
    old: dict[str, list[Any]], new: dict[str, list[Any]], schema: MergeSchema, level: int
) -> tuple[FieldSet, FieldSet]:
    changed: FieldSet = {}
    removed = {step: _entry_fields(before, schema) for step, before in old.items() if step not in new}
    for step, after in new.items():
        before = old.get(step)
        if before is None:
            changed[step] = _entry_fields(after, schema)
        elif len(before) == len(after) == 1:
            _add_outcome(step, _compare_values(before[0], after[0], schema.entries or DEDUCED, level), changed, removed)
        elif len(before) == 1 or len(after) == 1:
            changed[step] = _entry_fields(after, schema)
            removed[step] = _entry_fields(before, schema)
        elif not is_equal_json(before, after):
            changed[step] = {}
    return changed, removed


def add_parents(fields: FieldSet, schema: MergeSchema) -> FieldSet:
    """The set plus every declared parent of its paths. Apply leaves parents out; removal needs them."""
    return _without_metadata_itself(_add_parents(fields, schema))


def _add_parents(fields: FieldSet, schema: MergeSchema) -> FieldSet:
    full = {}
    for step, below in fields.items():
        if below:
            named = step.startswith("f:") and step[2:] in schema.fields
            inner = schema.fields.get(step[2:]) if named else schema.entries
            below = _add_parents(below, inner or DEDUCED)
            if named:
                below = {SELF: {}, **below}
        full[step] = below
    return full
