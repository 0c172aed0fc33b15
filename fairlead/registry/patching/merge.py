"""Merges an applied configuration into an object, and removes fields from an object. Used by `apply.py`.

Objects and maps merge field by field, set and map lists entry by entry; everything else is replaced. Nothing is changed
in place, and results share parts with their arguments.
"""

from __future__ import annotations

from typing import Any

from fairlead.core.objects import Object
from fairlead.registry.patching.field_set import SELF, FieldSet
from fairlead.registry.patching.merge_schema import FREE, LEAF, UNOWNED, Shape, indexed, step_of


def merged(live: Object, config: Object, shape: Shape) -> Object:
    """The object with the configuration merged into it."""
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
        # An empty resourceVersion or uid is not a precondition.
        return wanted or live
    if isinstance(live, dict) and shape.keys is None:
        if isinstance(wanted, dict):
            return merged(live, wanted, shape)
        return live if wanted is None else wanted
    if isinstance(live, list) and shape.keys is not None:
        return _merged_lists(live, wanted or [], shape)
    return wanted


def _merged_lists(live: list[Any], wanted: list[Any], shape: Shape) -> list[Any]:
    """Entries of both lists, in the configured order; other entries keep their position between their neighbours."""
    known = indexed(live, shape)
    ordered = [(step_of(entry, shape), entry) for entry in wanted]
    steps = {step for step, _ in ordered}
    remaining, shared = iter(ordered), (step for step, _ in ordered if step in known)
    result: list[Any] = []
    next_shared = next(shared, None)
    for entry in live:
        step = step_of(entry, shape)
        if step not in steps:
            result.append(entry)
        elif step == next_shared:
            for each, configured in remaining:
                result.append(_merged_entry(known, each, configured, shape))
                if each == step:
                    break
            next_shared = next(shared, None)
    return [*result, *(_merged_entry(known, step, configured, shape) for step, configured in remaining)]


def _merged_entry(known: dict[str, list[Any]], step: str | None, wanted: Any, shape: Shape) -> Any:
    """An entry merged with its counterpart. Duplicates in the live list have none: all of them are replaced."""
    found = known.get(step or "", ())
    return _merged(found[0], wanted, shape.entries or FREE) if len(found) == 1 else wanted


def without(value: Object, fields: FieldSet, shape: Shape) -> Object:
    """The object without the fields of a set and everything below them."""
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
