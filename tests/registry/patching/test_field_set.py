"""registry/patching/field_set.py: set operations compared with plain sets of paths, and field sets of objects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.registry import schema as words
from fairlead.registry.patching.field_set import (
    SELF,
    FieldSet,
    difference,
    format_field_path,
    intersection,
    is_equal_json,
    iter_paths,
    parse_field_set,
    union,
)
from fairlead.registry.patching.field_walk import add_parents, all_fields, applied_fields, compare_objects
from fairlead.registry.patching.merge_schema import build_merge_schema

SCHEMA = words.obj(
    spec=words.obj(
        "",
        displayName=words.string(),
        size=words.integer(),
        chart=words.obj("", name=words.string(), version=words.string()),
        whole=words.atomic(words.obj("", a=words.string())),
        tags=words.mapping(words.string()),
        users=words.array(words.string()),
        groups=words.array_set(words.string()),
        ports=words.array_map(
            ("protocol", "port"),
            words.obj("", port=words.integer(), protocol=words.string(default="TCP"), name=words.string()),
        ),
        extra=words.open_object(),
        any=words.any_value(),
    ),
    status=words.open_object(),
)
MERGE_SCHEMA = build_merge_schema(SCHEMA)


def port_key(port: Any) -> tuple[int, str]:
    return port["port"], port.get("protocol", "TCP")


names = st.sampled_from(["a", "b", "c"])
scalars = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
free_objects = st.fixed_dictionaries({"status": st.dictionaries(names, values, max_size=3)})
ports = st.fixed_dictionaries(
    {"port": st.integers(1, 3)}, optional={"protocol": st.sampled_from(["TCP", "UDP"]), "name": st.sampled_from("pq")}
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {"name": st.sampled_from("xy")},
            optional={"labels": st.dictionaries(names, st.sampled_from("12"), max_size=2)},
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "displayName": st.sampled_from("pq"),
                "chart": st.dictionaries(st.sampled_from(["name", "version"]), st.sampled_from("12")),
                "tags": st.dictionaries(names, st.sampled_from("12"), max_size=2),
                "users": st.lists(st.sampled_from("ab"), max_size=2),
                "groups": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
                "ports": st.lists(ports, max_size=3, unique_by=port_key),
                "extra": st.dictionaries(names, values, max_size=2),
            },
        ),
        "status": st.dictionaries(names, values, max_size=2),
    },
)
path_sets = st.sets(st.lists(names.map(lambda name: "f:" + name), min_size=1, max_size=3).map(tuple), max_size=6)


def build_set(paths: set[tuple[str, ...]]) -> FieldSet:
    """Builds the field set of the paths step by step."""
    result: FieldSet = {}
    for path in paths:
        node = result
        for step in path:
            node = node.setdefault(step, {})
        node[SELF] = {}
    return strip_self(result)


def strip_self(fields: FieldSet) -> FieldSet:
    return {
        step: {} if below.keys() <= {SELF} else {**strip_self(below), **({SELF: {}} if SELF in below else {})}
        for step, below in fields.items()
        if step != SELF
    }


@given(path_sets, path_sets)
def test_sets_behave_like_sets_of_paths(one, other):
    assert union(build_set(one), build_set(other)) == build_set(one | other)
    assert difference(build_set(one), build_set(other)) == build_set(one - other)
    assert intersection(build_set(one), build_set(other)) == build_set(one & other)


@given(path_sets)
def test_the_paths_of_a_set_are_those_it_was_built_from(one):
    assert set(iter_paths(build_set(one))) == one
    assert len(list(iter_paths(build_set(one)))) == len(one)


@given(path_sets, path_sets)
def test_operations_do_not_modify_their_arguments(one, other):
    first, second = build_set(one), build_set(other)
    for operation in (union, difference, intersection):
        operation(first, second)
    assert (first, second) == (build_set(one), build_set(other))


@given(path_sets, path_sets)
def test_a_difference_without_common_fields_is_the_set_itself(one, other):
    fields = build_set(one)
    assert (difference(fields, build_set(other)) is fields) == (not one & other)


@given(path_sets)
def test_a_normalized_set_is_parsed_unchanged(one):
    assert parse_field_set(build_set(one)) == build_set(one)


@given(objects, objects)
def test_changes_lead_from_the_old_fields_to_the_new_fields(old, new):
    taken, removed = compare_objects(old, new, MERGE_SCHEMA)
    assert union(difference(all_fields(old, MERGE_SCHEMA), removed), taken) == all_fields(new, MERGE_SCHEMA)
    assert intersection(removed, all_fields(new, MERGE_SCHEMA)) == {}
    assert difference(removed, all_fields(old, MERGE_SCHEMA)) == {}


@given(objects)
def test_an_object_compared_with_itself_has_no_changes(obj):
    assert compare_objects(obj, obj, MERGE_SCHEMA) == ({}, {})


@given(objects)
def test_compared_with_an_empty_object_everything_is_new(obj):
    assert compare_objects({}, obj, MERGE_SCHEMA) == (all_fields(obj, MERGE_SCHEMA), {})
    assert compare_objects(obj, {}, MERGE_SCHEMA) == ({}, all_fields(obj, MERGE_SCHEMA))


@given(objects)
def test_applied_fields_are_a_subset_of_all_fields(obj):
    assert difference(applied_fields(obj, MERGE_SCHEMA), all_fields(obj, MERGE_SCHEMA)) == {}


@given(free_objects, free_objects)
def test_a_change_is_found_exactly_if_there_is_one(old, new):
    assert (compare_objects(old, new, MERGE_SCHEMA) == ({}, {})) == is_equal_json(old, new)


FIELDS: list[tuple[str, Any, Any]] = [
    ("a scalar", {"displayName": "x"}, {"f:displayName": {}}),
    ("a structure", {"chart": {"name": "x"}}, {"f:chart": {".": {}, "f:name": {}}}),
    ("an empty structure", {"chart": {}}, {"f:chart": {}}),
    ("an atomic structure", {"whole": {"a": "x"}}, {"f:whole": {}}),
    ("a map", {"tags": {"x/y": "1"}}, {"f:tags": {".": {}, "f:x/y": {}}}),
    ("an atomic list", {"users": ["a", "b"]}, {"f:users": {}}),
    ("a set", {"groups": ["a", 'q"']}, {"f:groups": {".": {}, 'v:"a"': {}, 'v:"q\\""': {}}}),
    ("an empty set", {"groups": []}, {"f:groups": {}}),
    ("a set with duplicates", {"groups": ["a", "a"]}, {"f:groups": {".": {}, 'v:"a"': {}}}),
    (
        "a list by keys, in the order of their names",
        {"ports": [{"protocol": "UDP", "port": 53}]},
        {"f:ports": {".": {}, 'k:{"port":53,"protocol":"UDP"}': {".": {}, "f:port": {}, "f:protocol": {}}}},
    ),
    (
        "a list whose entry leaves a key to its default",
        {"ports": [{"port": 80, "name": "web"}]},
        {"f:ports": {".": {}, 'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}, "f:port": {}}}},
    ),
    (
        "a list by keys with duplicates, owned as one",
        {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]},
        {"f:ports": {".": {}, 'k:{"port":80,"protocol":"TCP"}': {}}},
    ),
    (
        "free content: objects field by field, lists as a whole",
        {"extra": {"a": {"b": 1}, "l": [{"c": 1}], "n": None}},
        {"f:extra": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:l": {}, "f:n": {}}},
    ),
    ("any value, here a scalar", {"any": 5}, {"f:any": {}}),
    ("any value, here an object", {"any": {"a": 1}}, {"f:any": {".": {}, "f:a": {}}}),
    ("an undeclared field", {"new": {"a": 1}}, {"f:new": {".": {}, "f:a": {}}}),
]


@pytest.mark.parametrize(("what", "spec", "expected"), FIELDS, ids=[row[0] for row in FIELDS])
def test_fields_of(what, spec, expected):
    assert all_fields({"spec": spec}, MERGE_SCHEMA) == {"f:spec": {".": {}, **expected}}


def test_fields_set_by_server_or_url_have_no_owner():
    meta = {
        **dict.fromkeys(("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "selfLink"), "x"),
        "generation": 1,
        "managedFields": [{}],
    }
    assert all_fields({"apiVersion": "v1", "kind": "App", "metadata": meta}, MERGE_SCHEMA) == {}


def test_metadata_is_owned_by_key_and_list_item_but_not_as_a_whole():
    meta = {
        "generateName": "a-",
        "labels": {"run": "1"},
        "annotations": {"a/b": "c"},
        "finalizers": ["x.io/a"],
        "ownerReferences": [{"uid": "u1", "name": "n", "controller": True}],
    }
    assert all_fields({"metadata": meta}, MERGE_SCHEMA) == {
        "f:metadata": {
            "f:generateName": {},
            "f:labels": {".": {}, "f:run": {}},
            "f:annotations": {".": {}, "f:a/b": {}},
            "f:finalizers": {".": {}, 'v:"x.io/a"': {}},
            "f:ownerReferences": {".": {}, 'k:{"uid":"u1"}': {}},
        }
    }


def test_fields_excluded_from_the_schema_have_no_owner():
    shape = build_merge_schema(SCHEMA, without=("status", "spec.chart.version"))
    old = {"spec": {"chart": {"name": "a", "version": "1"}}, "status": {"a": 1}}
    new = {"spec": {"chart": {"name": "b", "version": "2"}}}
    assert all_fields(old, shape) == {"f:spec": {".": {}, "f:chart": {".": {}, "f:name": {}}}}
    assert compare_objects(old, new, shape) == ({"f:spec": {"f:chart": {"f:name": {}}}}, {})


CHANGES: list[tuple[str, Any, Any, Any, Any]] = [
    ("another value", {"size": 1}, {"size": 2}, {"f:size": {}}, {}),
    ("true is not 1", {"any": 1}, {"any": True}, {"f:any": {}}, {}),
    ("true is not 1 inside a list", {"users": [1]}, {"users": [True]}, {"f:users": {}}, {}),
    (
        "a key added, one removed",
        {"tags": {"a": "1"}},
        {"tags": {"b": "1"}},
        {"f:tags": {"f:b": {}}},
        {"f:tags": {"f:a": {}}},
    ),
    ("an emptied map stays", {"tags": {"a": "1"}}, {"tags": {}}, {}, {"f:tags": {"f:a": {}}}),
    ("a map that goes", {"tags": {"a": "1"}}, {}, {}, {"f:tags": {".": {}, "f:a": {}}}),
    ("a list reordered", {"users": ["a", "b"]}, {"users": ["b", "a"]}, {"f:users": {}}, {}),
    ("a set reordered", {"groups": ["a", "b"]}, {"groups": ["b", "a"]}, {}, {}),
    ("an entry of a set", {"groups": ["a"]}, {"groups": ["a", "b"]}, {"f:groups": {'v:"b"': {}}}, {}),
    ("a set that begins", {"groups": []}, {"groups": ["b"]}, {"f:groups": {'v:"b"': {}}}, {}),
    (
        "a field of an entry",
        {"ports": [{"port": 1, "name": "a"}]},
        {"ports": [{"port": 1, "name": "b"}]},
        {"f:ports": {'k:{"port":1,"protocol":"TCP"}': {"f:name": {}}}},
        {},
    ),
    (
        "duplicates that changed",
        {"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]},
        {"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "c"}]},
        {"f:ports": {'k:{"port":1,"protocol":"TCP"}': {}}},
        {},
    ),
    (
        "a duplicate that appears",
        {"ports": [{"port": 1}]},
        {"ports": [{"port": 1}, {"port": 1}]},
        {"f:ports": {'k:{"port":1,"protocol":"TCP"}': {}}},
        {"f:ports": {'k:{"port":1,"protocol":"TCP"}': {".": {}, "f:port": {}}}},
    ),
    (
        "a duplicate that goes",
        {"ports": [{"port": 1}, {"port": 1}]},
        {"ports": [{"port": 1}]},
        {"f:ports": {'k:{"port":1,"protocol":"TCP"}': {".": {}, "f:port": {}}}},
        {"f:ports": {'k:{"port":1,"protocol":"TCP"}': {}}},
    ),
    ("a scalar becomes an object", {"any": 1}, {"any": {"a": 1}}, {"f:any": {".": {}, "f:a": {}}}, {}),
    ("an object becomes a scalar", {"any": {"a": 1}}, {"any": 1}, {"f:any": {}}, {"f:any": {"f:a": {}}}),
    ("null becomes an object", {"any": None}, {"any": {"a": 1}}, {"f:any": {"f:a": {}}}, {}),
    ("an object becomes null", {"any": {"a": 1}}, {"any": None}, {}, {"f:any": {"f:a": {}}}),
    ("null becomes an empty object", {"any": None}, {"any": {}}, {"f:any": {}}, {}),
]


@pytest.mark.parametrize(("what", "old", "new", "taken", "removed"), CHANGES, ids=[row[0] for row in CHANGES])
def test_changes_when(what, old, new, taken, removed):
    found = compare_objects({"spec": old}, {"spec": new}, MERGE_SCHEMA)
    assert found == ({"f:spec": taken} if taken else {}, {"f:spec": removed} if removed else {})


def test_applied_fields_are_values_and_not_the_declared_objects_around_them():
    obj = {
        "metadata": {"name": "x", "labels": {"a": "1"}, "finalizers": ["f"]},
        "spec": {"chart": {"name": "n"}, "whole": {"a": "x"}, "groups": [], "ports": [{"port": 1, "protocol": "TCP"}]},
        "status": {"deep": {"a": 1}, "empty": {}},
    }
    assert applied_fields(obj, MERGE_SCHEMA) == {
        "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {'v:"f"': {}}},
        "f:spec": {
            "f:chart": {"f:name": {}},
            "f:whole": {},
            "f:ports": {'k:{"port":1,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:protocol": {}}},
        },
        "f:status": {"f:deep": {".": {}, "f:a": {}}, "f:empty": {}},
    }


def test_the_objects_around_applied_values_can_be_added_again():
    obj = {"spec": {"chart": {"name": "n"}, "ports": [{"port": 1}], "tags": {"a": "1"}}, "status": {"a": {"b": 1}}}
    assert add_parents(applied_fields(obj, MERGE_SCHEMA), MERGE_SCHEMA) == all_fields(obj, MERGE_SCHEMA)


def test_client_supplied_sets_are_normalized():
    sent: FieldSet = {
        ".": {},
        "f:a": {".": {}},
        'k:{"b": 1, "a": 2}': {".": {}, "f:x": {}},
        "v: 1": {},
        "i:07": {},
        "z:new": {},
    }
    assert parse_field_set(sent) == {"f:a": {}, 'k:{"a":2,"b":1}': {".": {}, "f:x": {}}, "v:1": {}, "i:7": {}}


@pytest.mark.parametrize(
    "wrong", [None, [], {"f:a": None}, {"x": {}}, {"k:[1]": {}}, {"k:{": {}}, {"v:": {}}, {"i:x": {}}]
)
def test_an_invalid_set_is_rejected(wrong):
    with pytest.raises(ValueError):
        parse_field_set(wrong)


def test_paths_are_formatted_as_in_error_messages():
    path = ("f:metadata", "f:ownerReferences", 'k:{"port":1,"uid":"u"}', 'v:"x"', "i:3", "f:a.b")
    assert format_field_path(path) == '.metadata.ownerReferences[port=1,uid="u"][="x"][3].a.b'


def test_metadata_as_a_whole_is_not_added_again():
    fields = applied_fields({"metadata": {"labels": {"a": "1"}}}, MERGE_SCHEMA)
    assert add_parents(fields, MERGE_SCHEMA) == {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}
