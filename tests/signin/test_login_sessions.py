"""signin/login_sessions.py: logins by single sign-on, and the keys that depend on them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.core.errors import AlreadyExists
from fairlead.core.objects import Object, get_path
from fairlead.registry.codec import decode
from fairlead.signin.login_sessions import IssuedKey, SsoLogin
from tests.harness.login import LoginFixture, open_login


@pytest.fixture
async def login() -> AsyncIterator[LoginFixture]:
    async with open_login() as fixture:
        await fixture.add_user("alice")
        yield fixture


async def sign_on(login: LoginFixture, name: str = "login-alice-1", user: str = "alice", **identity: Any) -> IssuedKey:
    session = {"connector": "okta", "userId": "1", **identity}
    return await login.logins.create_sso(SsoLogin(name, user, session, ttl=60, user_agent="Firefox"))


def stored(login: LoginFixture, name: str) -> Object:
    found = login.registry.resource("management.service.sh", "ownedaccesskeys").get_cached("", name)
    assert found is not None
    return decode(found)


async def test_a_login_by_single_sign_on_has_the_chosen_name_and_an_identity(login: LoginFixture) -> None:
    issued = await sign_on(login)
    assert issued.name == "login-alice-1"
    key = stored(login, issued.name)
    assert get_path(key, "spec.identity.connector") == "okta"
    assert get_path(key, "spec.ttl") == 60
    assert get_path(key, "spec.displayName") == "Login with Firefox"
    with pytest.raises(AlreadyExists):
        await sign_on(login)


async def test_ending_a_login_ends_the_keys_that_depend_on_it(login: LoginFixture) -> None:
    issued = await sign_on(login)
    await login.add_key("alice", type="OIDCRefreshToken", parent=issued.name)
    family = next(name for name in login.key_names() if name != issued.name)
    await login.add_key("alice", type="Login", parent=family)
    await login.add_key("alice")
    assert await login.logins.end_login(issued.name) == 3
    assert len(login.key_names()) == 1
    assert await login.logins.end_login(issued.name) == 0


async def test_signing_out_keeps_a_login_disabled_while_other_keys_depend_on_it(login: LoginFixture) -> None:
    issued = await sign_on(login)
    await login.add_key("alice", type="OIDCRefreshToken", parent=issued.name)
    assert await login.logins.revoke(issued.name)
    assert get_path(stored(login, issued.name), "spec.disabled") is True
    assert len(login.key_names()) == 2


async def test_signing_out_deletes_a_login_without_dependent_keys(login: LoginFixture) -> None:
    issued = await sign_on(login)
    assert await login.logins.revoke(issued.name)
    assert login.key_names() == []


async def test_signing_out_everywhere_ends_dependent_keys_as_well(login: LoginFixture) -> None:
    issued = await sign_on(login)
    await login.add_key("alice", type="OIDCRefreshToken", parent=issued.name)
    await login.add_key("alice")
    assert await login.logins.revoke_all("alice") == 1
    assert len(login.key_names()) == 1


async def test_the_logins_of_a_connector_or_of_one_session_end(login: LoginFixture) -> None:
    await sign_on(login, "a", extraClaims={"sid": "s1"})
    await sign_on(login, "b", extraClaims={"sid": "s2"})
    await sign_on(login, "c", connector="other", extraClaims={"sid": "s1"})
    assert [get_path(each, "metadata.name") for each in await login.logins.find_by_session("okta", "s1")] == ["a"]
    assert await login.logins.find_by_session("okta", "s") == []
    assert await login.logins.end_sso_logins("alice", "okta", "s1") == 1
    assert sorted(login.key_names()) == ["b", "c"]
    assert await login.logins.end_sso_logins("alice", "okta") == 1
    assert login.key_names() == ["c"]


async def test_the_logins_of_other_users_stay(login: LoginFixture) -> None:
    await login.add_user("bob")
    await sign_on(login, "a")
    await sign_on(login, "b", "bob")
    await login.logins.end_sso_logins("alice", "okta")
    assert login.key_names() == ["b"]
