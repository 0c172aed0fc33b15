"""Size limits of every kind: each list, map and string of each schema is rejected when one too large.

The objects are built from the schemas, so that new fields are covered at once.

"""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.core.errors import MAX_PROBLEMS, Invalid
from fairlead.core.objects import Object
from fairlead.registry import limits
from fairlead.registry.kind import Kind
from fairlead.registry.schema import Schema
from fairlead.registry.validate import LIMIT_REASONS, Validator
from tests.harness.kind_examples import iter_kinds

KINDS_BY_NAME = {f"{kind.group}/{kind.name}": kind for kind in iter_kinds()}
OPEN = "x-kubernetes-preserve-unknown-fields"

Step = str | int


def iter_schemas(schema: Schema, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Schema]]:
    """Yields every schema with its path: `0` for list items, and `k` for map values."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        if path or name != "metadata":
            yield from iter_schemas(each, (*path, name))
    if "items" in schema:
        yield from iter_schemas(schema["items"], (*path, 0))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from iter_schemas(schema["additionalProperties"], (*path, "k"))


def minimal_value(schema: Schema) -> Any:
    """Returns a minimal value of the type."""
    match schema.get("type"):
        case "string":
            return schema["enum"][0] if "enum" in schema else _FORMATTED.get(schema.get("format", ""), "")
        case "array":
            return []
        case "integer":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
    return {name: minimal_value(schema["properties"][name]) for name in schema.get("required", ())}


_FORMATTED = {"date-time": "2026-01-02T03:04:05Z", "byte": "YQ=="}


def oversized_value(schema: Schema) -> Any:
    """Returns a value one larger than allowed; None if there is no limit."""
    match schema.get("type"):
        case "string" if "maxLength" in schema:
            return "A" * (schema["maxLength"] + 4)
        case "array":
            return [minimal_value(schema["items"])] * (schema["maxItems"] + 1)
        case "object" if "maxProperties" in schema:
            return dict.fromkeys(
                map(str, range(schema["maxProperties"] + 1)), minimal_value(schema["additionalProperties"])
            )
    return {"a": "x" * limits.FREE_FORM_BYTES} if schema.get(OPEN) else None


def build_value(schema: Schema, path: tuple[Step, ...], value: Any) -> Any:
    """Builds a value of the schema with `value` at the path and otherwise only required fields."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [build_value(schema["items"], rest, value)]
    inner = schema.get("properties", {}).get(step) or schema["additionalProperties"]
    return {**minimal_value(schema), step: build_value(inner, rest, value)}


