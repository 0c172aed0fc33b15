"""kinds/projects/secrets.py: validation of project secrets and shared secrets."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import BY_NAME, build_example, computed_cells, problem_reasons

both_kinds = pytest.mark.parametrize("kind", ["ProjectSecret", "SharedSecret"])


def build_secret(kind: str, **spec: Any) -> Object:
    return build_example(kind, spec=spec)


@both_kinds
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
def test_secrets_are_validated(kind: str, spec: Object, expected: list[str]) -> None:
    assert [field for field, _ in problem_reasons(build_secret(kind, **spec))] == expected


@both_kinds
def test_the_data_is_encrypted_and_can_be_read(kind: str) -> None:
    assert (BY_NAME[kind].sensitive, BY_NAME[kind].write_only) == (("spec.data",), ())


@both_kinds
def test_the_table_counts_the_keys_and_shows_no_values(kind: str) -> None:
    assert computed_cells(BY_NAME[kind], build_secret(kind, data={"a": "MQ==", "b": "Mg=="})) == {
        "Data": 2,
        "Owner": None,
    }
