"""signin/sso/endpoints.py: whole sign-ons, and the ways in which they fail."""

import asyncio
from typing import Any

import pytest

from fairlead.authn.credentials import COOKIE
from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.core.objects import get_path, name_of
from fairlead.core.refusals import REFUSED_BY_ANNOTATION
from fairlead.signin.sso.endpoints import CONNECTOR_ANNOTATION, DETAIL_ANNOTATION, REASON_ANNOTATION, RULES_ANNOTATION
from fairlead.signin.sso.pending import COOKIE as PENDING_COOKIE
from tests.harness.openid_provider import parse_query, unreachable
from tests.harness.sign_on import (
    BASE_URL,
    ISSUER,
    OTHER_ISSUER,
    SignOnFixture,
    SignOnServer,
    configure_server,
    location,
    open_server,
    set_cookies,
    sign_in_error,
)


def login_of(sso: SignOnFixture) -> Any:
    (name,) = sso.api.list_names("OwnedAccessKey")
    return sso.get("OwnedAccessKey", name)


async def test_a_browser_is_sent_to_the_provider(server: SignOnServer) -> None:
    reply = await server.send("GET", "/auth/okta/login")
    sent = parse_query(location(reply))
    assert location(reply).startswith(f"{ISSUER}/authorize?")
    assert sent["redirect_uri"] == f"{BASE_URL}/auth/okta/callback"
    assert (sent["response_type"], sent["client_id"], sent["code_challenge_method"]) == ("code", "fairlead", "S256")
    assert sent["scope"] == "openid profile email offline_access"
    assert all(len(sent[name]) >= 43 for name in ("state", "nonce", "code_challenge"))
    cookie = next(value for name, value in reply.headers if name == "set-cookie")
    assert cookie.startswith(f"{PENDING_COOKIE}=")
    assert cookie.endswith("; Path=/; Max-Age=600; HttpOnly; Secure; SameSite=Lax")
    assert ("cache-control", "no-store") in reply.headers
    assert ("referrer-policy", "no-referrer") in reply.headers


async def test_nothing_is_stored_before_the_provider_has_responded(sso: SignOnFixture, server: SignOnServer) -> None:
    await server.begin()
    before = sso.api.view.revision
    await server.begin()
    await server.finish({"code": "guess", "state": "guess"}, "")
    assert sso.api.view.revision == before


async def test_a_sign_on_creates_a_user_and_a_session(sso: SignOnFixture, server: SignOnServer) -> None:
    reply = await server.sign_in()
    cookies = set_cookies(reply)
    assert (reply.status, location(reply)) == (303, "/console/")
    assert sso.accepts(cookies[COOKIE])
    assert cookies[PENDING_COOKIE] == ""
    assert name_of(sso.get("User", "alice")) == "alice"
    session = login_of(sso)["spec"]["identity"]
    assert (session["connector"], session["userId"], session["extraClaims"]) == ("okta", "1", {"sid": "session-1"})
    assert "SameSite=Strict" in str(reply.headers)
    assert ("cache-control", "no-store") in reply.headers
    assert ("referrer-policy", "no-referrer") in reply.headers
    assert server.annotations[CONNECTOR_ANNOTATION] == "okta"
    assert server.last_call is not None
    assert server.last_call.user is not None
    assert server.last_call.user.name == "alice"
    assert server.handlers.counters.sign_ons == {("okta", "success"): 1}


async def test_the_browser_returns_to_where_the_sign_on_began(server: SignOnServer) -> None:
    reply = await server.sign_in(**{"return": "/console/projects?view=all"})
    assert location(reply) == "/console/projects?view=all"


@pytest.mark.parametrize(
    "path",
    [
        *("//evil.example", "/\\evil.example", "https://evil.example", "/console/\r\nSet-Cookie: a=b", "javascript:x"),
        *("/console/../../evil", "/console//evil", "/api", "/consoleevil", "/console/%0d%0aa", "/console/%2e%2e/x"),
        *("/console/\u2028", "console/", "/console/%5cevil", "/console/" + "x" * 3000, "/console/#<script>"),
    ],
)
async def test_a_return_path_outside_of_the_console_is_refused(server: SignOnServer, path: str) -> None:
    reply = await server.send("GET", "/auth/okta/login", {"return": path})
    assert sign_in_error(reply) == "invalid_return_path"
    assert location(reply).startswith("/console/?")


