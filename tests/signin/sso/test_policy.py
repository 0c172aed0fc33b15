"""authn/sign_on_policy.py: what the Config means for stored users and sessions, with the next request."""

import asyncio
from typing import Any

import pytest

from fairlead.authn.principals import AdminUserCheck
from fairlead.core.clock import timestamp
from fairlead.core.errors import Forbidden
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import server_write_options
from fairlead.signin.login_sessions import IssuedKey, SsoLogin
from tests.harness.sign_on import SignOnFixture, connector_settings, identity

STAFF_RULE = {"connector": "okta", "value": "staff", "teams": ["core"], "groups": ["viewers"]}


async def log_in(sso: SignOnFixture, name: str = "login-1", ttl: int = 0, **fields: Any) -> IssuedKey:
    refreshed = {"identityRefresh": timestamp(sso.clock.now())} if not ttl else {}
    session = {"connector": "okta", "userId": "1", **refreshed, **fields}
    return await sso.logins.create_sso(SsoLogin(name, "alice", session, ttl))


async def issue(sso: SignOnFixture, name: str, **spec: Any) -> str:
    value: str = (await sso.create("OwnedAccessKey", name, user="alice", **spec))["spec"]["key"]
    return value


async def test_rules_give_teams_and_groups_and_a_change_takes_effect_at_once(sso: SignOnFixture) -> None:
    await sso.create("Team", "core")
    await sso.sign_on(identity(groups=("staff",)))
    assert "service:team:core" not in sso.groups_of("alice")
    await sso.configure(connector_settings(), rules=[STAFF_RULE])
    assert {"service:team:core", "viewers"} <= set(sso.groups_of("alice"))
    await sso.configure(connector_settings())
    assert {"service:team:core", "viewers"}.isdisjoint(sso.groups_of("alice"))


async def test_groups_of_the_provider_are_no_groups_here(sso: SignOnFixture) -> None:
    await sso.sign_on(identity(groups=("system:masters", "service:admins", "service:team:core")))
    groups = set(sso.groups_of("alice"))
    assert groups.isdisjoint({"system:masters", "service:admins", "service:team:core"})


async def test_a_team_that_does_not_exist_or_is_disabled_gives_no_group(sso: SignOnFixture) -> None:
    await sso.configure(connector_settings(), rules=[STAFF_RULE])
    await sso.sign_on(identity(groups=("staff",)))
    assert "service:team:core" not in sso.groups_of("alice")
    await sso.create("Team", "core", disabled=True)
    assert "service:team:core" not in sso.groups_of("alice")


async def test_a_team_can_include_a_group_of_a_connector(sso: SignOnFixture) -> None:
    await sso.create("Team", "core", groups=["okta:staff"])
    await sso.sign_on(identity(groups=("staff",)))
    assert "service:team:core" in sso.groups_of("alice")


async def test_a_rule_can_make_administrators_and_they_are_protected_as_such(sso: SignOnFixture) -> None:
    is_admin = AdminUserCheck(GROUP, sso.api.view, sso.policy)
    await sso.sign_on(identity(groups=("admins",)))
    assert not is_admin("alice")
    rule = {"connector": "okta", "value": "admins", "groups": ["service:admins"]}
    await sso.configure(connector_settings(), rules=[rule])
    assert is_admin("alice")
    assert "service:admins" in sso.groups_of("alice")


ADMIN_RULE = {"connector": "okta", "value": "admins", "groups": ["service:admins"]}


async def test_an_administrator_by_a_rule_is_one_also_while_disabled_or_refused(sso: SignOnFixture) -> None:
    await sso.sign_on(identity(groups=("admins",)))
    await sso.configure(connector_settings(), rules=[ADMIN_RULE])
    await sso.update_spec("User", "alice", disabled=True)
    assert sso.is_admin_user("alice")
    await sso.configure(connector_settings(allowedGroups=["staff"]), rules=[ADMIN_RULE])
    assert not sso.policy.is_allowed(sso.get("User", "alice"))
    assert sso.is_admin_user("alice")


async def test_only_administrators_write_administrators_by_a_rule(sso: SignOnFixture) -> None:
    """Otherwise permission to write users would be enough to disable all administrators of the provider."""
    helpdesk = User("helpdesk", ("service:user:helpdesk",))
    sso.permissions.grant(helpdesk, "impersonate", "users", "alice")
    await sso.sign_on(identity(groups=("admins",)))
    await sso.update_spec("User", "alice", helpdesk, displayName="Alice")
    await sso.configure(connector_settings(), rules=[ADMIN_RULE])
    for change in ({"disabled": True}, {"displayName": "A."}, {"passwordRef": {"secretName": "x"}}):
        with pytest.raises(Forbidden, match="only administrators may write users"):
            await sso.update_spec("User", "alice", helpdesk, **change)
    with pytest.raises(Forbidden, match="only administrators may write users"):
        await sso.api.delete("User", "alice", user=helpdesk)
    await sso.update_spec("User", "alice", User("root", ("system:masters",)), displayName="Alice A.")


