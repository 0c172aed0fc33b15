"""signin.oauth_device: codes typed by hand, polling, and the limits on both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.server.flow.attempts import USER_BACKOFF, Attempt
from fairlead.signin.device_requests import (
    MAX_REQUESTS,
    MAX_REQUESTS_PER_NETWORK,
    MAX_REQUESTS_PER_SITE,
    PLURAL,
    REQUEST_SECONDS,
    DeviceRequests,
    StoredRequest,
)
from tests.harness.cli_login import HOST, CliLoginFixture, open_cli_login
from tests.harness.login import TTL


@pytest.fixture
async def cli() -> AsyncIterator[CliLoginFixture]:
    async with open_cli_login() as fixture:
        yield fixture


async def start(cli: CliLoginFixture, client: str = "192.0.2.7:1000") -> Object:
    status, reply = await cli.post_form("/auth/device", client, client_id="fairlead-cli", machine="build-7")
    assert status == 200, reply
    return reply


async def decide(cli: CliLoginFixture, code: str, approve: bool = True, user: str = "alice") -> tuple[int, Object]:
    body = {"userCode": code, "approve": approve}
    return await cli.post_json("/auth/device/decision", body, await cli.browser(user))


async def test_a_login_is_started_with_a_code_that_is_in_no_link(cli: CliLoginFixture) -> None:
    reply = await start(cli)
    assert sorted(reply) == ["device_code", "expires_in", "interval", "user_code", "verification_uri"]
    assert reply["verification_uri"] == f"https://{HOST}/console/device"
    assert (reply["expires_in"], reply["interval"]) == (600, 5)


async def test_neither_code_is_stored(cli: CliLoginFixture) -> None:
    reply = await start(cli)
    (entry,) = cli.login.registry.view.entries(GROUP, PLURAL)
    secret = reply["device_code"].partition(".")[2]
    assert secret.encode() not in entry.body and reply["user_code"].replace("-", "").encode() not in entry.body


async def test_the_console_shows_where_a_login_was_started(cli: CliLoginFixture) -> None:
    code = (await start(cli))["user_code"]
    cli.clock.tick(60)
    status, reply = await cli.post_json("/auth/device/request", {"userCode": code.lower()}, await cli.browser())
    assert status == 200 and reply.pop("requestedAt")
    assert reply == {
        "client": {"id": "fairlead-cli", "name": "Fairlead CLI"},
        "machine": "build-7",
        "address": "192.0.2.7",
        "expiresInSeconds": 540,
        "user": "alice",
        "ttlSeconds": TTL,
        "keyTTLSeconds": 600,
    }


async def test_a_user_who_agrees_logs_the_machine_in(cli: CliLoginFixture) -> None:
    reply = await start(cli)
    assert (await cli.poll(reply["device_code"]))[1]["error"] == "authorization_pending"
    assert await decide(cli, reply["user_code"]) == (200, {"approved": True})
    cli.clock.tick(5)
    status, tokens = await cli.poll(reply["device_code"])
    assert status == 200 and cli.login.keys.authenticate_token(tokens["access_token"]).name == "alice"
    assert (await cli.refresh(tokens["refresh_token"]))[0] == 200
    assert not cli.login.registry.view.entries(GROUP, PLURAL)
    cli.clock.tick(5)
    assert (await cli.poll(reply["device_code"]))[1]["error"] == "expired_token"


async def test_no_tokens_are_issued_before_a_user_agrees_or_after_one_refuses(cli: CliLoginFixture) -> None:
    reply = await start(cli)
    await cli.post_json("/auth/device/request", {"userCode": reply["user_code"]}, await cli.browser())
    assert (await cli.poll(reply["device_code"]))[1]["error"] == "authorization_pending"
    assert await decide(cli, reply["user_code"], approve=False) == (200, {"approved": False})
    cli.clock.tick(5)
    assert (await cli.poll(reply["device_code"]))[1]["error"] == "access_denied"
    assert (await decide(cli, reply["user_code"]))[0] == 404  # too late


async def test_a_code_is_decided_once(cli: CliLoginFixture) -> None:
    await cli.login.add_user("bob")
    reply = await start(cli)
    browsers = [await cli.browser("alice"), await cli.browser("bob")]
    body = {"userCode": reply["user_code"], "approve": True}
    answers = await asyncio.gather(*(cli.post_json("/auth/device/decision", body, each) for each in browsers))
    assert sorted(status for status, _ in answers) == [200, 404]
    assert len([name for name in cli.login.key_names() if name.startswith("cli-")]) == 1


async def test_a_denial_that_comes_after_an_approval_is_not_reported_as_done(
    cli: CliLoginFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cli.login.add_user("bob")
    reply = await start(cli)
    record = DeviceRequests.decide

    async def approve_before(requests: DeviceRequests, stored: StoredRequest, state: str, login: str = "") -> bool:
        monkeypatch.setattr(DeviceRequests, "decide", record)
        assert await decide(cli, reply["user_code"], user="bob") == (200, {"approved": True})
        return await record(requests, stored, state, login)

    monkeypatch.setattr(DeviceRequests, "decide", approve_before)
    status, error = await decide(cli, reply["user_code"], approve=False)
    assert status == 404 and "there is no login with this code" in error["message"]
    assert (await cli.poll(reply["device_code"]))[0] == 200


async def test_of_parallel_polls_one_gets_the_tokens(cli: CliLoginFixture) -> None:
    reply = await start(cli)
    await decide(cli, reply["user_code"])
    answers = await asyncio.gather(*(cli.poll(reply["device_code"]) for _ in range(5)))
    assert sorted(status for status, _ in answers) == [200, 400, 400, 400, 400]


async def test_a_device_code_needs_its_secret(cli: CliLoginFixture) -> None:
    reply = await start(cli)
    await decide(cli, reply["user_code"])
    name = reply["device_code"].partition(".")[0]
    assert (await cli.poll(f"{name}.{'a' * 43}"))[1]["error"] == "expired_token"
    assert (await cli.poll("x"))[1]["error"] == "invalid_grant"
    cli.clock.tick(5)
    assert (await cli.poll(reply["device_code"]))[0] == 200


async def test_a_code_expires_after_ten_minutes(cli: CliLoginFixture) -> None:
    reply = await start(cli)
    cli.clock.tick(REQUEST_SECONDS)
    assert (await decide(cli, reply["user_code"]))[0] == 404
    assert (await cli.poll(reply["device_code"]))[1]["error"] == "expired_token"


async def test_a_client_that_polls_too_often_is_slowed_down(cli: CliLoginFixture) -> None:
    code = (await start(cli))["device_code"]
    assert (await cli.poll(code))[1]["error"] == "authorization_pending"
    cli.clock.tick(1)
    assert (await cli.poll(code))[1]["error"] == "slow_down"
    cli.clock.tick(5)  # the interval is ten seconds now
    assert (await cli.poll(code))[1]["error"] == "slow_down"
    cli.clock.tick(15)
    assert (await cli.poll(code))[1]["error"] == "authorization_pending"


async def test_codes_cannot_be_guessed(cli: CliLoginFixture) -> None:
    browser = await cli.browser()
    statuses = []
    for _ in range(USER_BACKOFF.free_attempts + 2):
        statuses.append((await cli.post_json("/auth/device/request", {"userCode": "BCDFGHJK"}, browser))[0])
    assert statuses[0] == 404 and statuses[-1] == 429
    # Neither does the other endpoint help, and the right code has to wait, too.
    code = (await start(cli))["user_code"]
    assert (await cli.post_json("/auth/device/decision", {"userCode": code, "approve": True}, browser))[0] == 429
    cli.clock.tick(60)
    assert (await cli.post_json("/auth/device/decision", {"userCode": code, "approve": True}, browser))[0] == 200


@pytest.mark.parametrize("code", [None, 7, "", "BCDF", "AEIO-UAEI", "x" * 100])
async def test_other_values_are_not_codes(cli: CliLoginFixture, code: object) -> None:
    assert (await cli.post_json("/auth/device/request", {"userCode": code}, await cli.browser()))[0] == 400


async def test_the_number_of_requests_of_a_network_is_bounded(cli: CliLoginFixture) -> None:
    for port in range(MAX_REQUESTS_PER_NETWORK):
        await start(cli, f"192.0.2.7:{1000 + port}")
    status, reply = await cli.post_form("/auth/device", "192.0.2.7:9", client_id="fairlead-cli")
    assert status == 429 and reply["details"]["retryAfterSeconds"] == REQUEST_SECONDS
    await start(cli, "192.0.2.8:1000")  # another network
    cli.clock.tick(REQUEST_SECONDS)
    await start(cli, "192.0.2.7:1000")
    assert len(cli.login.registry.view.entries(GROUP, PLURAL)) == 1  # the expired ones are gone


async def test_clients_behind_a_trusted_proxy_are_counted_by_their_own_address(cli: CliLoginFixture) -> None:
    cli.forwarded_for = "198.51.100.1:0"
    for _ in range(MAX_REQUESTS_PER_NETWORK):
        await start(cli)
    cli.forwarded_for = "198.51.100.2:0"
    code = (await start(cli))["user_code"]
    _, reply = await cli.post_json("/auth/device/request", {"userCode": code}, await cli.browser())
    assert reply["address"] == "198.51.100.2"


async def test_wrong_codes_are_counted_by_the_address_behind_a_trusted_proxy(
    cli: CliLoginFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, counted, attempt = await cli.browser(), list[str](), cli.login.throttle.attempt

    def record(user: str, client: str) -> AbstractAsyncContextManager[Attempt]:
        counted.append(client)
        return attempt(user, client)

    monkeypatch.setattr(cli.login.throttle, "attempt", record)
    cli.forwarded_for = "198.51.100.1:0"
    assert (await cli.post_json("/auth/device/request", {"userCode": "BBBB-BBBB"}, browser))[0] == 404
    assert counted == ["198.51.100.1:0"]


async def test_the_number_of_requests_of_all_networks_of_an_ipv6_site_is_bounded(cli: CliLoginFixture) -> None:
    for number in range(MAX_REQUESTS_PER_SITE):
        await start(cli, f"[2001:db8:1:{number:x}::1]:1000")
    status, reply = await cli.post_form("/auth/device", "[2001:db8:1:ffff::1]:9", client_id="fairlead-cli")
    assert status == 429 and reply["details"]["retryAfterSeconds"] == REQUEST_SECONDS
    await start(cli, "[2001:db8:2::1]:1000")  # another site
    await start(cli, "192.0.2.7:1000")


async def test_the_number_of_all_requests_is_bounded_also_if_they_come_at_once(cli: CliLoginFixture) -> None:
    for number in range(MAX_REQUESTS - 5):
        await start(cli, f"10.0.{number // 200}.{number % 200}:1")
    answers = await asyncio.gather(
        *(cli.post_form("/auth/device", f"10.1.0.{number}:1", client_id="fairlead-cli") for number in range(10))
    )
    assert sum(status == 200 for status, _ in answers) <= 5
    assert len(cli.login.registry.view.entries(GROUP, PLURAL)) <= MAX_REQUESTS


async def test_another_client_gets_no_code(cli: CliLoginFixture) -> None:
    assert (await cli.post_form("/auth/device", client_id="other"))[1]["error"] == "invalid_client"
