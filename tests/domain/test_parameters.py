from time import thread_time
from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.domain.parameters import (
    MAX_PATTERN_LENGTH,
    check_values,
    definition_problems,
    find_undefined,
    parse_values,
)


def faults(definition: Object, value: Any = None) -> list[str]:
    given = {} if value is None else {"v": value}
    return [problem.message for problem in check_values([{"variable": "v", **definition}], given)[1]]


def taken(definition: Object, value: Any = None) -> str:
    given = {} if value is None else {"v": value}
    values, problems = check_values([{"variable": "v", **definition}], given)
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
def test_dots_and_nesting_mean_the_same(text: str, expected: Object) -> None:
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
def test_a_text_that_is_no_list_of_values_is_a_problem(text: str, field: str) -> None:
    _, problems = parse_values(text)
    assert [problem.field for problem in problems] == [field]


@pytest.mark.parametrize("kind", ["", "string", "multiline", "password"])
def test_text_is_checked_in_order(kind: str) -> None:
    definition = {"type": kind, "validation": "^[a-z]+$", "invalidation": "bad", "options": ["One", "Two"]}
    assert taken({**definition, "defaultValue": "good"}, "") == "good"
    assert faults({**definition, "required": True}, "") == [
        "Required value: the parameter must be set; the template requires it"
    ]
    assert taken(definition, "One") == "One"
    assert "must match the regular expression ^[a-z]+$" in faults(definition, "Three")[0]
    assert "must not match the regular expression bad" in faults(definition, "abadone")[0]
    assert taken(definition, "three") == "three"


def test_options_alone_are_all_there_is() -> None:
    assert taken({"options": ["a", "b"]}, "b") == "b"
    assert taken({"options": ["a", "b"]}) == ""
    assert faults({"options": ["a", "b"]}, "c") == ['Invalid value: "c": must be one of a, b']


@pytest.mark.parametrize("value", ["1", "t", "true", "True", "TRUE", 1, True])
def test_what_is_true(value: Any) -> None:
    assert taken({"type": "boolean"}, value) == "true"


@pytest.mark.parametrize("value", ["0", "f", "false", "False", 0, False, None, ""])
def test_what_is_false(value: Any) -> None:
    assert taken({"type": "boolean"}, value) == "false"


@pytest.mark.parametrize("value", ["yes", "2", 2, 1.5])
def test_what_is_neither(value: Any) -> None:
    assert "must be true or false" in faults({"type": "boolean"}, value)[0]


@pytest.mark.parametrize(
    ("value", "fault"),
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
def test_numbers_are_whole_and_within_their_limits(value: Any, fault: str) -> None:
    found = faults({"type": "number", "min": 1, "max": 3}, value)
    assert (fault in found[0]) if fault else not found


def test_a_limit_of_nought_is_a_limit() -> None:
    assert "must be at most 0" in faults({"type": "number", "max": 0}, 1)[0]


@pytest.mark.parametrize("value", [1.10, True])
def test_text_that_yaml_takes_for_something_else_must_be_quoted(value: Any) -> None:
    assert "put it in quotes" in faults({}, value)[0]


def test_whole_numbers_are_text_too() -> None:
    assert taken({}, 12) == "12"


@pytest.mark.parametrize("value", [["a"], {}])
def test_lists_and_maps_are_no_values(value: Any) -> None:
    assert "must be a single value" in faults({}, value)[0]


@pytest.mark.parametrize("value", ["a\nb: c", "a\rb", "a\u2028b", "a\x85b", "\x00", "\x1b[2J"])
def test_a_value_of_one_line_adds_no_other(value: str) -> None:
    assert "must be one line" in faults({}, value)[0]
    assert taken({"type": "multiline"}, value) == value


def test_a_password_is_not_told_in_messages() -> None:
    (message,) = faults({"type": "password", "validation": "^x$"}, "hunter2")
    assert "hunter2" not in message


def test_errors_name_the_variable_and_come_all_at_once() -> None:
    definitions: list[Object] = [{"variable": "image.tag", "required": True}, {"variable": "size", "type": "number"}]
    _, problems = check_values(definitions, {"size": "big"})
    assert [problem.field for problem in problems] == ["spec.parameters[image.tag]", "spec.parameters[size]"]


def test_what_is_not_defined_is_left_out_and_can_be_told() -> None:
    assert check_values([], {"a": "b"}) == ({}, [])
    assert find_undefined([{"variable": "a"}], {"a": 1, "c": 2, "b": 3}) == ["b", "c"]


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*b$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    """An engine that backtracks would not come back from any of these."""
    assert faults({"validation": pattern}, "a" * 50_000 + "!")


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
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
def test_classes_of_characters_are_those_of_go(pattern: str, found: str, not_found: str) -> None:
    assert not faults({"validation": pattern}, found)
    assert faults({"validation": pattern}, not_found)


@pytest.mark.parametrize("escaped", list("wdsWDS"))
def test_compiling_a_pattern_takes_time_that_grows_with_its_length(escaped: str) -> None:
    """The engine itself takes up to a second to write out five hundred of these classes; this takes milliseconds."""
    pattern = rf"\{escaped}" * (MAX_PATTERN_LENGTH // 2)
    began = thread_time()
    list(definition_problems("spec.parameters", [{"variable": "v", "validation": pattern}]))
    assert thread_time() - began < 0.05


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "(?:a{1000}){1000}", "a" * (MAX_PATTERN_LENGTH + 1)])
def test_patterns_that_could_be_costly_or_are_none_are_refused(pattern: str) -> None:
    (problem,) = definition_problems("spec.parameters", [{"variable": "v", "validation": pattern}])
    assert problem.field == "spec.parameters[0].validation"
    assert "must match" in faults({"validation": pattern}, "a")[0]


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
def test_the_rules_of_definitions(definitions: list[Object], expected: list[str]) -> None:
    assert [problem.field for problem in definition_problems("spec.parameters", definitions)] == expected


def test_an_unknown_type_is_an_error() -> None:
    assert "unknown type colour" in faults({"type": "colour"}, "red")[0]
