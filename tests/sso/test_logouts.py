"""Logouts that providers send: right ones end sessions at once, forged ones end nothing."""

import json
import secrets
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.harness.eventually import wait_until
from tests.sso.attacks import CONNECTOR, OTHER, attempt
from tests.sso.deployments import CLIENT_ID, Deployment
from tests.sso.providers.forging import Forger
from tests.sso.providers.tokens import ABSENT, edit_claims, rsa_key, sign, sign_with_public_key, unsigned
from tests.sso.visits import Visitor

EVENT = "http://schemas.openid.net/event/backchannel-logout"


@pytest.fixture(scope="module")
def deployment(deployment_with_two_forgers: Deployment) -> Deployment:
    return deployment_with_two_forgers


def sign_in(deployment: Deployment, forger: Forger, sid: str = "", **changes: Any) -> str:
    """The access key of a new session."""
    changes["sid"] = sid or ABSENT
    return deployment.key_of(attempt(deployment, forger, lambda f, authorization: f.grant(authorization, **changes)))


def logout_claims(forger: Forger, **changes: Any) -> dict[str, Any]:
    now = int(time.time())
    right = {
        "iss": forger.issuer,
        "aud": CLIENT_ID,
        "iat": now,
        "exp": now + 120,
        "jti": secrets.token_hex(8),
        "sub": "eve",
        "events": {EVENT: {}},
    }
    return edit_claims(right, changes)


def logout_token(forger: Forger, **changes: Any) -> str:
    return sign(logout_claims(forger, **changes), forger.key, typ="logout+jwt")


def send(deployment: Deployment, token: str, id: str = CONNECTOR) -> httpx.Response:
    with Visitor(deployment.ca_file) as visitor:
        return visitor.post(f"{deployment.url}/auth/{id}/backchannel-logout", {"logout_token": token})


def test_a_logout_of_a_user_ends_all_sessions_of_that_user(deployment: Deployment, forger: Forger) -> None:
    keys = [sign_in(deployment, forger), sign_in(deployment, forger, sid="s-1")]
    other = sign_in(deployment, forger, sub="ivan", preferred_username="ivan")
    response = send(deployment, logout_token(forger))
    assert response.status_code == 200 and response.headers["cache-control"] == "no-store"
    assert [deployment.whoami(key) for key in keys] == [None, None]
    assert deployment.whoami(other) is not None


def test_a_logout_of_a_session_ends_that_one(deployment: Deployment, forger: Forger) -> None:
    ended, kept = sign_in(deployment, forger, sid="s-2"), sign_in(deployment, forger, sid="s-3")
    assert send(deployment, logout_token(forger, sid="s-2", sub=ABSENT)).status_code == 200
    assert deployment.whoami(ended) is None and deployment.whoami(kept) is not None


def test_a_logout_of_a_session_must_be_for_its_user(deployment: Deployment, forger: Forger) -> None:
    key = sign_in(deployment, forger, sid="s-4")
    send(deployment, logout_token(forger, sid="s-4", sub="ivan"))
    assert deployment.whoami(key) is not None


def test_a_logout_closes_open_watches(deployment: Deployment, forger: Forger) -> None:
    key = sign_in(deployment, forger)
    path = "/kubernetes/management/apis/management.service.sh/v1/projects?watch=true"
    with deployment.console.server.client(key) as client, client.stream("GET", path) as watch:
        assert watch.status_code == 200
        assert send(deployment, logout_token(forger)).status_code == 200
        last = json.loads(list(watch.iter_lines())[-1])
    assert (last["type"], last["object"]["code"]) == ("ERROR", 401)


