"""signin/sso/review.py: who would a user be, and what would another Config change?"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds.access.sign_on_review import SIGN_ON_REVIEW
from fairlead.server.api.actions import ActionRequest
from fairlead.signin.sso.review import SignOnReviews
from tests.harness.calls import call
from tests.harness.sign_on import ISSUER, SignOnFixture, connector_settings, identity, open_sign_on

RULES = [
    {"id": "staff", "connector": "okta", "value": "staff", "teams": ["core", "gone"], "groups": ["viewers"]},
    {"connector": "okta", "claim": "department", "value": "IT", "groups": ["service:admins"]},
]


@pytest.fixture
async def sso() -> AsyncIterator[SignOnFixture]:
    async with open_sign_on() as fixture:
        yield fixture


async def review(sso: SignOnFixture, **spec: Any) -> Object:
    reviews = SignOnReviews(sso.policy.settings, sso.users, sso.principals)
    body = {"apiVersion": "management.service.sh/v1", "kind": "SignOnReview", "spec": spec}
    request = ActionRequest(User("root"), SIGN_ON_REVIEW, "create", "", "", body, False, call())
    answer = await reviews(request)
    status: Object = answer["status"]
    assert "claims" not in answer["spec"]
    return status


async def test_a_new_user_is_described_with_rules_and_grants(sso: SignOnFixture) -> None:
    await sso.configure(connector_settings(), rules=RULES)
    await sso.create("Team", "core")
    await sso.create("Team", "ops", groups=["okta:staff"])
    status = await review(sso, claims={"sub": "1", "preferred_username": "alice", "groups": ["staff"], "email": "a@b"})
    assert (status["allowed"], status["user"], status["userExists"]) == (True, "alice", False)
    assert (status["teams"], status["missingTeams"], status["groups"]) == (["core", "ops"], ["gone"], ["viewers"])
    assert [(rule["id"], rule["matched"]) for rule in status["rules"]] == [("staff", True), ("rule-2", False)]
    assert (status["email"], status["emailVerified"], status["ssoGroups"]) == ("a@b", False, ["okta:staff"])
    assert sso.api.list_names("User") == []


async def test_the_review_agrees_with_a_sign_on(sso: SignOnFixture) -> None:
    await sso.create("User", "alice")
    claims = {"sub": "1", "preferred_username": "alice", "groups": []}
    predicted = await review(sso, claims=claims)
    user = await sso.sign_on(identity())
    assert predicted["user"] == user["metadata"]["name"]
    assert predicted["resembles"] == "alice"
    again = await review(sso, claims=claims)
    assert (again["user"], again["userExists"]) == (predicted["user"], True)


@pytest.mark.parametrize(
    ("oidc", "claims", "reason"),
    [
        ({"allowedGroups": ["staff"]}, {}, "group_not_allowed"),
        ({"requireVerifiedEmail": True}, {"email": "a@b", "email_verified": "true"}, "email_unverified"),
        ({"createUsers": False}, {}, "user_not_found"),
        ({}, {"groups": {"a": 1}}, "groups_invalid"),
        ({}, {"_claim_names": {"groups": "x"}}, "groups_overage"),
        ({}, {"sub": 7}, "claims_invalid"),
    ],
)
async def test_a_refusal_has_the_reason_of_a_sign_on(
    sso: SignOnFixture, oidc: dict[str, Any], claims: dict[str, Any], reason: str
) -> None:
    await sso.configure(connector_settings(**oidc))
    status = await review(sso, claims={"sub": "1", **claims})
    assert (status["allowed"], status["reason"]) == (False, reason)


async def test_a_disabled_user_is_refused(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    await sso.update_spec("User", "alice", disabled=True)
    assert (await review(sso, claims={"sub": "1"}))["reason"] == "user_disabled"


async def test_the_connector_is_chosen_by_id_or_issuer(sso: SignOnFixture) -> None:
    await sso.configure(connector_settings(), connector_settings("other", "https://other.example.com"))
    assert (await review(sso, claims={"sub": "1", "iss": ISSUER}))["connector"] == "okta"
    assert (await review(sso, connector="other", claims={"sub": "1"}))["connector"] == "other"
    for spec in ({}, {"connector": "gone"}):
        with pytest.raises(BadRequest, match="okta, other"):
            await review(sso, claims={"sub": "1"}, **spec)
    with pytest.raises(BadRequest):
        await review(sso, claims={"sub": "1", "iss": "https://unknown.example.com"})


async def test_a_changed_config_is_previewed_for_present_users(sso: SignOnFixture) -> None:
    await sso.create("User", "local")
    await sso.sign_on(identity("1", username="alice", groups=("staff",)))
    await sso.sign_on(identity("2", username="bob"))
    new = yaml.safe_dump({"auth": {"connectors": [connector_settings()], "groupMappings": RULES}})
    status = await review(sso, config=new)
    assert status["changedUsers"] == 2
    assert [(each["name"], each["after"]) for each in status["users"]] == [
        ("alice", {"allowed": True, "teams": ["core", "gone"], "groups": ["viewers"]}),
        ("bob", {"allowed": False, "reason": "no_rule_matched"}),
    ]
    assert (await review(sso, config=""))["users"][0]["after"] == {"allowed": False, "reason": "unknown_connector"}


async def test_the_same_config_changes_nothing_and_an_invalid_one_is_an_error(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    same = yaml.safe_dump({"auth": {"connectors": [connector_settings()]}})
    assert (await review(sso, config=same))["changedUsers"] == 0
    with pytest.raises(BadRequest, match="is not a valid Config"):
        await review(sso, config="auth: {connectors: 7}")
