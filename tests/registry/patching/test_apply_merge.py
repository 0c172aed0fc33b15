"""registry/patching/apply.py: merging a configuration into an object, and removing fields from one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.registry import schema as words
from fairlead.registry.patching.apply import merge_config, remove_fields
from fairlead.registry.patching.field_set import difference, is_equal_json
from fairlead.registry.patching.field_walk import all_fields, applied_fields
from fairlead.registry.patching.merge_schema import build_merge_schema

SCHEMA = words.obj(
    name=words.string(),
    chart=words.obj("", name=words.string(), version=words.string()),
    whole=words.atomic(words.obj("", a=words.string(), b=words.string())),
    tags=words.mapping(words.string()),
    users=words.array(words.string()),
    groups=words.array_set(words.string()),
    ports=words.array_map(("port",), words.obj("", port=words.integer(), name=words.string(), on=words.boolean())),
    extra=words.open_object(),
)
MERGE_SCHEMA = build_merge_schema(SCHEMA)

MERGED: list[tuple[str, Any, Any, Any]] = [
    ("a value", {"name": "x"}, {"name": "y"}, {"name": "y"}),
    ("a new value", {"name": "x"}, {"users": []}, {"name": "x", "users": []}),
    ("a structure", {"chart": {"name": "x"}}, {"chart": {"version": "1"}}, {"chart": {"name": "x", "version": "1"}}),
    ("an atomic structure", {"whole": {"a": "x"}}, {"whole": {"b": "y"}}, {"whole": {"b": "y"}}),
    ("a map", {"tags": {"a": "1", "b": "1"}}, {"tags": {"b": "2"}}, {"tags": {"a": "1", "b": "2"}}),
    ("an empty map", {"tags": {"a": "1"}}, {"tags": {}}, {"tags": {"a": "1"}}),
    ("null for a map", {"tags": {"a": "1"}}, {"tags": None}, {"tags": {"a": "1"}}),
    ("null for a value", {"name": "x"}, {"name": None}, {"name": None}),
    ("an atomic list", {"users": ["a"]}, {"users": ["b"]}, {"users": ["b"]}),
    ("a set", {"groups": ["a", "b"]}, {"groups": ["b", "c"]}, {"groups": ["a", "b", "c"]}),
    ("null for a set", {"groups": ["a"]}, {"groups": None}, {"groups": ["a"]}),
    ("a set in another order", {"groups": ["a", "b", "c"]}, {"groups": ["c", "a"]}, {"groups": ["b", "c", "a"]}),
    ("a set with others in between", {"groups": ["a", "x", "b"]}, {"groups": ["a", "b"]}, {"groups": ["a", "x", "b"]}),
    ("new entries before", {"groups": ["x", "b"]}, {"groups": ["a", "b", "c"]}, {"groups": ["x", "a", "b", "c"]}),
    (
        "entries by key",
        {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]},
        {"ports": [{"port": 2, "on": True}, {"port": 3}]},
        {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b", "on": True}, {"port": 3}]},
    ),
    (
        "duplicates, which are replaced by what is wanted",
        {"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}, {"port": 2}]},
        {"ports": [{"port": 1, "on": True}]},
        {"ports": [{"port": 1, "on": True}, {"port": 2}]},
    ),
    ("duplicates that are not wanted", {"groups": ["a", "a"]}, {"groups": ["b"]}, {"groups": ["a", "a", "b"]}),
    (
        "free content",
        {"extra": {"a": {"b": 1}, "l": [1]}},
        {"extra": {"a": {"c": 2}, "l": [2]}},
        {"extra": {"a": {"b": 1, "c": 2}, "l": [2]}},
    ),
    ("free content of another sort", {"extra": {"a": 1}}, {"extra": {"a": {"b": 1}}}, {"extra": {"a": {"b": 1}}}),
]


@pytest.mark.parametrize(("what", "live", "config", "expected"), MERGED, ids=[row[0] for row in MERGED])
def test_merging(what: str, live: Any, config: Any, expected: Any) -> None:
    assert merge_config(live, config, MERGE_SCHEMA) == expected


REMOVED: list[tuple[str, Any, Any, Any]] = [
    ("nothing", {"name": "x"}, {}, {"name": "x"}),
    ("a field", {"name": "x", "users": ["a"]}, {"f:name": {}}, {"users": ["a"]}),
    ("a field of a structure", {"chart": {"name": "x"}}, {"f:chart": {"f:name": {}}}, {"chart": None}),
    ("a structure and so all in it", {"chart": {"name": "x"}}, {"f:chart": {".": {}, "f:version": {}}}, {}),
    ("an entry of a set", {"groups": ["a", "b"]}, {"f:groups": {'v:"a"': {}}}, {"groups": ["b"]}),
    ("duplicates", {"groups": ["a", "b", "a"]}, {"f:groups": {'v:"a"': {}}}, {"groups": ["b"]}),
    (
        "an entry by key",
        {"ports": [{"port": 1}, {"port": 2}]},
        {"f:ports": {'k:{"port":1}': {".": {}, "f:name": {}}}},
        {"ports": [{"port": 2}]},
    ),
    (
        "a field of an entry",
        {"ports": [{"port": 1, "name": "x"}]},
        {"f:ports": {'k:{"port":1}': {"f:name": {}}}},
        {"ports": [{"port": 1}]},
    ),
    ("free content", {"extra": {"a": {"b": 1, "c": 2}}}, {"f:extra": {"f:a": {"f:b": {}}}}, {"extra": {"a": {"c": 2}}}),
    ("parts of a whole, which stays", {"users": ["a"]}, {"f:users": {"i:0": {}}}, {"users": ["a"]}),
]


@pytest.mark.parametrize(("what", "value", "fields", "expected"), REMOVED, ids=[row[0] for row in REMOVED])
def test_removing_fields(what: str, value: Any, fields: Any, expected: Any) -> None:
    assert remove_fields(value, fields, MERGE_SCHEMA) == expected


def port_number(port: Any) -> int:
    number: int = port["port"]
    return number


names = st.sampled_from("abc")
objects = st.fixed_dictionaries(
    {},
    optional={
        "name": names,
        "chart": st.dictionaries(st.sampled_from(["name", "version"]), names),
        "tags": st.dictionaries(names, names),
        "users": st.lists(names, max_size=2),
        "groups": st.lists(st.sampled_from("abcdef"), unique=True),
        "ports": st.lists(
            st.fixed_dictionaries({"port": st.integers(1, 4)}, optional={"name": names}),
            max_size=4,
            unique_by=port_number,
        ),
        "extra": st.dictionaries(names, st.integers(0, 2) | st.dictionaries(names, st.integers(0, 2))),
    },
)


@given(objects, objects)
def test_the_result_contains_the_configuration_and_keeps_the_rest(live, config):
    result = merge_config(live, config, MERGE_SCHEMA)
    assert difference(all_fields(live, MERGE_SCHEMA), all_fields(result, MERGE_SCHEMA)) in (
        {},
        _find_replaced(live, config),
    )
    assert difference(all_fields(config, MERGE_SCHEMA), all_fields(result, MERGE_SCHEMA)) == {}
    assert is_equal_json(merge_config(result, config, MERGE_SCHEMA), result)


def _find_replaced(live: Any, config: Any) -> Any:
    """Returns the objects in free-form fields that a scalar replaced."""
    replaced: dict[str, Any] = {
        f"f:{name}": {f"f:{key}": {} for key in was}
        for name, was in live.get("extra", {}).items()
        if isinstance(was, dict) and was and not isinstance(config.get("extra", {}).get(name, {}), dict)
    }
    return {"f:extra": replaced} if replaced else {}


@given(objects, objects)
def test_list_items_keep_the_order_of_the_configuration_then_the_live_order(live, config):
    before, wanted = live.get("groups", []), config.get("groups", [])
    found = merge_config(live, config, MERGE_SCHEMA).get("groups", [])
    assert [each for each in found if each in wanted] == wanted
    assert [each for each in found if each not in wanted] == [each for each in before if each not in wanted]


@given(objects)
def test_removing_all_applied_fields_leaves_nothing_applied(obj):
    rest = remove_fields(obj, applied_fields(obj, MERGE_SCHEMA), MERGE_SCHEMA)
    assert difference(applied_fields(rest, MERGE_SCHEMA), {f"f:{name}": {} for name in rest}) == {}
