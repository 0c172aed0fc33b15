"""registry/patching/merge_schema.py: cached plans for sets of field names do not change any result."""

from typing import Any
from unittest.mock import patch

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.objects import Object
from fairlead.registry import schema as words
from fairlead.registry.patching.apply import merge_config
from fairlead.registry.patching.field_walk import all_fields, applied_fields, compare_objects
from fairlead.registry.patching.merge_schema import PLAN_CACHE_SIZE, MergeSchema, build_merge_schema

SPEC = words.obj(
    a=words.string(),
    b=words.integer(),
    c=words.boolean(),
    inner=words.obj(a=words.string(), c=words.obj(a=words.string())),
    map=words.mapping(words.string()),
    list=words.array(words.string()),
    set=words.array_set(words.string()),
    free=words.open_object(),
)
SCHEMA = {"type": "object", "properties": {"spec": SPEC, "status": words.open_object()}}
MERGE_SCHEMA = build_merge_schema(SCHEMA, ("status",))

leaves = st.sampled_from([0, 1, 1.0, True, False, None, "x", "y", ""])
names = st.sampled_from(["a", "b", "c", "inner", "map", "list", "set", "free", "undeclared"])
parts = st.recursive(
    leaves | st.lists(st.sampled_from(["x", "y", "z"]), max_size=3),
    lambda below: st.dictionaries(names, below, max_size=4),
    max_leaves=12,
)
metas = st.dictionaries(
    st.sampled_from(["name", "uid", "generation", "labels", "annotations", "generateName"]),
    st.dictionaries(names, st.sampled_from(["x", "y"]), max_size=2),
    max_size=4,
)
objects = st.fixed_dictionaries(
    {"kind": st.just("K"), "metadata": metas}, optional={"spec": st.dictionaries(names, parts), "status": parts}
)


def _compute_all(old: Object, new: Object) -> list[Any]:
    return [
        all_fields(new, MERGE_SCHEMA),
        applied_fields(new, MERGE_SCHEMA),
        compare_objects(old, new, MERGE_SCHEMA),
        compare_objects(old, old, MERGE_SCHEMA),
        merge_config(old, new, MERGE_SCHEMA),
    ]


@given(objects, objects)
def test_cached_plans_change_no_set_no_merge_and_no_order(old: Object, new: Object) -> None:
    cached = orjson.dumps([_compute_all(old, new), _compute_all(old, new)])
    with patch.object(MergeSchema, "field_plan", lambda self, value: None):
        assert cached == orjson.dumps([_compute_all(old, new), _compute_all(old, new)])


@given(objects)
def test_sets_built_from_cached_plans_are_independent(obj: Object) -> None:
    before = orjson.dumps(all_fields(obj, MERGE_SCHEMA))
    all_fields(obj, MERGE_SCHEMA)["f:kind"] = {"f:more": {}}
    assert orjson.dumps(all_fields(obj, MERGE_SCHEMA)) == before


def test_client_chosen_names_are_not_cached() -> None:
    merge_schema = build_merge_schema(SCHEMA)
    assert merge_schema.fields["spec"].field_plan({"a": 1, "undeclared": 2}) is None
    assert merge_schema.fields["status"].field_plan({"a": 1}) is None
    assert not merge_schema.fields["spec"]._plans


def test_a_schema_with_unowned_fields_does_not_share_plans_with_its_original() -> None:
    meta = {"labels": {"a": "1"}, "finalizers": ["x"]}
    without_labels = build_merge_schema(SCHEMA, ["metadata.labels"]).fields["metadata"]
    plans = [each.field_plan(meta) for each in (without_labels, build_merge_schema(SCHEMA).fields["metadata"])]
    assert [[name for name, _, _ in plan.owned] for plan in plans if plan] == [["finalizers"], ["labels", "finalizers"]]


def test_the_number_of_cached_plans_is_limited() -> None:
    fields = [f"f{number}" for number in range(PLAN_CACHE_SIZE + 10)]
    merge_schema = build_merge_schema({"type": "object", "properties": dict.fromkeys(fields, words.string())})
    for name in fields:
        found = merge_schema.field_plan({name: "x"})
        assert found is not None
        assert found.flat_set == {f"f:{name}": {}}
    assert len(merge_schema._plans) <= PLAN_CACHE_SIZE
