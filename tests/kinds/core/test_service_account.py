"""kinds/core/service_account.py: service accounts and token requests."""

import pytest

from fairlead.core.objects import Object
from fairlead.kinds.core.service_account import (
    account_uid,
    account_username,
    is_account_key,
    parse_account_username,
    token_problems,
)
from tests.harness.kind_examples import apply_defaults, build_example


def test_references_to_secrets_keep_only_the_name() -> None:
    sent = build_example("ServiceAccount", secrets=[{"name": "a", "kind": "Secret", "namespace": "other"}])
    assert apply_defaults(sent)["secrets"] == [{"name": "a"}]


def test_the_username_of_an_account_can_be_parsed() -> None:
    assert account_username("demo", "robot.one") == "system:serviceaccount:demo:robot.one"
    assert parse_account_username(account_username("demo", "robot.one")) == ("demo", "robot.one")
    assert parse_account_username("service:runner:demo") == ("", "")


def test_a_key_of_an_account_is_recognized_by_subject_and_not_by_label() -> None:
    label = {"labels": {"service.sh/service-account-uid": "1"}}
    assert is_account_key({"metadata": {}, "spec": {"subject": "system:serviceaccount:a:b"}})
    assert not is_account_key({"metadata": label, "spec": {"user": "ada"}})
    assert account_uid({"metadata": label}) == "1"
    assert account_uid({"metadata": {}}) == ""


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, ""),
        ({"expirationSeconds": 600}, ""),
        ({"expirationSeconds": 599}, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": -1}, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 1 << 32}, ""),
        ({"expirationSeconds": (1 << 32) + 1}, "may not specify a duration larger than 2^32 seconds"),
    ],
)
def test_a_token_lasts_at_least_ten_minutes(spec: Object, message: str) -> None:
    found = [str(problem) for problem in token_problems(spec)]
    value = spec.get("expirationSeconds")
    assert found == ([f"spec.expirationSeconds: Invalid value: {value}: {message}"] if message else [])


def test_empty_lists_are_dropped() -> None:
    assert (
        not {"secrets", "imagePullSecrets"}
        & apply_defaults(build_example("ServiceAccount", secrets=[], imagePullSecrets=[])).keys()
    )
