"""Checks an object against its kind's structural schema: types, required and unknown fields, closed lists, defaults.

Most objects are fine, so the whole question is first put to a compiled validator in one call; only when that says no is
the object walked in Python, to prune what nobody declared and to name every problem with its path.
"""

import base64
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import jsonschema_rs

from fairlead.core.errors import Problem
from fairlead.core.objects import Object
from fairlead.registry.schema import Schema

_INT_BOUNDS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


@dataclass(slots=True)
class Findings:
    """What a walk over an object found. Unknown fields and nulls have been taken out of the object by then."""

    unknown: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


_FINE = Findings()
"""What is found in nearly every object: nothing. Findings are read by whoever gets them, never added to."""


class Validator:
    """One kind's schema, compiled. `examine` changes the object: it prunes, and it fills in defaults."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._compiled = jsonschema_rs.Draft4Validator(_closed(schema), validate_formats=True, formats=_FORMATS)
        self._has_defaults = any(True for _ in _defaults(schema))

    def examine(self, obj: Object) -> Findings:
        if not self._has_defaults and self._compiled.is_valid(obj):
            return _FINE
        findings = Findings()
        if isinstance(obj, dict):
            _walk_object(obj, self._schema, "", findings)
        if not findings.problems and not self._compiled.is_valid(obj):
            findings.problems.extend(self._remaining(obj))
        return findings

    def _remaining(self, obj: Object) -> Iterator[Problem]:
        """What the compiled validator objects to and the walk has no words of its own for: formats and bounds.

        Text is not repeated in the message: it may be a password that was pasted where base64 belongs.
        """
        for error in self._compiled.iter_errors(obj):
            path, value = _joined(error.instance_path), _at(obj, error.instance_path)
            if isinstance(value, str):
                yield Problem(path, "FieldValueInvalid", f"Invalid value: {_wanted(error.kind)}")
            else:
                yield Problem.invalid(path, value, f"{path} in body {error.message}")


def _walk(value: Any, schema: Schema, path: str, findings: Findings) -> None:
    wanted = schema.get("type")
    if value is None and schema.get("nullable"):
        return
    if wanted is not None and not _is(value, wanted):
        found = _type_name(value)
        why = f'{path} in body must be of type {wanted}: "{found}"'
        findings.problems.append(Problem.wrong_type(path, found, why))
    elif wanted == "object":
        _walk_object(value, schema, path, findings)
    elif wanted == "array":
        for index, item in enumerate(value):
            _walk(item, schema["items"], f"{path}[{index}]", findings)
    elif "enum" in schema and value not in schema["enum"]:
        findings.problems.append(Problem.unsupported(path, value, schema["enum"]))


def _walk_object(value: Object, schema: Schema, path: str, findings: Findings) -> None:
    properties: dict[str, Schema] = schema.get("properties", {})
    additional = schema.get("additionalProperties")
    keeps_unknown = schema.get("x-kubernetes-preserve-unknown-fields", False)
    for name in list(value):
        inside = f"{path}.{name}" if path else name
        expected = properties.get(name, additional)
        if expected is None:
            if not keeps_unknown:
                findings.unknown.append(inside)
                del value[name]
        elif value[name] is None and name in properties and not expected.get("nullable"):
            del value[name]
        else:
            _walk(value[name], expected, inside, findings)
    for name, expected in properties.items():
        if name not in value and "default" in expected:
            value[name] = deepcopy(expected["default"])
    for name in schema.get("required", ()):
        if name not in value:
            findings.problems.append(Problem.required(f"{path}.{name}" if path else name))


def _is(value: Any, wanted: str) -> bool:
    match wanted:
        case "string":
            return isinstance(value, str)
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _type_name(value: Any) -> str:
    for name in ("string", "object", "array", "boolean", "integer", "number"):
        if _is(value, name):
            return name
    return "null"


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
    bounds = _INT_BOUNDS.get(schema.get("format", ""))
    if bounds:
        del closed["format"]
        closed["minimum"] = max(bounds[0], schema.get("minimum", bounds[0]))
        closed["maximum"] = bounds[1]
    return closed


_ANNOTATIONS = frozenset({"description", "default", "nullable"})


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


KEPT_MOMENTS, LONGEST_KEPT = 4_096, 64
"""How many times are remembered, and of what length: anybody can send others."""

# Stricter than RFC 3339, which knows leap seconds, small letters and the year 0: whatever passes can be reckoned with.
_MOMENT = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def _is_moment(text: str) -> bool:
    """Every write asks about the same few times again: those of the metadata."""
    return _is_remembered_moment(text) if len(text) <= LONGEST_KEPT else _can_be_reckoned_with(text)


def _can_be_reckoned_with(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return False
    return True


_is_remembered_moment = lru_cache(KEPT_MOMENTS)(_can_be_reckoned_with)

_FORMATS: dict[str, Callable[[str], bool]] = {"byte": _is_base64, "date-time": _is_moment}
_WANTED = {
    "byte": "must be base64, with the standard alphabet and padding",
    "date-time": "must be a date and time as RFC 3339 writes them, such as 2026-01-31T12:00:00Z",
}


def _wanted(kind: Any) -> str:
    """What the text should have been."""
    if kind.name == "maxLength":
        return f"may not be longer than {kind.value}"
    return _WANTED.get(kind.value, str(kind.value))


def _defaults(schema: Schema) -> Iterator[Any]:
    if "default" in schema:
        yield schema["default"]
    for each in schema.get("properties", {}).values():
        yield from _defaults(each)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from _defaults(schema[inner])


def _joined(path: list[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _at(value: Any, path: list[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value
