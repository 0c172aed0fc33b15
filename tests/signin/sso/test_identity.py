"""signin/sso/identity.py: claims of any type and size."""

from typing import Any

import pytest

from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.authn.sign_on_settings import ClaimNames, ClientConfig, Connector
from fairlead.signin.sso.identity import MAX_GROUPS, Identity, missing_claims, read_identity
from fairlead.signin.sso.reasons import SignOnRefused

ISSUER = "https://login.example.com"
CONNECTOR = Connector("okta", "Okta", ISSUER, ClientConfig("fairlead"))


def read(claims: dict[str, Any], userinfo: dict[str, Any] | None = None, **names: str) -> Identity:
    connector = Connector("okta", "Okta", ISSUER, ClientConfig("fairlead"), ClaimNames(**names))
    return read_identity(connector, {"sub": "1", **claims}, userinfo, ("department", "a.b"))


def refusal(claims: dict[str, Any], userinfo: dict[str, Any] | None = None) -> SignOnReason:
    with pytest.raises(SignOnRefused) as caught:
        read(claims, userinfo)
    return caught.value.reason


def test_an_identity_has_the_claims_of_the_settings() -> None:
    claims = {"upn": "ada", "cn": "Ada L", "mail": "a@b", "email_verified": True, "roles": ["x"], "department": "IT"}
    found = read(claims, username="upn", name="cn", email="mail", groups="roles")
    assert found == Identity(ISSUER, "1", "ada", "Ada L", "a@b", True, ("x",), {"department": ("IT",)})


def test_a_dot_separates_nested_claims_unless_a_claim_has_that_exact_name() -> None:
    nested = {"realm_access": {"roles": ["a"]}}
    assert read(nested, groups="realm_access.roles").groups == ("a",)
    assert read({**nested, "realm_access.roles": ["b"]}, groups="realm_access.roles").groups == ("b",)
    assert read({"https://example.com/groups": ["c"]}, groups="https://example.com/groups").groups == ("c",)
    assert read({"realm_access": "text"}, groups="realm_access.roles").groups == ()


@pytest.mark.parametrize("value", ["true", 1, "yes", None, [True], {"a": True}, False])
def test_only_json_true_verifies_an_email_address(value: Any) -> None:
    assert not read({"email": "a@corp.com", "email_verified": value}).is_email_verified


def test_an_absent_email_verified_is_false() -> None:
    assert not read({"email": "a@corp.com"}).is_email_verified


def test_the_email_and_its_verification_come_from_the_same_document() -> None:
    found = read({"email_verified": True}, {"email": "victim@corp.com"})
    assert (found.email, found.is_email_verified) == ("victim@corp.com", False)
    found = read({"email": "a@corp.com"}, {"email": "b@corp.com", "email_verified": True})
    assert (found.email, found.is_email_verified) == ("a@corp.com", False)


@pytest.mark.parametrize("email", [7, ["a@corp.com"], "a@corp.com\n", "a b@corp.com", "x" * 1000, "a\u202e@corp.com"])
def test_an_email_address_that_is_not_a_plain_text_is_left_out(email: Any) -> None:
    assert read({"email": email, "email_verified": True}).email == ""


def test_one_group_can_be_a_string_and_is_never_split() -> None:
    assert read({"groups": "a,admin"}).groups == ("a,admin",)
    assert read({"groups": ["a", "b", "a"]}).groups == ("a", "b")
    assert read({}).groups == ()


@pytest.mark.parametrize(
    "groups", [{"admin": True}, None, 7, True, ["a", 7], ["a", None], [["admin"]], [""], ["a\nb"], ["x" * 513]]
)
def test_groups_of_another_type_are_refused(groups: Any) -> None:
    assert refusal({"groups": groups}) is SignOnReason.GROUPS_INVALID


def test_the_number_of_groups_is_limited() -> None:
    assert len(read({"groups": [f"g{each}" for each in range(MAX_GROUPS)]}).groups) == MAX_GROUPS
    assert refusal({"groups": [f"g{each}" for each in range(MAX_GROUPS + 1)]}) is SignOnReason.GROUPS_INVALID


@pytest.mark.parametrize("overage", [{"_claim_names": {"groups": "src1"}}, {"_claim_names": 7}, {"hasgroups": True}])
def test_groups_that_were_left_out_are_an_error(overage: dict[str, Any]) -> None:
    assert refusal(overage) is SignOnReason.GROUPS_OVERAGE
    assert refusal({}, overage) is SignOnReason.GROUPS_OVERAGE


@pytest.mark.parametrize("subject", ["", None, 7, "x" * 256, "a\x00b"])
def test_a_subject_is_a_short_text(subject: Any) -> None:
    assert refusal({"sub": subject}) is SignOnReason.CLAIMS_INVALID


def test_names_lose_control_and_invisible_characters() -> None:
    found = read({"preferred_username": "a\u200bd\u202ea", "name": "Ada\r\nLove\x00lace"})
    assert (found.username, found.display_name) == ("ada", "Ada Lovelace")
    assert read({"preferred_username": ["a"], "name": {"a": 1}}).username == ""


def test_compared_claims_are_texts_or_lists_of_texts() -> None:
    found = read({"department": ["IT", 7, "HR", "IT"], "a": {"b": "c"}})
    assert found.claims == {"department": ("IT", "HR"), "a.b": ("c",)}
    assert read({"department": True}).claims == {}


def test_userinfo_is_needed_for_claims_that_the_token_lacks() -> None:
    complete = {"preferred_username": "a", "name": "A", "email": "a@b", "groups": []}
    assert missing_claims(CONNECTOR, complete, ()) == []
    assert missing_claims(CONNECTOR, complete, ("department",)) == ["department"]
    assert missing_claims(CONNECTOR, {"name": "A"}, ()) == ["preferred_username", "email", "groups"]
