"""Bodies as large as they may be, made from the schema of a kind: each shape is large in another way.

Nothing here knows a kind. A new one, or a new field, is covered without a line.
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
"""Levels of nesting: nearly what is read at all."""


def small(schema: Schema, number: int) -> Any:
    """A value that fits the schema, different from those of other numbers where it can be."""
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
            needed = schema.get("required", ())
            chosen = [name for name in schema["properties"] if name in needed] or [*schema["properties"]][:2]
            return {name: small(schema["properties"][name], number) for name in chosen}
        case _:
            return {}


def _is_map(schema: Schema) -> bool:
    """Whether the caller chooses the names of fields."""
    free = schema.get("x-kubernetes-preserve-unknown-fields", False)
    return isinstance(schema.get("additionalProperties"), dict) or (free and "properties" not in schema)


def _many(schema: Schema, budget: float) -> Iterator[Any]:
    """Small values of a schema, as many as fit."""
    size = len(orjson.dumps(small(schema, 10**6))) + 1
    return (small(schema, number) for number in range(max(1, int(budget / size))))


def _wide_list(schema: Schema, budget: float) -> Any:
    return list(_many(schema["items"], budget)) if schema.get("type") == "array" else None


def _list_of_one(schema: Schema, budget: float) -> Any:
    """Wide inside of its one entry, where there is something to be wide in."""
    if schema.get("type") != "array":
        return None
    inner = _grown(schema["items"], budget, _wide_list)
    return None if inner is None else [_merged(small(schema["items"], 0), inner)]


def _wide_map(schema: Schema, budget: float) -> Any:
    if not _is_map(schema):
        return None
    inner = schema.get("additionalProperties") or {"type": "integer"}
    size = len(orjson.dumps({"k-1000000": small(inner, 10**6)}))
    return {f"k-{number}": small(inner, number) for number in range(max(1, int(budget / size)))}


def _long_text(schema: Schema, budget: float) -> Any:
    is_text = schema.get("type") == "string" and "enum" not in schema and "format" not in schema
    return "x" * int(budget) if is_text else None


def _deep(schema: Schema, budget: float) -> Any:
    if not _is_map(schema):
        return None
    towers = [_tower(DEPTH) for _ in range(max(1, int(budget / (6 * DEPTH))))]
    return {"towers": towers} if "additionalProperties" not in schema else {"k": towers}


def _tower(depth: int) -> Any:
    inner: Any = 0
    for _ in range(depth):
        inner = {"n": inner}
    return inner


def _wrong_list(schema: Schema, budget: float) -> Any:
    """A list of what no list is of, which is one problem for each entry."""
    return [[[]]] * int(budget / 6) if schema.get("type") == "array" else None


def _list_of_nulls(schema: Schema, budget: float) -> Any:
    return [None] * int(budget / 5) if schema.get("type") == "array" else None


def _unknown_in_list(schema: Schema, budget: float) -> Any:
    """Entries with a field that nobody declared."""
    if schema.get("type") != "array" or schema["items"].get("type") != "object":
        return None
    return [{"nope": number} for number in range(int(budget / 16))]


Grow = Callable[[Schema, float], Any]
"""The large value for a place in a schema, or None where this is no place for it."""


def _grown(schema: Schema, budget: float, grow: Grow) -> Any:
    """All places of a schema grown at once, sharing the budget. None where there is none."""
    found = grow(schema, budget)
    if found is not None:
        return found
    if "properties" in schema:
        places = {name: each for name, each in schema["properties"].items() if _grown(each, 1, grow) is not None}
        return {name: _grown(each, budget / len(places), grow) for name, each in places.items()} or None
    if schema.get("type") == "array":
        inner = _grown(schema["items"], budget, grow)
        return None if inner is None else [_merged(small(schema["items"], 0), inner)]
    return None


def _merged(value: Any, more: Any) -> Any:
    if not isinstance(value, dict) or not isinstance(more, dict):
        return more
    return {**value, **{name: _merged(value.get(name), each) for name, each in more.items()}}


def _everywhere(grow: Grow) -> Shape:
    def shape(obj: Object, schema: Schema, size: int) -> bytes:
        fields = {name: each for name, each in schema["properties"].items() if name not in _NOT_ITS_OWN}
        return orjson.dumps(_merged(obj, _grown({"properties": fields}, size * 0.9, grow) or {}))

    return shape


_NOT_ITS_OWN = ("apiVersion", "kind", "metadata")


def _unknown_fields(obj: Object, schema: Schema, size: int) -> bytes:
    return orjson.dumps({**obj, **{f"unknown{number}": 1 for number in range(size // 18)}})


def _duplicate_fields(obj: Object, schema: Schema, size: int) -> bytes:
    return json.dumps(obj).encode()[:-1] + b',"twice":1' * (size // 11) + b"}"


def _nothing_but_lists(obj: Object, schema: Schema, size: int) -> bytes:
    return b"[" + b"[]," * (size // 3 - 1) + b"[]]"


def _with_metadata(make: Callable[[int], Object]) -> Shape:
    def shape(obj: Object, schema: Schema, size: int) -> bytes:
        return orjson.dumps({**obj, "metadata": {**obj.get("metadata", {}), **make(size)}})

    return shape


def _labels(size: int) -> Object:
    return {"labels": {f"label-{number}": "v" for number in range(size // 20)}}


def _annotations(size: int) -> Object:
    return {"annotations": {f"note-{number}": "v" for number in range(size // 20)}}


def _finalizers(size: int) -> Object:
    return {"finalizers": [f"example.com/f-{number}" for number in range(size // 26)]}


def _owners(size: int) -> Object:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "blockOwnerDeletion": True}
    return {"ownerReferences": [{**owner, "uid": str(number)} for number in range(size // 100)]}


def _many_managers(size: int) -> Object:
    return {"managedFields": [_managed(f"m{number}", 10) for number in range(min(990, size // 250))]}


def _one_manager(size: int) -> Object:
    return {"managedFields": [_managed("m", size // 16)]}


def _managed(manager: str, fields: int) -> Object:
    owned: Object = {f"f:{manager}{number}": {} for number in range(fields)}
    return {
        **{"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-31T12:00:00Z"},
        **{"fieldsType": "FieldsV1", "fieldsV1": {"f:data": owned}},
    }


SHAPES: dict[str, Shape] = {
    "wide lists": _everywhere(_wide_list),
    "lists inside of lists": _everywhere(_list_of_one),
    "wide maps": _everywhere(_wide_map),
    "long texts": _everywhere(_long_text),
    "deep nesting": _everywhere(_deep),
    "lists of lists where none belong": _everywhere(_wrong_list),
    "lists of nulls": _everywhere(_list_of_nulls),
    "unknown fields in lists": _everywhere(_unknown_in_list),
    "unknown fields": _unknown_fields,
    "duplicate fields": _duplicate_fields,
    "no object at all": _nothing_but_lists,
    "labels": _with_metadata(_labels),
    "annotations": _with_metadata(_annotations),
    "finalizers": _with_metadata(_finalizers),
    "owner references": _with_metadata(_owners),
    "many field managers": _with_metadata(_many_managers),
    "one field manager of many fields": _with_metadata(_one_manager),
}
