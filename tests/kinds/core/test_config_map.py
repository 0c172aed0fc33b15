import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import BY_NAME, cells, complaints, example, prepared, problems

MIB = 1024 * 1024


def configmap(**fields: object) -> Object:
    return example("ConfigMap", **{"data": None, "binaryData": None, **fields})


@pytest.mark.parametrize("key", ["A.b-c_D", ".x", "-", "x" * 253])
def test_keys_that_can_name_files_are_fine(key: str) -> None:
    assert problems(configmap(data={key: "1"})) == []


@pytest.mark.parametrize(
    ("key", "fault"),
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
def test_other_keys_are_refused(field: str, key: str, fault: str) -> None:
    [problem] = problems(configmap(**{field: {key: ""}}))
    assert problem.field == f"{field}[{key}]"
    assert fault in problem.message


def test_a_key_stands_in_one_map_only() -> None:
    both = configmap(data={"x": "1"}, binaryData={"x": "AA=="})
    assert [str(problem) for problem in problems(both)] == [
        'data[x]: Invalid value: "x": duplicate of key present in binaryData'
    ]


def test_everything_together_fits_into_a_mebibyte() -> None:
    assert problems(configmap(data={"a": "x" * MIB})) == []
    assert complaints(configmap(data={"a": "x" * (MIB - 6), "b": "1234567"})) == [("data", "FieldValueTooLong")]
    assert complaints(configmap(data={"a": "x" * MIB}, binaryData={"b": "AA=="})) == [("data", "FieldValueTooLong")]


def test_size_is_counted_in_bytes() -> None:
    assert problems(configmap(data={"a": "é" * (MIB // 2)})) == []
    assert complaints(configmap(data={"a": "é" * (MIB // 2) + "x"})) == [("data", "FieldValueTooLong")]


def test_an_immutable_one_is_frozen_for_good() -> None:
    old = configmap(data={"a": "1"}, immutable=True)
    assert (
        problems(configmap(data={"a": "1"}, immutable=True, metadata={"name": "demo", "labels": {"x": "y"}}), old) == []
    )
    assert complaints(configmap(data={"a": "2"}, immutable=True), old) == [("data", "FieldValueForbidden")]
    added = configmap(data={"a": "1"}, binaryData={"b": "AA=="}, immutable=True)
    assert complaints(added, old) == [("binaryData", "FieldValueForbidden")]
    for immutable in (None, False):
        assert complaints(configmap(data={"a": "1"}, immutable=immutable), old) == [
            ("immutable", "FieldValueForbidden")
        ]


def test_freezing_may_change_the_data_once_more() -> None:
    assert problems(configmap(data={"a": "2"}, immutable=True), configmap(data={"a": "1"})) == []


def test_empty_maps_are_left_out_and_null_stands_for_an_empty_piece() -> None:
    new = prepared(configmap(data={}, binaryData={"a": None, "b": "AA=="}))
    assert "data" not in new
    assert new["binaryData"] == {"a": "", "b": "AA=="}


def test_the_table_counts_the_keys_of_both_maps() -> None:
    kind = BY_NAME["ConfigMap"]
    assert cells(kind, configmap(data={"x": "1", "y": "2"}, binaryData={"z": "AA=="})) == {"Data": 3}
    assert cells(kind, configmap()) == {"Data": 0}
