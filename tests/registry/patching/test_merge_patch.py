"""registry/patching/merge_patches.py: JSON merge patch by RFC 7386."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import BadRequest
from fairlead.registry.patching.merge_patches import apply_merge_patch

names = st.sampled_from(["a", "b", "c"])
scalars = st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x"])
with_nulls = st.recursive(
    scalars | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
without_nulls = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(names, without_nulls, max_size=3)
patches = st.dictionaries(names, with_nulls, max_size=3)


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"icon": "i"}, {"icon": "k"}, {"icon": "k"}),
        ({"icon": "i"}, {"size": 1}, {"icon": "i", "size": 1}),
        ({"icon": "i", "size": 1}, {"icon": None}, {"size": 1}),
        ({"size": 1}, {"icon": None}, {"size": 1}),
        ({"spec": {"a": 1, "b": 2}}, {"spec": {"a": 3, "b": None}}, {"spec": {"a": 3}}),
        ({"spec": {"a": 1}}, {"spec": {}}, {"spec": {"a": 1}}),
        ({"list": [1, 2]}, {"list": [3]}, {"list": [3]}),
        ({"list": [1, 2]}, {"list": {"a": 1}}, {"list": {"a": 1}}),
        ({"spec": {"a": 1}}, {"spec": "text"}, {"spec": "text"}),
        ({}, {"spec": {"a": {"b": None, "c": 1}}}, {"spec": {"a": {"c": 1}}}),
        ({}, {"list": [None, {"a": None}]}, {"list": [None, {"a": None}]}),
        ({"kept": None}, {"a": 1}, {"kept": None, "a": 1}),
        ({"a": 1}, {}, {"a": 1}),
    ],
)
def test_merging(document, patch, expected):
    assert apply_merge_patch(document, patch) == expected


@given(documents)
def test_an_empty_patch_changes_nothing(document):
    assert apply_merge_patch(document, {}) == document


@given(documents, patches)
def test_applying_a_patch_twice_is_like_applying_it_once(document, patch):
    once = apply_merge_patch(document, patch)
    assert apply_merge_patch(once, patch) == once


@given(documents)
def test_a_document_without_nulls_is_a_patch_that_creates_it(document):
    assert apply_merge_patch({}, document) == document


@given(documents, patches)
def test_fields_that_the_patch_does_not_mention_stay(document, patch):
    result = apply_merge_patch(document, patch)
    assert {name: value for name, value in result.items() if name not in patch} == {
        name: value for name, value in document.items() if name not in patch
    }
    assert all((name in result) == (value is not None) for name, value in patch.items())


@given(documents, patches)
def test_changing_the_result_does_not_change_document_or_patch(document, patch):
    before = deepcopy((document, patch))
    modify_all(apply_merge_patch(document, patch))
    assert (document, patch) == before


def modify_all(value):
    """Modifies every object and list inside a value."""
    for inner in list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else ():
        modify_all(inner)
    if isinstance(value, dict):
        value["spoilt"] = True
    elif isinstance(value, list):
        value.append("spoilt")


@pytest.mark.parametrize(("patch", "what"), [([], "a list"), (None, "null"), ("x", "a single value"), (5, "a single")])
def test_a_patch_that_is_not_an_object_is_rejected(patch, what):
    with pytest.raises(BadRequest, match=f"error decoding patch: the body is {what}"):
        apply_merge_patch({}, patch)


def test_a_patch_that_nests_too_deeply_is_rejected():
    patch: dict = {}
    for _ in range(300):
        patch = {"a": patch}
    with pytest.raises(BadRequest, match="less nesting"):
        apply_merge_patch({}, patch)
