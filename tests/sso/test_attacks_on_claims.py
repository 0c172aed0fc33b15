"""Claims of strange types, and claims that pretend to be another user: names and addresses lead to no one's rights."""

from typing import Any

import httpx
import pytest

from tests.console.servers import ADMIN, GROUP, RBAC, create_user
from tests.sso.attacks import CONNECTOR, Attack, attempt, check_refused, claims, each
from tests.sso.deployments import SECRETS, Deployment
from tests.sso.providers.forging import Answer, Forger
from tests.sso.providers.tokens import ABSENT

RESEMBLES = "service.sh/resembles-user"
DOMAIN = "corp.example"
OTHER_SUBJECT = "it is about another subject"


@pytest.fixture
def deployment(running: Deployment, forger: Forger) -> Deployment:
    """With a connector that allows every user of the provider."""
    running.configure(running.connector(CONNECTOR, forger.issuer))
    return running


def sign_in(deployment: Deployment, forger: Forger, **changes: Any) -> httpx.Response:
    return attempt(deployment, forger, lambda f, authorization: f.grant(authorization, **changes))


def sign_in_user(deployment: Deployment, forger: Forger, **changes: Any) -> dict[str, Any]:
    """The user as the server sees it: username and groups."""
    user = deployment.whoami(deployment.key_of(sign_in(deployment, forger, **changes)))
    assert user is not None
    return user


# --- groups


@each(
    claims("an object", "groups_invalid", groups={"admins": True}),
    claims("null", "groups_invalid", groups=None),
    claims("a number", "groups_invalid", groups=1),
    claims("true", "groups_invalid", groups=True),
    claims("a list with a number", "groups_invalid", groups=["developers", 1]),
    claims("a list with null", "groups_invalid", groups=["developers", None]),
    claims("a list in a list", "groups_invalid", groups=[["admins"]]),
    claims("an empty name", "groups_invalid", groups=[""]),
    claims("a name with a line break", "groups_invalid", groups=["developers\nadmins"]),
    claims("a name of 600 characters", "groups_invalid", groups=["g" * 600]),
    claims("elsewhere", "groups_overage", groups=ABSENT, _claim_names={"groups": "src1"}),
    claims("elsewhere, though some are here", "groups_overage", _claim_names={"groups": "src1"}),
    claims("too many to list", "groups_overage", groups=ABSENT, hasgroups=True),
)
def test_strange_groups_are_refused_rather_than_guessed(deployment: Deployment, forger: Forger, attack: Attack) -> None:
    response = attempt(deployment, forger, attack.build)
    check_refused(deployment, response, attack.reason)


def test_ten_thousand_groups_are_refused(deployment: Deployment, forger: Forger) -> None:
    """They do not fit into an ID token, so they are in the answer of the userinfo endpoint."""
    forger.userinfo = {"sub": "eve", "groups": [f"group-{number}" for number in range(10_000)]}
    check_refused(deployment, sign_in(deployment, forger, groups=ABSENT), "groups_invalid")


def test_a_string_is_one_group_and_is_never_split(deployment: Deployment, forger: Forger) -> None:
    rules = [{"connector": CONNECTOR, "value": "admins", "groups": ["system:masters"]}]
    deployment.configure(deployment.connector(CONNECTOR, forger.issuer, allowUnmapped=True), rules=rules)
    for groups in ("developers,admins", "developers admins", " admins", "Admins", ["admins "], "adm\u0131ns"):
        user = sign_in_user(deployment, forger, groups=groups)
        assert "system:masters" not in user["groups"], groups
    assert "system:masters" in sign_in_user(deployment, forger, groups="admins")["groups"]


@pytest.mark.parametrize("group", ["system:masters", "service:admin", "service:user:admin", "system:nodes"])
def test_no_group_of_a_provider_has_rights_by_its_name(deployment: Deployment, forger: Forger, group: str) -> None:
    response = sign_in(deployment, forger, groups=[group, "system:authenticated"])
    key = deployment.key_of(response)
    user = deployment.whoami(key)
    assert user is not None and group not in user["groups"]
    with deployment.console.server.client(key) as client:
        assert client.get(SECRETS).status_code == 403


# --- e-mail addresses


