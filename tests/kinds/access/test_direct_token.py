"""kinds/access/direct_token.py: DirectClusterEndpointToken and TokenKeyRotation, what they accept and never show."""

import pytest

from fairlead.core.objects import Object
from fairlead.kinds.access.direct_token import DIRECT_CLUSTER_ENDPOINT_TOKEN, TOKEN_KEY_ROTATION
from fairlead.registry.kind import Kind
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import apply_defaults, build_example, problem_reasons

NAME = "DirectClusterEndpointToken"


@pytest.mark.parametrize("kind", [DIRECT_CLUSTER_ENDPOINT_TOKEN, TOKEN_KEY_ROTATION], ids=lambda kind: kind.name)
def test_both_kinds_support_only_create(kind: Kind) -> None:
    assert (kind.verbs, kind.persisted, kind.namespaced) == (("create",), False, False)


def test_the_token_is_sensitive_but_shown_in_the_response() -> None:
    assert DIRECT_CLUSTER_ENDPOINT_TOKEN.sensitive == ("status.token",)
    assert DIRECT_CLUSTER_ENDPOINT_TOKEN.write_only == ()


@pytest.mark.parametrize("spec", [None, {}])
def test_the_spec_can_be_empty_or_absent(spec: Object | None) -> None:
    token = build_example(NAME, spec=spec, status=None)
    assert problem_reasons(token) == []
    assert apply_defaults(token)["spec"] == {}


@pytest.mark.parametrize("ttl", [-1, "60", 1.5])
def test_a_ttl_is_a_number_of_seconds(ttl: object) -> None:
    found = Validator(DIRECT_CLUSTER_ENDPOINT_TOKEN.schema()).validate(build_example(NAME, spec={"ttl": ttl}))
    assert [problem.field for problem in found.problems] == ["spec.ttl"]


def test_a_scope_is_validated_like_that_of_a_key() -> None:
    token = build_example(NAME, spec={"scope": {"projects": [{"project": ""}], "rules": [{"resourceNames": ["x"]}]}})
    assert [field for field, _ in problem_reasons(token)] == [
        "spec.scope.projects[0].project",
        "spec.scope.rules[0].resourceNames",
    ]
