"""Validates objects against their kind's structural schema: types, required and unknown fields, enums, defaults.

Most objects are valid, so a compiled validator checks them first in one call. Only if it rejects an object does
`registry/validation_walk.py` walk it in Python, to prune unknown fields and to report problems with their paths. The
walk supports every schema keyword in use. The compiled validator is never asked for its list of errors, which could be
millions for a malicious body.
"""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from fairlead.core.errors import Problem
from fairlead.core.objects import Object
from fairlead.registry.freeform_limits import ELSEWHERE, Guard
from fairlead.registry.schema import Schema
from fairlead.registry.validation_walk import FORMATS, INT_BOUNDS, Findings, Walk, number_bounds

__all__ = ["Findings", "Validator"]

_FINE = Findings()
"""The result for nearly every object. Callers only read results, so it is shared."""

_WORDS = frozenset(
    {
        *("type", "properties", "additionalProperties", "items", "required", "enum", "format", "nullable", "default"),
        *("description", "minimum", "maximum", "maxLength", "maxItems", "maxProperties"),
    }
)
"""The supported schema keywords. The walk checks all of them, so it agrees with the compiled validator."""


class Validator:
    """The compiled schema of one kind. `validate` changes the object: it prunes unknown fields and sets defaults."""

    def __init__(self, schema: Schema, *, guarded: bool = True) -> None:
        """`limit_freeform`: also limit the size of free-form values and the length of map keys."""
        _refuse_unknown_words(schema)
        self._schema = _marked(schema)
        self._compiled = jsonschema_rs.Draft4Validator(_closed(schema), validate_formats=True, formats=FORMATS)
        self._has_defaults = any(True for _ in _defaults(schema))
        self._guard = Guard.of(self._schema) if guarded else None
        self._guarded = guarded

    def examine(self, obj: Object, before: Object | None = None) -> Findings:
        """Validates the object. `before` is the stored object: values that it already had may exceed limits."""
        if not self._has_defaults and self._is_fine(obj):
            return _FINE
        walk = Walk(guarded=self._guarded)
        findings = walk.over(obj, self._schema, before)
        if not findings.problems and not walk.has_tolerated and not self._compiled.is_valid(obj):
            findings.problems.append(self._unnamed(obj))
        return findings

    def _is_fine(self, obj: Object) -> bool:
        return self._compiled.is_valid(obj) and (self._guard is None or self._guard.accepts(obj))

    def _unnamed(self, obj: Object) -> Problem:
        """A problem for an object that the compiled validator rejects and the walk accepts, which should not happen."""
        try:
            self._compiled.validate(obj)
        except jsonschema_rs.ValidationError as error:
            path = ".".join(map(str, error.instance_path))
            return Problem(path, "FieldValueInvalid", f"Invalid value: does not satisfy {error.kind.name}")
        return Problem("", "FieldValueInvalid", "Invalid value: does not fit the schema")


def _refuse_unknown_words(schema: Schema) -> None:
    unsupported = [word for word in schema if word not in _WORDS and not word.startswith("x-")]
    if unsupported:
        raise ValueError(f"unsupported schema keyword: {', '.join(unsupported)}; add it to registry/validation_walk.py")
    for each in _inner(schema):
        _refuse_unknown_words(each)


def _inner(schema: Schema) -> Iterator[Schema]:
    yield from schema.get("properties", {}).values()
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield schema[word]


def _marked(schema: Schema) -> Schema:
    """The schema with metadata excluded from the free-form limits: metadata has a validator of its own."""
    metadata = schema.get("properties", {}).get("metadata")
    if metadata is None:
        return schema
    return {**schema, "properties": {**schema["properties"], "metadata": {**metadata, ELSEWHERE: True}}}


def _not_null(closed: Schema) -> Schema:
    """Rejects null: it counts as an absent field, also where any value is allowed, and the walk removes it."""
    return closed if "type" in closed else {**closed, "not": {"type": "null"}}


def _closed(schema: Schema) -> Schema:
    """The schema for a JSON Schema validator: undeclared fields are rejected and integers are bounded."""
    closed = {key: value for key, value in schema.items() if not key.startswith("x-") and key not in _ANNOTATIONS}
    if schema.get("nullable"):
        closed["type"] = [schema["type"], "null"]
    if "properties" in schema:
        closed["properties"] = {name: _not_null(_closed(each)) for name, each in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        closed["additionalProperties"] = _closed(schema["additionalProperties"])
    elif schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed["additionalProperties"] = False
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    if schema.get("format", "") in INT_BOUNDS:
        del closed["format"]
        closed["minimum"], closed["maximum"] = number_bounds(schema)
    return closed


_ANNOTATIONS = frozenset({"description", "default", "nullable"})


def _defaults(schema: Schema) -> Iterator[Any]:
    if "default" in schema:
        yield schema["default"]
    for each in _inner(schema):
        yield from _defaults(each)
