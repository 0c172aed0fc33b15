"""A provider that claims the accounts and groups of others: of another connector, of local users, of administrators."""

import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.servers import ADMIN, GROUP, create_user
from tests.sso.attacks import CONNECTOR, OTHER, check_refused
from tests.sso.deployments import SECRETS, Deployment
from tests.sso.providers.forging import Forger
from tests.sso.visits import Visitor

MASTERS = "system:masters"


@pytest.fixture
def deployment(deployment_with_two_forgers: Deployment, forger: Forger, other_forger: Forger) -> Iterator[Deployment]:
    """The group `admins` of the first provider administrates; the second one is the attacker's."""
    other_forger.reset()
    rules = [{"connector": CONNECTOR, "value": "admins", "groups": [MASTERS]}]
    connectors = (
        deployment_with_two_forgers.connector(CONNECTOR, forger.issuer, allowUnmapped=True),
        deployment_with_two_forgers.connector(OTHER, other_forger.issuer, allowUnmapped=True),
    )
    deployment_with_two_forgers.configure(*connectors, rules=rules)
    yield deployment_with_two_forgers


def sign_in(deployment: Deployment, id: str, forger: Forger, **changes: Any) -> str:
    """The key of a session."""
    with Visitor(deployment.ca_file) as visitor:
        authorization = deployment.begin(visitor, id)
        code = forger.grant(authorization, **changes)
        return deployment.key_of(deployment.finish(visitor, id, authorization, code, iss=forger.issuer))


def user_of(deployment: Deployment, key: str) -> dict[str, Any]:
    user = deployment.whoami(key)
    assert user is not None
    return user


def test_the_same_claims_at_another_provider_are_another_user(
    deployment: Deployment, forger: Forger, other_forger: Forger
) -> None:
    same = {"sub": "root", "preferred_username": "root", "email": "root@corp.example", "name": "Root"}
    theirs = user_of(deployment, sign_in(deployment, CONNECTOR, forger, groups=["admins"], **same))
    assert MASTERS in theirs["groups"]
    key = sign_in(deployment, OTHER, other_forger, groups=["admins"], **same)
    mine = user_of(deployment, key)
    assert mine["username"] != theirs["username"] and MASTERS not in mine["groups"]
    with deployment.console.server.client(key) as client:
        assert client.get(SECRETS).status_code == 403


@pytest.mark.parametrize(
    "group", ["admins", f"{CONNECTOR}:admins", f"{OTHER}:../{CONNECTOR}:admins", MASTERS, f"{CONNECTOR}:{MASTERS}"]
)
def test_groups_of_another_provider_match_no_rule(
    deployment: Deployment, forger: Forger, other_forger: Forger, group: str
) -> None:
    key = sign_in(deployment, OTHER, other_forger, sub=f"grouped-{group.encode().hex()}", groups=[group])
    user = user_of(deployment, key)
    assert MASTERS not in user["groups"] and "admins" not in user["groups"]


def test_the_user_name_of_a_local_user_leads_to_another_user(deployment: Deployment, forger: Forger) -> None:
    """`spec.username` is what requests are authorized as; the object may have another name."""
    user = {"apiVersion": "management.service.sh/v1", "kind": "User", "metadata": {"name": "u-1"}}
    deployment.console.create(f"{GROUP}/users", {**user, "spec": {"username": "carol"}})
    key = sign_in(deployment, CONNECTOR, forger, sub="not-carol", preferred_username="carol")
    assert user_of(deployment, key)["username"] not in ("carol", "u-1")


def test_the_subject_of_an_administrator_alone_leads_to_no_one(deployment: Deployment, forger: Forger) -> None:
    """A local user may have a subject without an issuer, as administrators write it before the first sign-on."""
    create_user(deployment.console, "boss")
    spec = {"spec": {"subject": "boss-subject", "email": "boss@corp.example"}}
    deployment.console.send("PATCH", f"{GROUP}/users/boss", spec, patch=True)
    for subject in ("boss-subject", "boss", ADMIN):
        claims = {"sub": subject, "preferred_username": subject, "email": "boss@corp.example"}
        assert user_of(deployment, sign_in(deployment, CONNECTOR, forger, **claims))["username"] not in ("boss", ADMIN)


def test_subjects_that_normalize_to_the_same_are_different_users(deployment: Deployment, forger: Forger) -> None:
    composed = unicodedata.normalize("NFC", "zo\u00eb")
    subjects = [composed, unicodedata.normalize("NFD", composed), "\uff5ao\u00eb", "ZO\u00cb", f" {composed}"]
    names = {user_of(deployment, sign_in(deployment, CONNECTOR, forger, sub=each))["username"] for each in subjects}
    assert len(names) == len(subjects)


@pytest.mark.parametrize("subject", [["eve"], {"a": 1}, True, None, "e" * 256, "eve\0", "eve\u200b", "\u202eeve"])
def test_a_subject_of_another_kind_signs_no_one_in(deployment: Deployment, forger: Forger, subject: Any) -> None:
    with Visitor(deployment.ca_file) as visitor:
        authorization = deployment.begin(visitor, CONNECTOR)
        code = forger.grant(authorization, sub=subject)
        response = deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer)
    if subject == "e" * 256:  # a token may have a longer one than a user
        check_refused(deployment, response, "claims_invalid", "sub")
    else:
        check_refused(deployment, response, "token_rejected", "invalid_subject")
