"""Signing in and out: what it takes, what one gets, and that everybody else learns nothing."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import quote

import orjson
import pytest
from structlog.testing import capture_logs

from fairlead.authn.access_keys import ACCESS_KEYS, USERS
from fairlead.authn.login_throttle import USER_BACKOFF
from fairlead.authn.password_hash import PasswordHasher
from fairlead.core.call import RequestInfo
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.access.access_key_usage import MAX_LOGINS
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from fairlead.server.auth.login import MAX_BODY_BYTES, WRONG_CREDENTIALS, Credentials
from tests.harness.calls import call
from tests.harness.login import PASSWORD, TTL, LoginFixture, header, open_login, reply_body

OWN_PAGE = {"host": "fairlead.example.com", "origin": "https://fairlead.example.com"}
SERVER = WriteOptions(CONTROLLER_USER, "tests")


@pytest.fixture
async def login() -> AsyncIterator[LoginFixture]:
    async with open_login() as made:
        await made.add_user("alice")
        yield made


async def edit_user(login: LoginFixture, name: str, **spec: object) -> None:
    def edit(old: Object) -> Object:
        return {**old, "spec": {**old["spec"], **spec}}

    await login.registry.resource(GROUP, USERS).modify("", name, edit, SERVER)


async def edit_secret(login: LoginFixture, data: dict[str, str]) -> None:
    await login.registry.resource("", "secrets").modify(
        "service-system", "alice-password", lambda old: {**old, "data": data}, SERVER
    )


async def test_name_and_password_give_a_key_that_works(login: LoginFixture) -> None:
    reply = await login.sign_in()
    answer = reply_body(reply)
    assert reply.status == 200 and answer == {"user": "alice", "username": "alice", "accessKey": answer["accessKey"]}
    assert login.keys.authenticate_token(answer["accessKey"]).name == "alice"
    assert not header(reply, "set-cookie")


async def test_the_answer_may_not_be_kept_by_anybody_on_the_way(login: LoginFixture) -> None:
    reply = await login.sign_in()
    assert header(reply, "cache-control") == "no-store" and reply.cacheable


async def test_the_key_is_a_login_with_an_end_and_named_after_its_client(login: LoginFixture) -> None:
    await login.sign_in(user_agent="Mozilla/5.0 \x00\n" + "x" * 1000)
    (name,) = login.key_names()
    key = decode(await login.registry.resource(GROUP, ACCESS_KEYS).get("", name))
    assert name.startswith("login-alice-")
    spec = key["spec"]
    assert (spec["type"], spec["user"], spec["ttl"]) == ("Login", "alice", TTL)
    assert spec["displayName"].startswith("Login with Mozilla/5.0 xxx") and len(spec["displayName"]) <= 64 + 11
    assert "scope" not in spec


async def test_the_login_ends_with_its_time(login: LoginFixture) -> None:
    key = reply_body(await login.sign_in())["accessKey"]
    login.clock.seconds += TTL - 1
    assert login.keys.authenticate_token(key).name == "alice"
    login.clock.seconds += 1
    with pytest.raises(Unauthorized):
        login.keys.authenticate_token(key)


async def test_people_sign_in_by_their_user_name_which_need_not_be_the_objects(login: LoginFixture) -> None:
    await login.add_user("u-17", username="bob@example.com")
    reply = await login.sign_in("bob@example.com")
    assert reply_body(reply)["user"] == "u-17" and reply_body(reply)["username"] == "bob@example.com"
    assert (await login.sign_in("u-17")).status == 401


async def test_a_name_that_two_users_claim_lets_neither_in(login: LoginFixture) -> None:
    await login.add_user("bob", username="alice")
    assert (await login.sign_in("alice")).status == 401


async def test_who_has_signed_in_is_known_to_the_stages_around(login: LoginFixture) -> None:
    body = orjson.dumps({"username": "alice", "password": PASSWORD})
    sent = {"content-type": "application/json", "content-length": str(len(body))}
    made = call("/auth/password/login", method="POST", headers=sent, body=body)
    await login.handle(made, RequestInfo("post", "/auth/password/login"))
    assert made.user is not None and made.user.name == "alice" and made.user.key in login.key_names()


async def refusals(login: LoginFixture) -> dict[str, bytes]:
    """The answers to everybody who cannot sign in, by what is wrong with them."""
    await login.add_user("disabled", disabled=True)
    await login.add_user("without", None)
    await login.add_user("astray")
    await edit_user(login, "astray", passwordRef={"secretName": "alice-password", "secretNamespace": "service-system"})
    await login.add_user("leaving")
    await login.registry.resource(GROUP, USERS).modify("", "leaving", _held, SERVER)
    await login.registry.resource(GROUP, USERS).delete("", "leaving", DeleteOptions(), SERVER)
    answers = {}
    for name in ("disabled", "without", "astray", "leaving", "unknown", "x" * 3000):
        login.hashing.hashes = 0
        reply = await login.sign_in(name, PASSWORD)
        assert (reply.status, login.hashing.hashes) == (401, 1), name
        answers[name] = reply.body
    login.hashing.hashes = 0
    answers["alice"] = (await login.sign_in("alice", "a wrong password")).body
    assert login.hashing.hashes == 1
    return answers


def _held(old: Object) -> Object:
    return {**old, "metadata": {**old["metadata"], "finalizers": ["tests/hold"]}}


async def test_everybody_who_cannot_sign_in_gets_the_same_answer_for_the_same_work(login: LoginFixture) -> None:
    """Counted, not timed: one hash each, whatever the reason."""
    answers = await refusals(login)
    assert len(set(answers.values())) == 1
    status = orjson.loads(answers["alice"])
    assert (status["code"], status["message"]) == (401, WRONG_CREDENTIALS)
    assert not login.key_names()


async def test_a_password_ref_is_followed_to_the_users_own_secret_only(login: LoginFixture) -> None:
    """Whoever may edit users could otherwise put a hash that he knows in somebody else's place."""
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
        login.clock.seconds += 3600
    await edit_user(login, "alice", passwordRef={"secretName": "alice-password", "secretNamespace": "service-system"})
    assert (await login.sign_in()).status == 200


