"""signin.key_login: access keys are exchanged for logins of a browser, which have their rights and end with them."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.credentials import COOKIE
from fairlead.core.call import Reply
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object, deep_copy
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.access.access_key import MAX_LOGINS
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from fairlead.server.flow.attempts import NETWORK_BACKOFF, USER_BACKOFF
from fairlead.signin.key_login import KEY_OF_A_LOGIN, MAX_BODY_BYTES, NOT_OF_A_USER, WRONG_KEY
from tests.harness.login import CLIENT, TTL, LoginFixture, header, open_login, parse_body

SAME_ORIGIN = {"host": "fairlead.example.com", "origin": "https://fairlead.example.com"}
AS_SERVER = WriteOptions(CONTROLLER_USER, "tests")
SCOPE = {"projects": [{"project": "shop"}]}


@pytest.fixture
async def login() -> AsyncIterator[LoginFixture]:
    async with open_login() as fixture:
        await fixture.add_user("alice", None)
        yield fixture


async def exchange(login: LoginFixture, key: Any, client: str = CLIENT, **headers: str) -> Reply:
    body = orjson.dumps({"accessKey": key})
    return await login.post("/auth/key/login", body, client=client, headers={**SAME_ORIGIN, **headers})


def cookie_of(reply: Reply) -> str:
    assert reply.status == 200, reply.body
    return header(reply, "set-cookie").split(";")[0].removeprefix(f"{COOKIE}=")


def user_of(login: LoginFixture, reply: Reply) -> User:
    return login.keys.authenticate_token(cookie_of(reply))


def find_key(login: LoginFixture, name: str) -> Object:
    entry = login.registry.resource(GROUP, ACCESS_KEYS).get_cached("", name)
    assert entry is not None
    return decode(entry)


async def edit_key(login: LoginFixture, name: str, subresource: str = "", **fields: Any) -> None:
    def edit(old: Object) -> Object:
        new = deep_copy(old)
        section = subresource or "spec"
        new[section] = {**(new.get(section) or {}), **fields}
        return new

    writing = WriteOptions(CONTROLLER_USER, "tests", subresource=subresource)
    await login.registry.resource(GROUP, ACCESS_KEYS).modify("", name, edit, writing)


async def test_a_key_is_exchanged_for_a_login_in_a_cookie(login: LoginFixture) -> None:
    key = await login.add_key("alice")
    reply = await exchange(login, key, **{"user-agent": "Firefox"})
    assert parse_body(reply) == {"user": "alice", "canSetPassword": True}
    cookie = header(reply, "set-cookie")
    for attribute in ("HttpOnly", "Secure", "SameSite=Strict", f"Max-Age={TTL}"):
        assert attribute in cookie
    assert header(reply, "cache-control") == "no-store"
    user = user_of(login, reply)
    assert user.name == "alice" and user.key.startswith("login-alice-") and cookie_of(reply) != key
    spec = find_key(login, user.key)["spec"]
    assert (spec["type"], spec["ttl"], spec["displayName"]) == ("Login", TTL, "Login with Firefox")
    assert spec["parent"].startswith("key-") and "scope" not in spec and "groups" not in spec


async def test_spaces_and_line_breaks_around_a_pasted_key_are_ignored(login: LoginFixture) -> None:
    key = await login.add_key("alice")
    assert user_of(login, await exchange(login, f"  {key}\n")).name == "alice"


async def test_the_login_has_the_scope_and_the_groups_of_the_key(login: LoginFixture) -> None:
    key = await login.add_key("alice", scope=SCOPE, groups=["testers"])
    reply = await exchange(login, key)
    user = user_of(login, reply)
    direct = login.keys.authenticate_token(key)
    assert user.scope is not None and (user.scope, user.groups) == (direct.scope, direct.groups)
    assert "testers" in user.groups
    assert parse_body(reply)["canSetPassword"] is False


async def test_the_login_does_not_outlive_the_key(login: LoginFixture) -> None:
    key = await login.add_key("alice", ttl=60)
    login.clock.tick(20)
    reply = await exchange(login, key)
    assert "Max-Age=40" in header(reply, "set-cookie") and parse_body(reply)["canSetPassword"] is False
    login.clock.tick(39)
    assert user_of(login, reply).name == "alice"
    login.clock.tick(1)
    with pytest.raises(Unauthorized):
        user_of(login, reply)


@pytest.mark.parametrize(
    ("subresource", "fields"),
    [
        ("", {"disabled": True}),
        ("", {"scope": {"projects": [{"project": "other"}]}}),
        ("", {"groups": []}),
        ("status", {"expired": "2026-01-01T00:00:00Z"}),
        ("status", {"rotated": "2999-01-01T00:00:00Z"}),
    ],
)
async def test_the_login_ends_when_the_key_is_disabled_narrowed_rotated_or_expired(
    login: LoginFixture, subresource: str, fields: dict[str, Any]
) -> None:
    reply = await exchange(login, await login.add_key("alice", scope=SCOPE, groups=["testers"]))
    parent = find_key(login, user_of(login, reply).key)["spec"]["parent"]
    await edit_key(login, parent, subresource, **fields)
    with pytest.raises(Unauthorized):
        user_of(login, reply)


async def test_the_login_ends_with_the_deletion_of_the_key(login: LoginFixture) -> None:
    reply = await exchange(login, await login.add_key("alice"))
    parent = find_key(login, user_of(login, reply).key)["spec"]["parent"]
    await login.registry.resource(GROUP, ACCESS_KEYS).delete("", parent, DeleteOptions(), AS_SERVER)
    with pytest.raises(Unauthorized):
        user_of(login, reply)


async def test_signing_out_ends_the_login_and_leaves_the_key(login: LoginFixture) -> None:
    key = await login.add_key("alice")
    reply = await exchange(login, key)
    sent = {**SAME_ORIGIN, "cookie": f"{COOKIE}={cookie_of(reply)}"}
    assert (await login.post("/auth/logout", headers=sent)).status == 200
    with pytest.raises(Unauthorized):
        user_of(login, reply)
    assert login.keys.authenticate_token(key).name == "alice"


@pytest.mark.parametrize("origin", ["https://evil.example.com", ""])
async def test_other_sites_cannot_sign_a_browser_in(login: LoginFixture, origin: str) -> None:
    key = await login.add_key("alice")
    reply = (
        await exchange(login, key, origin=origin)
        if origin
        else await login.post(
            "/auth/key/login", orjson.dumps({"accessKey": key}), headers={"host": "fairlead.example.com"}
        )
    )
    assert reply.status == 403 and not header(reply, "set-cookie")
    assert len(login.key_names()) == 1


@pytest.mark.parametrize("key", ["fairlead_wrong", "x" * 513, "fairlead_\N{SNOWMAN}"])
async def test_a_wrong_key_gets_one_message_that_does_not_quote_it(login: LoginFixture, key: str) -> None:
    reply = await exchange(login, key)
    assert (reply.status, parse_body(reply)["message"]) == (401, WRONG_KEY)
    assert not header(reply, "set-cookie") and not login.key_names()


async def test_a_disabled_user_cannot_sign_in_with_a_key(login: LoginFixture) -> None:
    await login.add_user("bob", None, disabled=True)
    assert (await exchange(login, await login.add_key("bob"))).status == 401


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"accessKey": 1}', b'{"accessKey": "  "}'])
async def test_a_malformed_body_is_an_error(login: LoginFixture, body: bytes) -> None:
    reply = await login.post("/auth/key/login", body, headers=SAME_ORIGIN)
    assert reply.status == 400 and b"accessKey" in reply.body


async def test_a_large_body_and_another_content_type_are_refused(login: LoginFixture) -> None:
    large = orjson.dumps({"accessKey": "x" * MAX_BODY_BYTES})
    assert (await login.post("/auth/key/login", large, headers=SAME_ORIGIN)).status == 413
    form = {**SAME_ORIGIN, "content-type": "application/x-www-form-urlencoded"}
    assert (await login.post("/auth/key/login", b"accessKey=x", headers=form)).status == 415


async def test_many_wrong_keys_of_one_network_have_to_wait(login: LoginFixture) -> None:
    for number in range(NETWORK_BACKOFF.free_attempts):
        assert (await exchange(login, f"fairlead_wrong_{number}")).status == 401
    reply = await exchange(login, "fairlead_wrong_last")
    assert reply.status == 429 and int(header(reply, "retry-after")) >= 1
    # Another network is not delayed.
    assert (await exchange(login, await login.add_key("alice"), client="198.51.100.7:1")).status == 200


async def test_attempts_with_one_value_count_for_all_networks(login: LoginFixture) -> None:
    for number in range(USER_BACKOFF.free_attempts):
        assert (await exchange(login, "fairlead_wrong", client=f"192.0.2.{number}:1")).status == 401
    assert (await exchange(login, "fairlead_wrong", client="192.0.2.200:1")).status == 429


async def test_keys_of_teams_and_other_subjects_do_not_sign_in(login: LoginFixture) -> None:
    team = {"apiVersion": f"{GROUP}/v1", "kind": "Team", "metadata": {"name": "ops"}, "spec": {}}
    await login.registry.resource(GROUP, "teams").create(team, "", AS_SERVER)
    for owner in ({"team": "ops"}, {"subject": "system:serviceaccount:shop:ci"}, {"subject": "runner-1"}):
        body = {"apiVersion": f"{GROUP}/v1", "kind": "OwnedAccessKey", "metadata": {"generateName": "key-"}}
        created = await login.registry.resource(GROUP, ACCESS_KEYS).create({**body, "spec": owner}, "", AS_SERVER)
        reply = await exchange(login, orjson.loads(created)["spec"]["key"])
        expected = 401 if "serviceaccount" in str(owner) else 403  # that account does not exist
        assert reply.status == expected, owner
        assert expected == 401 or parse_body(reply)["message"] == NOT_OF_A_USER


async def test_the_key_of_a_login_does_not_start_another_one(login: LoginFixture) -> None:
    reply = await exchange(login, await login.add_key("alice"))
    again = await exchange(login, cookie_of(reply))
    assert (again.status, parse_body(again)["message"]) == (403, KEY_OF_A_LOGIN)


async def test_a_user_has_a_limited_number_of_logins(login: LoginFixture) -> None:
    key = await login.add_key("alice")
    for _ in range(MAX_LOGINS + 2):
        assert (await exchange(login, key)).status == 200
        login.clock.tick(1)
    assert len([name for name in login.key_names() if name.startswith("login-")]) == MAX_LOGINS


async def test_a_key_with_a_scope_does_not_end_logins_that_others_made(login: LoginFixture) -> None:
    own_key = await login.add_key("alice")
    first = await exchange(login, own_key)
    scoped_keys = [await login.add_key("alice", scope=SCOPE) for _ in range(2)]
    other = await exchange(login, scoped_keys[0])
    login.clock.tick(1)
    made = []
    for _ in range(MAX_LOGINS + 2):
        made.append(await exchange(login, scoped_keys[1]))
        login.clock.tick(1)
    assert user_of(login, first).name == user_of(login, other).name == "alice"
    # Its own logins are limited, and do not count when the user signs in another way.
    for ended in made[:2]:
        with pytest.raises(Unauthorized):
            user_of(login, ended)
    await exchange(login, own_key)
    for reply in (first, other, *made[2:]):
        assert user_of(login, reply).name == "alice"


async def test_a_first_password_is_offered_once(login: LoginFixture) -> None:
    key = await login.add_key("alice")
    assert not login.passwords.is_used()
    user = user_of(login, await exchange(login, key))
    assert not login.passwords.would_outlive(user.key)  # the key in whose place the login stands has no expiry
    await login.passwords.set_password("alice", "correct horse battery staple", user)
    assert login.keys.user_of_key(user.key) is not None  # the login that set the password stays
    assert login.passwords.is_used()
    assert parse_body(await exchange(login, key))["canSetPassword"] is False
