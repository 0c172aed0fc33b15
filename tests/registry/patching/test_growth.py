"""Patches, apply and the record of owners take time that grows with their input, whatever its form."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.errors import TooLarge
from fairlead.registry.patching import json_patch, type_check
from fairlead.registry.patching.apply import conflict_error, merge_config, remove_fields
from fairlead.registry.patching.field_set import SELF, FieldSet, is_equal_json, union, union_all
from fairlead.registry.patching.field_walk import all_fields, applied_fields, compare_objects
from fairlead.registry.patching.managed_fields import ANCIENT_MANAGER, FieldManager, sort_entries
from fairlead.registry.patching.merge_patches import apply_strategic_merge_patch
from fairlead.registry.patching.merge_schema import ATOMIC, MergeSchema
from fairlead.registry.patching.type_check import type_errors
from fairlead.registry.schema import array, obj, string
from tests.harness.growth import assert_linear, cpu_time, words, work

SET = MergeSchema(entries=ATOMIC, keys=())
BY_NAME = MergeSchema(entries=MergeSchema({"name": ATOMIC, "x": ATOMIC}), keys=("name",))
SHAPE = MergeSchema({"spec": MergeSchema({"set": SET, "map": BY_NAME})})
THEN = "2026-01-01T00:00:00Z"

Make = Callable[[int], Callable[[], object]]


def listed(begin: str, size: int, x: int = 1) -> Any:
    names = [str(each) for each in words(begin, size)]
    return {"spec": {"set": names, "map": [{"name": each, "x": x} for each in names]}}


def ordered(size: int) -> Any:
    """All of it changed and turned round, and half of it new."""
    wanted = listed("a", size, 2)["spec"] | {"$deleteFromPrimitiveList/set": [f"a{i}" for i in range(0, size, 2)]}
    wanted["map"] = wanted["map"][::-1] + listed("b", size)["spec"]["map"]
    return {"spec": wanted | {"$setElementOrder/map": [{"name": each["name"]} for each in wanted["map"]]}}


def entangled(size: int) -> list[Any]:
    """Entries of a patch that are all about the same entry of the list."""
    return [{"name": "a0", "x": index, "$retainKeys": ["name", "x"]} for index in range(size)]


FORMS: dict[str, Make] = {
    "strategic merge, in another order": lambda n: (
        lambda: apply_strategic_merge_patch(listed("a", n), ordered(n), SHAPE)
    ),
    "strategic merge, one entry": lambda n: (
        lambda: apply_strategic_merge_patch(listed("a", n), {"spec": {"map": entangled(n)}}, SHAPE)
    ),
    "strategic merge, deletions": lambda n: (
        lambda: apply_strategic_merge_patch(
            listed("a", n), {"spec": {"map": [{"name": f"a{i}", "$patch": "delete"} for i in range(n)]}}, SHAPE
        )
    ),
    "apply, all new": lambda n: lambda: merge_config(listed("a", n), listed("b", n), SHAPE),
    "apply, turned round": lambda n: (
        lambda: merge_config(
            listed("a", n), {"spec": {name: each[::-1] for name, each in listed("a", n, 2)["spec"].items()}}, SHAPE
        )
    ),
    "apply, duplicates": lambda n: (
        lambda: merge_config(
            {"spec": {"set": ["a"] * n, "map": []}}, {"spec": {"set": ["a"] * n, "map": entangled(n)}}, SHAPE
        )
    ),
    "taking out": lambda n: lambda: remove_fields(listed("a", n), all_fields(listed("a", n, 2), SHAPE), SHAPE),
    "claims": lambda n: lambda: applied_fields(listed("a", n), SHAPE),
    "changes": lambda n: lambda: compare_objects(listed("a", n), listed("a", n + 1, 2), SHAPE),
    "conflicts": lambda n: (
        lambda: conflict_error(
            [(FieldManager("m", "v1", THEN).build_entry({}), {f"f:{i}": {} for i in range(n)}) for _ in range(2)]
        )
    ),
}


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS.keys())
def test_merging_lists_grows_with_their_length(make: Make) -> None:
    assert_linear(make, 60)


# --- JSON patch ---

LISTED = {"spec": {"list": [0] * 400_000}}
OPERATIONS = {
    "insert": {"op": "add", "path": "/spec/list/0", "value": 1},
    "remove": {"op": "remove", "path": "/spec/list/0"},
    "move": {"op": "move", "from": "/spec/list/0", "path": "/spec/list/1"},
    "copy": {"op": "copy", "from": "/spec/list/0", "path": "/spec/list/0"},
    "copy all": {"op": "copy", "from": "/spec", "path": "/spec/list/0"},
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_shifting_a_long_list_again_and_again_is_refused(operation: dict[str, Any]) -> None:
    with pytest.raises(TooLarge, match=r"replace the whole list|copy less"):
        json_patch.apply(LISTED, [operation] * 10_000)


def test_as_many_operations_as_there_may_be_work_on_a_list_of_ordinary_length() -> None:
    some = {"spec": {"list": [0] * 1_000}}
    patched = json_patch.apply(some, [{"op": "remove", "path": "/spec/list/0"}, OPERATIONS["insert"]] * 5_000)
    assert patched == {"spec": {"list": [1] + [0] * 999}}


# --- what is nested deep ---


def nested(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = {"a": value}
    return value


def inside_lists(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def assert_depth_does_not_multiply(make: Make) -> None:
    """The content at the bottom is looked at a few times, and not once for each level above it."""
    assert work(make(160)) <= 4 * work(make(10))


def test_a_difference_at_the_bottom_is_not_looked_for_at_each_level() -> None:
    def make(levels: int) -> Callable[[], object]:
        keys = words("k", 500)
        old, new = ({"spec": nested(dict(zip(keys, words("v", 500), strict=True)) | {"z": z}, levels)} for z in "xy")
        assert compare_objects(old, new, MergeSchema())[0] == {"f:spec": nested_set({"f:z": {}}, levels)}
        return lambda: compare_objects(old, new, MergeSchema())

    assert_depth_does_not_multiply(make)


def nested_set(fields: FieldSet, levels: int) -> FieldSet:
    for _ in range(levels):
        fields = {"f:a": fields}
    return fields


def test_equality_is_not_asked_for_at_each_level() -> None:
    def make(levels: int) -> Callable[[], object]:
        one, other = (inside_lists(words("k", 500), levels) for _ in range(2))
        return lambda: is_equal_json(one, other)

    assert_depth_does_not_multiply(make)


json_values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 2, "", "1", "true"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


def plainly_same(one: Any, other: Any) -> bool:
    if type(one) in (int, float) and type(other) in (int, float):
        return bool(one == other)
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(plainly_same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(plainly_same(one[name], other[name]) for name in one)
    return bool(one == other)


@given(json_values, json_values)
@settings(max_examples=500, deadline=None)
def test_values_are_the_same_as_json_has_it(one: Any, other: Any) -> None:
    assert is_equal_json(one, other) is plainly_same(one, other)
    assert is_equal_json(one, one)


# --- the record of owners ---


fields: st.SearchStrategy[FieldSet] = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.sampled_from(["f:a", "f:b", "f:c", SELF]), inner, max_size=3),
    max_leaves=8,
)


def as_paths(found: FieldSet, way: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """A set of fields as plain paths; where nothing is below, the path itself is meant."""
    paths = {way} if way and (not found or SELF in found) else set()
    return paths.union(*(as_paths(below, (*way, step)) for step, below in found.items() if step != SELF))


@given(st.lists(fields, max_size=5))
@settings(max_examples=300, deadline=None)
def test_many_sets_are_joined_as_one_after_the_other(sets: list[FieldSet]) -> None:
    sets = [{step: below for step, below in each.items() if step != SELF} for each in sets]
    assert as_paths(union_all(sets)) == as_paths(reduce(union, sets, {})) == set().union(*map(as_paths, sets))


def entries(small: int, large: int) -> list[Any]:
    """One manager of very many fields, and many of a few."""
    wide: FieldSet = {"f:data": {f"f:k{index}": {} for index in range(large)}}
    others = [FieldManager(f"m{i}", "v1", f"2026-01-02T00:00:{i % 60:02}Z") for i in range(small)]
    return [
        FieldManager("0", "v1", THEN).build_entry(wide),
        *(each.build_entry({"f:data": {"f:n": {}}}) for each in others),
    ]


def assert_a_large_set_is_not_copied_for_each_small_one(join: Callable[[list[Any]], object]) -> None:
    few, many = entries(20, 20_000), entries(1000, 20_000)
    assert cpu_time(lambda: join(many)) < 20 * cpu_time(lambda: join(few))


def test_many_small_entries_and_a_large_one_are_thrown_together_in_one_go() -> None:
    assert_a_large_set_is_not_copied_for_each_small_one(sort_entries)
    [ancient] = [each for each in sort_entries(entries(100, 50)) if each["manager"] == ANCIENT_MANAGER]
    assert ancient["time"] > THEN and len(ancient["fieldsV1"]["f:data"]) == 51


def test_many_small_sets_and_a_large_one_are_joined_in_one_go() -> None:
    assert_a_large_set_is_not_copied_for_each_small_one(lambda made: union_all(each["fieldsV1"] for each in made))


# --- faults ---


def test_a_way_is_spelled_out_only_where_there_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long name on the way would be copied for every value below it otherwise."""
    schema = obj(lists={"type": "object", "additionalProperties": array(string())})
    assert type_errors({"lists": {"n": ["x", 1]}}, schema) == ".lists.n[1]: expected string, got 1"
    spelled: list[object] = []

    def spell(path: object) -> str:
        spelled.append(path)
        return ""

    monkeypatch.setattr(type_check, "_format_path", spell)
    assert type_errors({"lists": {"n" * 1000: ["x"] * 1000}}, schema) == "" and not spelled
    assert type_errors({"lists": {"n": ["x", 1]}}, schema) and len(spelled) == 1
