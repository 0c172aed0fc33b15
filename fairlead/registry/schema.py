"""Functions that build the structural OpenAPI v3 schemas of fields.

A schema is a plain OpenAPI dictionary, so it is published as it is. Every field has a description, which `kubectl
explain` shows. The functions keep declarations of kinds short and their schemas structural (every level has a type), as
pruning, defaults and field ownership require.

Everything of variable length has a limit from `registry/limits.py`. Each function applies the usual one; a field that
needs another passes it. 0 means no limit, and is only used for fields of responses.
"""

from typing import Any

from fairlead.registry import limits

Schema = dict[str, Any]

NO_EFFECT = "x-fairlead-no-effect"
"""Keyword of a field that the server stores without acting on it: what a warning says after the path of the field."""


def string(
    description: str = "", *, default: str | None = None, format: str = "", max_length: int = limits.NAME
) -> Schema:
    """A string. `format` is an OpenAPI format (date-time, byte, ...); `max_length` is in characters."""
    schema: Schema = {"type": "string"}
    if max_length:
        schema["maxLength"] = max_length
    if format:
        schema["format"] = format
    return _annotate(schema, description, default)


def enum(description: str, *values: str) -> Schema:
    """A string out of a fixed list of values."""
    return _annotate({"type": "string", "enum": list(values)}, description)


def timestamp(description: str = "") -> Schema:
    """A date and time, RFC 3339."""
    return string(description, format="date-time", max_length=limits.TIME)


def micro_timestamp(description: str = "") -> Schema:
    """A date and time, RFC 3339 with exactly six digits after the point: Kubernetes' type MicroTime."""
    return {**timestamp(description), "pattern": r"\.[0-9]{6}(Z|[+-][0-9]{2}:[0-9]{2})$"}


def integer(description: str = "", *, default: int | None = None, minimum: int | None = None, bits: int = 64) -> Schema:
    schema: Schema = {"type": "integer", "format": f"int{bits}"}
    if minimum is not None:
        schema["minimum"] = minimum
    return _annotate(schema, description, default)


def boolean(description: str = "", *, default: bool | None = None) -> Schema:
    return _annotate({"type": "boolean"}, description, default)


def obj(description: str = "", /, *, required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object with named fields. Pass field names that are Python keywords as `**{"from": ...}`."""
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return _annotate(schema, description)


def mapping(values: Schema, description: str = "", *, max_properties: int = limits.ENTRIES) -> Schema:
    """A map from strings to `values`, with at most `max_properties` entries."""
    return _annotate(
        _with_limit({"type": "object", "additionalProperties": values}, "maxProperties", max_properties), description
    )


def open_object(description: str = "") -> Schema:
    """An object with arbitrary fields, stored as sent. `registry/freeform_limits.py` limits its size."""
    return _annotate({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, description)


def any_value() -> Schema:
    """Any JSON value. `registry/freeform_limits.py` limits its size."""
    return {"x-kubernetes-preserve-unknown-fields": True}


def array(items: Schema, description: str = "", *, max_items: int = limits.ITEMS) -> Schema:
    """An atomic list: owned and replaced as a whole."""
    return _annotate(_build_list(items, "atomic", max_items), description)


def array_set(items: Schema, description: str = "", *, max_items: int = limits.ITEMS) -> Schema:
    """A list of scalars without duplicates, in which each entry has its own owner."""
    return _annotate(_build_list(items, "set", max_items), description)


def array_map(keys: tuple[str, ...], items: Schema, description: str = "", *, max_items: int = limits.ITEMS) -> Schema:
    """A list of objects identified by `keys`. Entries are merged by key."""
    schema = _build_list(items, "map", max_items)
    schema["x-kubernetes-list-map-keys"] = list(keys)
    return _annotate(schema, description)


def nullable(schema: Schema) -> Schema:
    """The same schema, with null allowed."""
    return {**schema, "nullable": True}


def atomic(schema: Schema) -> Schema:
    """The same object or map, owned and replaced as a whole."""
    return {**schema, "x-kubernetes-map-type": "atomic"}


def with_description(schema: Schema, description: str) -> Schema:
    """A shared schema with a description for this particular use."""
    return {**schema, "description": description}


def without_effect(schema: Schema, reason: str = "has no effect") -> Schema:
    """The same schema, for a field that is stored and does nothing, with everything below it.

    `reason` completes a sentence that begins with the path of the field: that it has no effect, and what to use
    instead. It becomes a part of the description, and `registry/no_effect.py` warns with it those who set the field.
    """
    description = f"{schema.get('description', '')} {reason[0].upper()}{reason[1:]}.".lstrip()
    return {**schema, "description": description, NO_EFFECT: reason}


def _build_list(items: Schema, list_type: str, max_items: int) -> Schema:
    return _with_limit({"type": "array", "items": items, "x-kubernetes-list-type": list_type}, "maxItems", max_items)


def _with_limit(schema: Schema, keyword: str, limit: int) -> Schema:
    return {**schema, keyword: limit} if limit else schema


def _annotate(schema: Schema, description: str, default: Any = None) -> Schema:
    if description:
        schema["description"] = description
    if default is not None:
        schema["default"] = default
    return schema
