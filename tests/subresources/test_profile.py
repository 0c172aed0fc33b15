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
from tests.harness.login import CLIENT, PASSWORD, Door, new_door, told

NEW = "a completely new password"


def person(name: str, *groups: str, **more: Any) -> User:
    return User(name, (*groups, f"service:user:{name}", "service:user:*", "system:authenticated"), **more)


ALICE, BOB = person("alice"), person("bob")
ROOT = person("root", "system:masters")


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with new_door() as made:
        await made.add_user("alice", displayName="Alice", email="alice@example.com")
        await made.add_user("bob")
        await made.add_user("root", groups=["system:masters"])
        yield made


async def ask(door: Door, by: User, name: str, verb: str = "get", dry_run: bool = False, **body: Any) -> Object:
    made = call(f"/users/{name}/profile")
    made.client, made.target = (
        CLIENT,
        RequestInfo(verb, "", group=GROUP, resource=USERS, subresource="profile", name=name),
    )
    return await door.profiles(ActionRequest(by, PROFILE, verb, "", name, body, dry_run, made))


async def change(door: Door, by: User, name: str, **body: Any) -> Object:
    return await ask(door, by, name, "create", **body)


async def opens(door: Door, name: str, password: str) -> bool:
    door.clock.seconds += 3600
    return (await door.sign_in(name, password)).status == 200


async def spec_of(door: Door, name: str) -> Object:
    spec: Object = decode(await door.registry.resource(GROUP, USERS).get("", name))["spec"]
    return spec


async def test_a_profile_shows_the_user_and_no_secrets(door: Door) -> None:
    shown = await ask(door, ALICE, "alice")
    assert shown.pop("metadata")["name"] == "alice"
    assert shown == {
        "apiVersion": f"{GROUP}/v1",
        "kind": "UserProfile",
        "displayName": "Alice",
        "email": "alice@example.com",
        "username": "alice",
    }


async def test_there_is_no_profile_without_a_user(door: Door) -> None:
    with pytest.raises(NotFound):
        await ask(door, ROOT, "nobody")
    with pytest.raises(NotFound):
        await change(door, ROOT, "nobody", password=NEW)


async def test_what_is_sent_is_changed_and_the_rest_stays(door: Door) -> None:
    shown = await change(door, ALICE, "alice", displayName="Alice B.", icon="https://example.com/a.png")
    assert (shown["displayName"], shown["icon"], shown["email"]) == (
        "Alice B.",
        "https://example.com/a.png",
        "alice@example.com",
    )
    assert await opens(door, "alice", PASSWORD)


async def test_settings_of_the_console_are_kept(door: Door) -> None:
    await change(door, ALICE, "alice", custom={"theme": "dark", "columns": [1, 2]})
    await change(door, ALICE, "alice", displayName="A.")
    assert (await ask(door, ALICE, "alice"))["custom"] == {"theme": "dark", "columns": [1, 2]}
    with pytest.raises(Invalid, match="custom"):
        await change(door, ALICE, "alice", custom={"x": "y" * MAX_CUSTOM_BYTES})


async def test_nothing_else_of_a_user_can_be_changed_this_way(door: Door) -> None:
    before = await spec_of(door, "alice")
    await change(door, ALICE, "alice", groups=["system:masters"], disabled=True, passwordRef={}, subject="x")
    assert await spec_of(door, "alice") == before


async def test_the_user_name_is_shown_and_stays(door: Door) -> None:
    await change(door, ALICE, "alice", username="alice", displayName="A.")
    with pytest.raises(Invalid, match="cannot be changed"):
        await change(door, ALICE, "alice", username="root")


async def test_a_new_password_takes_the_current_one(door: Door) -> None:
    await change(door, ALICE, "alice", password=NEW, currentPassword=PASSWORD)
    assert await opens(door, "alice", NEW)
    assert not await opens(door, "alice", PASSWORD)


async def test_without_the_current_password_nothing_is_changed(door: Door) -> None:
    for body in ({}, {"currentPassword": ""}):
        with pytest.raises(Invalid, match="currentPassword: Required value"):
            await change(door, ALICE, "alice", password=NEW, displayName="Mallory", **body)
    with pytest.raises(Forbidden, match="current password is wrong"):
        await change(door, ALICE, "alice", password=NEW, displayName="Mallory", currentPassword="a wrong password")
    assert (await ask(door, ALICE, "alice"))["displayName"] == "Alice"
    assert await opens(door, "alice", PASSWORD)


async def test_guessing_the_current_password_slows_down_like_signing_in(door: Door) -> None:
    for _ in range(PATIENCE.free_failures):
        with pytest.raises(Forbidden):
            await change(door, ALICE, "alice", password=NEW, currentPassword="a wrong password")
    with pytest.raises(TooManyRequests):
        await change(door, ALICE, "alice", password=NEW, currentPassword=PASSWORD)
    assert (await door.sign_in("alice")).status == 429


async def test_a_first_password_needs_none_before_it(door: Door) -> None:
    await door.add_user("carol", None)
    await change(door, person("carol"), "carol", password=NEW)
    assert await opens(door, "carol", NEW)


async def test_t4_a_key_that_ends_does_not_outlive_itself_by_a_first_password(door: Door) -> None:
    await door.add_user("carol", None)
    await door.add_key("carol", ttl=60)
    (key,) = [name for name in door.key_names() if name.startswith("key-")]
    with pytest.raises(Forbidden, match="cannot set a first password"):
        await change(door, person("carol", key=key), "carol", password=NEW)
    await door.add_key("carol")
    (lasting,) = [name for name in door.key_names() if name.startswith("key-") and name != key]
    await change(door, person("carol", key=lasting), "carol", password=NEW)