def format_path(path: tuple[Step, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def iter_oversized(schema: Schema) -> Iterator[tuple[tuple[Step, ...], Any]]:
    """Yields an oversized value for each schema with a limit. A shared schema is used once."""
    seen: set[int] = set()
    for path, subschema in iter_schemas(schema):
        large = oversized_value(subschema)
        if large is not None and id(subschema) not in seen:
            seen.add(id(subschema))
            yield path, large


@pytest.mark.parametrize("kind", KINDS_BY_NAME.values(), ids=KINDS_BY_NAME)
def test_an_oversized_value_is_rejected_with_its_path_only(kind: Kind) -> None:
    schema = kind.schema()
    validator = Validator(schema)
    for path, large in iter_oversized(schema):
        problems = validator.validate(build_value(schema, path, large)).problems
        assert [(each.field, each.reason in LIMIT_REASONS) for each in problems] == [(format_path(path), True)], path


@pytest.mark.parametrize("kind", KINDS_BY_NAME.values(), ids=KINDS_BY_NAME)
def test_a_stored_oversized_value_can_stay_but_not_grow(kind: Kind) -> None:
    schema = kind.schema()
    validator = Validator(schema)
    for path, large in iter_oversized(schema):
        if len(large) > limits.SERVER_WRITTEN_ITEMS:  # clients do not send these, and a million items take seconds
            continue
        stored = build_value(schema, path, large)
        assert validator.validate(build_value(schema, path, large), stored).problems == [], path
        larger = large + large[:1] if not isinstance(large, dict) else {**large, "one more": next(iter(large.values()))}
        assert validator.validate(build_value(schema, path, larger), stored).problems, path


def iter_invalid_bodies(schema: Schema) -> Iterator[tuple[str, Object]]:
    """Yields bodies with many values of wrong types, for each list and map of a schema."""
    for path, subschema in iter_schemas(schema):
        if subschema.get("type") == "array":
            yield format_path(path), build_value(schema, path, [[]] * min(subschema["maxItems"], 50_000))
        elif "maxProperties" in subschema:
            keys = map(str, range(min(subschema["maxProperties"], 50_000)))
            yield format_path(path), build_value(schema, path, {key: [] for key in keys})


@pytest.mark.parametrize("kind", KINDS_BY_NAME.values(), ids=KINDS_BY_NAME)
def test_no_more_problems_are_collected_than_reported(kind: Kind) -> None:
    validator = Validator(kind.schema())
    for path, body in iter_invalid_bodies(kind.schema()):
        problems = validator.validate(body).problems
        assert len(problems) <= MAX_PROBLEMS + 1, path
        assert all(each.field.startswith(path) for each in problems), path


def test_half_a_million_invalid_items_use_little_memory() -> None:
    kind = KINDS_BY_NAME["management.service.sh/OwnedAccessKey"]
    validator = Validator(kind.schema())
    rule = {"resources": [{"resourceNames": [0] * 500}] * 10}
    body = {"apiVersion": "v1", "kind": "x", "metadata": {}, "spec": {"scope": {"rules": [rule] * 100}}}
    tracemalloc.start()
    try:
        problems = validator.validate(body).problems
        error = Invalid.of(kind.name, kind.group, "a", problems)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(error.details.problems) == MAX_PROBLEMS
    assert error.message.endswith("and more problems; fix these first]")
    assert peak < 1_000_000


OVERSIZED_FREE_FORM = {
    "bytes": {"a": "x" * limits.FREE_FORM_BYTES},
    "values in a list": {"a": [0] * (limits.FREE_FORM_VALUES + 1)},
    "values in maps": {"a": {str(number): {} for number in range(limits.FREE_FORM_VALUES + 1)}},
}


def nest(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    "value",
    [*OVERSIZED_FREE_FORM.values(), nest(limits.FREE_FORM_DEPTH // 2 + 1)],
    ids=[*OVERSIZED_FREE_FORM, "levels"],
)
@pytest.mark.parametrize("unknown", [{}, {"unknown": 1}], ids=["alone", "with an unknown field"])
def test_a_free_form_field_is_limited_in_bytes_values_and_depth(value: Any, unknown: Object) -> None:
    validator = Validator(KINDS_BY_NAME["management.service.sh/App"].schema())
    for body in ({"status": value}, {"spec": {"versions": [{"bash": {"securityContext": value}}]}}):
        [problem] = validator.validate({**body, **unknown}).problems
        assert problem.reason in LIMIT_REASONS
    assert validator.validate({"status": value, **unknown}, {"status": value}).problems == []


@pytest.mark.parametrize("unknown", [{}, {"unknown": 1}], ids=["alone", "with an unknown field"])
def test_large_values_within_the_limits_are_accepted(unknown: Object) -> None:
    validator = Validator(KINDS_BY_NAME["management.service.sh/App"].schema())
    valid_values: list[Any] = [
        nest(limits.FREE_FORM_DEPTH // 2 - 1),
        {"a": [0] * 19_000},
        {"a": "x" * 400_000, "[": ",{[" * 9_000},
    ]
    for value in valid_values:
        assert validator.validate({"status": value, **unknown}).problems == []


def test_the_length_of_a_map_key_is_limited() -> None:
    kind = KINDS_BY_NAME["management.service.sh/Project"]
    body = {"spec": {"quotas": {"project": {"x" * (limits.KEY + 1): "1"}}}}
    [problem] = Validator(kind.schema()).validate(body).problems
    assert (problem.field, problem.reason) == ("spec.quotas.project", "FieldValueTooLong")
