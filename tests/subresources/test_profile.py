"""Profiles: everybody looks after their own, and a password takes more than a key that was found."""

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from fairlead.authn.access_keys import USERS
from fairlead.authn.login_throttle import USER_BACKOFF as PATIENCE
from fairlead.core.call import RequestInfo
from fairlead.core.errors import ApiError, Forbidden, Invalid, NotFound, TooManyRequests, Unauthorized
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import ADMIN_GROUPS, User
from fairlead.kinds.access.users import PROFILE
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.profile import MAX_CUSTOM_BYTES
from tests.harness.calls import call
from tests.harness.login import CLIENT, PASSWORD, LoginFixture, open_login, reply_body

NEW = "a completely new password"


def person(name: str, *groups: str, **more: Any) -> User:
    return User(name, (*groups, f"service:user:{name}", "service:user:*", "system:authenticated"), **more)


ALICE, BOB = person("alice"), person("bob")
ROOT = person("root", "system:masters")


@pytest.fixture
async def login() -> AsyncIterator[LoginFixture]:
    async with open_login() as made:
        await made.add_user("alice", displayName="Alice", email="alice@example.com")
        await made.add_user("bob")
        await made.add_user("root", groups=["system:masters"])
        yield made


async def ask(
    login: LoginFixture, by: User, name: str, verb: str = "get", dry_run: bool = False, **body: Any
) -> Object:
    made = call(f"/users/{name}/profile")
    made.client, made.target = (
        CLIENT,
        RequestInfo(verb, "", group=GROUP, resource=USERS, subresource="profile", name=name),
    )
    return await login.profiles(ActionRequest(by, PROFILE, verb, "", name, body, dry_run, made))


async def change(login: LoginFixture, by: User, name: str, **body: Any) -> Object:
    return await ask(login, by, name, "create", **body)


async def opens(login: LoginFixture, name: str, password: str) -> bool:
    login.clock.tick(3600)
    return (await login.sign_in(name, password)).status == 200


async def spec_of(login: LoginFixture, name: str) -> Object:
    spec: Object = decode(await login.registry.resource(GROUP, USERS).get("", name))["spec"]
    return spec


async def test_a_profile_shows_the_user_and_no_secrets(login: LoginFixture) -> None:
    shown = await ask(login, ALICE, "alice")
    assert shown.pop("metadata")["name"] == "alice"
    assert shown == {
        "apiVersion": f"{GROUP}/v1",
        "kind": "UserProfile",
        "displayName": "Alice",
        "email": "alice@example.com",
        "username": "alice",
    }


async def test_there_is_no_profile_without_a_user(login: LoginFixture) -> None:
    with pytest.raises(NotFound):
        await ask(login, ROOT, "nobody")
    with pytest.raises(NotFound):
        await change(login, ROOT, "nobody", password=NEW)


async def test_what_is_sent_is_changed_and_the_rest_stays(login: LoginFixture) -> None:
    shown = await change(login, ALICE, "alice", displayName="Alice B.", icon="https://example.com/a.png")
    assert (shown["displayName"], shown["icon"], shown["email"]) == (
        "Alice B.",
        "https://example.com/a.png",
        "alice@example.com",
    )
    assert await opens(login, "alice", PASSWORD)


async def test_settings_of_the_console_are_kept(login: LoginFixture) -> None:
    await change(login, ALICE, "alice", custom={"theme": "dark", "columns": [1, 2]})
    await change(login, ALICE, "alice", displayName="A.")
    assert (await ask(login, ALICE, "alice"))["custom"] == {"theme": "dark", "columns": [1, 2]}
    with pytest.raises(Invalid, match="custom"):
        await change(login, ALICE, "alice", custom={"x": "y" * MAX_CUSTOM_BYTES})


async def test_nothing_else_of_a_user_can_be_changed_this_way(login: LoginFixture) -> None:
    before = await spec_of(login, "alice")
    await change(login, ALICE, "alice", groups=["system:masters"], disabled=True, passwordRef={}, subject="x")
    assert await spec_of(login, "alice") == before


async def test_the_user_name_is_shown_and_stays(login: LoginFixture) -> None:
    await change(login, ALICE, "alice", username="alice", displayName="A.")
    with pytest.raises(Invalid, match="cannot be changed"):
        await change(login, ALICE, "alice", username="root")