async def test_the_refresh_token_is_encrypted_for_its_key(sso: SignOnFixture, server: SignOnServer) -> None:
    await server.sign_in()
    await server.sign_in()
    one, two = (sso.get("OwnedAccessKey", name) for name in sso.api.list_names("OwnedAccessKey"))
    assert (await server.service._services.sessions.read_tokens(one)).refresh_token
    swapped = {**one, "metadata": two["metadata"]}
    with pytest.raises(Exception) as caught:
        await server.service._services.sessions.read_tokens(swapped)
    assert type(caught.value).__name__ == "Undecryptable"


async def test_without_a_refresh_token_the_session_ends_with_the_id_token(
    sso: SignOnFixture, server: SignOnServer
) -> None:
    server.provider.issues_refresh_tokens = False
    cookies = set_cookies(await server.sign_in())
    assert login_of(sso)["spec"]["ttl"] == 3600
    assert "identityRefresh" not in login_of(sso)["spec"]["identity"]
    await asyncio.sleep(3590)
    assert sso.accepts(cookies[COOKIE])
    await asyncio.sleep(20)
    assert not sso.accepts(cookies[COOKIE])


async def test_each_sign_on_has_a_new_session(sso: SignOnFixture, server: SignOnServer) -> None:
    one, two = set_cookies(await server.sign_in())[COOKIE], set_cookies(await server.sign_in())[COOKIE]
    assert one != two
    assert len(sso.api.list_names("OwnedAccessKey")) == 2


async def test_two_tabs_can_sign_on_at_the_same_time(sso: SignOnFixture, server: SignOnServer) -> None:
    first, pending = await server.begin()
    second, pending = await server.begin(cookies=f"{PENDING_COOKIE}={pending}")
    reply = await server.finish(server.provider.authorize(first), pending)
    assert reply.status == 303
    remaining = set_cookies(reply)[PENDING_COOKIE]
    assert remaining
    assert COOKIE in set_cookies(await server.finish(server.provider.authorize(second), remaining))


async def test_another_browser_cannot_finish_a_sign_on(sso: SignOnFixture, server: SignOnServer) -> None:
    url, _ = await server.begin()
    _, other_browser = await server.begin()
    response = server.provider.authorize(url)
    assert sign_in_error(await server.finish(response, "")) == "state_missing"
    assert sign_in_error(await server.finish(response, other_browser)) == "state_mismatch"
    assert sign_in_error(await server.finish(response, "forged")) == "state_missing"
    assert sso.api.list_names("OwnedAccessKey") == []


async def test_a_sign_on_expires(server: SignOnServer) -> None:
    url, pending = await server.begin()
    await asyncio.sleep(601)
    assert sign_in_error(await server.finish(server.provider.authorize(url), pending)) == "state_expired"


async def test_the_same_response_works_once(sso: SignOnFixture, server: SignOnServer) -> None:
    url, pending = await server.begin()
    response = server.provider.authorize(url)
    assert COOKIE in set_cookies(await server.finish(response, pending))
    assert sign_in_error(await server.finish(response, pending)) == "code_rejected"


async def test_a_state_works_once_even_if_the_provider_accepts_a_code_twice(
    sso: SignOnFixture, server: SignOnServer
) -> None:
    url, pending = await server.begin()
    responses = [server.provider.authorize(url) for _ in range(4)]
    replies = await asyncio.gather(*(server.finish(each, pending) for each in responses))
    assert sorted(sign_in_error(each) for each in replies) == ["", "state_reused", "state_reused", "state_reused"]
    assert len(sso.api.list_names("OwnedAccessKey")) == 1


async def test_a_response_of_another_connector_is_refused(server: SignOnServer) -> None:
    url, pending = await server.begin()
    response = server.provider.authorize(url)
    assert sign_in_error(await server.finish(response, pending, "other")) == "state_mismatch"


@pytest.mark.parametrize("issuer", [OTHER_ISSUER, "", f"{ISSUER}/"])
async def test_the_issuer_of_a_response_is_compared(server: SignOnServer, issuer: str) -> None:
    url, pending = await server.begin()
    response = {**server.provider.authorize(url), "iss": issuer}
    assert sign_in_error(await server.finish(response, pending)) == "issuer_mismatch"


