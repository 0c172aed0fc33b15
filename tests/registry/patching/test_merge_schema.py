"""What a shape remembers of names must not show: everything is as if each value were looked at for the first time."""

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
SHAPE = build_merge_schema(SCHEMA, ("status",))

leaves = st.sampled_from([0, 1, 1.0, True, False, None, "x", "y", ""])
names = st.sampled_from(["a", "b", "c", "inner", "map", "list", "set", "free", "made up"])
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


def _outcome(old: Object, new: Object) -> list[Any]:
    return [
        all_fields(new, SHAPE),
        applied_fields(new, SHAPE),
        compare_objects(old, new, SHAPE),
        compare_objects(old, old, SHAPE),
        merge_config(old, new, SHAPE),
    ]


@given(objects, objects)
def test_what_is_remembered_of_names_changes_no_set_and_no_merge_nor_their_order(old: Object, new: Object) -> None:
    remembered = orjson.dumps([_outcome(old, new), _outcome(old, new)])
    with patch.object(MergeSchema, "field_plan", lambda self, value: None):
        assert remembered == orjson.dumps([_outcome(old, new), _outcome(old, new)])


@given(objects)
def test_sets_made_from_what_is_remembered_are_apart(obj: Object) -> None:
    before = orjson.dumps(all_fields(obj, SHAPE))
    all_fields(obj, SHAPE)["f:kind"] = {"f:more": {}}
    assert orjson.dumps(all_fields(obj, SHAPE)) == before


def test_names_that_anybody_may_make_up_are_not_remembered() -> None:
    shape = build_merge_schema(SCHEMA)
    assert shape.fields["spec"].field_plan({"a": 1, "made up": 2}) is None
    assert shape.fields["status"].field_plan({"a": 1}) is None
    assert not shape.fields["spec"]._plans


def test_a_schema_with_unowned_fields_does_not_share_plans_with_the_one_it_was_made_from() -> None:
    meta = {"labels": {"a": "1"}, "finalizers": ["x"]}
    without_labels = build_merge_schema(SCHEMA, ["metadata.labels"]).fields["metadata"]
    plans = [each.field_plan(meta) for each in (without_labels, build_merge_schema(SCHEMA).fields["metadata"])]
    assert [[name for name, _, _ in plan.owned] for plan in plans if plan] == [["finalizers"], ["labels", "finalizers"]]


def test_no_more_than_some_choices_of_names_are_remembered() -> None:
    fields = [f"f{number}" for number in range(PLAN_CACHE_SIZE + 10)]
    shape = build_merge_schema({"type": "object", "properties": dict.fromkeys(fields, words.string())})
    for name in fields:
        found = shape.field_plan({name: "x"})
        assert found is not None
        assert found.flat_set == {f"f:{name}": {}}
    assert len(shape._plans) <= PLAN_CACHE_SIZE
