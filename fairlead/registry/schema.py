"""The words that kinds describe their fields with, and the structural OpenAPI v3 that they make.

A schema is a plain dictionary in OpenAPI's own form, so that publishing it needs no translation. Every field has a
description: `kubectl explain` shows it. The words keep kind files short and their schemas structural (every level
typed), which is what pruning, defaults and field ownership rely on.

Whatever can be long has a bound, from the table in `registry/limits.py`. The words put in the usual one; a field that
needs another names it. A bound of 0 stands for none, and only answers that nobody sends have that.
"""

from typing import Any

from fairlead.registry import limits

Schema = dict[str, Any]


def string(
    description: str = "", *, default: str | None = None, format: str = "", longest: int = limits.NAME
) -> Schema:
    """Text. `format` is one of OpenAPI's (date-time, byte, ...); `longest` is how many characters it may have."""
    schema: Schema = {"type": "string"}
    if longest:
        schema["maxLength"] = longest
    if format:
        schema["format"] = format
    return _described(schema, description, default)


def enum(description: str, *values: str, default: str | None = None) -> Schema:
    """Text out of a closed list."""
    return _described({"type": "string", "enum": list(values)}, description, default)


def timestamp(description: str = "") -> Schema:
    """A date and time, RFC 3339."""
    return string(description, format="date-time", longest=limits.TIME)


def integer(description: str = "", *, default: int | None = None, minimum: int | None = None, bits: int = 64) -> Schema:
    schema: Schema = {"type": "integer", "format": f"int{bits}"}
    if minimum is not None:
        schema["minimum"] = minimum
    return _described(schema, description, default)


def boolean(description: str = "", *, default: bool | None = None) -> Schema:
    return _described({"type": "boolean"}, description, default)


def obj(description: str = "", /, *, required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """A structure with named fields. Names that Python keeps for itself can be passed with `**{"from": ...}`."""
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return _described(schema, description)


def mapping(values: Schema, description: str = "", *, most: int = limits.ENTRIES) -> Schema:
    """A map from text to `values`, with at most `most` entries."""
    return _described(_bounded({"type": "object", "additionalProperties": values}, "maxProperties", most), description)


def free(description: str = "") -> Schema:
    """A structure whose fields are the caller's own: kept as sent. `registry/freeform_limits.py` bounds it."""
    return _described({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, description)


def anything(description: str = "") -> Schema:
    """Any JSON value. `registry/freeform_limits.py` bounds it."""
    return _described({"x-kubernetes-preserve-unknown-fields": True}, description)


def array(items: Schema, description: str = "", *, most: int = limits.ITEMS) -> Schema:
    """A list that is owned and replaced as a whole."""
    return _described(_list_of(items, "atomic", most), description)


def array_set(items: Schema, description: str = "", *, most: int = limits.ITEMS) -> Schema:
    """A list of scalars without duplicates, where each entry can be owned by somebody else."""
    return _described(_list_of(items, "set", most), description)


def array_map(keys: tuple[str, ...], items: Schema, description: str = "", *, most: int = limits.ITEMS) -> Schema:
    """A list of structures that are told apart by `keys`; entries merge instead of replacing each other."""
    schema = _list_of(items, "map", most)
    schema["x-kubernetes-list-map-keys"] = list(keys)
    return _described(schema, description)


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    return {**schema, "nullable": True}


def atomic(schema: Schema) -> Schema:
    """The same structure or map, owned and replaced as a whole."""
    return {**schema, "x-kubernetes-map-type": "atomic"}


def described(schema: Schema, description: str) -> Schema:
    """A shared type with a description of its own at the place of its use."""
    return {**schema, "description": description}


def _list_of(items: Schema, sort: str, most: int) -> Schema:
    return _bounded({"type": "array", "items": items, "x-kubernetes-list-type": sort}, "maxItems", most)


def _bounded(schema: Schema, word: str, most: int) -> Schema:
    return {**schema, word: most} if most else schema


def _described(schema: Schema, description: str, default: Any = None) -> Schema:
    if description:
        schema["description"] = description
    if default is not None:
        schema["default"] = default
    return schema