async def test_a_missing_issuer_is_refused_if_the_provider_sends_it(server: SignOnServer) -> None:
    url, pending = await server.begin()
    response = server.provider.authorize(url)
    del response["iss"]
    assert sign_in_error(await server.finish(response, pending)) == "issuer_mismatch"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("access_denied", "access_denied"),
        ("server_error", "provider_error"),
        ("<script>alert(1)</script>", "provider_error"),
    ],
)
async def test_an_error_of_the_provider_has_a_reason_of_ours(server: SignOnServer, error: str, reason: str) -> None:
    url, pending = await server.begin()
    sent = {"error": error, "error_description": "<script>", "state": parse_query(url)["state"], "iss": ISSUER}
    reply = await server.finish(sent, pending)
    assert location(reply) == f"/console/?signInError={reason}&connector=okta"
    assert "script" not in str(reply.headers)


async def test_an_error_without_the_state_of_this_browser_is_no_error_of_the_provider(server: SignOnServer) -> None:
    _, pending = await server.begin()
    assert sign_in_error(await server.finish({"error": "access_denied", "state": "x"}, pending)) == "state_mismatch"


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"nonce": "wrong"}, "wrong_nonce"),
        ({"nonce": None}, "wrong_nonce"),
        ({"aud": "another-client"}, "wrong_audience"),
        ({"aud": ["fairlead", "another"]}, "wrong_party"),
        ({"iss": OTHER_ISSUER}, "wrong_issuer"),
        ({"exp": 1}, "expired"),
        ({"at_hash": "AAAA"}, "wrong_access_token"),
        ({"sub": ""}, "invalid_subject"),
    ],
)
async def test_an_id_token_that_is_not_valid_is_refused(
    sso: SignOnFixture, server: SignOnServer, change: dict[str, Any], detail: str
) -> None:
    server.provider.change_token = lambda claims: {
        name: value for name, value in {**claims, **change}.items() if value is not None
    }
    assert sign_in_error(await server.sign_in()) == "token_rejected"
    assert server.annotations[REASON_ANNOTATION] == "token_rejected"
    assert server.annotations[DETAIL_ANNOTATION] == detail
    assert sso.api.list_names("User") == []


async def test_a_response_without_an_id_token_is_refused(server: SignOnServer) -> None:
    server.provider.change_response = lambda response: {"access_token": response["access_token"]}
    assert sign_in_error(await server.sign_in()) == "token_rejected"


async def test_userinfo_completes_the_id_token(sso: SignOnFixture, server: SignOnServer) -> None:
    server.provider.userinfo_claims = ("groups", "preferred_username")
    server.provider.users["1"]["groups"] = ["staff"]
    await server.sign_in()
    assert get_path(sso.get("User", "alice"), "spec.ssoGroups") == ["okta:staff"]


async def test_userinfo_of_another_subject_is_refused(server: SignOnServer) -> None:
    server.provider.userinfo_claims = ("groups",)
    server.provider.users["1"]["sub"] = "2"
    server.provider.change_token = lambda claims: {**claims, "sub": "1"}
    assert sign_in_error(await server.sign_in()) == "userinfo_rejected"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"groups": {"admin": True}}, "groups_invalid"),
        ({"groups": None}, "groups_invalid"),
        ({"_claim_names": {"groups": "src1"}}, "groups_overage"),
    ],
)
async def test_claims_that_cannot_be_used_are_refused(
    sso: SignOnFixture, server: SignOnServer, claims: dict[str, Any], reason: str
) -> None:
    server.provider.users["1"].update(claims)
    assert sign_in_error(await server.sign_in()) == reason
    assert sso.api.list_names("User") == []


@pytest.mark.parametrize(
    ("oidc", "reason"),
    [
        ({"allowedGroups": ["staff"]}, "group_not_allowed"),
        ({"allowedDomains": ["corp.com"]}, "email_missing"),
        ({"requireVerifiedEmail": True}, "email_missing"),
        ({"allowUnmapped": False}, "no_rule_matched"),
        ({"createUsers": False}, "user_not_found"),
    ],
)
async def test_users_that_are_not_allowed_are_refused(
    sso: SignOnFixture, server: SignOnServer, oidc: dict[str, Any], reason: str
) -> None:
    await configure_server(sso, **oidc)
    assert sign_in_error(await server.sign_in()) == reason
    assert server.annotations[REASON_ANNOTATION] == reason
    assert server.annotations[REFUSED_BY_ANNOTATION] == f"sign-on/{reason}"
    assert sso.api.list_names("User") == []


