"""Tests of `fairlead.domain.parameters`: definitions of template parameters, and checks of their values."""

from time import thread_time
from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.domain.parameters import (
    MAX_EVENTS,
    MAX_PATTERN_LENGTH,
    check_values,
    definition_problems,
    find_undefined,
    parse_values,
)


def find_errors(definition: Object, value: Any = None) -> list[str]:
    values = {} if value is None else {"v": value}
    return [problem.message for problem in check_values([{"variable": "v", **definition}], values)[1]]


def check_value(definition: Object, value: Any = None) -> str:
    inputs = {} if value is None else {"v": value}
    values, problems = check_values([{"variable": "v", **definition}], inputs)
    assert not problems
    return values["v"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a: b\n", {"a": "b"}),
        ("a: 1\nb: true\n", {"a": 1, "b": True}),
        ("image.tag: a\n", {"image.tag": "a"}),
        ("image: {tag: a, pull: {policy: b}}", {"image.tag": "a", "image.pull.policy": "b"}),
        ("image.pull: {policy: b}", {"image.pull.policy": "b"}),
        ("a: []\nb: {}", {"a": [], "b": {}}),
    ],
)
def test_dotted_names_and_nested_maps_are_equivalent(text: str, expected: Object) -> None:
    assert parse_values(text) == (expected, [] if text else ())


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("- a", "spec.parameters"),
        ("just text", "spec.parameters"),
        ("a: [", "spec.parameters"),
        ("!!python/object/apply:os.system [ls]", "spec.parameters"),
        ("a: " + "b" * 2**20, "spec.parameters"),
        ("image.tag: a\nimage: {tag: b}", "spec.parameters[image.tag]"),
    ],
)
def test_a_text_that_is_not_a_map_of_values_is_a_problem(text: str, field: str) -> None:
    _, problems = parse_values(text)
    assert [problem.field for problem in problems] == [field]


@pytest.mark.parametrize("type_name", ["", "string", "multiline", "password"])
def test_text_is_checked_against_default_requirement_options_and_patterns_in_order(type_name: str) -> None:
    definition = {"type": type_name, "validation": "^[a-z]+$", "invalidation": "bad", "options": ["One", "Two"]}
    assert check_value({**definition, "defaultValue": "good"}, "") == "good"
    assert find_errors({**definition, "required": True}, "") == ["Required value: the parameter must be set"]
    assert check_value(definition, "One") == "One"
    assert "must match the regular expression ^[a-z]+$" in find_errors(definition, "Three")[0]
    assert "must not match the regular expression bad" in find_errors(definition, "abadone")[0]
    assert check_value(definition, "three") == "three"


def test_without_patterns_only_the_options_are_valid() -> None:
    assert check_value({"options": ["a", "b"]}, "b") == "b"
    assert check_value({"options": ["a", "b"]}) == ""
    assert find_errors({"options": ["a", "b"]}, "c") == ['Invalid value: "c": must be one of a, b']


@pytest.mark.parametrize("value", ["1", "t", "true", "True", "TRUE", 1, True])
def test_values_that_mean_true(value: Any) -> None:
    assert check_value({"type": "boolean"}, value) == "true"


@pytest.mark.parametrize("value", ["0", "f", "false", "False", 0, False, None, ""])
def test_values_that_mean_false(value: Any) -> None:
    assert check_value({"type": "boolean"}, value) == "false"


@pytest.mark.parametrize("value", ["yes", "2", 2, 1.5])
def test_other_values_are_no_booleans(value: Any) -> None:
    assert "must be true or false" in find_errors({"type": "boolean"}, value)[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, ""),
        ("3", ""),
        (0, "must be at least 1"),
        (4, "must be at most 3"),
        ("many", "must be a whole number"),
        (1.5, "must be a whole number"),
        ("9" * 5_000, "must be a whole number"),
        (True, "must be a whole number"),
    ],
)
def test_numbers_are_whole_and_within_their_limits(value: Any, expected: str) -> None:
    errors = find_errors({"type": "number", "min": 1, "max": 3}, value)
    assert (expected in errors[0]) if expected else not errors


def test_a_limit_of_zero_is_a_limit() -> None:
    assert "must be at most 0" in find_errors({"type": "number", "max": 0}, 1)[0]


@pytest.mark.parametrize("value", [1.10, True])
def test_text_that_yaml_parses_as_another_type_must_be_quoted(value: Any) -> None:
    assert "put it in quotes" in find_errors({}, value)[0]


def test_a_whole_number_is_accepted_as_text() -> None:
    assert check_value({}, 12) == "12"


@pytest.mark.parametrize("value", [["a"], {}])
def test_lists_and_maps_are_rejected_as_values(value: Any) -> None:
    assert "must be a single value" in find_errors({}, value)[0]