async def test_administrators_set_passwords_without_knowing_them(door: Door) -> None:
    await change(door, ROOT, "alice", password=NEW)
    assert await opens(door, "alice", NEW)
    await change(door, ROOT, "root", password=NEW)
    assert await opens(door, "root", NEW)


async def test_a_current_password_that_is_given_is_looked_at_whoever_gives_it(door: Door) -> None:
    with pytest.raises(Forbidden, match="current password is wrong"):
        await change(door, ROOT, "root", password=NEW, currentPassword="a wrong password")


async def test_nobody_changes_the_profile_of_another(door: Door) -> None:
    for body in ({"password": NEW}, {"password": NEW, "currentPassword": PASSWORD}, {"displayName": "Mallory"}):
        with pytest.raises(Forbidden, match='cannot change the profile of user "alice"'):
            await change(door, BOB, "alice", **body)
    assert await opens(door, "alice", PASSWORD)


async def test_who_may_impersonate_a_user_may_set_its_password(door: Door) -> None:
    door.grants = {("bob", "alice")}
    await change(door, BOB, "alice", password=NEW)
    assert await opens(door, "alice", NEW)


@pytest.mark.parametrize("group", sorted(ADMIN_GROUPS))
async def test_but_never_that_of_an_administrator(door: Door, group: str) -> None:
    await door.add_user("chief", groups=["staff", group])
    door.grants = {("bob", "chief")}
    with pytest.raises(Forbidden):
        await change(door, BOB, "chief", password=NEW)
    assert await opens(door, "chief", PASSWORD)


async def test_a_machine_that_is_called_like_a_user_is_not_that_user(door: Door) -> None:
    await door.add_user("robot", None)
    machine = User("robot", ("system:authenticated", "service:authenticated"))
    with pytest.raises(Forbidden):
        await change(door, machine, "robot", password=NEW)


@pytest.mark.parametrize("asker", ["alice", "root", "bob"])
async def test_t4_a_key_with_a_scope_sets_no_password(door: Door, asker: str) -> None:
    """A password leads to keys without a scope."""
    door.grants = {("bob", "alice")}
    groups = ("system:masters",) if asker == "root" else ()
    with pytest.raises(Forbidden):
        await change(
            door, person(asker, *groups, scope=Scope(allow_cli=True)), "alice", password=NEW, currentPassword=PASSWORD
        )
    assert await opens(door, "alice", PASSWORD)


async def test_t19_a_key_with_a_scope_does_nothing_for_others(door: Door) -> None:
    door.grants = {("bob", "alice")}
    with pytest.raises(Forbidden):
        await change(door, person("bob", scope=Scope(allow_cli=True)), "alice", displayName="Mallory")


@pytest.mark.parametrize("password", ["short", "elevenchars", "", "x" * 1025, "\ud800" * 12])
async def test_a_password_that_will_not_do_is_refused_without_being_quoted(door: Door, password: str) -> None:
    with pytest.raises(Invalid, match="password") as caught:
        await change(door, ALICE, "alice", password=password, currentPassword=PASSWORD, displayName="Mallory")
    assert not password or password not in caught.value.message
    assert (await ask(door, ALICE, "alice"))["displayName"] == "Alice"


async def test_a_new_password_ends_logins_and_leaves_other_keys(door: Door) -> None:
    here, there = [told(await door.sign_in("alice"))["accessKey"] for _ in range(2)]
    machine, others = await door.add_key("alice"), told(await door.sign_in("bob"))["accessKey"]
    await change(door, door.keys.authenticate_token(here), "alice", password=NEW, currentPassword=PASSWORD)
    assert {door.keys.authenticate_token(key).name for key in (here, machine)} == {"alice"}
    assert door.keys.authenticate_token(others).name == "bob"
    with pytest.raises(Unauthorized):
        door.keys.authenticate_token(there)


async def test_an_administrator_ends_all_logins_of_whom_a_password_is_set_for(door: Door) -> None:
    key, own = told(await door.sign_in("alice"))["accessKey"], told(await door.sign_in("root"))["accessKey"]
    await change(door, door.keys.authenticate_token(own), "alice", password=NEW)
    with pytest.raises(Unauthorized):
        door.keys.authenticate_token(key)
    assert door.keys.authenticate_token(own).name == "root"


async def test_a_dry_run_checks_everything_and_changes_nothing(door: Door) -> None:
    body = {"password": NEW, "currentPassword": PASSWORD, "displayName": "Alice B."}
    shown = await ask(door, ALICE, "alice", "create", dry_run=True, **body)
    assert shown["displayName"] == "Alice B."
    assert (await ask(door, ALICE, "alice"))["displayName"] == "Alice"
    assert await opens(door, "alice", PASSWORD)
    with pytest.raises(Invalid):
        await ask(door, ALICE, "alice", "create", dry_run=True, password="short", currentPassword=PASSWORD)


async def test_the_hash_is_in_a_secret_that_belongs_to_the_user(door: Door) -> None:
    assert (await spec_of(door, "alice"))["passwordRef"] == {
        "secretName": "alice-password",
        "secretNamespace": "service-system",
        "key": "password",
    }
    secret = decode(await door.registry.resource("", "secrets").get("service-system", "alice-password"))
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("User", "alice")
    assert (secret["type"], list(secret["data"])) == ("service.sh/password", ["password"])


async def test_t29_no_password_is_in_any_log_answer_or_error(door: Door) -> None:
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
                shown.append(orjson.dumps(await change(door, ALICE, "alice", **body)).decode())
            except ApiError as error:
                shown += [error.message, repr(error), repr(error.details)]
    assert await opens(door, "alice", canary)
    everything = repr(lines) + "".join(shown) + door.stored().decode()
    assert "canary" not in everything and PASSWORD not in everything
    assert b64encode(canary.encode()).decode().rstrip("=") not in everything
