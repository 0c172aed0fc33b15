"""registry/patching: patches, apply and managed fields take time linear in their input."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.errors import TooLarge
from fairlead.registry.patching import apply, json_patch
from fairlead.registry.patching.apply import conflict_error, merge_config, remove_fields, type_errors
from fairlead.registry.patching.field_set import SELF, FieldSet, is_equal_json, union, union_all
from fairlead.registry.patching.field_walk import all_fields, applied_fields, compare_objects
from fairlead.registry.patching.managed_fields import ANCIENT_MANAGER, FieldManager, sort_entries
from fairlead.registry.patching.merge_patches import apply_strategic_merge_patch
from fairlead.registry.patching.merge_schema import ATOMIC, MergeSchema
from fairlead.registry.schema import array, obj, string
from tests.harness.growth import assert_linear, build_words, count_work, cpu_time
from tests.harness.properties import examples

SET = MergeSchema(entries=ATOMIC, keys=())
BY_NAME = MergeSchema(entries=MergeSchema({"name": ATOMIC, "x": ATOMIC}), keys=("name",))
SCHEMA = MergeSchema({"spec": MergeSchema({"set": SET, "map": BY_NAME})})
TIMESTAMP = "2026-01-01T00:00:00Z"

BuildCase = Callable[[int], Callable[[], object]]


def build_object(begin: str, size: int, x: int = 1) -> Any:
    names = [str(each) for each in build_words(begin, size)]
    return {"spec": {"set": names, "map": [{"name": each, "x": x} for each in names]}}


def build_reordered_patch(size: int) -> Any:
    """Changes and reverses all list items, and adds as many new ones."""
    wanted = build_object("a", size, 2)["spec"] | {"$deleteFromPrimitiveList/set": [f"a{i}" for i in range(0, size, 2)]}
    wanted["map"] = wanted["map"][::-1] + build_object("b", size)["spec"]["map"]
    return {"spec": wanted | {"$setElementOrder/map": [{"name": each["name"]} for each in wanted["map"]]}}


def build_repeated_items(size: int) -> list[Any]:
    """Patch items that all refer to the same list item."""
    return [{"name": "a0", "x": index, "$retainKeys": ["name", "x"]} for index in range(size)]


CASES: dict[str, BuildCase] = {
    "strategic merge, in another order": lambda n: (
        lambda: apply_strategic_merge_patch(build_object("a", n), build_reordered_patch(n), SCHEMA)
    ),
    "strategic merge, one entry": lambda n: (
        lambda: apply_strategic_merge_patch(build_object("a", n), {"spec": {"map": build_repeated_items(n)}}, SCHEMA)
    ),
    "strategic merge, deletions": lambda n: (
        lambda: apply_strategic_merge_patch(
            build_object("a", n), {"spec": {"map": [{"name": f"a{i}", "$patch": "delete"} for i in range(n)]}}, SCHEMA
        )
    ),
    "apply, all new": lambda n: lambda: merge_config(build_object("a", n), build_object("b", n), SCHEMA),
    "apply, reversed": lambda n: (
        lambda: merge_config(
            build_object("a", n),
            {"spec": {name: each[::-1] for name, each in build_object("a", n, 2)["spec"].items()}},
            SCHEMA,
        )
    ),
    "apply, duplicates": lambda n: (
        lambda: merge_config(
            {"spec": {"set": ["a"] * n, "map": []}},
            {"spec": {"set": ["a"] * n, "map": build_repeated_items(n)}},
            SCHEMA,
        )
    ),
    "removing fields": lambda n: (
        lambda: remove_fields(build_object("a", n), all_fields(build_object("a", n, 2), SCHEMA), SCHEMA)
    ),
    "applied fields": lambda n: lambda: applied_fields(build_object("a", n), SCHEMA),
    "changes": lambda n: lambda: compare_objects(build_object("a", n), build_object("a", n + 1, 2), SCHEMA),
    "conflicts": lambda n: (
        lambda: conflict_error(
            [(FieldManager("m", "v1", TIMESTAMP).build_entry({}), {f"f:{i}": {} for i in range(n)}) for _ in range(2)]
        )
    ),
}


@pytest.mark.parametrize("build", CASES.values(), ids=CASES.keys())
def test_merging_lists_takes_linear_time(build: BuildCase) -> None:
    assert_linear(build, 60)


# --- JSON patch ---

LONG_LIST = {"spec": {"list": [0] * 400_000}}
OPERATIONS = {
    "insert": {"op": "add", "path": "/spec/list/0", "value": 1},
    "remove": {"op": "remove", "path": "/spec/list/0"},
    "move": {"op": "move", "from": "/spec/list/0", "path": "/spec/list/1"},
    "copy": {"op": "copy", "from": "/spec/list/0", "path": "/spec/list/0"},
    "copy all": {"op": "copy", "from": "/spec", "path": "/spec/list/0"},
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_repeated_shifts_of_a_long_list_are_rejected(operation: dict[str, Any]) -> None:
    with pytest.raises(TooLarge, match=r"replace the whole list|copy less"):
        json_patch.apply(LONG_LIST, [operation] * 10_000)


def test_the_maximum_number_of_operations_works_on_an_ordinary_list() -> None:
    some = {"spec": {"list": [0] * 1_000}}
    patched = json_patch.apply(some, [{"op": "remove", "path": "/spec/list/0"}, OPERATIONS["insert"]] * 5_000)
    assert patched == {"spec": {"list": [1] + [0] * 999}}


# --- deep nesting ---


def nest_in_objects(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = {"a": value}
    return value


def nest_in_lists(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def assert_depth_does_not_multiply(build: BuildCase) -> None:
    """The innermost value is visited a few times, and not once per level."""
    assert count_work(build(160)) <= 4 * count_work(build(10))


def test_comparing_deeply_nested_objects_takes_linear_time() -> None:
    def build(levels: int) -> Callable[[], object]:
        keys = build_words("k", 500)
        old, new = (
            {"spec": nest_in_objects(dict(zip(keys, build_words("v", 500), strict=True)) | {"z": z}, levels)}
            for z in "xy"
        )
        assert compare_objects(old, new, MergeSchema())[0] == {"f:spec": nest_set({"f:z": {}}, levels)}
        return lambda: compare_objects(old, new, MergeSchema())

    assert_depth_does_not_multiply(build)


def nest_set(fields: FieldSet, levels: int) -> FieldSet:
    for _ in range(levels):
        fields = {"f:a": fields}
    return fields


def test_comparing_deeply_nested_sets_takes_linear_time() -> None:
    def build(levels: int) -> Callable[[], object]:
        one, other = (nest_in_lists(build_words("k", 500), levels) for _ in range(2))
        return lambda: is_equal_json(one, other)

    assert_depth_does_not_multiply(build)


json_values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 2, "", "1", "true"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


def is_same_json(one: Any, other: Any) -> bool:
    if type(one) in (int, float) and type(other) in (int, float):
        return bool(one == other)
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(is_same_json(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same_json(one[name], other[name]) for name in one)
    return bool(one == other)


@given(json_values, json_values)
@settings(max_examples=examples(500), deadline=None)
def test_json_equality_distinguishes_types(one: Any, other: Any) -> None:
    assert is_equal_json(one, other) is is_same_json(one, other)
    assert is_equal_json(one, one)


# --- managed fields ---


fields: st.SearchStrategy[FieldSet] = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.sampled_from(["f:a", "f:b", "f:c", SELF]), inner, max_size=3),
    max_leaves=8,
)


def as_paths(found: FieldSet, prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Returns the paths of a field set; a leaf stands for its own path."""
    paths = {prefix} if prefix and (not found or SELF in found) else set()
    return paths.union(*(as_paths(below, (*prefix, step)) for step, below in found.items() if step != SELF))


