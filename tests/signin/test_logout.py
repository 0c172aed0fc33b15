"""signin.login: logout, from one login and from all of them."""

from collections.abc import AsyncIterator

import pytest

from fairlead.core.errors import Unauthorized
from tests.harness.login import LoginFixture, header, open_login, parse_body

SAME_ORIGIN = {"host": "fairlead.example.com", "origin": "https://fairlead.example.com"}


@pytest.fixture
async def login() -> AsyncIterator[LoginFixture]:
    async with open_login() as fixture:
        await fixture.add_user("alice")
        yield fixture


async def test_logout_ends_the_login(login: LoginFixture) -> None:
    key = parse_body(await login.sign_in())["accessKey"]
    reply = await login.post("/auth/logout", headers={"authorization": f"Bearer {key}"})
    assert reply.status == 200 and parse_body(reply)["message"] == "signed out"
    with pytest.raises(Unauthorized):
        login.keys.authenticate_token(key)


async def test_logout_in_a_browser_removes_the_cookie(login: LoginFixture) -> None:
    cookie = header(await login.sign_in(query="cookie=true", **SAME_ORIGIN), "set-cookie").partition(";")[0]
    assert (await login.post("/auth/logout", headers={"cookie": cookie})).status == 403
    reply = await login.post("/auth/logout", headers={"cookie": cookie, **SAME_ORIGIN})
    assert reply.status == 200 and header(reply, "set-cookie").startswith("__Host-service_access_key=; ")
    assert not login.key_names()


async def test_logout_does_not_revoke_other_keys(login: LoginFixture) -> None:
    key = await login.add_key("alice")
    reply = await login.post("/auth/logout", headers={"authorization": f"Bearer {key}"})
    assert reply.status == 200 and "stays valid" in parse_body(reply)["message"]
    assert login.keys.authenticate_token(key).name == "alice"


async def test_logout_everywhere_ends_all_logins_and_keeps_other_keys(login: LoginFixture) -> None:
    await login.add_user("bob")
    first, second = [parse_body(await login.sign_in())["accessKey"] for _ in range(2)]
    other = parse_body(await login.sign_in("bob"))["accessKey"]
    key = await login.add_key("alice")
    reply = await login.post("/auth/logout", query="all=true", headers={"authorization": f"Bearer {first}"})
    assert reply.status == 200 and "2 logins revoked" in parse_body(reply)["message"]
    for revoked in (first, second):
        with pytest.raises(Unauthorized):
            login.keys.authenticate_token(revoked)
    assert login.keys.authenticate_token(key).name == "alice"
    assert login.keys.authenticate_token(other).name == "bob"


async def test_a_key_with_a_scope_cannot_log_out_everywhere(login: LoginFixture) -> None:
    kept = parse_body(await login.sign_in())["accessKey"]
    key = await login.add_key("alice", scope={"allowServiceCli": True})
    reply = await login.post("/auth/logout", query="all=true", headers={"authorization": f"Bearer {key}"})
    assert reply.status == 403
    assert login.keys.authenticate_token(kept).name == "alice"