ATTACKS: dict[str, tuple[str, Callable[[Forger], str]]] = {
    "without a signature": ("token_malformed", lambda f: unsigned(logout_claims(f))),
    "HS256 with the public key": ("algorithm", lambda f: sign_with_public_key(logout_claims(f), f.key)),
    "the key of an attacker": ("signature", lambda f: sign(logout_claims(f), rsa_key(9), kid=f.key.kid)),
    "an ID token": ("not_a_logout", lambda f: sign(f.claims(""), f.key)),
    "without the event": ("not_a_logout", lambda f: logout_token(f, events=ABSENT)),
    "with another event": ("not_a_logout", lambda f: logout_token(f, events={"http://other": {}})),
    "with a list of events": ("not_a_logout", lambda f: logout_token(f, events=[EVENT])),
    "with a nonce": ("not_a_logout", lambda f: logout_token(f, nonce="n")),
    "without an id": ("not_a_logout", lambda f: logout_token(f, jti=ABSENT)),
    "for no one": ("not_a_logout", lambda f: logout_token(f, sub=ABSENT)),
    "for another client": ("wrong_audience", lambda f: logout_token(f, aud="another-client")),
    "of another issuer": ("wrong_issuer", lambda f: logout_token(f, iss="https://evil.example")),
    "expired": ("expired", lambda f: logout_token(f, exp=int(time.time()) - 120)),
    "from the future": ("issued_in_future", lambda f: logout_token(f, iat=int(time.time()) + 3_600)),
    "valid for a year": ("invalid_time", lambda f: logout_token(f, exp=int(time.time()) + 365 * 86_400)),
    "an access token": ("token_type", lambda f: sign(logout_claims(f), f.key, typ="at+jwt")),
    "of 20 KiB": ("token_too_large", lambda f: logout_token(f, x="x" * 20_000)),
    "no token": ("token_malformed", lambda f: "x"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_wrong_logout_token_ends_nothing(deployment: Deployment, forger: Forger, name: str) -> None:
    reason, build = ATTACKS[name]
    key = sign_in(deployment, forger)
    response = send(deployment, build(forger))
    assert response.status_code == 400
    assert deployment.reason_of(response) == reason
    assert deployment.whoami(key) is not None


def test_a_logout_token_works_once(deployment: Deployment, forger: Forger) -> None:
    token = logout_token(forger)
    assert send(deployment, token).status_code == 200
    key = sign_in(deployment, forger)
    assert send(deployment, token).status_code == 400
    assert deployment.whoami(key) is not None


def test_a_provider_ends_no_session_of_another(deployment: Deployment, forger: Forger, other_forger: Forger) -> None:
    """Both providers have a user with the same subject and session."""
    other_forger.reset()
    key = sign_in(deployment, forger, sid="s-5")
    assert send(deployment, logout_token(other_forger, sid="s-5"), OTHER).status_code == 200
    assert deployment.whoami(key) is not None
    assert send(deployment, logout_token(other_forger, sid="s-5"), CONNECTOR).status_code == 400
    assert deployment.whoami(key) is not None


@pytest.mark.parametrize("form", [{}, {"logout_token": ""}, {"token": "x"}])
def test_a_logout_without_a_token_is_refused(deployment: Deployment, form: dict[str, str]) -> None:
    with Visitor(deployment.ca_file) as visitor:
        assert visitor.post(f"{deployment.url}/auth/{CONNECTOR}/backchannel-logout", form).status_code in (400, 415)


def test_a_logout_of_10_mb_is_refused(deployment: Deployment) -> None:
    assert send(deployment, "x" * 10_000_000).status_code in (400, 413)


def test_a_logout_by_get_is_refused(deployment: Deployment, forger: Forger) -> None:
    key = sign_in(deployment, forger)
    with Visitor(deployment.ca_file) as visitor:
        response = visitor.get(
            f"{deployment.url}/auth/{CONNECTOR}/backchannel-logout?logout_token={logout_token(forger)}"
        )
    assert response.status_code in (401, 403, 404, 405)
    assert deployment.whoami(key) is not None


def test_a_logout_for_an_unknown_connector_is_refused(deployment: Deployment, forger: Forger) -> None:
    assert send(deployment, logout_token(forger), "nothing").status_code in (400, 401, 403, 404)


def test_a_sign_out_ends_the_session(deployment: Deployment, forger: Forger) -> None:
    key = sign_in(deployment, forger)
    with deployment.console.server.client(key) as client:
        assert client.post("/auth/logout").is_success
    wait_until(lambda: deployment.whoami(key) is None, what="the key is rejected")
