from typing import Any

import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import BY_NAME, cells, complaints, example

both = pytest.mark.parametrize("kind", ["ProjectSecret", "SharedSecret"])


def secret(kind: str, **spec: Any) -> Object:
    return example(kind, spec=spec)


@both
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"data": {"a.b-c_d": "MQ==", "empty": None}}, []),
        ({"data": {"a/b": "MQ=="}}, ["spec.data[a/b]"]),
        ({"data": {"..": "MQ=="}}, ["spec.data[..]"]),
        ({"data": {"a": "A" * (1024 * 1024 * 2)}}, ["spec.data"]),
        ({"owner": {"user": "ada", "team": "core"}}, ["spec.owner.team"]),
    ],
)
def test_the_rules_of_a_secret(kind: str, spec: Object, expected: list[str]) -> None:
    assert [field for field, _ in complaints(secret(kind, **spec))] == expected


@both
def test_the_data_is_sealed_and_can_be_read_again(kind: str) -> None:
    assert (BY_NAME[kind].sensitive, BY_NAME[kind].write_only) == (("spec.data",), ())


@both
def test_tables_show_how_many_keys_and_no_values(kind: str) -> None:
    assert cells(BY_NAME[kind], secret(kind, data={"a": "MQ==", "b": "Mg=="})) == {"Data": 2, "Owner": None}