async def test_a_new_password_takes_the_current_one(login: LoginFixture) -> None:
    await change(login, ALICE, "alice", password=NEW, currentPassword=PASSWORD)
    assert await opens(login, "alice", NEW)
    assert not await opens(login, "alice", PASSWORD)


async def test_without_the_current_password_nothing_is_changed(login: LoginFixture) -> None:
    for body in ({}, {"currentPassword": ""}):
        with pytest.raises(Invalid, match="currentPassword: Required value"):
            await change(login, ALICE, "alice", password=NEW, displayName="Mallory", **body)
    with pytest.raises(Forbidden, match="current password is wrong"):
        await change(login, ALICE, "alice", password=NEW, displayName="Mallory", currentPassword="a wrong password")
    assert (await ask(login, ALICE, "alice"))["displayName"] == "Alice"
    assert await opens(login, "alice", PASSWORD)


async def test_guessing_the_current_password_slows_down_like_signing_in(login: LoginFixture) -> None:
    for _ in range(PATIENCE.free_failures):
        with pytest.raises(Forbidden):
            await change(login, ALICE, "alice", password=NEW, currentPassword="a wrong password")
    with pytest.raises(TooManyRequests):
        await change(login, ALICE, "alice", password=NEW, currentPassword=PASSWORD)
    assert (await login.sign_in("alice")).status == 429


async def test_a_first_password_needs_none_before_it(login: LoginFixture) -> None:
    await login.add_user("carol", None)
    await change(login, person("carol"), "carol", password=NEW)
    assert await opens(login, "carol", NEW)


async def test_t4_a_key_that_ends_does_not_outlive_itself_by_a_first_password(login: LoginFixture) -> None:
    await login.add_user("carol", None)
    await login.add_key("carol", ttl=60)
    (key,) = [name for name in login.key_names() if name.startswith("key-")]
    with pytest.raises(Forbidden, match="cannot set a first password"):
        await change(login, person("carol", key=key), "carol", password=NEW)
    await login.add_key("carol")
    (lasting,) = [name for name in login.key_names() if name.startswith("key-") and name != key]
    await change(login, person("carol", key=lasting), "carol", password=NEW)


async def test_administrators_set_passwords_without_knowing_them(login: LoginFixture) -> None:
    await change(login, ROOT, "alice", password=NEW)
    assert await opens(login, "alice", NEW)
    await change(login, ROOT, "root", password=NEW)
    assert await opens(login, "root", NEW)


async def test_a_current_password_that_is_given_is_looked_at_whoever_gives_it(login: LoginFixture) -> None:
    with pytest.raises(Forbidden, match="current password is wrong"):
        await change(login, ROOT, "root", password=NEW, currentPassword="a wrong password")


async def test_nobody_changes_the_profile_of_another(login: LoginFixture) -> None:
    for body in ({"password": NEW}, {"password": NEW, "currentPassword": PASSWORD}, {"displayName": "Mallory"}):
        with pytest.raises(Forbidden, match='cannot change the profile of user "alice"'):
            await change(login, BOB, "alice", **body)
    assert await opens(login, "alice", PASSWORD)


async def test_who_may_impersonate_a_user_may_set_its_password(login: LoginFixture) -> None:
    login.grants = {("bob", "alice")}
    await change(login, BOB, "alice", password=NEW)
    assert await opens(login, "alice", NEW)


@pytest.mark.parametrize("group", sorted(ADMIN_GROUPS))
async def test_but_never_that_of_an_administrator(login: LoginFixture, group: str) -> None:
    await login.add_user("chief", groups=["staff", group])
    login.grants = {("bob", "chief")}
    with pytest.raises(Forbidden):
        await change(login, BOB, "chief", password=NEW)
    assert await opens(login, "chief", PASSWORD)


async def test_a_machine_that_is_called_like_a_user_is_not_that_user(login: LoginFixture) -> None:
    await login.add_user("robot", None)
    machine = User("robot", ("system:authenticated", "service:authenticated"))
    with pytest.raises(Forbidden):
        await change(login, machine, "robot", password=NEW)


