"""registry/patching/merge_patches.py: strategic merge patches, their order and their directives."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import BadRequest
from fairlead.registry import schema as words
from fairlead.registry.patching.field_set import is_equal_json
from fairlead.registry.patching.merge_patches import apply_merge_patch, apply_strategic_merge_patch
from fairlead.registry.patching.merge_schema import build_merge_schema

SCHEMA = words.obj(
    spec=words.obj(
        "",
        name=words.string(),
        chart=words.obj("", name=words.string(), version=words.string()),
        whole=words.atomic(words.obj("", a=words.string(), b=words.string())),
        users=words.array(words.string()),
        groups=words.array_set(words.string()),
        ports=words.array_map(
            ("port", "protocol"),
            words.obj(
                "",
                port=words.integer(),
                protocol=words.string(default="TCP"),
                name=words.string(),
                tags=words.mapping(words.string()),
            ),
        ),
        extra=words.open_object(),
    ),
    data=words.mapping(words.string()),
)
MERGE_SCHEMA = build_merge_schema(SCHEMA)
UID = "u1"


def test_a_patch_cannot_change_the_type_of_an_object() -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
    for patch in ({"apiVersion": "v2", "kind": "Secret"}, {"apiVersion": None, "kind": None}):
        assert apply_strategic_merge_patch(document, patch, MERGE_SCHEMA) == document
    assert apply_strategic_merge_patch(document, {"kind": 5}, MERGE_SCHEMA)["kind"] == 5, "which is then not decoded"


def patch_spec(old: Any, patch: Any) -> Any:
    """Applies the patch to the spec and returns it."""
    return apply_strategic_merge_patch({"spec": old}, {"spec": patch}, MERGE_SCHEMA)["spec"]


PATCHES: list[tuple[str, Any, Any, Any]] = [
    ("a value", {"name": "x"}, {"name": "y"}, {"name": "y"}),
    ("null removes", {"name": "x", "users": []}, {"name": None, "chart": None}, {"users": []}),
    ("a structure", {"chart": {"name": "x"}}, {"chart": {"version": "1"}}, {"chart": {"name": "x", "version": "1"}}),
    ("a structure that is owned as one", {"whole": {"a": "1"}}, {"whole": {"b": "2"}}, {"whole": {"a": "1", "b": "2"}}),
    ("a new structure, without nulls", {}, {"chart": {"name": "x", "version": None}}, {"chart": {"name": "x"}}),
    ("a list without keys is replaced", {"users": ["a", "b"]}, {"users": ["c"]}, {"users": ["c"]}),
    ("a set takes in what is new, first", {"groups": ["a", "b"]}, {"groups": ["c"]}, {"groups": ["c", "a", "b"]}),
    ("a set keeps what it has", {"groups": ["c", "a", "b"]}, {"groups": ["a"]}, {"groups": ["c", "a", "b"]}),
    ("a set knows an entry once", {"groups": ["a"]}, {"groups": ["b", "b", "a"]}, {"groups": ["b", "a"]}),
    ("an empty set changes nothing", {"groups": ["a"]}, {"groups": []}, {"groups": ["a"]}),
    (
        "an entry by its keys, one of them left to its default",
        {"ports": [{"port": 1, "name": "a", "tags": {"x": "1"}}, {"port": 1, "protocol": "UDP"}]},
        {"ports": [{"port": 1, "protocol": "TCP", "tags": {"y": "2", "x": None}}]},
        {
            "ports": [
                {"port": 1, "protocol": "TCP", "name": "a", "tags": {"y": "2"}},
                {"port": 1, "protocol": "UDP"},
            ]
        },
    ),
    (
        "a new entry comes first, without nulls",
        {"ports": [{"port": 1}]},
        {"ports": [{"port": 2, "name": None}]},
        {"ports": [{"port": 2}, {"port": 1}]},
    ),
    (
        "free content",
        {"extra": {"a": {"b": 1}, "l": [1]}},
        {"extra": {"a": {"c": 2}, "l": [2]}},
        {"extra": {"a": {"b": 1, "c": 2}, "l": [2]}},
    ),
    (
        "a value of another sort",
        {"extra": {"a": [1]}},
        {"extra": {"a": {"b": None, "c": 1}}},
        {"extra": {"a": {"c": 1}}},
    ),
    (
        "replace a structure",
        {"chart": {"name": "x"}},
        {"chart": {"$patch": "replace", "version": "1"}},
        {"chart": {"version": "1"}},
    ),
    (
        "replace a structure, nulls included",
        {"extra": {"a": 1}},
        {"extra": {"$patch": "replace", "b": None, "c": {"d": None}}},
        {"extra": {"b": None, "c": {"d": None}}},
    ),
    *(
        (f"{directive} what is not there", {}, {"chart": {"$patch": directive, "version": "1"}}, {})
        for directive in ("replace", "delete")
    ),
    ("replace what is of another sort", {"extra": 1}, {"extra": {"$patch": "replace", "a": 1}}, {}),
    ("a directive inside of something new", {}, {"extra": {"a": {"$patch": "replace", "b": 1}}}, {"extra": {}}),
    ("empty a structure", {"chart": {"name": "x"}}, {"chart": {"$patch": "delete"}}, {"chart": {}}),
    (
        "delete an entry",
        {"ports": [{"port": 1}, {"port": 2}]},
        {"ports": [{"port": 1, "$patch": "delete"}, {"port": 9, "$patch": "delete"}]},
        {"ports": [{"port": 2}]},
    ),
    (
        "replace a list",
        {"ports": [{"port": 1}, {"port": 2}]},
        {"ports": [{"port": 2, "$patch": "delete"}, {"$patch": "replace"}, {"port": 3}]},
        {"ports": [{"port": 3}]},
    ),
    (
        "replace an entry",
        {"ports": [{"port": 1, "tags": {"x": "1"}}]},
        {"ports": [{"port": 1, "tags": {"$patch": "replace", "y": "2"}}]},
        {"ports": [{"port": 1, "tags": {"y": "2"}}]},
    ),
    (
        "directives in a new list",
        {},
        {"ports": [{"port": 1, "$patch": "delete"}, {"port": 2}]},
        {"ports": [{"port": 2}]},
    ),
    ("take out of a set", {"groups": ["a", "b"]}, {"$deleteFromPrimitiveList/groups": ["b", "x"]}, {"groups": ["a"]}),
    (
        "take out of a set and put in",
        {"groups": ["a", "b"]},
        {"$deleteFromPrimitiveList/groups": ["b"], "groups": ["c"]},
        {"groups": ["c", "a"]},
    ),
    ("take out of any list", {"users": ["a", "b"]}, {"$deleteFromPrimitiveList/users": ["a"]}, {"users": ["b"]}),
    ("take out of nothing", {}, {"$deleteFromPrimitiveList/groups": ["a"]}, {}),
    ("order a set", {"groups": ["a", "b", "c"]}, {"$setElementOrder/groups": ["c", "a"]}, {"groups": ["b", "c", "a"]}),
    (
        "order what is put in",
        {"groups": ["a", "x"]},
        {"$setElementOrder/groups": ["b", "a"], "groups": ["b"]},
        {"groups": ["b", "a", "x"]},
    ),
    (
        "order entries by their keys",
        {"ports": [{"port": 1}, {"port": 2}]},
        {"$setElementOrder/ports": [{"port": 2}, {"port": 1}], "ports": [{"port": 1, "name": "x"}]},
        {"ports": [{"port": 2}, {"port": 1, "name": "x"}]},
    ),
    ("order what is not there", {}, {"$setElementOrder/groups": ["a"]}, {}),
    ("order a list without keys", {"users": ["a", "b"]}, {"$setElementOrder/users": ["b"]}, {"users": ["a", "b"]}),
    (
        "keep some fields",
        {"chart": {"name": "x", "version": "1"}},
        {"chart": {"$retainKeys": ["version", "name2"], "version": "2"}},
        {"chart": {"version": "2"}},
    ),
    (
        "fields to keep of something new are a field like any other",
        {},
        {"chart": {"$retainKeys": ["name"], "name": "x"}},
        {"chart": {"$retainKeys": ["name"], "name": "x"}},
    ),
    ("an unknown directive in something new drops it", {}, {"chart": {"$patch": "nope", "name": "x"}}, {}),
]


@pytest.mark.parametrize(("what", "before", "patch", "after"), PATCHES, ids=[row[0] for row in PATCHES])
def test_patching(what: str, before: Any, patch: Any, after: Any) -> None:
    assert patch_spec(before, patch) == after


def test_metadata_fields_are_merged_by_their_list_type():
    obj = {
        "metadata": {
            "labels": {"a": "1", "b": "1"},
            "finalizers": ["x.io/a"],
            "ownerReferences": [{"uid": UID, "name": "n"}],
        }
    }
    patch = {
        "metadata": {
            "labels": {"a": None, "c": "1"},
            "finalizers": ["x.io/b"],
            "ownerReferences": [{"uid": UID, "controller": True}],
        }
    }
    assert apply_strategic_merge_patch(obj, patch, MERGE_SCHEMA)["metadata"] == {
        "labels": {"b": "1", "c": "1"},
        "finalizers": ["x.io/b", "x.io/a"],
        "ownerReferences": [{"uid": UID, "name": "n", "controller": True}],
    }


INVALID: list[tuple[str, Any, Any, str]] = [
    ("an unknown directive", {"chart": {}}, {"chart": {"$patch": "nope"}}, 'unknown patch type: "nope"'),
    ("a directive of a wrong type", {"chart": {}}, {"chart": {"$patch": ["x"]}}, "unknown patch type"),
    ("the directive merge", {"chart": {"name": "x"}}, {"chart": {"$patch": "merge"}}, "unknown patch type"),
    ("an unknown directive in an entry", {"ports": []}, {"ports": [{"port": 1, "$patch": "x"}]}, "unknown patch type"),
    ("no key", {"ports": [{"port": 1}]}, {"ports": [{"name": "x"}]}, "does not have its merge key, port"),
    ("no key to delete by", {"ports": [{"port": 1}]}, {"ports": [{"$patch": "delete"}]}, "merge key, port"),
    ("an entry that is no object", {"ports": []}, {"ports": ["x"]}, "expected an object with port and protocol"),
    ("an object in a set", {"groups": []}, {"groups": [{"a": 1}]}, "expected a plain value"),
    ("no list to take out", {"groups": []}, {"$deleteFromPrimitiveList/groups": "a"}, "must be a list"),
    ("no list for the order", {"groups": []}, {"$setElementOrder/groups": "a"}, "must be a list"),
    ("an order without what is put in", {"groups": ["a"]}, {"$setElementOrder/groups": ["a"], "groups": ["b"]}, '"b"'),
    ("another order", {"groups": []}, {"$setElementOrder/groups": ["a", "b"], "groups": ["b", "a"]}, "does not match"),
    ("no list of fields to keep", {"chart": {}}, {"chart": {"$retainKeys": "x"}}, "must be a list of field names"),
    ("a field not to keep", {"chart": {}}, {"chart": {"$retainKeys": [1], "name": "x"}}, "the patch sets name"),
]


@pytest.mark.parametrize(("what", "before", "patch", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_an_invalid_patch_is_rejected(what: str, before: Any, patch: Any, message: str) -> None:
    with pytest.raises(BadRequest, match="invalid strategic merge patch") as caught:
        patch_spec(before, patch)
    assert message in caught.value.message


@pytest.mark.parametrize("body", [None, [], "x", 5])
def test_a_body_that_is_not_an_object_is_rejected(body: Any) -> None:
    with pytest.raises(BadRequest, match="error decoding patch"):
        apply_strategic_merge_patch({}, body, MERGE_SCHEMA)


names = st.sampled_from("abcdef")
subsets = st.lists(names, unique=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
free = st.dictionaries(names, values, max_size=3)


def remove_nulls_in_lists(value: Any) -> Any:
    """Removes nulls inside lists, which merge and strategic merge patches treat differently."""
    if isinstance(value, list):
        return [remove_nulls_in_lists(each) for each in value if not isinstance(each, dict | list)]
    return {name: remove_nulls_in_lists(each) for name, each in value.items()} if isinstance(value, dict) else value


@given(free, free.map(remove_nulls_in_lists))
def test_without_keyed_lists_it_equals_a_merge_patch(before, patch):
    document, changes = {"spec": {"extra": before}}, {"spec": {"extra": patch}}
    assert is_equal_json(
        apply_strategic_merge_patch(document, changes, MERGE_SCHEMA), apply_merge_patch(document, changes)
    )


@given(free, free)
def test_patch_and_document_are_neither_shared_nor_modified(before, patch):
    document, changes = {"spec": {"extra": before}}, {"spec": {"extra": patch}}
    copies = deepcopy((document, changes))
    apply_strategic_merge_patch(document, changes, MERGE_SCHEMA)["spec"]["extra"]["new"] = 1
    assert (document, changes) == copies


@given(subsets, subsets, subsets)
def test_a_patched_set_has_unique_items_in_both_orders(before, patch, deleted):
    deleted = [each for each in deleted if each not in patch]
    found = patch_spec({"groups": before}, {"groups": patch, "$deleteFromPrimitiveList/groups": deleted})["groups"]
    remaining = [each for each in before if each not in deleted]
    assert sorted(found) == sorted({*remaining, *patch})
    assert [each for each in found if each in patch] == patch
    assert [each for each in found if each not in patch] == [each for each in remaining if each not in patch]


@given(subsets, subsets, st.data())
def test_set_element_order_is_respected(before, order, data):
    patch = [each for each in order if data.draw(st.booleans())]
    found = patch_spec({"groups": before}, {"groups": patch, "$setElementOrder/groups": order})["groups"]
    assert [each for each in found if each in order] == [each for each in order if each in {*before, *patch}]
    assert [each for each in found if each not in order] == [each for each in before if each not in order]
