"""The bounds of every kind at work: each list, map and text of each schema, one too large, is refused and named.

The objects are made from the schemas themselves, so that a new field is tried as soon as it is declared.
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
from fairlead.registry.validate import Validator
from fairlead.registry.validation_walk import LIMIT_REASONS
from tests.architecture.test_bounds import every_kind

ALL = {f"{kind.group}/{kind.name}": kind for kind in every_kind()}
OPEN = "x-kubernetes-preserve-unknown-fields"

Step = str | int


def places(schema: Schema, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Schema]]:
    """Every place in a schema with its way there: through lists by their first entry, through maps by the key `k`."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        if path or name != "metadata":
            yield from places(each, (*path, name))
    if "items" in schema:
        yield from places(schema["items"], (*path, 0))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from places(schema["additionalProperties"], (*path, "k"))


def filler(schema: Schema) -> Any:
    """A value of the type, as small as can be."""
    match schema.get("type"):
        case "string":
            return schema["enum"][0] if "enum" in schema else _TEXTS.get(schema.get("format", ""), "")
        case "array":
            return []
        case "integer":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
    return {name: filler(schema["properties"][name]) for name in schema.get("required", ())}


_TEXTS = {"date-time": "2026-01-02T03:04:05Z", "byte": "YQ=="}


def excess(schema: Schema) -> Any:
    """A value that is one too large for its place; None where nothing can be."""
    match schema.get("type"):
        case "string" if "maxLength" in schema:
            return "A" * (schema["maxLength"] + 4)
        case "array":
            return [filler(schema["items"])] * (schema["maxItems"] + 1)
        case "object" if "maxProperties" in schema:
            return dict.fromkeys(map(str, range(schema["maxProperties"] + 1)), filler(schema["additionalProperties"]))
    return {"a": "x" * limits.FREE_FORM_BYTES} if schema.get(OPEN) else None


def holding(schema: Schema, path: tuple[Step, ...], value: Any) -> Any:
    """A value of the schema that has `value` at a place, and of everything else only what it must have."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [holding(schema["items"], rest, value)]
    inner = schema.get("properties", {}).get(step) or schema["additionalProperties"]
    return {**filler(schema), step: holding(inner, rest, value)}


def named(path: tuple[Step, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def oversized(schema: Schema) -> Iterator[tuple[tuple[Step, ...], Any]]:
    """For each place with a bound, a value that is one too large. What stands in many places is taken once."""
    seen: set[int] = set()
    for path, place in places(schema):
        large = excess(place)
        if large is not None and id(place) not in seen:
            seen.add(id(place))
            yield path, large


@pytest.mark.parametrize("kind", ALL.values(), ids=ALL)
def test_whatever_is_one_too_large_is_refused_for_that_alone_at_its_place(kind: Kind) -> None:
    schema = kind.schema()
    validator = Validator(schema)
    for path, large in oversized(schema):
        problems = validator.validate(holding(schema, path, large)).problems
        assert [(each.field, each.reason in LIMIT_REASONS) for each in problems] == [(named(path), True)], path


@pytest.mark.parametrize("kind", ALL.values(), ids=ALL)
def test_it_may_stay_where_it_was_before_and_may_not_grow(kind: Kind) -> None:
    schema = kind.schema()
    validator = Validator(schema)
    for path, large in oversized(schema):
        stored = holding(schema, path, large)
        assert validator.validate(holding(schema, path, large), stored).problems == [], path
        larger = large + large[:1] if not isinstance(large, dict) else {**large, "one more": next(iter(large.values()))}
        assert validator.validate(holding(schema, path, larger), stored).problems, path


def wrong_bodies(schema: Schema) -> Iterator[tuple[str, Object]]:
    """Bodies of many values of wrong types, at each list and map of a schema."""
    for path, place in places(schema):
        if place.get("type") == "array":
            yield named(path), holding(schema, path, [[]] * min(place["maxItems"], 50_000))
        elif "maxProperties" in place:
            keys = map(str, range(min(place["maxProperties"], 50_000)))
            yield named(path), holding(schema, path, {key: [] for key in keys})


@pytest.mark.parametrize("kind", ALL.values(), ids=ALL)
def test_problems_are_collected_up_to_what_is_told_and_no_further(kind: Kind) -> None:
    validator = Validator(kind.schema())
    for path, body in wrong_bodies(kind.schema()):
        problems = validator.validate(body).problems
        assert len(problems) <= MAX_PROBLEMS + 1, path
        assert all(each.field.startswith(path) for each in problems), path


def test_half_a_million_wrong_items_leave_no_trace_in_memory() -> None:
    kind = ALL["management.service.sh/OwnedAccessKey"]
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


FREE = {
    "bytes": {"a": "x" * limits.FREE_FORM_BYTES},
    "values in a list": {"a": [0] * (limits.FREE_FORM_VALUES + 1)},
    "values in maps": {"a": {str(number): {} for number in range(limits.FREE_FORM_VALUES + 1)}},
}


def nest(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize("value", [*FREE.values(), nest(limits.FREE_FORM_DEPTH // 2 + 1)], ids=[*FREE, "levels"])
@pytest.mark.parametrize("beside", [{}, {"unknown": 1}], ids=["alone", "beside an unknown field"])
def test_a_free_form_place_is_bounded_in_bytes_values_and_levels(value: Any, beside: Object) -> None:
    validator = Validator(ALL["management.service.sh/App"].schema())
    for body in ({"status": value}, {"spec": {"versions": [{"bash": {"securityContext": value}}]}}):
        [problem] = validator.validate({**body, **beside}).problems
        assert problem.reason in LIMIT_REASONS
    assert validator.validate({"status": value, **beside}, {"status": value}).problems == []


@pytest.mark.parametrize("beside", [{}, {"unknown": 1}], ids=["alone", "beside an unknown field"])
def test_what_is_large_and_within_the_bounds_passes(beside: Object) -> None:
    validator = Validator(ALL["management.service.sh/App"].schema())
    fine: list[Any] = [
        nest(limits.FREE_FORM_DEPTH // 2 - 1),
        {"a": [0] * 19_000},
        {"a": "x" * 400_000, "[": ",{[" * 9_000},
    ]
    for value in fine:
        assert validator.validate({"status": value, **beside}).problems == []


def test_a_key_of_a_map_has_a_length() -> None:
    kind = ALL["management.service.sh/Project"]
    body = {"spec": {"quotas": {"project": {"x" * (limits.KEY + 1): "1"}}}}
    [problem] = Validator(kind.schema()).validate(body).problems
    assert (problem.field, problem.reason) == ("spec.quotas.project", "FieldValueTooLong")
