"""Merging what somebody applies into an object, and taking out what they no longer apply.

`apply.py` calls both with the shape of the whole kind. Structures and maps merge field by field, lists by their
entries where entries are told apart; everything else is replaced. Nothing is changed in place, and results share parts
with their arguments.
"""

from __future__ import annotations

from typing import Any

from fairlead.core.objects import Object
from fairlead.registry.patching.field_set import SELF, FieldSet
from fairlead.registry.patching.merge_schema import FREE, LEAF, UNOWNED, Shape, indexed, step_of


def merged(live: Object, config: Object, shape: Shape) -> Object:
    """The object with everything in it that the configuration says."""
    parts = shape.parts(config)
    if parts is not None:
        known = {**live, **config}
        for name, inner in parts.merging:
            if name in live:
                known[name] = _merged(live[name], config[name], inner)
        return known
    fields, entries = shape.fields, shape.entries or FREE
    result = dict(live)
    for name, wanted in config.items():
        result[name] = _merged(live[name], wanted, fields.get(name, entries)) if name in live else wanted
    return result


def _merged(live: Any, wanted: Any, shape: Shape) -> Any:
    if shape is LEAF:
        return wanted
    if shape is UNOWNED:
        # An empty resourceVersion or uid asks for nothing.
        return wanted or live
    if isinstance(live, dict) and shape.keys is None:
        if isinstance(wanted, dict):
            return merged(live, wanted, shape)
        return live if wanted is None else wanted
    if isinstance(live, list) and shape.keys is not None:
        return _merged_lists(live, wanted or [], shape)
    return wanted


def _merged_lists(live: list[Any], wanted: list[Any], shape: Shape) -> list[Any]:
    """Entries of both, in the order that is wanted; the others keep their places between those they stood beside."""
    known = indexed(live, shape)
    ordered = [(step_of(entry, shape), entry) for entry in wanted]
    steps = {step for step, _ in ordered}
    waiting, shared = iter(ordered), (step for step, _ in ordered if step in known)
    result: list[Any] = []
    turn = next(shared, None)
    for entry in live:
        step = step_of(entry, shape)
        if step not in steps:
            result.append(entry)
        elif step == turn:
            for each, mine in waiting:
                result.append(_merged_entry(known, each, mine, shape))
                if each == step:
                    break
            turn = next(shared, None)
    return [*result, *(_merged_entry(known, step, mine, shape) for step, mine in waiting)]


def _merged_entry(known: dict[str, list[Any]], step: str | None, wanted: Any, shape: Shape) -> Any:
    """An entry with its counterpart. What stands there several times has none: all of them are replaced."""
    found = known.get(step or "", ())
    return _merged(found[0], wanted, shape.entries or FREE) if len(found) == 1 else wanted


def without(value: Object, fields: FieldSet, shape: Shape) -> Object:
    """The object without the fields of a set and without all that is below them."""
    kept = {}
    for name, each in value.items():
        below = fields.get("f:" + name)
        if below is None:
            kept[name] = each
        elif below and SELF not in below:
            kept[name] = _rest(each, below, shape.fields.get(name, shape.entries or FREE))
    return kept


def _rest(value: Any, fields: FieldSet, shape: Shape) -> Any:
    if isinstance(value, dict) and shape.keys is None:
        return without(value, fields, shape)
    if not isinstance(value, list) or shape.keys is None:
        return value
    kept = []
    for each in value:
        below = fields.get(step_of(each, shape) or "")
        if below is None:
            kept.append(each)
        elif below and SELF not in below:
            kept.append(_rest(each, below, shape.entries or FREE))
    return kept