@each(
    claims("not said", "email_unverified", email_verified=ABSENT),
    claims("false", "email_unverified", email_verified=False),
    claims("the text true", "email_unverified", email_verified="true"),
    claims("the number 1", "email_unverified", email_verified=1),
    claims("a list", "email_unverified", email_verified=[True]),
    claims("null", "email_unverified", email_verified=None),
    claims("no address", "email_missing", email=ABSENT),
    claims("an empty address", "email_missing", email=""),
    claims("a list of addresses", "email_missing", email=["eve@corp.example"]),
)
def test_only_true_means_that_an_address_is_verified(deployment: Deployment, forger: Forger, attack: Attack) -> None:
    deployment.configure(deployment.connector(CONNECTOR, forger.issuer, requireVerifiedEmail=True))
    check_refused(deployment, attempt(deployment, forger, attack.build), attack.reason)


def test_another_document_cannot_verify_an_address(deployment: Deployment, forger: Forger) -> None:
    deployment.configure(deployment.connector(CONNECTOR, forger.issuer, requireVerifiedEmail=True))
    forger.userinfo = {"sub": "eve", "email": "eve@other.example", "email_verified": True, "name": "Eve"}
    response = sign_in(deployment, forger, email_verified=ABSENT, name=ABSENT)
    check_refused(deployment, response, "email_unverified")


@pytest.mark.parametrize(
    "address",
    [
        "eve@evilcorp.example",
        "eve@sub.corp.example",
        "eve@corp.example.evil.example",
        "eve@corp.example@evil.example",
        "eve@corp.example.",
        "eve@c\u043erp.example",
        "eve@\uff43orp.example",
        "corp.example",
        "@corp.example",
    ],
)
def test_a_domain_is_compared_as_a_whole(deployment: Deployment, forger: Forger, address: str) -> None:
    deployment.configure(deployment.connector(CONNECTOR, forger.issuer, allowedDomains=[DOMAIN]))
    check_refused(deployment, sign_in(deployment, forger, email=address), "domain_not_allowed")


def test_an_address_in_an_allowed_domain_signs_in(deployment: Deployment, forger: Forger) -> None:
    deployment.configure(deployment.connector(CONNECTOR, forger.issuer, allowedDomains=[DOMAIN]))
    assert sign_in_user(deployment, forger, email="Eve@CORP.example")


# --- who can sign in


@pytest.mark.parametrize("groups", [[], ["Operators"], ["operators2"], "operators,x", ABSENT])
def test_a_user_outside_the_allowed_groups_is_refused(deployment: Deployment, forger: Forger, groups: Any) -> None:
    deployment.configure(deployment.connector(CONNECTOR, forger.issuer, allowedGroups=["operators"]))
    check_refused(deployment, sign_in(deployment, forger, groups=groups), "group_not_allowed")


def test_a_user_that_no_rule_matches_is_refused(deployment: Deployment, forger: Forger) -> None:
    rules = [{"connector": CONNECTOR, "value": "operators", "groups": ["ops"]}]
    deployment.configure(deployment.connector(CONNECTOR, forger.issuer), rules=rules)
    check_refused(deployment, sign_in(deployment, forger, groups=["developers"]), "no_rule_matched")


def test_a_new_user_is_refused_where_users_are_created_by_hand(deployment: Deployment, forger: Forger) -> None:
    deployment.configure(deployment.connector(CONNECTOR, forger.issuer, createUsers=False))
    check_refused(deployment, sign_in(deployment, forger, sub="a-new-one"), "user_not_found")


def test_a_disabled_user_is_refused(deployment: Deployment, forger: Forger) -> None:
    sign_in_user(deployment, forger, sub="disabled", preferred_username="disabled")
    name = deployment.user_of(forger.issuer, "disabled")["metadata"]["name"]
    deployment.console.send("PATCH", f"{GROUP}/users/{name}", {"spec": {"disabled": True}}, patch=True)
    check_refused(deployment, sign_in(deployment, forger, sub="disabled"), "user_disabled", name)


# --- userinfo


@pytest.mark.parametrize("userinfo", [{"sub": "admin", "groups": []}, {"groups": []}, {"sub": ["eve"]}, {"sub": "EVE"}])
def test_userinfo_of_another_user_is_refused(deployment: Deployment, forger: Forger, userinfo: dict[str, Any]) -> None:
    forger.userinfo = userinfo
    check_refused(deployment, sign_in(deployment, forger, groups=ABSENT), "userinfo_rejected", OTHER_SUBJECT)


