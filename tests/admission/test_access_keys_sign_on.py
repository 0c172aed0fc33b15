"""Fields of access keys that belong to logins: only the server makes a key a login, and ties it to a session."""

from typing import Any

import pytest

from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from tests.harness.auth import ADA, ROOT, AuthFixture, project_scope

KIND = "OwnedAccessKey"
FIELDS: list[Object] = [
    {"identity": {"connector": "okta", "userId": "1"}},
    {"oidcProvider": {"clientId": "fairlead-cli"}},
    {"parent": "another-login"},
]
SESSION: Object = {"identity": {"connector": "okta", "userId": "1"}, "parent": "p", "oidcProvider": {"clientId": "c"}}


@pytest.mark.parametrize("user", [ADA, ROOT])
@pytest.mark.parametrize("type", ["Login", "OIDCRefreshToken"])
async def test_only_the_server_creates_logins(auth: AuthFixture, user: User, type: str) -> None:
    with pytest.raises(Forbidden, match=f"only the server creates keys of type {type}"):
        await auth.create_key("k", user, type=type)
    assert auth.api.get(KIND, "k") is None


@pytest.mark.parametrize("user", [ADA, ROOT])
@pytest.mark.parametrize("type", ["Login", "OIDCRefreshToken"])
async def test_no_update_makes_a_key_a_login_or_a_login_an_ordinary_key(
    auth: AuthFixture, user: User, type: str
) -> None:
    await auth.create_key("plain")
    await auth.create_key("login", CONTROLLER_USER, user="ada", type=type)
    for name, change in (("plain", type), ("login", "User"), ("login", "")):
        with pytest.raises(Forbidden, match=r"only the server changes spec\.type"):
            await auth.update_spec(KIND, name, user, type=change)


@pytest.mark.parametrize("fields", FIELDS)
async def test_users_cannot_set_what_ties_a_key_to_a_session(auth: AuthFixture, fields: Object) -> None:
    (field,) = fields
    with pytest.raises(Forbidden, match=f"only administrators may set spec.{field}"):
        await auth.create_key("k", **fields)
    await auth.create_key("k")
    with pytest.raises(Forbidden, match=f"only administrators may set spec.{field}"):
        await auth.update_spec(KIND, "k", ADA, **fields)


@pytest.mark.parametrize("fields", FIELDS)
async def test_administrators_can_set_them_in_ordinary_keys_but_not_with_a_scope(
    auth: AuthFixture, fields: Object
) -> None:
    (field,) = fields
    created = await auth.create_key("k", ROOT, user="ada", **fields)
    assert created["spec"][field] == fields[field]
    scoped = await auth.sign_in("root", scope=project_scope("*"))
    with pytest.raises(Forbidden, match="only administrators"):
        await auth.create_key("other", scoped, user="root", scope=project_scope("a"), **fields)


@pytest.mark.parametrize("user", [ADA, ROOT])
@pytest.mark.parametrize("change", [*FIELDS, *({field: None} for field in SESSION)])
async def test_no_one_changes_what_ties_a_login_to_its_session(
    auth: AuthFixture, user: User, change: dict[str, Any]
) -> None:
    session = {**SESSION, "identity": {"connector": "other"}}
    await auth.create_key("login", CONTROLLER_USER, user="ada", type="Login", **session)
    with pytest.raises(Forbidden, match="the server manages spec"):
        await auth.update_spec(KIND, "login", user, **change)


@pytest.mark.parametrize("type", ["Login", "User"])
async def test_values_that_are_sent_back_unchanged_are_accepted(auth: AuthFixture, type: str) -> None:
    await auth.create_key("k", CONTROLLER_USER, user="ada", type=type, **SESSION)
    updated = await auth.update_spec(KIND, "k", ADA, displayName="laptop", type=type, **SESSION)
    assert updated["spec"]["displayName"] == "laptop" and updated["spec"]["parent"] == "p"


async def test_users_can_remove_these_fields_from_ordinary_keys(auth: AuthFixture) -> None:
    await auth.create_key("k", ROOT, user="ada", **SESSION)
    updated = await auth.update_spec(KIND, "k", ADA, **dict.fromkeys(SESSION))
    assert SESSION.keys().isdisjoint(updated["spec"])