async def test_a_later_user_of_the_same_name_does_not_inherit_the_password(login: LoginFixture) -> None:
    """The garbage collector may not have come by yet."""
    await login.registry.resource(GROUP, USERS).delete("", "alice", DeleteOptions(), SERVER)
    reference = {"secretName": "alice-password", "secretNamespace": "service-system", "key": "password"}
    await login.add_user("alice", None, passwordRef=reference)
    assert (await login.sign_in()).status == 401


@pytest.mark.parametrize("data", [{}, {"password": ""}, {"password": "bm8gaGFzaA=="}, {"password": "/w=="}])
async def test_a_secret_that_holds_no_hash_lets_nobody_in(login: LoginFixture, data: dict[str, str]) -> None:
    await edit_secret(login, data)
    for password in (PASSWORD, "no hash", "x"):
        assert (await login.sign_in(password=password)).status == 401


async def test_a_password_that_was_changed_meanwhile_gives_no_login(login: LoginFixture) -> None:
    """The change comes right after the old password was found right, and ends only the logins that it sees."""

    async def changed_then_created(user: str, agent: str) -> object:
        await login.passwords.set_password("alice", "another long password", CONTROLLER_USER)
        return await login.logins.create(user, agent)

    late = _Substitute(login.logins, create=changed_then_created)
    login.login = replace(login.login, sessions=late)  # type: ignore[arg-type]
    assert (await login.sign_in()).status == 401
    assert not login.key_names()


class _Substitute:
    """An object with one of its methods replaced."""

    def __init__(self, original: object, **methods: object) -> None:
        self.__dict__.update(methods)
        self._original = original

    def __getattr__(self, name: str) -> object:
        return getattr(self._original, name)


async def test_many_logins_of_one_user_end_the_oldest(login: LoginFixture) -> None:
    keys = []
    for _ in range(MAX_LOGINS + 2):
        login.clock.seconds += 1
        keys.append(reply_body(await login.sign_in())["accessKey"])
    assert len(login.key_names()) == MAX_LOGINS
    for gone in keys[:2]:
        with pytest.raises(Unauthorized):
            login.keys.authenticate_token(gone)
    assert {login.keys.authenticate_token(left).name for left in keys[2:]} == {"alice"}


async def test_an_outdated_hash_is_made_anew_when_its_user_signs_in(login: LoginFixture) -> None:
    older = await PasswordHasher(replace(login.hashing._cost, memory=16)).hash(PASSWORD)
    await edit_secret(login, {"password": b64encode(older.encode()).decode()})
    assert b64encode(older.encode()) in login.stored()
    assert (await login.sign_in()).status == 200
    assert b64encode(older.encode()) not in login.stored()
    assert (await login.sign_in()).status == 200


