"""Merges an applied configuration into an object, and removes fields from an object. Used by `apply.py`.

Objects and maps merge field by field, set and map lists entry by entry; everything else is replaced. Nothing is changed
in place, and results share parts with their arguments.
"""

from __future__ import annotations

from typing import Any

from fairlead.core.objects import Object
from fairlead.registry.patching.field_set import SELF, FieldSet
from fairlead.registry.patching.merge_schema import ATOMIC, DEDUCED, UNOWNED, MergeSchema, entries_by_step, entry_step


def merge_config(live: Object, config: Object, schema: MergeSchema) -> Object:
    """The object with the configuration merged into it."""
    parts = schema.field_plan(config)
    if parts is not None:
        known = {**live, **config}
        for name, inner in parts.mergeable:
            if name in live:
                known[name] = _merge_value(live[name], config[name], inner)
        return known
    fields, entries = schema.fields, schema.entries or DEDUCED
    result = dict(live)
    for name, wanted in config.items():
        result[name] = _merge_value(live[name], wanted, fields.get(name, entries)) if name in live else wanted
    return result


def _merge_value(live: Any, wanted: Any, schema: MergeSchema) -> Any:
    if schema is ATOMIC:
        return wanted
    if schema is UNOWNED:
        # An empty resourceVersion or uid is not a precondition.
        return wanted or live
    if isinstance(live, dict) and schema.keys is None:
        if isinstance(wanted, dict):
            return merge_config(live, wanted, schema)
        return live if wanted is None else wanted
    if isinstance(live, list) and schema.keys is not None:
        return _merge_lists(live, wanted or [], schema)
    return wanted


def _merge_lists(live: list[Any], wanted: list[Any], schema: MergeSchema) -> list[Any]:
    """Entries of both lists, in the configured order; other entries keep their position between their neighbours."""
    known = entries_by_step(live, schema)
    ordered = [(entry_step(entry, schema), entry) for entry in wanted]
    steps = {step for step, _ in ordered}
    remaining, shared = iter(ordered), (step for step, _ in ordered if step in known)
    result: list[Any] = []
    next_shared = next(shared, None)
    for entry in live:
        step = entry_step(entry, schema)
        if step not in steps:
            result.append(entry)
        elif step == next_shared:
            for each, configured in remaining:
                result.append(_merge_entry(known, each, configured, schema))
                if each == step:
                    break
            next_shared = next(shared, None)
    return [*result, *(_merge_entry(known, step, configured, schema) for step, configured in remaining)]


def _merge_entry(known: dict[str, list[Any]], step: str | None, wanted: Any, schema: MergeSchema) -> Any:
    """An entry merged with its counterpart. Duplicates in the live list have none: all of them are replaced."""
    found = known.get(step or "", ())
    return _merge_value(found[0], wanted, schema.entries or DEDUCED) if len(found) == 1 else wanted


def remove_fields(value: Object, fields: FieldSet, schema: MergeSchema) -> Object:
    """The object without the fields of a set and everything below them."""
    remaining = {}
    for name, each in value.items():
        below = fields.get("f:" + name)
        if below is None:
            remaining[name] = each
        elif below and SELF not in below:
            remaining[name] = _remove_below(each, below, schema.fields.get(name, schema.entries or DEDUCED))
    return remaining


def _remove_below(value: Any, fields: FieldSet, schema: MergeSchema) -> Any:
    if isinstance(value, dict) and schema.keys is None:
        return remove_fields(value, fields, schema)
    if not isinstance(value, list) or schema.keys is None:
        return value
    remaining = []
    for each in value:
        below = fields.get(entry_step(each, schema) or "")
        if below is None:
            remaining.append(each)
        elif below and SELF not in below:
            remaining.append(_remove_below(each, below, schema.entries or DEDUCED))
    return remaining
