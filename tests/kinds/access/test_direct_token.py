"""DirectClusterEndpointToken and TokenKeyRotation: what they take and what they never show."""

import pytest

from fairlead.core.objects import Object
from fairlead.kinds.access.direct_token import DIRECT_CLUSTER_ENDPOINT_TOKEN, TOKEN_KEY_ROTATION
from fairlead.registry.kind import Kind
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import complaints, example, prepared

NAME = "DirectClusterEndpointToken"


@pytest.mark.parametrize("kind", [DIRECT_CLUSTER_ENDPOINT_TOKEN, TOKEN_KEY_ROTATION], ids=lambda kind: kind.name)
def test_they_can_be_created_and_nothing_else(kind: Kind) -> None:
    assert (kind.verbs, kind.persisted, kind.namespaced) == (("create",), False, False)


def test_the_token_is_a_credential_that_the_answer_shows() -> None:
    assert DIRECT_CLUSTER_ENDPOINT_TOKEN.sensitive == ("status.token",)
    assert DIRECT_CLUSTER_ENDPOINT_TOKEN.write_only == ()


@pytest.mark.parametrize("spec", [None, {}])
def test_the_spec_may_be_empty_or_left_out(spec: Object | None) -> None:
    token = example(NAME, spec=spec, status=None)
    assert complaints(token) == []
    assert prepared(token)["spec"] == {}


@pytest.mark.parametrize("ttl", [-1, "60", 1.5])
def test_a_life_is_a_number_of_seconds(ttl: object) -> None:
    found = Validator(DIRECT_CLUSTER_ENDPOINT_TOKEN.schema()).validate(example(NAME, spec={"ttl": ttl}))
    assert [problem.field for problem in found.problems] == ["spec.ttl"]


def test_a_scope_is_checked_as_that_of_a_key() -> None:
    token = example(NAME, spec={"scope": {"projects": [{"project": ""}], "rules": [{"resourceNames": ["x"]}]}})
    assert [field for field, _ in complaints(token)] == [
        "spec.scope.projects[0].project",
        "spec.scope.rules[0].resourceNames",
    ]
