"""The subresource `profile` of users: reading and changing profiles, and setting passwords."""

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from fairlead.authn.access_keys import USERS
from fairlead.core.call import RequestInfo
from fairlead.core.errors import ApiError, Forbidden, Invalid, NotFound, TooManyRequests, Unauthorized
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import ADMIN_GROUPS, User
from fairlead.kinds.access.users import PROFILE
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.server.api.actions import ActionRequest
from fairlead.server.flow.attempts import USER_BACKOFF
from fairlead.signin.profile import MAX_CUSTOM_BYTES
from tests.harness.calls import call
from tests.harness.login import CLIENT, PASSWORD, LoginFixture, open_login, parse_body

NEW_PASSWORD = "a completely new password"


def build_user(name: str, *groups: str, **fields: Any) -> User:
    return User(name, (*groups, f"service:user:{name}", "service:user:*", "system:authenticated"), **fields)


ALICE, BOB = build_user("alice"), build_user("bob")
ROOT = build_user("root", "system:masters")


@pytest.fixture
async def login() -> AsyncIterator[LoginFixture]:
    async with open_login() as fixture:
        await fixture.add_user("alice", displayName="Alice", email="alice@example.com")
        await fixture.add_user("bob")
        await fixture.add_user("root", groups=["system:masters"])
        yield fixture


async def request_profile(
    login: LoginFixture, user: User, name: str, verb: str = "get", dry_run: bool = False, **body: Any
) -> Object:
    request = call(f"/users/{name}/profile")
    request.client, request.target = (
        CLIENT,
        RequestInfo(verb, "", group=GROUP, resource=USERS, subresource="profile", name=name),
    )
    return await login.profiles(ActionRequest(user, PROFILE, verb, "", name, body, dry_run, request))


async def update_profile(login: LoginFixture, user: User, name: str, **body: Any) -> Object:
    return await request_profile(login, user, name, "create", **body)


async def can_log_in(login: LoginFixture, name: str, password: str) -> bool:
    login.clock.tick(3600)
    return (await login.sign_in(name, password)).status == 200


async def read_spec(login: LoginFixture, name: str) -> Object:
    spec: Object = decode(await login.registry.resource(GROUP, USERS).get("", name))["spec"]
    return spec


async def test_a_profile_shows_the_user_and_no_secrets(login: LoginFixture) -> None:
    profile = await request_profile(login, ALICE, "alice")
    assert profile.pop("metadata")["name"] == "alice"
    assert profile == {
        "apiVersion": f"{GROUP}/v1",
        "kind": "UserProfile",
        "displayName": "Alice",
        "email": "alice@example.com",
        "username": "alice",
    }


async def test_the_profile_of_a_missing_user_is_not_found(login: LoginFixture) -> None:
    with pytest.raises(NotFound):
        await request_profile(login, ROOT, "nobody")
    with pytest.raises(NotFound):
        await update_profile(login, ROOT, "nobody", password=NEW_PASSWORD)


async def test_only_the_fields_in_the_request_change(login: LoginFixture) -> None:
    profile = await update_profile(login, ALICE, "alice", displayName="Alice B.", icon="https://example.com/a.png")
    assert (profile["displayName"], profile["icon"], profile["email"]) == (
        "Alice B.",
        "https://example.com/a.png",
        "alice@example.com",
    )
    assert await can_log_in(login, "alice", PASSWORD)


async def test_the_custom_settings_are_kept_and_limited_in_size(login: LoginFixture) -> None:
    await update_profile(login, ALICE, "alice", custom={"theme": "dark", "columns": [1, 2]})
    await update_profile(login, ALICE, "alice", displayName="A.")
    assert (await request_profile(login, ALICE, "alice"))["custom"] == {"theme": "dark", "columns": [1, 2]}
    with pytest.raises(Invalid, match="custom"):
        await update_profile(login, ALICE, "alice", custom={"x": "y" * MAX_CUSTOM_BYTES})


async def test_other_fields_of_a_user_cannot_be_changed(login: LoginFixture) -> None:
    before = await read_spec(login, "alice")
    await update_profile(login, ALICE, "alice", groups=["system:masters"], disabled=True, passwordRef={}, subject="x")
    assert await read_spec(login, "alice") == before


async def test_the_username_is_immutable(login: LoginFixture) -> None:
    await update_profile(login, ALICE, "alice", username="alice", displayName="A.")
    with pytest.raises(Invalid, match="cannot be changed"):
        await update_profile(login, ALICE, "alice", username="root")


async def test_a_new_password_requires_the_current_one(login: LoginFixture) -> None:
    await update_profile(login, ALICE, "alice", password=NEW_PASSWORD, currentPassword=PASSWORD)
    assert await can_log_in(login, "alice", NEW_PASSWORD)
    assert not await can_log_in(login, "alice", PASSWORD)