@given(st.lists(fields, max_size=5))
@settings(max_examples=examples(300), deadline=None)
def test_a_union_of_many_sets_equals_repeated_unions(sets: list[FieldSet]) -> None:
    sets = [{step: below for step, below in each.items() if step != SELF} for each in sets]
    assert as_paths(union_all(sets)) == as_paths(reduce(union, sets, {})) == set().union(*map(as_paths, sets))


def build_entries(small: int, large: int) -> list[Any]:
    """One manager with many fields, and many managers with a few."""
    wide: FieldSet = {"f:data": {f"f:k{index}": {} for index in range(large)}}
    others = [FieldManager(f"m{i}", "v1", f"2026-01-02T00:00:{i % 60:02}Z") for i in range(small)]
    return [
        FieldManager("0", "v1", TIMESTAMP).build_entry(wide),
        *(each.build_entry({"f:data": {"f:n": {}}}) for each in others),
    ]


def assert_a_large_set_is_not_copied_for_each_small_one(join: Callable[[list[Any]], object]) -> None:
    few, many = build_entries(20, 20_000), build_entries(1000, 20_000)
    assert cpu_time(lambda: join(many)) < 20 * cpu_time(lambda: join(few))


def test_many_small_entries_and_a_large_one_are_merged_in_linear_time() -> None:
    assert_a_large_set_is_not_copied_for_each_small_one(sort_entries)
    [ancient] = [each for each in sort_entries(build_entries(100, 50)) if each["manager"] == ANCIENT_MANAGER]
    assert ancient["time"] > TIMESTAMP and len(ancient["fieldsV1"]["f:data"]) == 51


def test_a_union_of_many_small_sets_and_a_large_one_takes_linear_time() -> None:
    assert_a_large_set_is_not_copied_for_each_small_one(lambda made: union_all(each["fieldsV1"] for each in made))


# --- type errors ---


def test_a_path_is_formatted_only_for_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a long field name would be copied for every value below it."""
    schema = obj(lists={"type": "object", "additionalProperties": array(string())})
    assert type_errors({"lists": {"n": ["x", 1]}}, schema) == ".lists.n[1]: expected string, got 1"
    spelled: list[object] = []

    def spell(path: object) -> str:
        spelled.append(path)
        return ""

    monkeypatch.setattr(apply, "_format_path", spell)
    assert type_errors({"lists": {"n" * 1000: ["x"] * 1000}}, schema) == "" and not spelled
    assert type_errors({"lists": {"n": ["x", 1]}}, schema) and len(spelled) == 1
