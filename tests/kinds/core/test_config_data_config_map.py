"""kinds/core/config_data.py: keys, size and immutability of ConfigMaps."""

import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import (
    BY_NAME,
    apply_defaults,
    build_example,
    computed_cells,
    find_problems,
    problem_reasons,
)

MIB = 1024 * 1024


def build_configmap(**fields: object) -> Object:
    return build_example("ConfigMap", **{"data": None, "binaryData": None, **fields})


@pytest.mark.parametrize("key", ["A.b-c_D", ".x", "-", "x" * 253])
def test_valid_keys_are_accepted(key: str) -> None:
    assert find_problems(build_configmap(data={key: "1"})) == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "a valid config key must consist of"),
        ("a b", "a valid config key must consist of"),
        ("no/slash", "a valid config key must consist of"),
        ("a\n", "a valid config key must consist of"),
        (".", "must not be '.'"),
        ("..", "must not be '..'"),
        ("..x", "must not start with '..'"),
        ("x" * 254, "must be no more than 253 bytes"),
    ],
)
@pytest.mark.parametrize("field", ["data", "binaryData"])
def test_invalid_keys_are_rejected(field: str, key: str, message: str) -> None:
    [problem] = find_problems(build_configmap(**{field: {key: ""}}))
    assert problem.field == f"{field}[{key}]"
    assert message in problem.message


def test_a_key_can_be_in_one_of_both_maps_only() -> None:
    both = build_configmap(data={"x": "1"}, binaryData={"x": "AA=="})
    assert [str(problem) for problem in find_problems(both)] == [
        'data[x]: Invalid value: "x": duplicate of key present in binaryData'
    ]


def test_all_data_must_fit_into_one_mebibyte() -> None:
    assert find_problems(build_configmap(data={"a": "x" * MIB})) == []
    assert problem_reasons(build_configmap(data={"a": "x" * (MIB - 6), "b": "1234567"})) == [
        ("data", "FieldValueTooLong")
    ]
    assert problem_reasons(build_configmap(data={"a": "x" * MIB}, binaryData={"b": "AA=="})) == [
        ("data", "FieldValueTooLong")
    ]


def test_the_size_is_counted_in_bytes() -> None:
    assert find_problems(build_configmap(data={"a": "é" * (MIB // 2)})) == []
    assert problem_reasons(build_configmap(data={"a": "é" * (MIB // 2) + "x"})) == [("data", "FieldValueTooLong")]


def test_an_immutable_configmap_cannot_be_changed() -> None:
    old = build_configmap(data={"a": "1"}, immutable=True)
    assert (
        find_problems(
            build_configmap(data={"a": "1"}, immutable=True, metadata={"name": "demo", "labels": {"x": "y"}}), old
        )
        == []
    )
    assert problem_reasons(build_configmap(data={"a": "2"}, immutable=True), old) == [("data", "FieldValueForbidden")]
    added = build_configmap(data={"a": "1"}, binaryData={"b": "AA=="}, immutable=True)
    assert problem_reasons(added, old) == [("binaryData", "FieldValueForbidden")]
    for immutable in (None, False):
        assert problem_reasons(build_configmap(data={"a": "1"}, immutable=immutable), old) == [
            ("immutable", "FieldValueForbidden")
        ]


def test_an_empty_map_of_bytes_changes_an_immutable_configmap_without_one() -> None:
    old = build_configmap(data=None, immutable=True)
    assert find_problems(build_configmap(data={}, immutable=True), old) == []
    changed = build_configmap(data=None, binaryData={}, immutable=True)
    assert problem_reasons(changed, old) == [("binaryData", "FieldValueForbidden")]


def test_the_write_that_makes_it_immutable_can_change_the_data() -> None:
    assert find_problems(build_configmap(data={"a": "2"}, immutable=True), build_configmap(data={"a": "1"})) == []


def test_empty_maps_are_removed_and_null_values_become_empty() -> None:
    new = apply_defaults(build_configmap(data={}, binaryData={"a": None, "b": "AA=="}))
    assert "data" not in new
    assert new["binaryData"] == {"a": "", "b": "AA=="}


def test_the_table_counts_the_keys_of_both_maps() -> None:
    kind = BY_NAME["ConfigMap"]
    assert computed_cells(kind, build_configmap(data={"x": "1", "y": "2"}, binaryData={"z": "AA=="})) == {"Data": 3}
    assert computed_cells(kind, build_configmap()) == {"Data": 0}