async def test_without_the_current_password_nothing_changes(login: LoginFixture) -> None:
    for body in ({}, {"currentPassword": ""}):
        with pytest.raises(Invalid, match="currentPassword: Required value"):
            await update_profile(login, ALICE, "alice", password=NEW_PASSWORD, displayName="Mallory", **body)
    with pytest.raises(Forbidden, match="current password is wrong"):
        await update_profile(
            login, ALICE, "alice", password=NEW_PASSWORD, displayName="Mallory", currentPassword="a wrong password"
        )
    assert (await request_profile(login, ALICE, "alice"))["displayName"] == "Alice"
    assert await can_log_in(login, "alice", PASSWORD)


async def test_a_wrong_current_password_is_throttled_like_a_login(login: LoginFixture) -> None:
    for _ in range(USER_BACKOFF.free_attempts):
        with pytest.raises(Forbidden):
            await update_profile(login, ALICE, "alice", password=NEW_PASSWORD, currentPassword="a wrong password")
    with pytest.raises(TooManyRequests):
        await update_profile(login, ALICE, "alice", password=NEW_PASSWORD, currentPassword=PASSWORD)
    assert (await login.sign_in("alice")).status == 429


async def test_a_first_password_requires_no_current_one(login: LoginFixture) -> None:
    await login.add_user("carol", None)
    await update_profile(login, build_user("carol"), "carol", password=NEW_PASSWORD)
    assert await can_log_in(login, "carol", NEW_PASSWORD)


async def test_t4_an_expiring_key_cannot_set_a_first_password(login: LoginFixture) -> None:
    await login.add_user("carol", None)
    await login.add_key("carol", ttl=60)
    (key,) = [name for name in login.key_names() if name.startswith("key-")]
    with pytest.raises(Forbidden, match="cannot set a first password"):
        await update_profile(login, build_user("carol", key=key), "carol", password=NEW_PASSWORD)
    await login.add_key("carol")
    (unlimited,) = [name for name in login.key_names() if name.startswith("key-") and name != key]
    await update_profile(login, build_user("carol", key=unlimited), "carol", password=NEW_PASSWORD)


async def test_administrators_set_passwords_without_the_current_one(login: LoginFixture) -> None:
    await update_profile(login, ROOT, "alice", password=NEW_PASSWORD)
    assert await can_log_in(login, "alice", NEW_PASSWORD)
    await update_profile(login, ROOT, "root", password=NEW_PASSWORD)
    assert await can_log_in(login, "root", NEW_PASSWORD)


async def test_a_wrong_current_password_is_rejected_even_for_administrators(login: LoginFixture) -> None:
    with pytest.raises(Forbidden, match="current password is wrong"):
        await update_profile(login, ROOT, "root", password=NEW_PASSWORD, currentPassword="a wrong password")


async def test_users_cannot_change_the_profile_of_another_user(login: LoginFixture) -> None:
    for body in (
        {"password": NEW_PASSWORD},
        {"password": NEW_PASSWORD, "currentPassword": PASSWORD},
        {"displayName": "Mallory"},
    ):
        with pytest.raises(Forbidden, match='cannot change the profile of user "alice"'):
            await update_profile(login, BOB, "alice", **body)
    assert await can_log_in(login, "alice", PASSWORD)


async def test_impersonate_allows_setting_the_password_of_a_user(login: LoginFixture) -> None:
    login.grants = {("bob", "alice")}
    await update_profile(login, BOB, "alice", password=NEW_PASSWORD)
    assert await can_log_in(login, "alice", NEW_PASSWORD)


@pytest.mark.parametrize("group", sorted(ADMIN_GROUPS))
async def test_impersonate_does_not_allow_setting_the_password_of_an_administrator(
    login: LoginFixture, group: str
) -> None:
    await login.add_user("chief", groups=["staff", group])
    login.grants = {("bob", "chief")}
    with pytest.raises(Forbidden):
        await update_profile(login, BOB, "chief", password=NEW_PASSWORD)
    assert await can_log_in(login, "chief", PASSWORD)


async def test_impersonate_does_not_allow_changing_an_administrator_by_a_group_mapping(login: LoginFixture) -> None:
    await login.add_connector("corp", [{"connector": "corp", "value": "chiefs", "groups": ["service:admins"]}])
    linked = {"issuer": "https://corp.example.com", "subject": "7"}
    await login.add_user("member", None, ssoGroups=["corp:staff"], **{**linked, "subject": "8"})
    await login.add_user("chief", None, ssoGroups=["corp:chiefs"], **linked)
    login.grants = {("bob", "chief"), ("bob", "member")}
    await update_profile(login, BOB, "member", displayName="Member")
    with pytest.raises(Forbidden):
        await update_profile(login, BOB, "chief", displayName="Chief")


async def test_a_machine_with_the_name_of_a_user_is_not_that_user(login: LoginFixture) -> None:
    await login.add_user("robot", None)
    machine = User("robot", ("system:authenticated", "service:authenticated"))
    with pytest.raises(Forbidden):
        await update_profile(login, machine, "robot", password=NEW_PASSWORD)


