"""server.auth.login: login with passwords, and that failures disclose nothing."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import quote

import orjson
import pytest
from structlog.testing import capture_logs

from fairlead.authn.access_keys import ACCESS_KEYS, USERS
from fairlead.core.call import RequestInfo
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.access.access_key import MAX_LOGINS
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from fairlead.server.flow.attempts import USER_BACKOFF
from fairlead.signin.login import MAX_BODY_BYTES, WRONG_CREDENTIALS, Credentials
from fairlead.signin.passwords import PasswordHasher
from tests.harness.calls import call
from tests.harness.login import PASSWORD, TTL, LoginFixture, header, open_login, parse_body

SAME_ORIGIN = {"host": "fairlead.example.com", "origin": "https://fairlead.example.com"}
AS_SERVER = WriteOptions(CONTROLLER_USER, "tests")


@pytest.fixture
async def login() -> AsyncIterator[LoginFixture]:
    async with open_login() as fixture:
        await fixture.add_user("alice")
        yield fixture


async def edit_user(login: LoginFixture, name: str, **spec: object) -> None:
    def edit(old: Object) -> Object:
        return {**old, "spec": {**old["spec"], **spec}}

    await login.registry.resource(GROUP, USERS).modify("", name, edit, AS_SERVER)


async def edit_secret(login: LoginFixture, data: dict[str, str]) -> None:
    await login.registry.resource("", "secrets").modify(
        "service-system", "alice-password", lambda old: {**old, "data": data}, AS_SERVER
    )


async def test_a_login_returns_a_working_access_key(login: LoginFixture) -> None:
    reply = await login.sign_in()
    body = parse_body(reply)
    assert reply.status == 200 and body == {"user": "alice", "username": "alice", "accessKey": body["accessKey"]}
    assert login.keys.authenticate_token(body["accessKey"]).name == "alice"
    assert not header(reply, "set-cookie")


async def test_the_response_to_a_login_must_not_be_cached(login: LoginFixture) -> None:
    reply = await login.sign_in()
    assert header(reply, "cache-control") == "no-store" and reply.cacheable


async def test_the_key_has_the_type_login_a_ttl_and_the_name_of_the_client(login: LoginFixture) -> None:
    await login.sign_in(user_agent="Mozilla/5.0 \x00\n" + "x" * 1000)
    (name,) = login.key_names()
    key = decode(await login.registry.resource(GROUP, ACCESS_KEYS).get("", name))
    assert name.startswith("login-alice-")
    spec = key["spec"]
    assert (spec["type"], spec["user"], spec["ttl"]) == ("Login", "alice", TTL)
    assert spec["displayName"].startswith("Login with Mozilla/5.0 xxx") and len(spec["displayName"]) <= 64 + 11
    assert "scope" not in spec


async def test_a_login_expires_after_its_ttl(login: LoginFixture) -> None:
    key = parse_body(await login.sign_in())["accessKey"]
    login.clock.tick(TTL - 1)
    assert login.keys.authenticate_token(key).name == "alice"
    login.clock.tick(1)
    with pytest.raises(Unauthorized):
        login.keys.authenticate_token(key)


async def test_users_log_in_with_their_username_not_the_name_of_the_object(login: LoginFixture) -> None:
    await login.add_user("u-17", username="bob@example.com")
    reply = await login.sign_in("bob@example.com")
    assert parse_body(reply)["user"] == "u-17" and parse_body(reply)["username"] == "bob@example.com"
    assert (await login.sign_in("u-17")).status == 401


async def test_an_ambiguous_username_cannot_log_in(login: LoginFixture) -> None:
    await login.add_user("bob", username="alice")
    assert (await login.sign_in("alice")).status == 401


async def test_a_login_sets_the_user_of_the_request(login: LoginFixture) -> None:
    body = orjson.dumps({"username": "alice", "password": PASSWORD})
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    request = call("/auth/password/login", method="POST", headers=headers, body=body)
    await login.handle(request, RequestInfo("post", "/auth/password/login"))
    assert request.user is not None and request.user.name == "alice" and request.user.key in login.key_names()


async def collect_rejections(login: LoginFixture) -> dict[str, bytes]:
    """The responses to logins that fail, by the reason."""
    await login.add_user("disabled", disabled=True)
    await login.add_user("no-password", None)
    await login.add_user("foreign-secret")
    await edit_user(
        login, "foreign-secret", passwordRef={"secretName": "alice-password", "secretNamespace": "service-system"}
    )
    await login.add_user("deleting")
    await login.registry.resource(GROUP, USERS).modify("", "deleting", _add_finalizer, AS_SERVER)
    await login.registry.resource(GROUP, USERS).delete("", "deleting", DeleteOptions(), AS_SERVER)
    bodies = {}
    for name in ("disabled", "no-password", "foreign-secret", "deleting", "unknown", "x" * 3000):
        login.hasher.hashes = 0
        reply = await login.sign_in(name, PASSWORD)
        assert (reply.status, login.hasher.hashes) == (401, 1), name
        bodies[name] = reply.body
    login.hasher.hashes = 0
    bodies["alice"] = (await login.sign_in("alice", "a wrong password")).body
    assert login.hasher.hashes == 1
    return bodies


def _add_finalizer(old: Object) -> Object:
    return {**old, "metadata": {**old["metadata"], "finalizers": ["tests/hold"]}}


async def test_all_failed_logins_get_the_same_response_after_the_same_work(login: LoginFixture) -> None:
    """Counted, not timed: one hash each, whatever the reason."""
    bodies = await collect_rejections(login)
    assert len(set(bodies.values())) == 1
    status = orjson.loads(bodies["alice"])
    assert (status["code"], status["message"]) == (401, WRONG_CREDENTIALS)
    assert not login.key_names()


async def test_a_password_ref_may_only_refer_to_the_users_own_secret(login: LoginFixture) -> None:
    """Otherwise, permission to edit users would be enough to replace the password of another user."""
    await login.add_user("mallory", "the password of mallory")
    for reference in (
        {"secretName": "mallory-password", "secretNamespace": "service-system"},
        {"secretName": "alice-password", "secretNamespace": "service-p-mallory"},
        {"secretName": "alice-password", "secretNamespace": "service-system", "key": "other"},
        {"secretName": "alice-password"},
    ):
        await edit_user(login, "alice", passwordRef=reference)
        assert (await login.sign_in("alice", "the password of mallory")).status == 401
        assert (await login.sign_in("alice", PASSWORD)).status == 401
        login.clock.tick(3600)
    await edit_user(login, "alice", passwordRef={"secretName": "alice-password", "secretNamespace": "service-system"})
    assert (await login.sign_in()).status == 200


async def test_a_recreated_user_does_not_inherit_the_password(login: LoginFixture) -> None:
    """The garbage collector may not have deleted the Secret yet."""
    await login.registry.resource(GROUP, USERS).delete("", "alice", DeleteOptions(), AS_SERVER)
    reference = {"secretName": "alice-password", "secretNamespace": "service-system", "key": "password"}
    await login.add_user("alice", None, passwordRef=reference)
    assert (await login.sign_in()).status == 401


@pytest.mark.parametrize("data", [{}, {"password": ""}, {"password": "bm8gaGFzaA=="}, {"password": "/w=="}])
async def test_a_secret_without_a_valid_hash_allows_no_login(login: LoginFixture, data: dict[str, str]) -> None:
    await edit_secret(login, data)
    for password in (PASSWORD, "no hash", "x"):
        assert (await login.sign_in(password=password)).status == 401


async def test_a_login_fails_if_the_password_changes_meanwhile(login: LoginFixture) -> None:
    """The password changes right after the old one was verified, which ends only the sessions that exist then."""

    async def change_password_and_create(user: str, agent: str) -> object:
        await login.passwords.set_password("alice", "another long password", CONTROLLER_USER)
        return await login.logins.create(user, agent)

    sessions = _Substitute(login.logins, create=change_password_and_create)
    login.handlers = replace(login.handlers, sessions=sessions)  # type: ignore[arg-type]
    assert (await login.sign_in()).status == 401
    assert not login.key_names()


class _Substitute:
    """An object with some methods replaced."""

    def __init__(self, original: object, **methods: object) -> None:
        self.__dict__.update(methods)
        self._original = original

    def __getattr__(self, name: str) -> object:
        return getattr(self._original, name)


async def test_the_oldest_logins_of_a_user_end_at_the_limit(login: LoginFixture) -> None:
    keys = []
    for _ in range(MAX_LOGINS + 2):
        login.clock.tick(1)
        keys.append(parse_body(await login.sign_in())["accessKey"])
    assert len(login.key_names()) == MAX_LOGINS
    for ended in keys[:2]:
        with pytest.raises(Unauthorized):
            login.keys.authenticate_token(ended)
    assert {login.keys.authenticate_token(active).name for active in keys[2:]} == {"alice"}


async def test_an_outdated_hash_is_replaced_at_login(login: LoginFixture) -> None:
    outdated = await PasswordHasher(replace(login.hasher._cost, memory=16)).hash(PASSWORD)
    await edit_secret(login, {"password": b64encode(outdated.encode()).decode()})
    assert b64encode(outdated.encode()) in login.stored_bytes()
    assert (await login.sign_in()).status == 200
    assert b64encode(outdated.encode()) not in login.stored_bytes()
    assert (await login.sign_in()).status == 200


async def test_replacing_an_outdated_hash_does_not_undo_a_password_change(login: LoginFixture) -> None:
    outdated = await PasswordHasher(replace(login.hasher._cost, memory=16)).hash(PASSWORD)
    await edit_secret(login, {"password": b64encode(outdated.encode()).decode()})
    alice = await login.passwords.find_by_username("alice")
    assert alice is not None
    await login.passwords.set_password("alice", "another long password", CONTROLLER_USER)
    await login.passwords.rehash_if_outdated(alice, PASSWORD, outdated)
    assert (await login.sign_in(password="another long password")).status == 200
    assert (await login.sign_in(password=PASSWORD)).status == 401


async def test_concurrent_logins_succeed_while_a_hash_is_replaced(login: LoginFixture) -> None:
    outdated = await PasswordHasher(replace(login.hasher._cost, memory=16)).hash(PASSWORD)
    await edit_secret(login, {"password": b64encode(outdated.encode()).decode()})
    replies = await asyncio.gather(*(login.sign_in() for _ in range(4)))
    assert [reply.status for reply in replies] == [200] * 4


async def test_failed_logins_are_throttled_with_retry_after(login: LoginFixture) -> None:
    for _ in range(USER_BACKOFF.free_attempts):
        assert (await login.sign_in(password="a wrong password")).status == 401
    login.hasher.hashes = 0
    reply = await login.sign_in()
    assert (reply.status, header(reply, "retry-after"), login.hasher.hashes) == (429, "1", 0)
    login.clock.tick(1)
    assert (await login.sign_in()).status == 200
    assert (await login.sign_in(password="a wrong password")).status == 401


async def test_unknown_usernames_are_throttled_alike(login: LoginFixture) -> None:
    async def collect_statuses(name: str, client: str) -> list[int]:
        return [
            (await login.sign_in(name, "a wrong password", client=client)).status
            for _ in range(USER_BACKOFF.free_attempts + 1)
        ]

    assert await collect_statuses("alice", "198.51.100.1:1") == await collect_statuses("unknown", "198.51.100.2:1")


async def test_concurrent_guesses_are_throttled(login: LoginFixture) -> None:
    replies = await asyncio.gather(*(login.sign_in(password=f"a wrong password {number}") for number in range(30)))
    assert [reply.status for reply in replies].count(401) == USER_BACKOFF.free_attempts
    assert login.hasher.hashes == USER_BACKOFF.free_attempts


async def test_with_cookie_true_the_key_is_in_a_cookie_and_not_in_the_body(login: LoginFixture) -> None:
    reply = await login.sign_in(query="cookie=true", **SAME_ORIGIN)
    assert parse_body(reply) == {"user": "alice", "username": "alice"}
    cookie = header(reply, "set-cookie")
    assert f"Max-Age={TTL}" in cookie and "HttpOnly" in cookie and "Secure" in cookie and "SameSite=Strict" in cookie
    user = login.cookies(call(headers={"cookie": cookie.partition(";")[0]}))
    assert user is not None and user.name == "alice"


@pytest.mark.parametrize("headers", [{}, {"host": "fairlead.example.com", "origin": "https://evil.example"}])
async def test_a_cookie_login_from_another_origin_is_rejected(login: LoginFixture, headers: dict[str, str]) -> None:
    reply = await login.sign_in(query="cookie=true", **headers)
    assert reply.status == 403 and not header(reply, "set-cookie") and not login.key_names()


@pytest.mark.parametrize("query", ["cookie=false", "cookie=0", ""])
async def test_no_cookie_is_set_unless_requested(login: LoginFixture, query: str) -> None:
    reply = await login.sign_in(query=query)
    assert "accessKey" in parse_body(reply) and not header(reply, "set-cookie")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"alice"',
        b"{}",
        b'{"username": "alice"}',
        b'{"username": "alice", "password": 12345678901234567890123}',
        b'{"username": "alice", "password": ""}',
        b'{"username": "", "password": "canary-canary"}',
        b'{"username": ["alice"], "password": "canary-canary"}',
        b'{"username": "alice", "password": "canary-canary\xff"}',
        b'{"username": "alice", "password": "canary-canary",}',
        b"[" * 1000 + b"canary",
    ],
)
async def test_an_invalid_body_gets_400_without_quoting_it(login: LoginFixture, body: bytes) -> None:
    reply = await login.post("/auth/password/login", body)
    status = parse_body(reply)
    assert reply.status == 400 and "must be a JSON object" in status["message"]
    assert b"canary" not in reply.body and b"123456" not in reply.body


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/yaml"])
async def test_only_json_is_accepted_which_no_html_form_can_send(login: LoginFixture, content_type: str) -> None:
    assert (await login.sign_in(content_type=content_type)).status == 415


async def test_the_size_of_a_body_is_limited_before_and_after_reading_it(login: LoginFixture) -> None:
    large = orjson.dumps({"username": "alice", "password": PASSWORD, "more": "x" * MAX_BODY_BYTES})
    assert (await login.post("/auth/password/login", large)).status == 413
    assert (await login.post("/auth/password/login", large, headers={"content-length": "10"})).status == 413
    assert (await login.sign_in(content_length="9" * 5000)).status == 413
    assert (await login.sign_in(content_length="")).status == 400
    assert (await login.sign_in(content_encoding="gzip")).status == 415


async def test_an_authorization_header_does_not_affect_a_login(login: LoginFixture) -> None:
    assert (await login.sign_in(password="a wrong password", authorization="Bearer some-key")).status == 401
    assert (await login.sign_in(authorization="Bearer some-key")).status == 200


async def test_password_login_can_be_disabled(login: LoginFixture) -> None:
    login.handlers = replace(login.handlers, is_enabled=lambda: False)
    reply = await login.sign_in()
    assert reply.status == 403 and "use an access key" in parse_body(reply)["message"]
    assert not login.key_names()


@pytest.mark.parametrize("is_enabled", [True, False])
async def test_login_methods_are_listed_without_authentication(login: LoginFixture, is_enabled: bool) -> None:
    login.handlers = replace(login.handlers, is_enabled=lambda: is_enabled)
    reply = await login.handle(call("/auth/methods"), RequestInfo("get", "/auth/methods"))
    cli = {"enabled": False, "url": ""}
    assert parse_body(reply) == {"methods": {"sso": [], "password": {"enabled": is_enabled, "used": True}, "cli": cli}}


async def test_the_store_contains_neither_the_password_nor_the_key(login: LoginFixture) -> None:
    key = parse_body(await login.sign_in())["accessKey"]
    content = login.stored_bytes()
    assert b64encode(b"$argon2id$")[:12] in content
    for secret in (PASSWORD, key, key.removeprefix("fairlead_")):
        assert secret.encode() not in content and b64encode(secret.encode()).rstrip(b"=") not in content


async def test_t29_no_password_is_in_any_log_response_or_repr(caplog: pytest.LogCaptureFixture) -> None:
    canary = "canary-8f14e45f-password"
    caplog.set_level("DEBUG")
    with capture_logs() as lines:
        async with open_login() as login:
            await login.add_user("alice", canary)
            outputs = [(await login.sign_in("alice", canary)).body.decode()]
            outputs += [(await login.sign_in(name, canary)).body.decode() for name in ("alice", "unknown", canary)]
            outputs += [
                (await login.sign_in("alice", f"wrong {canary}")).body.decode()
                for _ in range(USER_BACKOFF.free_attempts + 1)
            ]
            outputs += [(await login.post("/auth/password/login", f'{{"password": "{canary}"'.encode())).body.decode()]
            outputs += [repr(Credentials(canary, canary)), repr(login.handlers), str(Unauthorized(WRONG_CREDENTIALS))]
    assert {"a login failed", "a password was set"} <= {line["event"] for line in lines}
    content = repr(lines) + caplog.text + "".join(outputs)
    for encoded in (canary, quote(canary), b64encode(canary.encode()).decode().rstrip("=")):
        assert encoded not in content


async def test_t29_the_value_of_a_new_login_is_in_no_log_and_no_repr(login: LoginFixture) -> None:
    with capture_logs() as lines:
        session = await login.logins.create("alice", "curl")
    assert session.value not in repr(session) and session.value not in repr(lines)
