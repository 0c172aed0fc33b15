"""Strategic merge patches: what merges, in which order, and what the directives do."""

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
SHAPE = build_merge_schema(SCHEMA)
UID = "u1"


def spec(before: Any, patch: Any) -> Any:
    """The spec after a patch of it."""
    return apply_strategic_merge_patch({"spec": before}, {"spec": patch}, SHAPE)["spec"]


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
    ("replace what is not there", {}, {"chart": {"$patch": "replace", "version": "1"}}, {"chart": {"version": "1"}}),
    ("empty a structure", {"chart": {"name": "x"}}, {"chart": {"$patch": "delete"}}, {"chart": {}}),
    (
        "merge, said aloud",
        {"chart": {"name": "x"}},
        {"chart": {"$patch": "merge", "version": "1"}},
        {"chart": {"name": "x", "version": "1"}},
    ),
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
    ("keep fields of something new", {}, {"chart": {"$retainKeys": ["name"], "name": "x"}}, {"chart": {"name": "x"}}),
]


@pytest.mark.parametrize(("what", "before", "patch", "after"), PATCHES, ids=[row[0] for row in PATCHES])
def test_patching(what: str, before: Any, patch: Any, after: Any) -> None:
    assert spec(before, patch) == after


def test_metadata_of_every_kind_merges_by_what_it_is():
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
    assert apply_strategic_merge_patch(obj, patch, SHAPE)["metadata"] == {
        "labels": {"b": "1", "c": "1"},
        "finalizers": ["x.io/b", "x.io/a"],
        "ownerReferences": [{"uid": UID, "name": "n", "controller": True}],
    }


WRONG: list[tuple[str, Any, Any, str]] = [
    ("an unknown directive", {"chart": {}}, {"chart": {"$patch": "nope"}}, 'unknown patch type: "nope"'),
    ("an odd directive", {"chart": {}}, {"chart": {"$patch": ["x"]}}, "unknown patch type"),
    ("an unknown directive in something new", {}, {"chart": {"$patch": "nope"}}, "unknown patch type"),
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


@pytest.mark.parametrize(("what", "before", "patch", "message"), WRONG, ids=[row[0] for row in WRONG])
def test_refused(what: str, before: Any, patch: Any, message: str) -> None:
    with pytest.raises(BadRequest, match="invalid strategic merge patch") as caught:
        spec(before, patch)
    assert message in caught.value.message


@pytest.mark.parametrize("body", [None, [], "x", 5])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(BadRequest, match="error decoding patch"):
        apply_strategic_merge_patch({}, body, SHAPE)


names = st.sampled_from("abcdef")
subsets = st.lists(names, unique=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
free = st.dictionaries(names, values, max_size=3)


def cleaned(value: Any) -> Any:
    """Without nulls inside lists, which the two sorts of patches see differently."""
    if isinstance(value, list):
        return [cleaned(each) for each in value if not isinstance(each, dict | list)]
    return {name: cleaned(each) for name, each in value.items()} if isinstance(value, dict) else value


@given(free, free.map(cleaned))
def test_where_no_list_has_keys_it_is_a_merge_patch(before, patch):
    document, changes = {"spec": {"extra": before}}, {"spec": {"extra": patch}}
    assert is_equal_json(apply_strategic_merge_patch(document, changes, SHAPE), apply_merge_patch(document, changes))


@given(free, free)
def test_nobodys_values_are_shared_or_changed(before, patch):
    document, changes = {"spec": {"extra": before}}, {"spec": {"extra": patch}}
    kept = deepcopy((document, changes))
    apply_strategic_merge_patch(document, changes, SHAPE)["spec"]["extra"]["new"] = 1
    assert (document, changes) == kept


@given(subsets, subsets, subsets)
def test_whatever_is_patched_a_set_has_everything_once_and_both_keep_their_order(before, patch, gone):
    gone = [each for each in gone if each not in patch]
    found = spec({"groups": before}, {"groups": patch, "$deleteFromPrimitiveList/groups": gone})["groups"]
    kept = [each for each in before if each not in gone]
    assert sorted(found) == sorted({*kept, *patch})
    assert [each for each in found if each in patch] == patch
    assert [each for each in found if each not in patch] == [each for each in kept if each not in patch]


@given(subsets, subsets, st.data())
def test_a_wanted_order_is_kept(before, order, data):
    patch = [each for each in order if data.draw(st.booleans())]
    found = spec({"groups": before}, {"groups": patch, "$setElementOrder/groups": order})["groups"]
    assert [each for each in found if each in order] == [each for each in order if each in {*before, *patch}]
    assert [each for each in found if each not in order] == [each for each in before if each not in order]
