"""registry/patching/apply.py: which configurations can be merged, and the errors for all others."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.registry import schema as words
from fairlead.registry.patching.apply import FastTypeCheck, type_errors

SCHEMA = words.obj(
    text=words.string(),
    number=words.integer(),
    flag=words.boolean(),
    tags=words.mapping(words.string()),
    inner=words.obj("", required=("a",), a=words.string(), b=words.enum("", "x", "y")),
    users=words.array(words.string()),
    groups=words.array_set(words.string()),
    ports=words.array_map(
        ("port", "protocol"), words.obj("", port=words.integer(), protocol=words.string(default="TCP"))
    ),
    free=words.open_object(),
    any=words.any_value(),
)

VALID: list[tuple[str, Any]] = [
    ("nothing", {}),
    ("parts without what a whole needs", {"inner": {}}),
    ("values that only a full validation checks", {"inner": {"b": "z"}}),
    ("nulls", dict.fromkeys(("text", "number", "inner", "users", "free"))),
    ("numbers with a point", {"number": 1.5}),
    ("free content", {"free": {"a": [{"b": None}]}, "any": [1, "x"]}),
    ("entries that leave a key to its default", {"ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}]}),
]


@pytest.mark.parametrize(("what", "config"), VALID, ids=[row[0] for row in VALID])
def test_a_valid_configuration_has_no_errors(what: str, config: Any) -> None:
    assert type_errors(config, SCHEMA) == ""


INVALID: list[tuple[str, Any, str]] = [
    ("an unknown field", {"inner": {"c": 1}}, ".inner.c: field not declared in schema"),
    ("a number for a text", {"text": 7}, ".text: expected string, got 7"),
    ("true for a number", {"number": True}, ".number: expected numeric (int or float), got true"),
    ("a number for a flag", {"flag": 1}, ".flag: expected boolean, got 1"),
    ("a list for a map", {"tags": ["x"]}, '.tags: expected map, got ["x"]'),
    ("a map for a list", {"users": {"x": []}}, '.users: expected list, got {"x":[]}'),
    ("a value of a map", {"tags": {"x": 1}}, ".tags.x: expected string, got 1"),
    ("an entry of a list", {"users": ["a", 1]}, ".users[1]: expected string, got 1"),
    ("the same twice in a set", {"groups": ["a", "b", "a"]}, '.groups: duplicate entries for key [="a"]'),
    (
        "the same keys twice",
        {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
        '.ports: duplicate entries for key [port=1,protocol="TCP"]',
    ),
    (
        "an entry without its key",
        {"ports": [{"protocol": "TCP"}]},
        '.ports: element 0: associative list with keys has an element that omits "port"',
    ),
    ("an entry that is no object", {"ports": ["x"]}, '.ports[0]: expected map, got "x"'),
    (
        "a field of an entry",
        {"ports": [{"port": 1, "x": 1}]},
        '.ports[port=1,protocol="TCP"].x: field not declared in schema',
    ),
]


@pytest.mark.parametrize(("what", "config", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_an_invalid_configuration_is_rejected(what: str, config: Any, message: str) -> None:
    assert type_errors(config, SCHEMA) == message


def test_several_errors_are_reported_together_up_to_a_limit():
    assert type_errors({"text": 1, "x": 1}, SCHEMA) == (
        "errors:\n  .text: expected string, got 1\n  .x: field not declared in schema"
    )
    assert len(type_errors({f"x{number}": 1 for number in range(1000)}, SCHEMA).splitlines()) == 11


def test_a_long_value_is_not_quoted_in_full():
    assert len(type_errors({"number": "x" * 1000}, SCHEMA)) < 120


values = st.recursive(
    st.sampled_from([None, True, 1, 1.5, "x", "TCP"]),
    lambda below: (
        st.lists(below, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b", "port", "protocol", "other"]), below, max_size=3)
    ),
    max_leaves=6,
)
configs = st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), values, max_size=4)
FAST_CHECK = FastTypeCheck(SCHEMA)


@given(configs)
def test_a_configuration_that_passes_the_fast_check_has_no_errors(config: dict[str, Any]) -> None:
    assert not FAST_CHECK(config) or type_errors(config, SCHEMA) == ""


def test_ordinary_configurations_pass_the_fast_check() -> None:
    assert FAST_CHECK(
        {"text": "x", "number": 1, "tags": {"a": "b"}, "inner": {"b": "z"}, "users": ["a", "a"], "any": 1}
    )
    assert FAST_CHECK({"groups": ["a"], "ports": [{"port": 1, "protocol": "TCP"}], "free": {"a": {"b": 1}}})


@pytest.mark.parametrize(
    "config",
    [
        {"other": 1},
        {"text": 1},
        {"number": True},
        {"groups": ["a", "a"]},
        {"ports": [{"protocol": "TCP"}]},
        {"ports": [{"port": None, "protocol": "TCP"}]},
        {"ports": [{"port": 1, "protocol": "TCP", "other": 1}]},
    ],
)
def test_no_invalid_configuration_passes_the_fast_check(config: dict[str, Any]) -> None:
    assert type_errors(config, SCHEMA)
    assert not FAST_CHECK(config)
