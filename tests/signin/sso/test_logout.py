"""signin/sso/endpoints.py: logouts that the provider begins, and logouts at the provider."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from fairlead.authn.credentials import COOKIE
from fairlead.core.call import Reply, RequestInfo
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.write_options import server_write_options
from fairlead.signin.login import LoginHandlers
from fairlead.signin.oidc.fetch import Request
from tests.harness.calls import call
from tests.harness.openid_provider import parse_query, unreachable
from tests.harness.sign_on import (
    BASE_URL,
    ISSUER,
    OTHER_ISSUER,
    SignOnFixture,
    SignOnServer,
    configure_server,
    set_cookies,
)

BACK_CHANNEL = "/auth/okta/backchannel-logout"


async def send_token(server: SignOnServer, token: str, path: str = BACK_CHANNEL) -> Reply:
    return await server.send("POST", path, body=urlencode({"logout_token": token}).encode())


def keys(server: SignOnServer) -> list[str]:
    return server.sso.api.list_names("OwnedAccessKey")


async def sign_out(server: SignOnServer, query: str = "") -> Object:
    """Signs out with the only key, and returns the response."""
    (name,) = keys(server)
    handlers = LoginHandlers(None, server.sso.logins, None, sign_on=server.handlers)  # type: ignore[arg-type]
    request = call("/auth/logout", query, method="POST", target=RequestInfo("post", "/auth/logout"))
    request.user = User("alice", ("service:user:alice",), key=name)
    reply = await handlers.sign_out(request)
    value: Object = orjson.loads(reply.body)
    return value


@pytest.mark.parametrize("claims", [{"sub": "1"}, {"sub": None, "sid": "session-1"}, {"sub": "1", "sid": "session-1"}])
async def test_the_provider_ends_a_session_at_once(server: SignOnServer, claims: dict[str, Any]) -> None:
    key = set_cookies(await server.sign_in())[COOKIE]
    await server.sso.create("OwnedAccessKey", "cli", user="alice", type="Login", parent=keys(server)[0])
    reply = await send_token(server, server.provider.logout_token(**claims))
    assert (reply.status, ("cache-control", "no-store") in reply.headers) == (200, True)
    assert keys(server) == []
    assert not server.sso.accepts(key)


async def test_the_sessions_of_other_users_and_connectors_stay(server: SignOnServer) -> None:
    server.provider.users["2"] = {"preferred_username": "bob", "name": "Bob", "groups": []}
    await server.sign_in("1")
    await server.sign_in("2")
    url, pending = await server.begin("other")
    await server.finish(server.other.authorize(url), pending, "other")
    await send_token(server, server.provider.logout_token())
    users = {server.sso.get("OwnedAccessKey", name)["spec"]["user"] for name in keys(server)}
    assert len(keys(server)) == 2
    assert "alice" not in users
    assert "bob" in users


@pytest.mark.parametrize(
    "claims",
    [
        {"events": None},
        {"events": {}},
        {"nonce": "n"},
        {"jti": None},
        {"sub": None},
        {"aud": "another"},
        {"iss": OTHER_ISSUER},
        {"exp": 1},
        {"iat": 9_999_999_999},
    ],
)
async def test_a_forged_or_incomplete_logout_token_is_refused(server: SignOnServer, claims: dict[str, Any]) -> None:
    await server.sign_in()
    reply = await send_token(server, server.provider.logout_token(**claims))
    assert (reply.status, reply.body) == (400, b'{"error":"invalid_request"}')
    assert len(keys(server)) == 1


async def test_an_id_token_or_nothing_is_no_logout_token(server: SignOnServer) -> None:
    await server.sign_in()
    assert (await send_token(server, "")).status == 400
    assert (await send_token(server, "a.b.c")).status == 400
    assert (await send_token(server, "x" * 20_000)).status == 400
    assert (await server.send("POST", BACK_CHANNEL, body=b"logout_token=a&logout_token=b")).status == 400


async def test_a_session_of_another_user_is_not_ended_by_its_id(server: SignOnServer) -> None:
    await server.sign_in()
    assert (await send_token(server, server.provider.logout_token(sub="2", sid="session-1"))).status == 200
    assert len(keys(server)) == 1


async def test_a_logout_token_of_another_provider_is_refused(server: SignOnServer) -> None:
    await server.sign_in()
    assert (await send_token(server, server.other.logout_token())).status == 400
    assert (await send_token(server, server.provider.logout_token(), "/auth/other/backchannel-logout")).status == 400
    assert (await send_token(server, server.provider.logout_token(), "/auth/gone/backchannel-logout")).status == 400
    assert len(keys(server)) == 1


async def test_a_logout_token_works_once(server: SignOnServer) -> None:
    token = server.provider.logout_token()
    await server.sign_in()
    assert (await send_token(server, token)).status == 200
    await server.sign_in()
    assert (await send_token(server, token)).status == 400
    assert len(keys(server)) == 1


async def test_a_logout_token_can_be_sent_again_if_the_provider_was_not_reachable(server: SignOnServer) -> None:
    await server.sign_in()
    replica = SignOnServer(server.sso)  # it has not fetched the keys of the provider yet
    replica.provider.failure = unreachable()
    token = server.provider.logout_token()
    assert (await send_token(replica, token)).status == 503
    assert len(keys(server)) == 1
    replica.provider.failure = None
    await asyncio.sleep(60)
    assert (await send_token(replica, token)).status == 200
    assert keys(server) == []


async def test_a_page_of_the_provider_ends_a_session_by_its_id(server: SignOnServer) -> None:
    await server.sign_in()
    reply = await server.send("GET", "/auth/okta/frontchannel-logout", {"iss": ISSUER, "sid": "session-1"})
    assert reply.status == 200
    assert keys(server) == []


async def test_a_page_ends_a_session_that_another_worker_has_just_begun(
    server: SignOnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = server.sso.api.view
    wait_current = view.wait_current

    async def catch_up() -> None:
        """The session is in the view of this worker only after it has caught up."""
        monkeypatch.setattr(view, "wait_current", wait_current)
        await server.sign_in()
        await wait_current()

    monkeypatch.setattr(view, "wait_current", catch_up)
    assert keys(server) == []
    reply = await server.send("GET", "/auth/okta/frontchannel-logout", {"iss": ISSUER, "sid": "session-1"})
    assert reply.status == 200
    assert keys(server) == []


@pytest.mark.parametrize(
    "query",
    [{}, {"iss": ISSUER}, {"sid": "session-1"}, {"iss": OTHER_ISSUER, "sid": "session-1"}, {"iss": ISSUER, "sid": "x"}],
)
async def test_a_page_without_the_id_of_a_session_ends_none(server: SignOnServer, query: dict[str, str]) -> None:
    await server.sign_in()
    reply = await server.send("GET", "/auth/okta/frontchannel-logout", query)
    assert reply.status == 400
    assert len(keys(server)) == 1


async def test_guesses_of_session_ids_are_delayed(server: SignOnServer) -> None:
    for _ in range(21):
        await server.send("GET", "/auth/okta/frontchannel-logout", {"iss": ISSUER, "sid": "guess"})
    await server.send("GET", "/auth/okta/frontchannel-logout", {"iss": ISSUER, "sid": "guess"})
    assert server.annotations["service.sh/sign-on-reason"] == "too_many_attempts"


async def test_guesses_of_a_client_behind_a_trusted_proxy_delay_no_other_client(server: SignOnServer) -> None:
    await server.sign_in()
    server.forwarded_for = "198.51.100.1:0"
    for _ in range(22):
        await server.send("GET", "/auth/okta/frontchannel-logout", {"iss": ISSUER, "sid": "guess"})
    assert server.annotations["service.sh/sign-on-reason"] == "too_many_attempts"
    server.forwarded_for = "198.51.100.2:0"
    reply = await server.send("GET", "/auth/okta/frontchannel-logout", {"iss": ISSUER, "sid": "session-1"})
    assert reply.status == 200


async def test_signing_out_tells_how_to_sign_out_at_the_provider(server: SignOnServer) -> None:
    await server.sign_in()
    answer = await sign_out(server)
    url = answer["providerLogoutURL"]
    assert url.startswith(f"{ISSUER}/logout?")
    sent = parse_query(url)
    assert (sent["client_id"], sent["post_logout_redirect_uri"]) == ("fairlead", f"{BASE_URL}/console/")
    assert sent["id_token_hint"].count(".") == 2
    assert keys(server) == []


async def test_a_post_logout_address_must_be_listed(server: SignOnServer) -> None:
    listed = "https://www.example.com/bye"
    await configure_server(server.sso, postLogoutURLs=[listed])
    await server.sign_in()
    for url in ("https://evil.example", f"{listed}/more", "//evil.example", listed.upper()):
        with pytest.raises(BadRequest, match="postLogoutURLs"):
            await sign_out(server, urlencode({"postLogoutURL": url}))
    assert len(keys(server)) == 1
    answer = await sign_out(server, urlencode({"postLogoutURL": listed}))
    assert parse_query(answer["providerLogoutURL"])["post_logout_redirect_uri"] == listed


async def test_signing_out_works_without_the_provider(server: SignOnServer) -> None:
    server.provider.metadata["end_session_endpoint"] = None
    await server.sign_in()
    assert "providerLogoutURL" not in await sign_out(server)
    assert keys(server) == []


async def test_signing_out_does_not_wait_for_a_provider_that_is_down(server: SignOnServer) -> None:
    await server.sign_in()
    replica = SignOnServer(server.sso)  # it has not fetched the settings of the provider yet
    keys_at_request: list[list[str]] = []

    def refuse(request: Request) -> Object:
        keys_at_request.append(keys(server))
        raise unreachable()

    replica.provider.respond = refuse  # type: ignore[method-assign]
    assert "providerLogoutURL" not in await sign_out(replica)
    assert keys_at_request == [[]]


async def test_signing_out_works_if_the_session_cannot_be_read(server: SignOnServer) -> None:
    """The key of the encryption is not usable: the provider cannot be told about the session."""
    await server.sign_in()

    def damage(secret: Object) -> Object:
        return {**secret, "data": {"keys.json": "bm8="}}

    resource = server.sso.registry.resource("", "secrets")
    await resource.modify("service-system", "sign-on-keys", damage, server_write_options())
    assert (await sign_out(server))["message"] == "signed out"
    assert keys(server) == []


async def test_a_login_with_a_password_has_no_provider(sso: SignOnFixture, server: SignOnServer) -> None:
    await sso.create("User", "alice")
    await sso.create("OwnedAccessKey", "login-alice", user="alice", type="Login")
    assert "providerLogoutURL" not in await sign_out(server)