async def test_making_a_hash_anew_does_not_undo_a_new_password(login: LoginFixture) -> None:
    older = await PasswordHasher(replace(login.hashing._cost, memory=16)).hash(PASSWORD)
    await edit_secret(login, {"password": b64encode(older.encode()).decode()})
    alice = await login.passwords.find_by_username("alice")
    assert alice is not None
    await login.passwords.set_password("alice", "another long password", CONTROLLER_USER)
    await login.passwords.rehash_if_outdated(alice, PASSWORD, older)
    assert (await login.sign_in(password="another long password")).status == 200
    assert (await login.sign_in(password=PASSWORD)).status == 401


async def test_many_who_sign_in_while_a_hash_is_made_anew_all_get_in(login: LoginFixture) -> None:
    older = await PasswordHasher(replace(login.hashing._cost, memory=16)).hash(PASSWORD)
    await edit_secret(login, {"password": b64encode(older.encode()).decode()})
    replies = await asyncio.gather(*(login.sign_in() for _ in range(4)))
    assert [reply.status for reply in replies] == [200] * 4


async def test_failures_slow_down_and_say_for_how_long(login: LoginFixture) -> None:
    for _ in range(USER_BACKOFF.free_failures):
        assert (await login.sign_in(password="a wrong password")).status == 401
    login.hashing.hashes = 0
    reply = await login.sign_in()
    assert (reply.status, header(reply, "retry-after"), login.hashing.hashes) == (429, "1", 0)
    login.clock.seconds += 1
    assert (await login.sign_in()).status == 200
    assert (await login.sign_in(password="a wrong password")).status == 401


async def test_names_that_nobody_has_slow_down_alike(login: LoginFixture) -> None:
    async def statuses(name: str, client: str) -> list[int]:
        return [
            (await login.sign_in(name, "a wrong password", client=client)).status
            for _ in range(USER_BACKOFF.free_failures + 1)
        ]

    assert await statuses("alice", "198.51.100.1:1") == await statuses("nobody", "198.51.100.2:1")


async def test_many_guesses_sent_at_once_do_not_all_get_an_answer(login: LoginFixture) -> None:
    replies = await asyncio.gather(*(login.sign_in(password=f"a wrong password {turn}") for turn in range(30)))
    assert [reply.status for reply in replies].count(401) == USER_BACKOFF.free_failures
    assert login.hashing.hashes == USER_BACKOFF.free_failures


async def test_for_browsers_the_key_comes_as_a_cookie_and_not_in_the_body(login: LoginFixture) -> None:
    reply = await login.sign_in(query="cookie=true", **OWN_PAGE)
    assert reply_body(reply) == {"user": "alice", "username": "alice"}
    cookie = header(reply, "set-cookie")
    assert f"Max-Age={TTL}" in cookie and "HttpOnly" in cookie and "Secure" in cookie and "SameSite=Strict" in cookie
    user = login.cookies(call(headers={"cookie": cookie.partition(";")[0]}))
    assert user is not None and user.name == "alice"


@pytest.mark.parametrize("headers", [{}, {"host": "fairlead.example.com", "origin": "https://evil.example"}])
async def test_a_page_elsewhere_cannot_sign_its_visitor_in(login: LoginFixture, headers: dict[str, str]) -> None:
    reply = await login.sign_in(query="cookie=true", **headers)
    assert reply.status == 403 and not header(reply, "set-cookie") and not login.key_names()


@pytest.mark.parametrize("query", ["cookie=false", "cookie=0", ""])
async def test_without_asking_for_it_there_is_no_cookie(login: LoginFixture, query: str) -> None:
    reply = await login.sign_in(query=query)
    assert "accessKey" in reply_body(reply) and not header(reply, "set-cookie")


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
async def test_what_is_no_login_is_refused_in_words_that_quote_nothing(login: LoginFixture, body: bytes) -> None:
    reply = await login.post("/auth/password/login", body)
    status = reply_body(reply)
    assert reply.status == 400 and "must be a JSON object" in status["message"]
    assert b"canary" not in reply.body and b"123456" not in reply.body


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/yaml"])
async def test_only_json_is_taken_which_no_form_can_send(login: LoginFixture, content_type: str) -> None:
    assert (await login.sign_in(content_type=content_type)).status == 415


