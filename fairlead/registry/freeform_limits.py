"""What a schema cannot express: the size of free-form values, the numbers in them, and the length of map keys.

A free-form field accepts any content, so it is limited as a whole: in bytes, values and nesting depth.
`FreeformCheck.from_schema` finds these fields in a schema once; checking an object that has none of them takes a few
lookups. The validation walk calls the functions below itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from fairlead.core.errors import Problem
from fairlead.core.json import count_values, nesting_depth
from fairlead.core.yaml import to_json_number
from fairlead.registry import limits
from fairlead.registry.schema import Schema

_PRESERVE_UNKNOWN = "x-kubernetes-preserve-unknown-fields"

SKIP_FREEFORM_CHECK = "x-bounded-elsewhere"
"""Excludes a free-form field in a validator's copy of a schema. Used for metadata, which has its own validator."""


@dataclass(frozen=True, slots=True)
class FreeformCheck:
    """Which parts of a value to check: the value itself, if it is free-form or a map, and its fields and entries."""

    is_freeform: bool = False
    is_map: bool = False
    fields: Mapping[str, FreeformCheck] = field(default_factory=dict)
    items: FreeformCheck | None = None
    """For every entry of a list or map."""

    @staticmethod
    def from_schema(schema: Schema) -> FreeformCheck | None:
        """The check for a schema; None if it has nothing to check."""
        if schema.get(_PRESERVE_UNKNOWN):
            return None if schema.get(SKIP_FREEFORM_CHECK) else FreeformCheck(is_freeform=True)
        found = {
            name: guard
            for name, each in schema.get("properties", {}).items()
            if (guard := FreeformCheck.from_schema(each))
        }
        values = schema.get("additionalProperties")
        inner = schema.get("items") or values
        each = FreeformCheck.from_schema(inner) if isinstance(inner, dict) else None
        is_map = isinstance(values, dict)
        return FreeformCheck(is_map=is_map, fields=found, items=each) if found or each or is_map else None

    def is_within_limits(self, value: Any) -> bool:
        """Whether a value of the right type is within the limits."""
        if self.is_freeform:
            text = _encode_freeform(value)
            return text is not None and _size_problem(text) is None and not _has_integral_float(text)
        if self.is_map and has_long_key(value):
            return False
        if self.items is not None:
            entries = value.values() if isinstance(value, dict) else value
            return all(self.items.is_within_limits(each) for each in entries or () if each is not None)
        for name in self.fields.keys() & value.keys():
            if (inner := value[name]) and not self.fields[name].is_within_limits(inner):
                return False
        return True


def has_long_key(value: Mapping[str, Any]) -> bool:
    return bool(value) and max(map(len, value)) > limits.KEY


def long_key_problem(path: str) -> Problem:
    return Problem(path, "FieldValueTooLong", f"Too long: keys may not be more than {limits.KEY} characters")


def freeform_problem(value: Any) -> Problem | None:
    """The problem with the size of a free-form value, if any. The caller sets the path."""
    text = _encode_freeform(value)
    return _nesting_problem() if text is None else _size_problem(text)


def _encode_freeform(value: Any) -> bytes | None:
    """The encoded value; None if it is nested deeper than orjson can encode."""
    try:
        return orjson.dumps(value) if value else b""
    except orjson.JSONEncodeError:
        return None


def _size_problem(text: bytes) -> Problem | None:
    if len(text) > limits.FREE_FORM_BYTES:
        return Problem.too_long("", limits.FREE_FORM_BYTES)
    if (
        len(text) > 2 * limits.FREE_FORM_VALUES
        and (found := count_values(text, limits.FREE_FORM_VALUES)) > limits.FREE_FORM_VALUES
    ):
        return Problem.too_many("", found, limits.FREE_FORM_VALUES, "values")
    return _nesting_problem() if nesting_depth(text, limits.FREE_FORM_DEPTH) > limits.FREE_FORM_DEPTH else None


def _nesting_problem() -> Problem:
    return Problem("", "FieldValueTooLong", f"Too long: may not be nested deeper than {limits.FREE_FORM_DEPTH} levels")


_INTEGRAL_FLOAT = re.compile(rb"[\[:,]-?[0-9]+(?:\.0|(?:\.[0-9]+)?e\+?1[0-9])[,\]}]")
"""A float that is a whole number, as orjson writes it."""


def _has_integral_float(text: bytes) -> bool:
    """Whether encoded JSON has whole numbers that are floats. Strings may be mistaken for them."""
    return (b".0" in text or b"e1" in text or b"e+1" in text) and _INTEGRAL_FLOAT.search(text) is not None


def normalize_numbers(value: Any) -> None:
    """Makes integers of all whole numbers in a container. In Kubernetes, custom resources are stored so: `1.0` as
    `1`, and `1e3` as `1000`."""
    pending = [value]
    while pending:
        each = pending.pop()
        entries = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, inner in entries:
            if type(inner) is float:
                each[key] = to_json_number(inner)
            elif isinstance(inner, dict | list):
                pending.append(inner)