@pytest.mark.parametrize("requester", ["alice", "root", "bob"])
async def test_t4_a_scoped_key_cannot_set_a_password(login: LoginFixture, requester: str) -> None:
    """With a password, a user could log in and get keys without a scope."""
    login.grants = {("bob", "alice")}
    groups = ("system:masters",) if requester == "root" else ()
    with pytest.raises(Forbidden):
        await update_profile(
            login,
            build_user(requester, *groups, scope=Scope(allow_cli=True)),
            "alice",
            password=NEW_PASSWORD,
            currentPassword=PASSWORD,
        )
    assert await can_log_in(login, "alice", PASSWORD)


async def test_t19_a_scoped_key_cannot_change_another_profile(login: LoginFixture) -> None:
    login.grants = {("bob", "alice")}
    with pytest.raises(Forbidden):
        await update_profile(login, build_user("bob", scope=Scope(allow_cli=True)), "alice", displayName="Mallory")


@pytest.mark.parametrize("password", ["short", "elevenchars", "", "x" * 1025, "\ud800" * 12])
async def test_an_invalid_password_is_rejected_and_not_quoted(login: LoginFixture, password: str) -> None:
    with pytest.raises(Invalid, match="password") as error:
        await update_profile(login, ALICE, "alice", password=password, currentPassword=PASSWORD, displayName="Mallory")
    assert not password or password not in error.value.message
    assert (await request_profile(login, ALICE, "alice"))["displayName"] == "Alice"


async def test_a_new_password_ends_other_logins_and_keeps_other_keys(login: LoginFixture) -> None:
    own_login, other_login = [parse_body(await login.sign_in("alice"))["accessKey"] for _ in range(2)]
    access_key, bobs_login = await login.add_key("alice"), parse_body(await login.sign_in("bob"))["accessKey"]
    await update_profile(
        login, login.keys.authenticate_token(own_login), "alice", password=NEW_PASSWORD, currentPassword=PASSWORD
    )
    assert {login.keys.authenticate_token(key).name for key in (own_login, access_key)} == {"alice"}
    assert login.keys.authenticate_token(bobs_login).name == "bob"
    with pytest.raises(Unauthorized):
        login.keys.authenticate_token(other_login)


async def test_a_password_set_by_an_administrator_ends_all_logins_of_the_user(login: LoginFixture) -> None:
    alice_login, root_login = (
        parse_body(await login.sign_in("alice"))["accessKey"],
        parse_body(await login.sign_in("root"))["accessKey"],
    )
    await update_profile(login, login.keys.authenticate_token(root_login), "alice", password=NEW_PASSWORD)
    with pytest.raises(Unauthorized):
        login.keys.authenticate_token(alice_login)
    assert login.keys.authenticate_token(root_login).name == "root"


async def test_a_dry_run_checks_everything_and_changes_nothing(login: LoginFixture) -> None:
    body = {"password": NEW_PASSWORD, "currentPassword": PASSWORD, "displayName": "Alice B."}
    profile = await request_profile(login, ALICE, "alice", "create", dry_run=True, **body)
    assert profile["displayName"] == "Alice B."
    assert (await request_profile(login, ALICE, "alice"))["displayName"] == "Alice"
    assert await can_log_in(login, "alice", PASSWORD)
    with pytest.raises(Invalid):
        await request_profile(login, ALICE, "alice", "create", dry_run=True, password="short", currentPassword=PASSWORD)


async def test_the_hash_is_in_a_secret_that_belongs_to_the_user(login: LoginFixture) -> None:
    assert (await read_spec(login, "alice"))["passwordRef"] == {
        "secretName": "alice-password",
        "secretNamespace": "service-system",
        "key": "password",
    }
    secret = decode(await login.registry.resource("", "secrets").get("service-system", "alice-password"))
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("User", "alice")
    assert (secret["type"], list(secret["data"])) == ("service.sh/password", ["password"])


async def test_t29_no_password_is_in_any_log_reply_or_error(login: LoginFixture) -> None:
    canary, wrong = "canary-8f14e45f-password", "canary-wrong-password"
    outputs = []
    with capture_logs() as lines:
        for body in (
            {"password": canary},
            {"password": canary, "currentPassword": wrong},
            {"password": "canary", "currentPassword": wrong},
            {"password": canary, "currentPassword": PASSWORD},
            {"password": canary, "currentPassword": canary},
        ):
            try:
                outputs.append(orjson.dumps(await update_profile(login, ALICE, "alice", **body)).decode())
            except ApiError as error:
                outputs += [error.message, repr(error), repr(error.details)]
    assert await can_log_in(login, "alice", canary)
    all_output = repr(lines) + "".join(outputs) + login.stored_bytes().decode()
    assert "canary" not in all_output and PASSWORD not in all_output
    assert b64encode(canary.encode()).decode().rstrip("=") not in all_output
