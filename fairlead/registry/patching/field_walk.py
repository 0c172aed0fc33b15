"""Walks over objects that end in sets of fields: what is there, what somebody claims, and what a change touches.

`registry/patching/managed_fields.py` keeps the record of owners with these, `apply.py` finds conflicts with them. They follow
structured-merge-diff, the library that defines these sets, also where it is odd: an emptied map stays with its owner,
and duplicates in a list are owned as one.
"""

from __future__ import annotations

from typing import Any

import orjson

from fairlead.core.objects import Object
from fairlead.registry.patching.field_set import SELF, FieldSet, same, tidy
from fairlead.registry.patching.merge_schema import FREE, LEAF, UNOWNED, Parts, Shape, indexed


def all_fields(obj: Object, shape: Shape) -> FieldSet:
    """Everything in an object, with the structures on the way: what its creator owns."""
    return _beside_metadata(_inside(obj, shape))


def _beside_metadata(fields: FieldSet) -> FieldSet:
    """Takes `metadata` as such back out of a set just made: every object has it, so it is nobody's."""
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
    """A field that is there on one side only: itself and all that is in it."""
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
    """What somebody who applies an object claims: its values, but not the declared structures that lead to them."""
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
    """From one state of an object to the next: the fields that were added or got another value, and those that went."""
    taken, removed = _compared_maps(old, new, shape, 0)
    return _beside_metadata(taken), _beside_metadata(removed)


def _compared_maps(old: Object, new: Object, shape: Shape, level: int) -> tuple[FieldSet, FieldSet]:
    """`level` counts the objects on the way that declare nothing: those may be nested as deep as a body may be."""
    before, after = shape.parts(old), shape.parts(new)
    if before is not None and after is not None and before.owned == after.owned:
        return _compared_fields(old, new, after, level)
    return _compared_names(old, new, shape, level)


def _compared_fields(old: Object, new: Object, parts: Parts, level: int) -> tuple[FieldSet, FieldSet]:
    """The same declared fields are there before and after."""
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
    """Some fields came or went, or they are of those that anybody may name."""
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
    """Adds what became of a field that is there before and after."""
    more, less = outcome
    if more is not None:
        taken[step] = more
    if less:
        removed[step] = less


def _compared(old: Any, new: Any, shape: Shape, level: int) -> tuple[FieldSet | None, FieldSet]:
    """What was taken (None: nothing; empty: the field itself, as a whole) and what was removed below the field."""
    if (old or new) and shape is not LEAF:
        if shape.keys is not None:
            if isinstance(old, list | None) and isinstance(new, list | None):
                taken, removed = _compared_lists(indexed(old or [], shape), indexed(new or [], shape), shape, level)
                return taken or None, removed
        elif isinstance(old, dict) and isinstance(new, dict):
            level = 0 if shape.fields else level + 1
            # Most parts of most objects are the same, which is found out without a walk. Not at each level of what is
            # nested deep: a difference at the bottom would be looked for again at each of them.
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
    """The set with every declared field that leads to one of its paths. Apply leaves those out; removal needs them."""
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
