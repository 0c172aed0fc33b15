"""`signin/sso/endpoints.py`: sign-ons that fail delay their client, and no other."""

import asyncio

import pytest

from fairlead.core.objects import Object
from fairlead.signin.oidc.fetch import Request
from tests.harness.openid_provider import oauth_error, unreachable
from tests.harness.sign_on import (
    SignOnServer,
    sign_in_error,
)


async def test_many_failures_that_reach_the_provider_are_delayed(server: SignOnServer) -> None:
    for _ in range(20):
        url, pending = await server.begin()
        assert sign_in_error(await server.finish({**server.provider.authorize(url), "code": "a"}, pending))
    assert sign_in_error(await server.send("GET", "/auth/okta/login")) == "too_many_attempts"
    await asyncio.sleep(60)
    assert (await server.sign_in()).status == 303


async def test_clients_behind_a_trusted_proxy_are_delayed_by_their_own_address(server: SignOnServer) -> None:
    server.forwarded_for = "198.51.100.1:0"
    for _ in range(20):
        url, pending = await server.begin()
        await server.finish({**server.provider.authorize(url), "code": "a"}, pending)
    assert sign_in_error(await server.send("GET", "/auth/okta/login")) == "too_many_attempts"
    server.forwarded_for = "198.51.100.2:0"
    assert (await server.sign_in()).status == 303


@pytest.mark.parametrize("reason", ["provider_unavailable", "provider_error"])
async def test_one_cookie_does_not_allow_any_number_of_requests_to_a_failing_provider(
    server: SignOnServer, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    url, pending = await server.begin()
    respond, sent = server.provider.respond, 0

    def fail(request: Request) -> Object:
        nonlocal sent
        if not request.url.endswith("/token"):
            return respond(request)
        sent += 1
        raise unreachable() if reason == "provider_unavailable" else oauth_error("server_error")

    monkeypatch.setattr(server.provider, "respond", fail)
    answers = [sign_in_error(await server.finish(server.provider.authorize(url), pending)) for _ in range(40)]
    assert answers[0] == reason
    assert answers[-1] == "too_many_attempts"
    assert sent < 40
