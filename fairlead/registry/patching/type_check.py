"""Type checks of an applied configuration: every field declared, every value of its type.

A configuration is part of an object, so nothing is required in it; the merged object is validated later. The messages
are those of structured-merge-diff, which Kubernetes uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import jsonschema_rs

from fairlead.core.errors import quote_value
from fairlead.core.objects import Object
from fairlead.registry.patching.field_set import canonical_json, format_field_path
from fairlead.registry.schema import Schema

_EXPECTED: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "object": ("map", dict),
    "array": ("list", list),
    "string": ("string", str),
    "boolean": ("boolean", bool),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
}
_MAX_ERRORS = 10
_MAX_VALUE_LENGTH = 60


class FastTypeCheck:
    """A fast check that a configuration has no type errors, with a compiled validator.

    False negatives are possible: of set and map lists it accepts only those with one entry, which has no duplicates.
    Then call `type_errors`.
    """

    __slots__ = ("_compiled", "_schema")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._compiled: jsonschema_rs.Draft4Validator | None = None

    def __call__(self, config: Object) -> bool:
        if self._compiled is None:  # compiled on first use: most kinds are never applied
            self._compiled = jsonschema_rs.Draft4Validator(_to_json_schema(self._schema))
        return self._compiled.is_valid(config)


def _to_json_schema(schema: Schema) -> Schema:
    wanted = schema.get("type")
    if wanted is None:
        return {}
    fitting: Schema = {"type": [wanted, "null"]}
    if wanted == "object":
        others = schema.get("additionalProperties")
        fitting["properties"] = {name: _to_json_schema(each) for name, each in schema.get("properties", {}).items()}
        preserves_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        fitting["additionalProperties"] = preserves_unknown if others is None else _to_json_schema(others)
    elif wanted == "array":
        fitting["items"] = items = _to_json_schema(schema["items"])
        if schema.get("x-kubernetes-list-type") in ("set", "map"):
            fitting["maxItems"] = 1
        if schema.get("x-kubernetes-list-type") == "map":
            keys = schema["x-kubernetes-list-map-keys"]
            known = {key: {"not": {"type": "null"}, **items["properties"][key]} for key in keys}
            fitting["items"] = {**items, "required": keys, "properties": {**items["properties"], **known}}
    return fitting


def type_errors(config: Object, schema: Schema) -> str:
    """The type errors as one text; empty if there are none. Only the first few are reported."""
    found = list(islice(_object_errors(config, schema, None), _MAX_ERRORS))
    return "\n  ".join(["errors:", *found]) if len(found) > 1 else "".join(found)


PathNode = tuple["PathNode | None", str] | None
"""The path to a value as a linked list: the node of its parent, and one step. It is formatted only for errors, because
formatting it for every value would copy long names again and again."""


def _format_path(path: PathNode) -> str:
    steps = []
    while path is not None:
        path, step = path
        steps.append(step)
    return format_field_path(tuple(reversed(steps)))


def _value_errors(value: Any, schema: Schema, path: PathNode) -> Iterator[str]:
    wanted = schema.get("type")
    if value is None or wanted is None:
        return
    name, types = _EXPECTED[wanted]
    fits = isinstance(value, types) and (wanted == "boolean" or not isinstance(value, bool))
    if not fits:
        yield f"{_format_path(path)}: expected {name}, got {quote_value(value):.{_MAX_VALUE_LENGTH}}"
    elif wanted == "object":
        yield from _object_errors(value, schema, path)
    elif wanted == "array":
        yield from _list_errors(value, schema, path)


def _object_errors(value: Object, schema: Schema, path: PathNode) -> Iterator[str]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name, each in value.items():
        expected = properties.get(name, others)
        if expected is not None:
            yield from _value_errors(each, expected, (path, f"f:{name}"))
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{_format_path(path)}.{name}: field not declared in schema"


def _list_errors(values: list[Any], schema: Schema, path: PathNode) -> Iterator[str]:
    sort, items = schema.get("x-kubernetes-list-type"), schema["items"]
    seen = set()
    for index, each in enumerate(values):
        step = f"i:{index}"
        if sort == "set":
            step = "v:" + canonical_json(each)
        elif sort == "map" and isinstance(each, dict):
            keys = {
                key: each.get(key, _key_default(items, key)) for key in sorted(schema["x-kubernetes-list-map-keys"])
            }
            missing = [key for key, value in keys.items() if value is None]
            if missing:
                where = f"{_format_path(path)}: element {index}"
                yield f'{where}: associative list with keys has an element that omits "{missing[0]}"'
                continue
            step = "k:" + canonical_json(keys)
        if step in seen:
            yield f"{_format_path(path)}: duplicate entries for key {format_field_path((step,))}"
        seen.add(step)
        yield from _value_errors(each, items, (path, step))


def _key_default(items: Schema, key: str) -> Any:
    return items.get("properties", {}).get(key, {}).get("default")