@pytest.mark.parametrize("asker", ["alice", "root", "bob"])
async def test_t4_a_key_with_a_scope_sets_no_password(login: LoginFixture, asker: str) -> None:
    """A password leads to keys without a scope."""
    login.grants = {("bob", "alice")}
    groups = ("system:masters",) if asker == "root" else ()
    with pytest.raises(Forbidden):
        await change(
            login, person(asker, *groups, scope=Scope(allow_cli=True)), "alice", password=NEW, currentPassword=PASSWORD
        )
    assert await opens(login, "alice", PASSWORD)


async def test_t19_a_key_with_a_scope_does_nothing_for_others(login: LoginFixture) -> None:
    login.grants = {("bob", "alice")}
    with pytest.raises(Forbidden):
        await change(login, person("bob", scope=Scope(allow_cli=True)), "alice", displayName="Mallory")


@pytest.mark.parametrize("password", ["short", "elevenchars", "", "x" * 1025, "\ud800" * 12])
async def test_a_password_that_will_not_do_is_refused_without_being_quoted(login: LoginFixture, password: str) -> None:
    with pytest.raises(Invalid, match="password") as caught:
        await change(login, ALICE, "alice", password=password, currentPassword=PASSWORD, displayName="Mallory")
    assert not password or password not in caught.value.message
    assert (await ask(login, ALICE, "alice"))["displayName"] == "Alice"


async def test_a_new_password_ends_logins_and_leaves_other_keys(login: LoginFixture) -> None:
    here, there = [reply_body(await login.sign_in("alice"))["accessKey"] for _ in range(2)]
    machine, others = await login.add_key("alice"), reply_body(await login.sign_in("bob"))["accessKey"]
    await change(login, login.keys.authenticate_token(here), "alice", password=NEW, currentPassword=PASSWORD)
    assert {login.keys.authenticate_token(key).name for key in (here, machine)} == {"alice"}
    assert login.keys.authenticate_token(others).name == "bob"
    with pytest.raises(Unauthorized):
        login.keys.authenticate_token(there)


async def test_an_administrator_ends_all_logins_of_whom_a_password_is_set_for(login: LoginFixture) -> None:
    key, own = (
        reply_body(await login.sign_in("alice"))["accessKey"],
        reply_body(await login.sign_in("root"))["accessKey"],
    )
    await change(login, login.keys.authenticate_token(own), "alice", password=NEW)
    with pytest.raises(Unauthorized):
        login.keys.authenticate_token(key)
    assert login.keys.authenticate_token(own).name == "root"


async def test_a_dry_run_checks_everything_and_changes_nothing(login: LoginFixture) -> None:
    body = {"password": NEW, "currentPassword": PASSWORD, "displayName": "Alice B."}
    shown = await ask(login, ALICE, "alice", "create", dry_run=True, **body)
    assert shown["displayName"] == "Alice B."
    assert (await ask(login, ALICE, "alice"))["displayName"] == "Alice"
    assert await opens(login, "alice", PASSWORD)
    with pytest.raises(Invalid):
        await ask(login, ALICE, "alice", "create", dry_run=True, password="short", currentPassword=PASSWORD)


async def test_the_hash_is_in_a_secret_that_belongs_to_the_user(login: LoginFixture) -> None:
    assert (await spec_of(login, "alice"))["passwordRef"] == {
        "secretName": "alice-password",
        "secretNamespace": "service-system",
        "key": "password",
    }
    secret = decode(await login.registry.resource("", "secrets").get("service-system", "alice-password"))
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("User", "alice")
    assert (secret["type"], list(secret["data"])) == ("service.sh/password", ["password"])


async def test_t29_no_password_is_in_any_log_answer_or_error(login: LoginFixture) -> None:
    canary, wrong = "canary-8f14e45f-password", "canary-wrong-password"
    shown = []
    with capture_logs() as lines:
        for body in (
            {"password": canary},
            {"password": canary, "currentPassword": wrong},
            {"password": "canary", "currentPassword": wrong},
            {"password": canary, "currentPassword": PASSWORD},
            {"password": canary, "currentPassword": canary},
        ):
            try:
                shown.append(orjson.dumps(await change(login, ALICE, "alice", **body)).decode())
            except ApiError as error:
                shown += [error.message, repr(error), repr(error.details)]
    assert await opens(login, "alice", canary)
    everything = repr(lines) + "".join(shown) + login.stored().decode()
    assert "canary" not in everything and PASSWORD not in everything
    assert b64encode(canary.encode()).decode().rstrip("=") not in everything