@pytest.mark.parametrize("answer", [Answer({}, 500), Answer(b"<html>"), Answer([{"sub": "eve"}])])
def test_groups_that_cannot_be_read_are_not_no_groups(deployment: Deployment, forger: Forger, answer: Answer) -> None:
    forger.answers["/userinfo"] = answer
    response = sign_in(deployment, forger, groups=ABSENT)
    assert deployment.reason_of(response) in ("provider_misconfigured", "provider_unavailable")


# --- who a user is


def test_the_name_of_a_local_user_leads_to_another_user(deployment: Deployment, forger: Forger) -> None:
    user = sign_in_user(deployment, forger, sub="impostor", preferred_username=ADMIN, email="admin@corp.example")
    assert user["username"] != ADMIN
    created = deployment.user_of(forger.issuer, "impostor")
    assert created["metadata"]["annotations"][RESEMBLES] == ADMIN
    assert "subject" not in deployment.console.send("GET", f"{GROUP}/users/{ADMIN}")["spec"]


def test_an_address_never_links_to_an_existing_user(deployment: Deployment, forger: Forger) -> None:
    create_user(deployment.console, "grace")
    spec = {"spec": {"email": "grace@corp.example"}}
    deployment.console.send("PATCH", f"{GROUP}/users/grace", spec, patch=True)
    user = sign_in_user(deployment, forger, sub="mallory", email="grace@corp.example", preferred_username="mallory")
    assert user["username"] == "mallory"


def test_rights_that_wait_for_a_name_are_not_for_the_first_who_takes_it(deployment: Deployment, forger: Forger) -> None:
    """A binding may name a user who does not exist any more. Users often choose their name at a provider themselves."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "former"},
        "roleRef": role,
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "former"}],
    }
    deployment.console.create(f"{RBAC}/clusterrolebindings", binding)
    team = {"apiVersion": "management.service.sh/v1", "kind": "Team", "metadata": {"name": "old-team"}}
    deployment.console.create(f"{GROUP}/teams", {**team, "spec": {"users": ["veteran"]}})
    for name in ("former", "veteran"):
        user = sign_in_user(deployment, forger, sub=f"new-{name}", preferred_username=name)
        assert user["username"] != name and "service:team:old-team" not in user["groups"]


@pytest.mark.parametrize(
    "name", ["\u0430dmin", "adm\u0131n", "admin\u200b", "\uff41dmin", "ADMIN", "admin\u0301", "\u202eadmin", "adm1n"]
)
def test_names_that_look_alike_stay_distinct_and_are_marked(deployment: Deployment, forger: Forger, name: str) -> None:
    user = sign_in_user(deployment, forger, sub=f"alike-{name.encode().hex()}", preferred_username=name)
    assert user["username"] != ADMIN
    created = deployment.user_of(forger.issuer, f"alike-{name.encode().hex()}")
    assert created["metadata"]["annotations"][RESEMBLES] == ADMIN


@pytest.mark.parametrize(
    "name", ["system:masters", "../../admin", "a/b", "..", "", 7, "<b>", "a" * 600, "\n", "service:admin"]
)
def test_a_strange_name_becomes_a_valid_one(deployment: Deployment, forger: Forger, name: Any) -> None:
    subject = f"strange-{str(name)[:20].encode().hex()}"
    user = sign_in_user(deployment, forger, sub=subject, preferred_username=name)
    assert set(user["username"]) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
    assert user["username"] == deployment.user_of(forger.issuer, subject)["metadata"]["name"]


def test_subjects_differ_by_every_character(deployment: Deployment, forger: Forger) -> None:
    subjects = ["ivan", "Ivan", "ivan ", "iv\u0430n", "ivan@corp.example"]
    names = {sign_in_user(deployment, forger, sub=sub, preferred_username="ivan")["username"] for sub in subjects}
    assert len(names) == len(subjects)


def test_a_user_keeps_the_account_when_name_and_address_change(deployment: Deployment, forger: Forger) -> None:
    before = sign_in_user(deployment, forger, sub="judy", preferred_username="judy", email="judy@corp.example")
    after = sign_in_user(deployment, forger, sub="judy", preferred_username="admin", email="admin@corp.example")
    assert after["username"] == before["username"] == "judy"
