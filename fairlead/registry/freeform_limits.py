"""Bounds that no schema can say: how large a free-form place is, and how long the keys of a map are.

A free-form place takes whatever is sent, so it is bounded as a whole, in bytes, values and levels. `Guard.of` finds
these places in a schema once; asking it costs a few look-ups for an object that has nothing there. The walk that names
every problem calls the functions below by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from fairlead.core.errors import Problem
from fairlead.core.json import count_values, depth_of
from fairlead.registry import limits
from fairlead.registry.schema import Schema

_OPEN = "x-kubernetes-preserve-unknown-fields"

ELSEWHERE = "x-bounded-elsewhere"
"""Marks a free-form place in a validator's own copy of a schema: metadata has a validator of its own."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What has to be looked at in a value: itself, if it is free or a map, and parts of it."""

    is_free: bool = False
    is_map: bool = False
    fields: Mapping[str, Guard] = field(default_factory=dict)
    each: Guard | None = None
    """For every entry of a list or map."""

    @staticmethod
    def of(schema: Schema) -> Guard | None:
        """The guard of a schema; None where there is nothing to look at."""
        if schema.get(_OPEN):
            return None if schema.get(ELSEWHERE) else Guard(is_free=True)
        found = {name: guard for name, each in schema.get("properties", {}).items() if (guard := Guard.of(each))}
        values = schema.get("additionalProperties")
        inner = schema.get("items") or values
        each = Guard.of(inner) if isinstance(inner, dict) else None
        is_map = isinstance(values, dict)
        return Guard(is_map=is_map, fields=found, each=each) if found or each or is_map else None

    def accepts(self, value: Any) -> bool:
        """Whether a value of the right type stays within the bounds."""
        if self.is_free:
            return free_problem(value) is None
        if self.is_map and has_long_key(value):
            return False
        if self.each is not None:
            inner = value.values() if isinstance(value, dict) else value
            return all(self.each.accepts(each) for each in inner or () if each is not None)
        return not self.fields or all(
            guard.accepts(value[name]) for name, guard in self.fields.items() if value.get(name)
        )


def has_long_key(value: Mapping[str, Any]) -> bool:
    return bool(value) and max(map(len, value)) > limits.KEY


def long_key_problem(path: str) -> Problem:
    return Problem(path, "FieldValueTooLong", f"Too long: keys may not be more than {limits.KEY} characters")


def free_problem(value: Any) -> Problem | None:
    """What is wrong with the size of a value in a free-form place. Whoever asks knows where that is."""
    if not value:
        return None
    try:
        text = orjson.dumps(value)
    except orjson.JSONEncodeError:  # more levels than can be written
        return _too_deep()
    if len(text) > limits.FREE_BYTES:
        return Problem.too_long("", limits.FREE_BYTES)
    if len(text) > 2 * limits.FREE_VALUES and (found := count_values(text, limits.FREE_VALUES)) > limits.FREE_VALUES:
        return Problem.too_many("", found, limits.FREE_VALUES, "values")
    return _too_deep() if depth_of(text, limits.FREE_DEPTH) > limits.FREE_DEPTH else None


def _too_deep() -> Problem:
    return Problem("", "FieldValueTooLong", f"Too long: may not be nested deeper than {limits.FREE_DEPTH} levels")
