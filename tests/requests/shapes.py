"""Builds large bodies from the schema of a kind. Each shape is large in a different way.

Nothing here depends on a kind. New kinds and fields are covered without changes.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import orjson

Schema = dict[str, Any]
Object = dict[str, Any]
Shape = Callable[[Object, Schema, int], bytes]
"""From a small object of the kind, its schema, and a size in bytes to a body of about that size."""

DEPTH = 180
"""Levels of nesting, nearly the maximum."""


def build_small_value(schema: Schema, number: int) -> Any:
    """A value that matches the schema, different for each number where possible."""
    match schema.get("type"):
        case "string" if "enum" in schema:
            return schema["enum"][0]
        case "string" if schema.get("format") == "date-time":
            return "2026-01-31T12:00:00Z"
        case "string" if schema.get("format") == "byte":
            return "AAAA"
        case "string":
            return f"v{number}"
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "array":
            return []
        case "object" if "properties" in schema:
            required = schema.get("required", ())
            chosen = [name for name in schema["properties"] if name in required] or [*schema["properties"]][:2]
            return {name: build_small_value(schema["properties"][name], number) for name in chosen}
        case _:
            return {}


def _is_map(schema: Schema) -> bool:
    """Whether the schema allows arbitrary field names."""
    free = schema.get("x-kubernetes-preserve-unknown-fields", False)
    return isinstance(schema.get("additionalProperties"), dict) or (free and "properties" not in schema)


def _iter_small_values(schema: Schema, budget: float) -> Iterator[Any]:
    """Small values of a schema, as many as fit into the budget."""
    size = len(orjson.dumps(build_small_value(schema, 10**6))) + 1
    return (build_small_value(schema, number) for number in range(max(1, int(budget / size))))


def _build_wide_list(schema: Schema, budget: float) -> Any:
    return list(_iter_small_values(schema["items"], budget)) if schema.get("type") == "array" else None


def _build_list_of_one(schema: Schema, budget: float) -> Any:
    """A list with one large entry, or None where the entry has no lists."""
    if schema.get("type") != "array":
        return None
    inner = _grow_fields(schema["items"], budget, _build_wide_list)
    return None if inner is None else [_merge(build_small_value(schema["items"], 0), inner)]


def _build_wide_map(schema: Schema, budget: float) -> Any:
    if not _is_map(schema):
        return None
    inner = schema.get("additionalProperties") or {"type": "integer"}
    size = len(orjson.dumps({"k-1000000": build_small_value(inner, 10**6)}))
    return {f"k-{number}": build_small_value(inner, number) for number in range(max(1, int(budget / size)))}


def _build_long_text(schema: Schema, budget: float) -> Any:
    is_text = schema.get("type") == "string" and "enum" not in schema and "format" not in schema
    return "x" * int(budget) if is_text else None


def _build_deep_map(schema: Schema, budget: float) -> Any:
    if not _is_map(schema):
        return None
    nested = [_build_nested(DEPTH) for _ in range(max(1, int(budget / (6 * DEPTH))))]
    return {"towers": nested} if "additionalProperties" not in schema else {"k": nested}


def _build_nested(depth: int) -> Any:
    inner: Any = 0
    for _ in range(depth):
        inner = {"n": inner}
    return inner


def _build_wrong_list(schema: Schema, budget: float) -> Any:
    """A list of nested lists, which is one validation error for each entry."""
    return [[[]]] * int(budget / 6) if schema.get("type") == "array" else None


def _build_list_of_nulls(schema: Schema, budget: float) -> Any:
    return [None] * int(budget / 5) if schema.get("type") == "array" else None


def _build_list_with_unknown_fields(schema: Schema, budget: float) -> Any:
    """Entries with an undeclared field."""
    if schema.get("type") != "array" or schema["items"].get("type") != "object":
        return None
    return [{"nope": number} for number in range(int(budget / 16))]


Grow = Callable[[Schema, float], Any]
"""Builds the large value for a schema, or returns None where it does not apply."""


def _grow_fields(schema: Schema, budget: float, grow: Grow) -> Any:
    """Grows all fields of a schema that apply, sharing the budget. None if there are none."""
    grown = grow(schema, budget)
    if grown is not None:
        return grown
    if "properties" in schema:
        growing_fields = {
            name: each for name, each in schema["properties"].items() if _grow_fields(each, 1, grow) is not None
        }
        return {
            name: _grow_fields(each, budget / len(growing_fields), grow) for name, each in growing_fields.items()
        } or None
    if schema.get("type") == "array":
        inner = _grow_fields(schema["items"], budget, grow)
        return None if inner is None else [_merge(build_small_value(schema["items"], 0), inner)]
    return None


def _merge(value: Any, more: Any) -> Any:
    if not isinstance(value, dict) or not isinstance(more, dict):
        return more
    return {**value, **{name: _merge(value.get(name), each) for name, each in more.items()}}


def _grow_everywhere(grow: Grow) -> Shape:
    def shape(obj: Object, schema: Schema, size: int) -> bytes:
        fields = {name: each for name, each in schema["properties"].items() if name not in _COMMON_FIELDS}
        return orjson.dumps(_merge(obj, _grow_fields({"properties": fields}, size * 0.9, grow) or {}))

    return shape


_COMMON_FIELDS = ("apiVersion", "kind", "metadata")


def _add_unknown_fields(obj: Object, schema: Schema, size: int) -> bytes:
    return orjson.dumps({**obj, **{f"unknown{number}": 1 for number in range(size // 18)}})


def _add_duplicate_fields(obj: Object, schema: Schema, size: int) -> bytes:
    return json.dumps(obj).encode()[:-1] + b',"twice":1' * (size // 11) + b"}"


def _build_list_body(obj: Object, schema: Schema, size: int) -> bytes:
    return b"[" + b"[]," * (size // 3 - 1) + b"[]]"


def _add_metadata(build_metadata: Callable[[int], Object]) -> Shape:
    def shape(obj: Object, schema: Schema, size: int) -> bytes:
        return orjson.dumps({**obj, "metadata": {**obj.get("metadata", {}), **build_metadata(size)}})

    return shape


def _build_labels(size: int) -> Object:
    return {"labels": {f"label-{number}": "v" for number in range(size // 20)}}


def _build_annotations(size: int) -> Object:
    return {"annotations": {f"note-{number}": "v" for number in range(size // 20)}}


def _build_finalizers(size: int) -> Object:
    return {"finalizers": [f"example.com/f-{number}" for number in range(size // 26)]}


def _build_owner_references(size: int) -> Object:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "blockOwnerDeletion": True}
    return {"ownerReferences": [{**owner, "uid": str(number)} for number in range(size // 100)]}


def _build_many_managers(size: int) -> Object:
    return {"managedFields": [_build_managed_fields_entry(f"m{number}", 10) for number in range(min(990, size // 250))]}


def _build_one_manager(size: int) -> Object:
    return {"managedFields": [_build_managed_fields_entry("m", size // 16)]}


def _build_managed_fields_entry(manager: str, fields: int) -> Object:
    owned: Object = {f"f:{manager}{number}": {} for number in range(fields)}
    return {
        **{"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-31T12:00:00Z"},
        **{"fieldsType": "FieldsV1", "fieldsV1": {"f:data": owned}},
    }


SHAPES: dict[str, Shape] = {
    "wide lists": _grow_everywhere(_build_wide_list),
    "lists inside of lists": _grow_everywhere(_build_list_of_one),
    "wide maps": _grow_everywhere(_build_wide_map),
    "long texts": _grow_everywhere(_build_long_text),
    "deep nesting": _grow_everywhere(_build_deep_map),
    "lists of lists of the wrong type": _grow_everywhere(_build_wrong_list),
    "lists of nulls": _grow_everywhere(_build_list_of_nulls),
    "unknown fields in lists": _grow_everywhere(_build_list_with_unknown_fields),
    "unknown fields": _add_unknown_fields,
    "duplicate fields": _add_duplicate_fields,
    "a list instead of an object": _build_list_body,
    "labels": _add_metadata(_build_labels),
    "annotations": _add_metadata(_build_annotations),
    "finalizers": _add_metadata(_build_finalizers),
    "owner references": _add_metadata(_build_owner_references),
    "many field managers": _add_metadata(_build_many_managers),
    "one field manager of many fields": _add_metadata(_build_one_manager),
}