async def test_a_body_is_bounded_before_and_after_it_is_read(login: LoginFixture) -> None:
    big = orjson.dumps({"username": "alice", "password": PASSWORD, "more": "x" * MAX_BODY_BYTES})
    assert (await login.post("/auth/password/login", big)).status == 413
    assert (await login.post("/auth/password/login", big, headers={"content-length": "10"})).status == 413
    assert (await login.sign_in(content_length="9" * 5000)).status == 413
    assert (await login.sign_in(content_length="")).status == 400
    assert (await login.sign_in(content_encoding="gzip")).status == 415


async def test_a_key_does_not_change_how_one_signs_in(login: LoginFixture) -> None:
    assert (await login.sign_in(password="a wrong password", authorization="Bearer whatever")).status == 401
    assert (await login.sign_in(authorization="Bearer whatever")).status == 200


async def test_signing_in_with_passwords_can_be_turned_off(login: LoginFixture) -> None:
    login.login = replace(login.login, is_enabled=lambda: False)
    reply = await login.sign_in()
    assert reply.status == 403 and "use an access key" in reply_body(reply)["message"]
    assert not login.key_names()


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_ways_to_sign_in_are_told_to_everybody(login: LoginFixture, enabled: bool) -> None:
    login.login = replace(login.login, is_enabled=lambda: enabled)
    reply = await login.handle(call("/auth/methods"), RequestInfo("get", "/auth/methods"))
    assert reply_body(reply) == {"methods": {"sso": [], "password": {"enabled": enabled}}}


async def test_signing_out_ends_the_login(login: LoginFixture) -> None:
    key = reply_body(await login.sign_in())["accessKey"]
    reply = await login.post("/auth/logout", headers={"authorization": f"Bearer {key}"})
    assert reply.status == 200 and reply_body(reply)["message"] == "signed out"
    with pytest.raises(Unauthorized):
        login.keys.authenticate_token(key)


async def test_signing_out_in_a_browser_takes_the_cookie_away(login: LoginFixture) -> None:
    cookie = header(await login.sign_in(query="cookie=true", **OWN_PAGE), "set-cookie").partition(";")[0]
    assert (await login.post("/auth/logout", headers={"cookie": cookie})).status == 403
    reply = await login.post("/auth/logout", headers={"cookie": cookie, **OWN_PAGE})
    assert reply.status == 200 and header(reply, "set-cookie").startswith("__Host-service_access_key=; ")
    assert not login.key_names()


async def test_signing_out_leaves_other_keys_alone(login: LoginFixture) -> None:
    key = await login.add_key("alice")
    reply = await login.post("/auth/logout", headers={"authorization": f"Bearer {key}"})
    assert reply.status == 200 and "stays valid" in reply_body(reply)["message"]
    assert login.keys.authenticate_token(key).name == "alice"


async def test_the_store_has_neither_the_password_nor_the_key(login: LoginFixture) -> None:
    key = reply_body(await login.sign_in())["accessKey"]
    everything = login.stored()
    assert b64encode(b"$argon2id$")[:12] in everything
    for secret in (PASSWORD, key, key.removeprefix("fairlead_")):
        assert secret.encode() not in everything and b64encode(secret.encode()).rstrip(b"=") not in everything


async def test_t29_no_password_is_in_any_log_answer_or_representation(caplog: pytest.LogCaptureFixture) -> None:
    canary = "canary-8f14e45f-password"
    caplog.set_level("DEBUG")
    with capture_logs() as lines:
        async with open_login() as login:
            await login.add_user("alice", canary)
            shown = [(await login.sign_in("alice", canary)).body.decode()]
            shown += [(await login.sign_in(name, canary)).body.decode() for name in ("alice", "nobody", canary)]
            shown += [
                (await login.sign_in("alice", f"wrong {canary}")).body.decode()
                for _ in range(USER_BACKOFF.free_failures + 1)
            ]
            shown += [(await login.post("/auth/password/login", f'{{"password": "{canary}"'.encode())).body.decode()]
            shown += [repr(Credentials(canary, canary)), repr(login.login), str(Unauthorized(WRONG_CREDENTIALS))]
    assert {"a login failed", "a password was set"} <= {line["event"] for line in lines}
    everything = repr(lines) + caplog.text + "".join(shown)
    for form in (canary, quote(canary), b64encode(canary.encode()).decode().rstrip("=")):
        assert form not in everything


async def test_t29_the_value_of_a_new_login_is_in_no_log_and_no_representation(login: LoginFixture) -> None:
    with capture_logs() as lines:
        made = await login.logins.create("alice", "curl")
    assert made.value not in repr(made) and made.value not in repr(lines)
