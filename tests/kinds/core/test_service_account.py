"""Service accounts and requests for their tokens, as far as declarations say it."""

import pytest

from fairlead.core.objects import Object
from fairlead.kinds.core.service_account import (
    account_uid,
    account_username,
    is_account_key,
    parse_account_username,
    token_problems,
)
from tests.harness.kind_examples import example, prepared


def test_of_references_to_secrets_only_the_name_is_kept() -> None:
    sent = example("ServiceAccount", secrets=[{"name": "a", "kind": "Secret", "namespace": "other"}])
    assert prepared(sent)["secrets"] == [{"name": "a"}]


def test_the_user_name_of_an_account_leads_back_to_it() -> None:
    assert account_username("demo", "robot.one") == "system:serviceaccount:demo:robot.one"
    assert parse_account_username(account_username("demo", "robot.one")) == ("demo", "robot.one")
    assert parse_account_username("service:runner:demo") == ("", "")


def test_a_key_of_an_account_is_known_by_its_subject_and_not_by_its_label() -> None:
    label = {"labels": {"service.sh/service-account-uid": "1"}}
    assert is_account_key({"metadata": {}, "spec": {"subject": "system:serviceaccount:a:b"}})
    assert not is_account_key({"metadata": label, "spec": {"user": "ada"}})
    assert account_uid({"metadata": label}) == "1"
    assert account_uid({"metadata": {}}) == ""


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({}, ""),
        ({"expirationSeconds": 600}, ""),
        ({"expirationSeconds": 599}, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": -1}, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 1 << 32}, ""),
        ({"expirationSeconds": (1 << 32) + 1}, "may not specify a duration larger than 2^32 seconds"),
    ],
)
def test_a_token_is_asked_for_from_ten_minutes_on(spec: Object, complaint: str) -> None:
    found = [str(problem) for problem in token_problems(spec)]
    value = spec.get("expirationSeconds")
    assert found == ([f"spec.expirationSeconds: Invalid value: {value}: {complaint}"] if complaint else [])