async def test_the_keys_of_a_removed_connector_fail_at_once(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    login, personal = await log_in(sso), await issue(sso, "personal")
    assert sso.accepts(login.value)
    assert sso.accepts(personal)
    await sso.configure()
    assert not sso.accepts(login.value)
    assert not sso.accepts(personal)
    assert sso.principals.find_user("alice") is None
    await sso.configure(connector_settings())
    assert sso.accepts(login.value)


async def test_the_keys_of_a_renamed_connector_or_changed_issuer_fail(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    login = await log_in(sso)
    await sso.configure(connector_settings("renamed"))
    assert not sso.accepts(login.value)
    await sso.configure(connector_settings(issuer="https://other.example.com"))
    assert not sso.accepts(login.value)


@pytest.mark.parametrize(
    "narrowed", [{"allowedGroups": ["staff"]}, {"allowedDomains": ["corp.com"]}, {"allowUnmapped": False}]
)
async def test_the_keys_of_users_that_are_no_longer_allowed_fail_at_once(
    sso: SignOnFixture, narrowed: dict[str, Any]
) -> None:
    await sso.sign_on(identity(groups=("other",), email="alice@example.com", is_email_verified=True))
    login = await log_in(sso)
    assert sso.accepts(login.value)
    await sso.configure(connector_settings(**narrowed))
    assert not sso.accepts(login.value)


async def test_a_session_that_was_not_refreshed_in_time_fails(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    login = await log_in(sso)
    await asyncio.sleep(600 + 3600)
    assert sso.accepts(login.value)
    await asyncio.sleep(120)
    assert not sso.accepts(login.value)


async def test_a_session_without_refresh_ends_with_the_lifetime_of_its_key(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    login = await log_in(sso, ttl=7200)
    await asyncio.sleep(7100)
    assert sso.accepts(login.value)
    await asyncio.sleep(200)
    assert not sso.accepts(login.value)


async def test_a_key_that_was_issued_in_a_login_is_valid_while_the_login_exists(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    login = await log_in(sso)
    child = await issue(sso, "family", type="Login", parent=login.name)
    grandchild = await issue(sso, "cli", type="Login", parent="family")
    assert sso.accepts(child)
    assert sso.accepts(grandchild)
    await sso.logins.revoke(login.name)
    assert not sso.accepts(login.value)
    assert sso.accepts(grandchild)
    await sso.api.resource("OwnedAccessKey").modify(
        "", login.name, lambda old: {**old, "spec": {**old["spec"], "disabled": False}}, server_write_options()
    )
    await sso.api.delete("OwnedAccessKey", login.name)
    assert not sso.accepts(child)
    assert not sso.accepts(grandchild)


async def test_a_key_that_was_issued_in_a_login_fails_when_its_session_is_stale(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    login = await log_in(sso)
    child = await issue(sso, "cli", type="Login", parent=login.name)
    await asyncio.sleep(600 + 3600 + 120)
    assert not sso.accepts(child)


async def test_the_parent_must_be_a_login_of_the_same_user(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    await sso.create("User", "bob")
    await sso.create("OwnedAccessKey", "login-bob", user="bob", type="Login")
    assert not sso.accepts(await issue(sso, "cli", type="Login", parent="login-bob"))
    assert not sso.accepts(await issue(sso, "loop", type="Login", parent="loop"))


async def test_the_parent_of_an_ordinary_key_is_ignored(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    assert sso.accepts(await issue(sso, "plain", parent="gone"))


@pytest.mark.parametrize("change", [{"identity": None}, {"type": "User"}, {"identity": {"connector": "other"}}])
async def test_users_cannot_detach_a_login_from_its_session(sso: SignOnFixture, change: dict[str, Any]) -> None:
    await sso.sign_on(identity())
    login = await log_in(sso, connectorData="encrypted")
    alice = User("alice", ("service:user:alice",))
    with pytest.raises(Forbidden):
        await sso.update_spec("OwnedAccessKey", login.name, alice, **change)
    await sso.update_spec("OwnedAccessKey", login.name, alice, displayName="laptop")
    stored = sso.get("OwnedAccessKey", login.name)["spec"]["identity"]
    assert (stored["connector"], stored["connectorData"]) == ("okta", "encrypted")


async def test_users_cannot_detach_a_key_from_the_login_that_it_depends_on(sso: SignOnFixture) -> None:
    await sso.sign_on(identity())
    login = await log_in(sso)
    await issue(sso, "cli", type="Login", parent=login.name)
    with pytest.raises(Forbidden):
        await sso.update_spec("OwnedAccessKey", "cli", User("alice", ("service:user:alice",)), parent=None)
