"""server.auth.oauth_cli: consent in the console, codes, refresh and revocation, and attacks on them."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from fairlead.authn.access_keys import TEAMS
from fairlead.core.errors import Unauthorized
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from fairlead.signin.oauth import REASON_ANNOTATION
from tests.harness.cli_login import HOST, REDIRECT, REQUEST, SAME_ORIGIN, CliLoginFixture, open_cli_login
from tests.harness.login import TTL, parse_body


@pytest.fixture
async def cli() -> AsyncIterator[CliLoginFixture]:
    async with open_cli_login() as fixture:
        yield fixture


def is_accepted(cli: CliLoginFixture, key: str) -> bool:
    try:
        return cli.login.keys.authenticate_token(key).name == "alice"
    except Unauthorized:
        return False


async def test_the_console_shows_what_a_login_allows(cli: CliLoginFixture) -> None:
    reply = await cli.send("GET", "/auth/authorize", query=urlencode(REQUEST), headers=await cli.browser())
    assert reply.status == 200 and parse_body(reply) == {
        "client": {"id": "fairlead-cli", "name": "Fairlead CLI"},
        "machine": "laptop",
        "redirectHost": "127.0.0.1:40000",
        "user": "alice",
        "ttlSeconds": TTL,
        "keyTTLSeconds": 600,
    }


async def test_a_user_who_agrees_logs_the_command_line_in(cli: CliLoginFixture) -> None:
    browser = await cli.browser()
    body = {"approve": True, "request": REQUEST}
    status, reply = await cli.post_json("/auth/authorize", body, browser)
    location = urlsplit(reply["redirect"])
    assert status == 200 and reply["redirect"].startswith(f"{REDIRECT}?")
    assert parse_qs(location.query)["state"] == [REQUEST["state"]]
    status, tokens = await cli.redeem(parse_qs(location.query)["code"][0])
    assert status == 200 and tokens["token_type"] == "Bearer" and tokens["expires_in"] == 600
    assert is_accepted(cli, tokens["access_token"])
    assert cli.calls[-1].user is not None and cli.calls[-1].user.name == "alice"  # for the audit log
    status, tokens = await cli.refresh(tokens["refresh_token"])
    assert status == 200 and is_accepted(cli, tokens["access_token"])


async def test_a_user_who_does_not_agree_gets_no_code(cli: CliLoginFixture) -> None:
    browser = await cli.browser()
    before = cli.login.key_names()
    status, reply = await cli.post_json("/auth/authorize", {"approve": False, "request": REQUEST}, browser)
    assert status == 200 and reply == {"redirect": f"{REDIRECT}?error=access_denied&state={REQUEST['state']}"}
    assert cli.login.key_names() == before


async def test_reading_a_request_issues_nothing(cli: CliLoginFixture) -> None:
    browser = await cli.browser()
    before = cli.login.key_names()
    await cli.send("GET", "/auth/authorize", query=urlencode(REQUEST), headers=browser)
    assert cli.login.key_names() == before


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"https://{HOST}.evil.example"}, 403),
        ({"origin": f"http://{HOST}"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "https://other." + HOST, "sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"cookie": ""}, 401),
        ({"cookie": "__Host-service_access_key=invented"}, 401),
    ],
)
async def test_another_site_cannot_agree_for_the_user(
    cli: CliLoginFixture, headers: dict[str, str], status: int
) -> None:
    browser = {**await cli.browser(), **headers}
    before = cli.login.key_names()
    for path, body in (
        ("/auth/authorize", {"approve": True, "request": REQUEST}),
        ("/auth/device/decision", {"approve": True, "userCode": "BCDF-GHJK"}),
    ):
        assert (await cli.post_json(path, body, {k: v for k, v in browser.items() if v}))[0] == status
    assert cli.login.key_names() == before


async def test_a_key_with_a_scope_cannot_agree(cli: CliLoginFixture) -> None:
    key = await cli.login.add_key("alice", scope={"allowServiceCli": True})
    status, _ = await cli.post_json(
        "/auth/authorize", {"approve": True, "request": REQUEST}, {"authorization": f"Bearer {key}"}
    )
    assert status == 403


async def test_an_impersonated_user_cannot_agree(cli: CliLoginFixture) -> None:
    headers = {**await cli.browser(), "impersonate-user": "bob"}
    assert (await cli.post_json("/auth/authorize", {"approve": True, "request": REQUEST}, headers))[0] == 403


@pytest.mark.parametrize("owner", ["subject", "team"])
async def test_a_key_of_a_team_or_another_subject_cannot_agree(cli: CliLoginFixture, owner: str) -> None:
    team = {"apiVersion": f"{GROUP}/v1", "kind": "Team", "metadata": {"name": "alice"}}
    await cli.login.registry.resource(GROUP, TEAMS).create(team, "", WriteOptions(CONTROLLER_USER, "tests"))
    key = await cli.login.add_key("", **{owner: "alice"})
    status, _ = await cli.post_json(
        "/auth/authorize", {"approve": True, "request": REQUEST}, {"authorization": f"Bearer {key}"}
    )
    assert status == 403


async def test_a_login_of_the_command_line_cannot_start_another_one(cli: CliLoginFixture) -> None:
    _, tokens = await cli.redeem(await cli.approve(await cli.browser()))
    headers = {"authorization": f"Bearer {tokens['access_token']}"}
    status, reply = await cli.post_json("/auth/authorize", {"approve": True, "request": REQUEST}, headers)
    assert status == 403 and "another one" in reply["message"]


@pytest.mark.parametrize("type", ["User", "Login"])
async def test_a_user_of_an_identity_provider_agrees_only_in_a_single_sign_on(cli: CliLoginFixture, type: str) -> None:
    """A login that an ordinary key has allowed would go on after the session at the provider."""
    await cli.login.add_connector("corp")
    await cli.login.add_user("carol", password=None, issuer="https://corp.example.com", subject="7")
    key = await cli.login.add_key("carol", type=type)
    body, headers = {"approve": True, "request": REQUEST}, {"authorization": f"Bearer {key}"}
    status, reply = await cli.post_json("/auth/authorize", body, headers)
    assert status == 403 and "single sign-on" in reply["message"]
    session = await cli.login.add_key("carol", type="Login", identity={"connector": "corp", "userId": "7"}, ttl=60)
    assert (await cli.post_json("/auth/authorize", body, {"authorization": f"Bearer {session}"}))[0] == 200


async def test_a_key_that_expires_starts_no_login_that_outlives_it(cli: CliLoginFixture) -> None:
    key = await cli.login.add_key("alice", ttl=120)
    _, tokens = await cli.redeem(await cli.approve({"authorization": f"Bearer {key}"}))
    cli.clock.tick(121)
    assert not is_accepted(cli, tokens["access_token"])
    assert (await cli.refresh(tokens["refresh_token"]))[0] == 400


@pytest.mark.parametrize(
    "change",
    [
        {"redirect_uri": "http://localhost.evil.example:40000/done"},
        {"redirect_uri": "http://127.0.0.1@evil.example:40000/done"},
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": ""},
        {"response_type": "token"},
        {"client_id": "other"},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": ""},
        {"code_challenge": ""},
        {"code_challenge": "short"},
        {"state": ""},
        {"state": "a&code=evil#xxxxxxxxxxxxx"},
        {"prompt": "none"},
    ],
)
async def test_a_request_with_a_wrong_parameter_is_refused_and_redirects_nowhere(
    cli: CliLoginFixture, change: dict[str, str]
) -> None:
    browser, request = await cli.browser(), {**REQUEST, **change}
    before = cli.login.key_names()
    reply = await cli.send("GET", "/auth/authorize", query=urlencode(request), headers=browser)
    assert reply.status == 400 and not any(name == "location" for name, _ in reply.headers)
    status, body = await cli.post_json("/auth/authorize", {"approve": True, "request": request}, browser)
    assert status == 400 and "redirect" not in body and cli.login.key_names() == before


@pytest.mark.parametrize("body", [[], {}, {"approve": "true", "request": REQUEST}, {"approve": 1}, {"approve": True}])
async def test_a_malformed_decision_is_refused(cli: CliLoginFixture, body: object) -> None:
    assert (await cli.post_json("/auth/authorize", body, await cli.browser()))[0] == 400


async def test_a_repeated_parameter_is_refused(cli: CliLoginFixture) -> None:
    query = urlencode(REQUEST) + "&redirect_uri=" + REDIRECT
    assert (await cli.send("GET", "/auth/authorize", query=query, headers=await cli.browser())).status == 400


async def test_the_name_of_the_machine_is_plain_text(cli: CliLoginFixture) -> None:
    request = {**REQUEST, "machine": "<b>x\u202e\n" + "y" * 100}
    reply = await cli.send("GET", "/auth/authorize", query=urlencode(request), headers=await cli.browser())
    assert parse_body(reply)["machine"] == "bx" + "y" * 58


async def test_of_a_code_used_in_parallel_at_most_one_use_gets_tokens(cli: CliLoginFixture) -> None:
    code = await cli.approve(await cli.browser())
    replies = await asyncio.gather(*(cli.redeem(code) for _ in range(8)))
    assert sum(status == 200 for status, _ in replies) <= 1
    assert {reply["error"] for status, reply in replies if status != 200} == {"invalid_grant"}


async def test_a_reused_refresh_token_ends_the_login_and_says_so(cli: CliLoginFixture) -> None:
    _, first = await cli.redeem(await cli.approve(await cli.browser()))
    _, second = await cli.refresh(first["refresh_token"])
    cli.clock.tick(60)
    status, reply = await cli.refresh(first["refresh_token"])
    assert (status, reply["error"]) == (400, "invalid_grant") and "fairlead login" in reply["error_description"]
    assert cli.calls[-1].annotations[REASON_ANNOTATION] == "token_reused"
    assert not is_accepted(cli, second["access_token"])


@pytest.mark.parametrize("token", ["x", "fairlead_rt_cli-alice-x." + "a" * 43 + "." + "b" * 22, "fairlead_" + "a" * 43])
async def test_an_unknown_refresh_token_is_refused(cli: CliLoginFixture, token: str) -> None:
    assert (await cli.refresh(token))[1]["error"] == "invalid_grant"


async def test_a_refresh_token_is_not_accepted_as_a_bearer_token(cli: CliLoginFixture) -> None:
    _, tokens = await cli.redeem(await cli.approve(await cli.browser()))
    headers = {"authorization": f"Bearer {tokens['refresh_token']}"}
    assert (await cli.post_json("/auth/authorize", {}, headers))[0] == 401


@pytest.mark.parametrize("field", ["access_token", "refresh_token"])
async def test_revocation_ends_the_login(cli: CliLoginFixture, field: str) -> None:
    _, tokens = await cli.redeem(await cli.approve(await cli.browser()))
    assert await cli.post_form("/auth/revoke", token=tokens[field]) == (200, {})
    assert not is_accepted(cli, tokens["access_token"])
    assert (await cli.refresh(tokens["refresh_token"]))[0] == 400
    assert await cli.post_form("/auth/revoke", token=tokens[field]) == (200, {})


async def test_revocation_does_not_affect_other_keys(cli: CliLoginFixture) -> None:
    key = await cli.login.add_key("alice")
    assert await cli.post_form("/auth/revoke", token=key) == (200, {})
    assert is_accepted(cli, key)
    assert (await cli.post_form("/auth/revoke"))[1]["error"] == "invalid_request"


async def test_the_endpoints_of_the_console_need_a_user(cli: CliLoginFixture) -> None:
    reply = await cli.send("GET", "/auth/authorize", query=urlencode(REQUEST), headers=SAME_ORIGIN)
    assert reply.status == 401
