"""Checks an object against its kind's structural schema: types, required and unknown fields, closed lists, defaults.

Most objects are fine, so the whole question is first put to a compiled validator in one call; only when that says no is
the object walked in Python (`registry/validation_walk.py`), to prune what nobody declared and to name problems with their paths.
The walk knows every word that a schema may use. The compiled validator is never asked for its list of errors: of a
hostile body, that would be millions.
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
"""What is found in nearly every object: nothing. Findings are read by whoever gets them, never added to."""

_WORDS = frozenset(
    {
        *("type", "properties", "additionalProperties", "items", "required", "enum", "format", "nullable", "default"),
        *("description", "minimum", "maximum", "maxLength", "maxItems", "maxProperties"),
    }
)
"""What a schema may say. The walk checks all of it, so that both ways come to the same verdict."""


class Validator:
    """One kind's schema, compiled. `examine` changes the object: it prunes, and it fills in defaults."""

    def __init__(self, schema: Schema, *, guarded: bool = True) -> None:
        """`guarded` bounds free-form places and the keys of maps, too."""
        _refuse_unknown_words(schema)
        self._schema = _marked(schema)
        self._compiled = jsonschema_rs.Draft4Validator(_closed(schema), validate_formats=True, formats=FORMATS)
        self._has_defaults = any(True for _ in _defaults(schema))
        self._guard = Guard.of(self._schema) if guarded else None
        self._guarded = guarded

    def examine(self, obj: Object, before: Object | None = None) -> Findings:
        """`before` is the object as it is stored: values that it had already may break bounds."""
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
        """What the walk had no words for. There should be nothing; if there is, the object is refused all the same."""
        try:
            self._compiled.validate(obj)
        except jsonschema_rs.ValidationError as error:
            path = ".".join(map(str, error.instance_path))
            return Problem(path, "FieldValueInvalid", f"Invalid value: does not satisfy {error.kind.name}")
        return Problem("", "FieldValueInvalid", "Invalid value: does not fit the schema")


def _refuse_unknown_words(schema: Schema) -> None:
    strange = [word for word in schema if word not in _WORDS and not word.startswith("x-")]
    if strange:
        raise ValueError(f"the walk over objects does not check {', '.join(strange)}; teach it, or leave that out")
    for each in _inner(schema):
        _refuse_unknown_words(each)


def _inner(schema: Schema) -> Iterator[Schema]:
    yield from schema.get("properties", {}).values()
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield schema[word]


def _marked(schema: Schema) -> Schema:
    """The schema of an object whose metadata is bounded by the validator of metadata."""
    about = schema.get("properties", {}).get("metadata")
    if about is None:
        return schema
    return {**schema, "properties": {**schema["properties"], "metadata": {**about, ELSEWHERE: True}}}


def _not_null(closed: Schema) -> Schema:
    """A null is like an absent field, also where any value is welcome; the walk takes it out."""
    return closed if "type" in closed else {**closed, "not": {"type": "null"}}


def _closed(schema: Schema) -> Schema:
    """The same schema for a JSON Schema validator: whatever is not declared is refused, integers are bounded."""
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
