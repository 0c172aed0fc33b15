"""authn/sign_on_policy.py: allow-lists and group mappings."""

from typing import Any

import pytest

from fairlead.authn.sign_on_policy import Facts, SignOnReason, Verdict, email_domain, evaluate
from fairlead.authn.sign_on_settings import SignOnConfig, read_sign_on
from tests.harness.sign_on import connector_settings


def config(*rules: dict[str, Any], **oidc: Any) -> SignOnConfig:
    sent = [{"connector": "okta", **rule} for rule in rules]
    return read_sign_on({"auth": {"connectors": [connector_settings(**oidc)], "groupMappings": sent}})


def verdict(settings: SignOnConfig, *groups: str, **facts: Any) -> Verdict:
    return evaluate(settings, settings.connectors["okta"], Facts(frozenset(groups), **facts))


def test_without_lists_and_rules_every_user_can_sign_in_and_gets_nothing() -> None:
    assert verdict(config(), "system:masters", "service:admins") == Verdict(None)


def test_matching_rules_give_teams_and_groups_in_their_order() -> None:
    settings = config(
        {"id": "one", "value": "staff", "teams": ["core"], "groups": ["viewers"]},
        {"value": "admins", "groups": ["service:admins"]},
        {"value": "other", "teams": ["never"]},
        {"claim": "department", "value": "IT", "teams": ["it", "core"]},
    )
    found = verdict(settings, "admins", "staff", claims={"department": ("IT",)})
    assert [rule.id for rule in found.rules] == ["one", "rule-2", "rule-4"]
    assert (found.teams, found.groups) == (("core", "it"), ("viewers", "service:admins"))


@pytest.mark.parametrize("group", ["Staff", "staff ", "staf", "st\u0430ff", "staff,admins", "okta:staff"])
def test_a_rule_matches_exactly(group: str) -> None:
    found = verdict(config({"value": "staff", "teams": ["core"]}), group)
    assert found.refusal is SignOnReason.NO_RULE_MATCHED
    assert found.teams == ()


def test_the_groups_claim_can_be_named_by_its_name() -> None:
    settings = config({"claim": "roles", "value": "staff", "teams": ["core"]}, groupsClaim="roles")
    assert verdict(settings, "staff").teams == ("core",)


def test_users_that_no_rule_matches_are_refused_unless_the_connector_allows_them() -> None:
    rule = {"value": "staff", "teams": ["core"]}
    assert verdict(config(rule)).refusal is SignOnReason.NO_RULE_MATCHED
    assert verdict(config(rule, allowUnmapped=True)).refusal is None
    assert verdict(config(allowUnmapped=False)).refusal is SignOnReason.NO_RULE_MATCHED


def test_only_users_in_an_allowed_group_can_sign_in() -> None:
    settings = config(allowedGroups=["staff", "guests"])
    assert verdict(settings, "guests").refusal is None
    assert verdict(settings, "Staff").refusal is SignOnReason.GROUP_NOT_ALLOWED
    assert verdict(settings).refusal is SignOnReason.GROUP_NOT_ALLOWED


@pytest.mark.parametrize(
    ("email", "is_allowed"),
    [
        ("a@corp.com", True),
        ("a@CORP.com", True),
        ('"b@evil.com"@corp.com', True),
        ("a@evilcorp.com", False),
        ("a@sub.corp.com", False),
        ("a@corp.com.evil.com", False),
        ("corp.com", False),
        ("@corp.com", False),
        ("a@corp.com@evil.com", False),
        ("a@\u212aorp.com", False),
    ],
)
def test_the_whole_domain_after_the_last_at_is_compared(email: str, is_allowed: bool) -> None:
    settings = config(allowedDomains=["corp.com", "korp.com"])
    found = verdict(settings, email=email, is_email_verified=True)
    assert found.refusal is (None if is_allowed else SignOnReason.DOMAIN_NOT_ALLOWED)


def test_an_allowed_domain_needs_a_verified_address() -> None:
    settings = config(allowedDomains=["corp.com"])
    assert verdict(settings, email="a@corp.com").refusal is SignOnReason.EMAIL_UNVERIFIED
    assert verdict(settings).refusal is SignOnReason.EMAIL_MISSING
    trusting = config(allowedDomains=["corp.com"], requireVerifiedEmail=False)
    assert verdict(trusting, email="a@corp.com").refusal is None


def test_a_verified_address_can_be_required_without_domains() -> None:
    settings = config(requireVerifiedEmail=True)
    assert verdict(settings, email="a@b").refusal is SignOnReason.EMAIL_UNVERIFIED
    assert verdict(settings, is_email_verified=True).refusal is SignOnReason.EMAIL_MISSING
    assert verdict(settings, email="a@b", is_email_verified=True).refusal is None


def test_the_domain_of_an_address() -> None:
    assert (email_domain("a@B.c"), email_domain("a"), email_domain("@b")) == ("b.c", "", "")