async def test_the_matching_rules_are_in_the_audit_event(sso: SignOnFixture, server: SignOnServer) -> None:
    rules = [
        {"id": "staff", "connector": "okta", "value": "staff", "teams": ["core"]},
        {"connector": "okta", "claim": "department", "value": "IT", "groups": ["viewers"]},
    ]
    await configure_server(sso, rules)
    server.provider.users["1"].update(groups=["staff"], department="IT")
    await server.sign_in()
    assert server.annotations[RULES_ANNOTATION] == "staff,rule-2"
    assert "viewers" in sso.groups_of("alice")


async def test_a_provider_that_is_down_has_a_reason_and_does_not_count_as_a_failure(server: SignOnServer) -> None:
    server.provider.failure = unreachable()
    for _ in range(40):
        assert sign_in_error(await server.send("GET", "/auth/okta/login")) == "provider_unavailable"
        assert REFUSED_BY_ANNOTATION not in server.annotations
    server.provider.failure = None
    await asyncio.sleep(60)
    assert (await server.sign_in()).status == 303


async def test_a_wrong_or_missing_client_secret_has_a_reason(sso: SignOnFixture, server: SignOnServer) -> None:
    server.provider.client_secret = "another"
    assert sign_in_error(await server.sign_in()) == "provider_misconfigured"
    await configure_server(sso, clientSecretRef={"name": "okta", "key": "gone"})
    assert sign_in_error(await server.sign_in()) == "client_secret_missing"
    await configure_server(sso, clientSecretRef={"name": "gone"})
    assert sign_in_error(await server.sign_in()) == "client_secret_missing"


async def test_the_client_secret_can_be_sent_in_the_form(sso: SignOnFixture, server: SignOnServer) -> None:
    await configure_server(sso, clientAuthMethod="client_secret_post")
    assert COOKIE in set_cookies(await server.sign_in())
    sent = next(form for path, form in server.provider.requests if path == "/token")
    assert sent["client_secret"] == "provider-s3cret"


async def test_an_unknown_connector_is_refused_without_naming_it(server: SignOnServer) -> None:
    reply = await server.send("GET", "/auth/<script>/login")
    assert location(reply) == "/console/?signInError=unknown_connector"
    assert server.annotations[CONNECTOR_ANNOTATION] == "unknown"


@pytest.mark.parametrize(
    "query", ["", "state=a", "code=a", "state=a&state=b&code=c", "code=a&code=b&state=c", f"state=a&code={'x' * 9000}"]
)
async def test_an_incomplete_or_repeated_response_is_refused(server: SignOnServer, query: str) -> None:
    _, pending = await server.begin()
    reply = await server.send("GET", "/auth/okta/callback", query, f"{PENDING_COOKIE}={pending}")
    assert sign_in_error(reply) in ("state_missing", "provider_error", "state_mismatch")


async def test_without_the_console_results_are_plain_text(sso: SignOnFixture) -> None:
    server = await open_server(sso, has_console=False)
    reply = await server.sign_in()
    assert (reply.status, reply.content_type) == (200, "text/plain; charset=utf-8")
    assert COOKIE in set_cookies(reply)
    server.provider.failure = unreachable()
    reply = await server.send("GET", "/auth/okta/callback")
    assert (reply.status, reply.body) == (403, b"The sign-on failed: state missing.\n")


async def test_a_disabled_user_is_refused(sso: SignOnFixture, server: SignOnServer) -> None:
    await server.sign_in()
    await sso.update_spec("User", "alice", disabled=True)
    assert sign_in_error(await server.sign_in()) == "user_disabled"


async def test_connectors_are_login_methods(server: SignOnServer) -> None:
    assert server.handlers.list_methods()[0] == {
        "id": "okta",
        "displayName": "okta",
        "loginEndpoint": "/auth/okta/login",
        "logoutEndpoint": "/auth/logout",
    }


def test_every_reason_is_a_simple_word() -> None:
    assert all(each.value.replace("_", "").isalpha() and each.value.islower() for each in SignOnReason)
