"""Validates objects against their kind's structural schema: types, required and unknown fields, enums, defaults.

Most objects are valid, so a compiled validator checks them first in one call. Only if it rejects an object does
`registry/validate.py` walk it in Python, to prune unknown fields and to report problems with their paths. The
walk supports every schema keyword in use. The compiled validator is never asked for its list of errors, which could be
millions for a malicious body.

Walks an object along its schema: prunes unknown fields, sets defaults, and reports problems with their paths.

`registry/validate.py` starts it for objects that its compiled validator rejects. A body may have a million problems, so
the walk stops after `MAX_PROBLEMS` per top-level field, plus one that shows that there are more. The limit is per field
because problems of the status are ignored where the status is not written, and must not hide those of the spec.

Limits are ratcheted: a value that exceeds one is accepted if the stored object had the same value, or a longer one. So
objects stored before a limit existed can still be updated, and shortened step by step. Unknown fields that are stored
stay: replicas of two versions use one store during an upgrade, and the older one must not remove what the newer wrote.

The formats that are checked (base64, date-time) are also here, because the compiled validator uses the same functions.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import jsonschema_rs
import orjson

from fairlead.core.body_errors import field_path
from fairlead.core.errors import MAX_PROBLEMS, Problem
from fairlead.core.objects import Object
from fairlead.core.yaml import to_json_number
from fairlead.registry import limits
from fairlead.registry.freeform_limits import (
    SKIP_FREEFORM_CHECK,
    FreeformCheck,
    freeform_problem,
    has_long_key,
    long_key_problem,
    normalize_numbers,
)
from fairlead.registry.kind import Kind
from fairlead.registry.schema import Schema

ABSENT = object()
"""The previous value where there was none."""


class StoredItems:
    """The stored items of a list, with which the walk compares new ones. The former version of an item is the one with
    the same keys, if the list has keys.

    Otherwise it is an equal one, wherever that was, or else the one that was in the same place.
    """

    __slots__ = ("_by_keys", "_encoded", "_items", "_keys")

    def __init__(self, before: Any, schema: Schema) -> None:
        self._items: Sequence[Any] = before if isinstance(before, list) else ()
        self._keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys", ())
        self._by_keys: dict[bytes, Any] | None = None
        self._encoded: set[bytes] | None = None

    def find(self, item: Any, index: int) -> Any:
        """The former version of an item of the new list; ABSENT if there is none."""
        same_place = self._items[index] if index < len(self._items) else ABSENT
        if not self._items or type(item) is not dict or item == same_place:
            return same_place
        if self._keys:
            if self._by_keys is None:
                self._by_keys = {self._key(each): each for each in self._items if isinstance(each, dict)}
            return self._by_keys.get(self._key(item), ABSENT)
        if self._encoded is None:
            self._encoded = {_encode_sorted(each) for each in self._items}
        return item if _encode_sorted(item) in self._encoded else same_place

    def _key(self, item: Object) -> bytes:
        return _encode_sorted([item.get(name) for name in self._keys])


def is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same. For Python, `true` is also equal to 1. 1 and 1.0 are one number: Go clients
    write back the former if they have read the latter."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _encode_sorted(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer with more than 64 bits
        return repr(value).encode(errors="surrogatepass")


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return len(text) % 4 == 0  # b64decode accepts padding that is not needed


def _is_wrapped_base64(text: str) -> bool:
    """Base64 as Go reads it, with line breaks anywhere: `base64 < file` wraps its output."""
    return _is_base64(text) or _is_base64(text.replace("\n", "").replace("\r", ""))


_MAX_BYTE = 255
TIMESTAMP_CACHE_SIZE = 4_096
"""Bounded, because clients choose the timestamps."""

# Stricter than RFC 3339, which allows leap seconds, lower case and the year 0: `datetime` can parse all that matches.
_TIMESTAMP = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def _is_timestamp(text: str) -> bool:
    """Cached: every write checks the same few timestamps of the metadata."""
    return len(text) <= limits.TIME and _is_timestamp_cached(text)


@lru_cache(TIMESTAMP_CACHE_SIZE)
def _is_timestamp_cached(text: str) -> bool:
    if not _TIMESTAMP.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return False
    return True


FORMATS: dict[str, Callable[[str], bool]] = {"byte": _is_base64, "date-time": _is_timestamp}
GO_FORMATS = {**FORMATS, "byte": _is_wrapped_base64}
"""The formats of built-in kinds, whose values kube-apiserver decodes into Go types."""
FORMAT_MESSAGES: Mapping[str, str] = {
    "byte": "must be base64, with the standard alphabet and padding",
    "date-time": "must be an RFC 3339 timestamp, such as 2026-01-31T12:00:00Z",
}
INT_BOUNDS: Mapping[str, tuple[int, int]] = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


PRESERVE_UNKNOWN = "x-kubernetes-preserve-unknown-fields"

LIMIT_REASONS = frozenset({"FieldValueTooLong", "FieldValueTooMany"})
"""The reasons of problems with size limits."""

PathNode = tuple[Any, str | int] | None
"""The path to a value as a linked list: the node of its parent, and its name or index there. None for the object
itself."""


@dataclass(slots=True)
class ValidationResult:
    """The result of validating an object. Unknown fields and nulls have been removed from the object."""

    unknown_fields: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    has_more_unknown_fields: bool = False
    """There are more unknown fields than `unknown_fields` lists."""


class SchemaWalk:
    """One walk over an object. `has_ratcheted` is set if it accepted a value only because the stored object had it."""

    __slots__ = (
        *("_is_in_list", "_limit_freeform", "_max_problems", "_reject_nulls", "_zero_nulls"),
        *("has_ratcheted", "result"),
    )

    def __init__(self, *, limit_freeform: bool, reject_nulls: bool = False, zero_nulls: bool = False) -> None:
        self.result = ValidationResult()
        self.has_ratcheted = False
        self._is_in_list = False
        self._limit_freeform = limit_freeform
        self._reject_nulls = reject_nulls
        self._zero_nulls = zero_nulls
        self._max_problems = MAX_PROBLEMS + 1

    def run(self, obj: Object, schema: Schema, before: Object | None) -> ValidationResult:
        """Walks the whole object. `before` is the stored object, None for a new one."""
        self._check_object(obj, schema, None, ABSENT if before is None else before)
        return self.result

    @property
    def _is_full(self) -> bool:
        return len(self.result.problems) >= self._max_problems

    def _add_problem(self, problem: Problem) -> None:
        self.result.problems.append(problem)

    def _check_value(self, value: Any, schema: Schema, node: PathNode, before: Any) -> None:
        wanted = schema.get("type")
        if value is None and schema.get("nullable"):
            return
        if wanted is None:
            self._check_freeform(value, schema, node, before)
        elif not is_type(value, wanted):
            if not self._zero_nulls:  # of a built-in type, only the wrong type is reported
                self._report_all(value, node)
            path = format_path(node)
            found = type_name(value)
            self._add_problem(Problem.wrong_type(path, found, f'{path} in body must be of type {wanted}: "{found}"'))
            if "enum" in schema:
                self._add_problem(Problem.unsupported(path, value, schema["enum"]))
        elif wanted == "object":
            self._check_object(value, schema, node, before)
        elif wanted == "array":
            self._check_list(value, schema, node, before)
        elif wanted == "string":
            self._check_string(value, schema, node, before)
        elif wanted != "boolean":
            self._check_number(value, schema, node)

    def _check_object(self, value: Object, schema: Schema, node: PathNode, before: Any) -> None:
        properties: dict[str, Schema] = schema.get("properties", {})
        additional = schema.get("additionalProperties")
        if (schema.get(PRESERVE_UNKNOWN) or additional is not None) and not self._check_map(
            value, schema, node, before
        ):
            return
        old = before if isinstance(before, dict) else {}
        for name in list(value):
            expected = properties.get(name, additional)
            if expected is None:
                if not schema.get(PRESERVE_UNKNOWN):
                    self._check_unknown_field(value, name, node, old)
            elif self._is_pruned(value, name, expected, name in properties):
                del value[name]
            else:
                if node is None:
                    self._max_problems = len(self.result.problems) + MAX_PROBLEMS + 1
                self._check_value(value[name], expected, (node, name), old.get(name, ABSENT))
                if self._is_full and node is not None:
                    return
        for name, expected in properties.items():
            if name not in value and "default" in expected:
                value[name] = deepcopy(expected["default"])
        for name in schema.get("required", ()):
            if name not in value:
                self._add_problem(Problem.required(format_path((node, name))))

    def _is_pruned(self, value: Object, name: str, expected: Schema, declared: bool) -> bool:
        """Whether a field is null, and so counts as absent. As in Go, a null in a map may become an empty value
        instead, a list of numbers becomes bytes, and a whole number an integer."""
        if type(value[name]) is float and not self._zero_nulls:
            value[name] = to_json_number(value[name])
        if self._zero_nulls and type(value[name]) is list and expected.get("format") == "byte":
            value[name] = _encode_bytes(value[name])
        if value[name] is not None:
            return False
        if not declared and self._zero_nulls:
            value[name] = _zero_value(expected)
        if not declared or expected.get("nullable"):
            return False
        return not self._reject_nulls or "type" not in expected or "default" in expected

    def _report_all(self, value: Any, node: PathNode) -> None:
        """Reports all fields of a value that should not have any as unknown. They stay: admission runs before the
        wrong type is reported, and must not take the value for an empty one."""
        if isinstance(value, dict):
            for name in value:
                self._report_field(name, node)
        elif isinstance(value, list):
            for index, each in enumerate(value):
                self._report_all(each, (node, index))

    def _check_unknown_field(self, value: Object, name: str, node: PathNode, old: Object) -> None:
        """Removes an unknown field, and reports it. A field that is stored was written by a newer version of the
        server, as during an upgrade: it stays, and is reported only if the request changes it, which has no effect."""
        is_changed = name not in old or not is_same(value[name], old[name])
        if is_changed:
            self._report_field(name, node)
        if name not in old or (self._is_in_list and is_changed):
            del value[name]
            return
        self.has_ratcheted = True
        value[name] = deepcopy(old[name])

    def _report_field(self, name: str, node: PathNode) -> None:
        """Reports an unknown field, unless there are too many."""
        if len(self.result.unknown_fields) < MAX_PROBLEMS:
            self.result.unknown_fields.append(format_path((node, name)))
        else:
            self.result.has_more_unknown_fields = True

    def _check_map(self, value: Object, schema: Schema, node: PathNode, before: Any) -> bool:
        """Checks the size of a map or free-form object. Returns False if it has too many entries, so its content is not
        checked."""
        most = schema.get("maxProperties")
        if most is not None and len(value) > most and self._is_new_violation(value, before):
            self._add_problem(Problem.too_many(format_path(node), len(value), most))
            return False
        if (
            self._limit_freeform
            and not schema.get(PRESERVE_UNKNOWN)
            and has_long_key(value)
            and self._is_new_violation(value, before)
        ):
            self._add_problem(long_key_problem(format_path(node)))
        self._check_freeform(value, schema, node, before)
        return True

    def _check_freeform(self, value: Any, schema: Schema, node: PathNode, before: Any) -> None:
        if not self._zero_nulls and (schema.get(PRESERVE_UNKNOWN) or "type" not in schema):
            normalize_numbers(value)
        if self._limit_freeform and schema.get(PRESERVE_UNKNOWN) and not schema.get(SKIP_FREEFORM_CHECK):
            problem = freeform_problem(value)
            if problem is not None and value == before:
                self.has_ratcheted = True
            elif problem is not None:
                self._add_problem(replace(problem, field=format_path(node)))

    def _is_new_violation(self, value: Any, before: Any) -> bool:
        """Whether a value that exceeds a limit is neither the stored one nor a shorter version of it."""
        is_new: bool = value != before and not _is_shorter(value, before)
        self.has_ratcheted = self.has_ratcheted or not is_new
        return is_new

    def _check_list(self, value: list[Any], schema: Schema, node: PathNode, before: Any) -> None:
        most, items = schema.get("maxItems"), schema["items"]
        if most is not None and len(value) > most and self._is_new_violation(value, before):
            self._add_problem(Problem.too_many(format_path(node), len(value), most))
            return
        plain = _plain_string_limit(items)
        stored = StoredItems(before, schema)
        was_in_list, self._is_in_list = self._is_in_list, True
        for index, item in enumerate(value):
            if type(item) is str and len(item) <= plain:
                continue  # fast path: nearly all entries of long lists
            if item is None and self._zero_nulls:
                value[index] = item = _zero_value(items)
            if type(item) is float and not self._zero_nulls:
                value[index] = item = to_json_number(item)
            self._check_value(item, items, (node, index), stored.find(item, index))
            if self._is_full:
                break
        self._is_in_list = was_in_list

    def _check_string(self, value: str, schema: Schema, node: PathNode, before: Any) -> None:
        """Checks a string. Messages do not quote it: it may be a password that was pasted into a base64 field."""
        longest = schema.get("maxLength")
        format = schema.get("format", "")
        if longest is not None and len(value) > longest:
            if self._is_new_violation(value, before):
                self._add_problem(Problem.too_long(format_path(node), longest, "characters"))
        elif "enum" in schema and value not in schema["enum"]:
            self._add_problem(Problem.unsupported(format_path(node), value, schema["enum"]))
        elif format in FORMATS and not (GO_FORMATS if self._zero_nulls else FORMATS)[format](value):
            self._add_problem(
                Problem(format_path(node), "FieldValueInvalid", f"Invalid value: {FORMAT_MESSAGES[format]}")
            )
        elif "pattern" in schema and not re.search(schema["pattern"], value):
            self._add_problem(
                Problem(format_path(node), "FieldValueInvalid", f"Invalid value: must match {schema['pattern']}")
            )

    def _check_number(self, value: float, schema: Schema, node: PathNode) -> None:
        low, high = number_bounds(schema)
        path = format_path(node)
        if low is not None and value < low:
            self._add_problem(Problem.invalid(path, value, f"{path} in body should be greater than or equal to {low}"))
        if high is not None and value > high:
            self._add_problem(Problem.invalid(path, value, f"{path} in body should be less than or equal to {high}"))


def _encode_bytes(values: list[Any]) -> Any:
    """A list of bytes in base64, with 0 for null; the list itself if it has other entries."""
    numbers = [0 if each is None else each for each in values]
    is_bytes = all(type(each) is int and 0 <= each <= _MAX_BYTE for each in numbers)
    return base64.b64encode(bytes(numbers)).decode() if is_bytes else values


def _zero_value(schema: Schema) -> Any:
    """The value that Go gives to a null of this type."""
    empty: dict[str, Any] = {"string": "", "object": {}, "array": [], "integer": 0, "boolean": False}
    return None if schema.get("nullable") else empty.get(schema.get("type", ""))


def _is_shorter(value: Any, before: Any) -> bool:
    return type(value) is type(before) and len(value) < len(before)


def number_bounds(schema: Schema) -> tuple[int | None, int | None]:
    """The minimum and maximum, from the format and from the schema."""
    least, most = INT_BOUNDS.get(schema.get("format", ""), (None, None))
    low = schema.get("minimum", least)
    high = schema.get("maximum", most)
    if least is not None and low is not None:
        low = max(least, low)
    if most is not None and high is not None:
        high = min(most, high)
    return low, high


def _plain_string_limit(schema: Schema) -> int:
    """The length up to which a string needs no further check; -1 if each string must be checked."""
    if schema.get("type") != "string" or "enum" in schema or "pattern" in schema or schema.get("format") in FORMATS:
        return -1
    longest: int = schema.get("maxLength", 2**63)
    return longest


def format_path(node: PathNode) -> str:
    """The path as shown in messages. A long path is truncated."""
    steps: list[str | int] = []
    while node is not None:
        node, step = node
        steps.append(step)
    path = ""
    for step in reversed(steps):
        path = field_path(path, step)
    return path


def is_type(value: Any, expected: str) -> bool:
    """Whether a value has a type, given by its OpenAPI name."""
    match expected:
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


def type_name(value: Any) -> str:
    """The OpenAPI name of a value's type."""
    for name in ("string", "object", "array", "boolean", "integer", "number"):
        if is_type(value, name):
            return name
    return "null"


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
        raise ValueError(f"unsupported schema keyword: {', '.join(unsupported)}; add it to registry/validate.py")
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