@pytest.mark.parametrize("value", ["a\nb: c", "a\rb", "a\u2028b", "a\x85b", "\x00", "\x1b[2J"])
def test_a_single_line_parameter_rejects_line_breaks_and_control_characters(value: str) -> None:
    assert "must be one line" in find_errors({}, value)[0]
    assert check_value({"type": "multiline"}, value) == value


def test_error_messages_do_not_contain_the_password() -> None:
    (message,) = find_errors({"type": "password", "validation": "^x$"}, "hunter2")
    assert "hunter2" not in message


def test_all_errors_are_reported_together_and_name_the_variable() -> None:
    definitions: list[Object] = [{"variable": "image.tag", "required": True}, {"variable": "size", "type": "number"}]
    _, problems = check_values(definitions, {"size": "big"})
    assert [problem.field for problem in problems] == ["spec.parameters[image.tag]", "spec.parameters[size]"]


def test_undefined_values_are_left_out_and_can_be_listed() -> None:
    assert check_values([], {"a": "b"}) == ({}, [])
    assert find_undefined([{"variable": "a"}], {"a": 1, "c": 2, "b": 3}) == ["b", "c"]


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*b$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_backtracks(pattern: str) -> None:
    """A backtracking engine would need exponential time for each of these."""
    assert find_errors({"validation": pattern}, "a" * 50_000 + "!")


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"^\w\d\s$", "a1 ", "ä1 "),
        (r"^\W\D\S$", "-ab", "aab"),
        (r"^[\w-]+$", "a-b", "a b"),
        (r"^[^\w-]+$", "++", "a"),
        (r"^[\W\d]+$", "5-", "a"),
        (r"^\\w$", "\\w", "a"),
        (r"^[\]\w]+$", "]a", "-"),
    ],
)
def test_character_classes_are_those_of_go(pattern: str, matching: str, other: str) -> None:
    assert not find_errors({"validation": pattern}, matching)
    assert find_errors({"validation": pattern}, other)


@pytest.mark.parametrize("escaped", list("wdsWDS"))
def test_the_time_to_compile_a_pattern_is_linear_in_its_length(escaped: str) -> None:
    """The engine alone takes up to a second to expand five hundred of these classes; this takes milliseconds."""
    pattern = rf"\{escaped}" * (MAX_PATTERN_LENGTH // 2)
    start = thread_time()
    list(definition_problems("spec.parameters", [{"variable": "v", "validation": pattern}]))
    assert thread_time() - start < 0.05


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "(?:a{1000}){1000}", "a" * (MAX_PATTERN_LENGTH + 1)])
def test_costly_and_invalid_patterns_are_rejected(pattern: str) -> None:
    (problem,) = definition_problems("spec.parameters", [{"variable": "v", "validation": pattern}])
    assert problem.field == "spec.parameters[0].validation"
    assert "must match" in find_errors({"validation": pattern}, "a")[0]


@pytest.mark.parametrize(
    ("definitions", "expected"),
    [
        ([{"variable": "a"}, {"variable": "b.c"}], []),
        ([{}], ["spec.parameters[0].variable"]),
        ([{"variable": "a b"}], ["spec.parameters[0].variable"]),
        ([{"variable": "a..b"}], ["spec.parameters[0].variable"]),
        ([{"variable": "a"}, {"variable": "a"}], ["spec.parameters[1].variable"]),
        ([{"variable": "a"}, {"variable": "a.b"}], ["spec.parameters[1].variable"]),
        ([{"variable": "a.b"}, {"variable": "a"}], ["spec.parameters[1].variable"]),
        ([{"variable": "a", "min": 2, "max": 1}], ["spec.parameters[0].min"]),
    ],
)
def test_definitions_are_validated(definitions: list[Object], expected: list[str]) -> None:
    assert [problem.field for problem in definition_problems("spec.parameters", definitions)] == expected


def test_an_unknown_type_is_an_error() -> None:
    assert "unknown type colour" in find_errors({"type": "colour"}, "red")[0]


@pytest.mark.parametrize(
    "text",
    ["".join(f"k{number}: b\n" for number in range(MAX_EVENTS)), "a:\n" + "- x\n" * MAX_EVENTS, "a: b\n" * MAX_EVENTS],
)
def test_a_text_with_too_many_values_is_not_parsed_to_its_end(text: str) -> None:
    values, (problem,) = parse_values(text)
    assert not values
    assert "too many keys and values; leave some out" in problem.message


def test_a_value_for_each_parameter_of_the_largest_template_is_accepted() -> None:
    values, problems = parse_values("".join(f"k{number}: b\n" for number in range(2_000)))
    assert len(values) == 2_000
    assert not problems
