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
from fairlead.registry.freeform_limits import SKIP_FREEFORM_CHECK, FreeformCheck
from fairlead.registry.kind import Kind
from fairlead.registry.schema import Schema
from fairlead.registry.validation_walk import (
    FORMATS,
    GO_FORMATS,
    INT_BOUNDS,
    SchemaWalk,
    ValidationResult,
    number_bounds,
)

__all__ = ["ValidationResult", "Validator", "build_builtin_validator", "build_validator"]

_VALID = ValidationResult()
"""The result for nearly every object. Callers only read results, so it is shared."""

_SUPPORTED_KEYWORDS = frozenset(
    {
        *("type", "properties", "additionalProperties", "items", "required", "enum", "format", "nullable", "default"),
        *("description", "minimum", "maximum", "maxLength", "maxItems", "maxProperties", "pattern"),
    }
)
"""The supported schema keywords. The walk checks all of them, so it agrees with the compiled validator."""


class Validator:
    """The compiled schema of one kind. `validate` changes the object: it prunes unknown fields and sets defaults."""

    def __init__(self, schema: Schema, *, limit_freeform: bool = True, zero_nulls: bool = False) -> None:
        """`limit_freeform`: also limit the size of free-form values and the length of map keys. `zero_nulls`: as in
        Kubernetes' built-in types, null entries of lists and maps are empty values, and base64 may have line breaks."""
        _check_keywords(schema)
        self._schema = _exclude_metadata(schema)
        formats = GO_FORMATS if zero_nulls else FORMATS
        self._compiled = jsonschema_rs.Draft4Validator(_to_json_schema(schema), validate_formats=True, formats=formats)
        self._has_defaults = any(True for _ in _iter_defaults(schema))
        self._freeform_check = FreeformCheck.from_schema(self._schema) if limit_freeform else None
        self._limit_freeform = limit_freeform
        self._zero_nulls = zero_nulls

    def validate(self, obj: Object, before: Object | None = None, *, reject_nulls: bool = False) -> ValidationResult:
        """Validates the object. `before` is the stored object: values that it already had may exceed limits.

        With `reject_nulls`, a null where a value of some type is expected is a problem, instead of an absent field.
        """
        if not self._has_defaults and self._is_valid(obj):
            return _VALID
        walk = SchemaWalk(limit_freeform=self._limit_freeform, reject_nulls=reject_nulls, zero_nulls=self._zero_nulls)
        findings = walk.run(obj, self._schema, before)
        if not findings.problems and not walk.has_ratcheted and not self._compiled.is_valid(obj):
            findings.problems.append(self._fallback_problem(obj))
        return findings

    def _is_valid(self, obj: Object) -> bool:
        return self._compiled.is_valid(obj) and (
            self._freeform_check is None or self._freeform_check.is_within_limits(obj)
        )

    def _fallback_problem(self, obj: Object) -> Problem:
        """A problem for an object that the compiled validator rejects and the walk accepts, which should not happen."""
        try:
            self._compiled.validate(obj)
        except jsonschema_rs.ValidationError as error:
            path = ".".join(map(str, error.instance_path))
            return Problem(path, "FieldValueInvalid", f"Invalid value: does not satisfy {error.kind.name}")
        return Problem("", "FieldValueInvalid", "Invalid value: does not fit the schema")


def build_validator(kind: Kind) -> Validator:
    """The validator of a kind's objects, for `Kind.derive`."""
    return Validator(kind.schema())


def build_builtin_validator(kind: Kind) -> Validator:
    """The same for kinds that behave like the built-in ones of Kubernetes."""
    return Validator(kind.schema(), zero_nulls=True)


def _check_keywords(schema: Schema) -> None:
    unsupported = [word for word in schema if word not in _SUPPORTED_KEYWORDS and not word.startswith("x-")]
    if unsupported:
        raise ValueError(f"unsupported schema keyword: {', '.join(unsupported)}; add it to registry/validation_walk.py")
    for each in _subschemas(schema):
        _check_keywords(each)


def _subschemas(schema: Schema) -> Iterator[Schema]:
    yield from schema.get("properties", {}).values()
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield schema[word]


def _exclude_metadata(schema: Schema) -> Schema:
    """The schema with metadata excluded from the free-form limits: metadata has a validator of its own."""
    metadata = schema.get("properties", {}).get("metadata")
    if metadata is None:
        return schema
    return {**schema, "properties": {**schema["properties"], "metadata": {**metadata, SKIP_FREEFORM_CHECK: True}}}


def _reject_null(schema: Schema) -> Schema:
    """Rejects null: it counts as an absent field, also where any value is allowed, and the walk removes it."""
    return schema if "type" in schema else {**schema, "not": {"type": "null"}}


def _to_json_schema(schema: Schema) -> Schema:
    """The schema for a JSON Schema validator: undeclared fields are rejected and integers are bounded."""
    closed = {key: value for key, value in schema.items() if not key.startswith("x-") and key not in _ANNOTATIONS}
    if schema.get("nullable"):
        closed["type"] = [schema["type"], "null"]
    if "properties" in schema:
        closed["properties"] = {
            name: _reject_null(_to_json_schema(each)) for name, each in schema["properties"].items()
        }
    if isinstance(schema.get("additionalProperties"), dict):
        closed["additionalProperties"] = _to_json_schema(schema["additionalProperties"])
    elif schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed["additionalProperties"] = False
    if "items" in schema:
        closed["items"] = _to_json_schema(schema["items"])
    if schema.get("format", "") in INT_BOUNDS:
        del closed["format"]
        closed["minimum"], closed["maximum"] = number_bounds(schema)
    return closed


_ANNOTATIONS = frozenset({"description", "default", "nullable"})


def _iter_defaults(schema: Schema) -> Iterator[Any]:
    if "default" in schema:
        yield schema["default"]
    for each in _subschemas(schema):
        yield from _iter_defaults(each)
