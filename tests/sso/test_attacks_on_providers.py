"""Providers that are broken, slow or hostile: they harm no one but their own users."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from fairlead.core.crypto.certificates import ensure_certificates
from tests.console.servers import GROUP, LOGIN_COOKIE
from tests.harness.eventually import BUSY_SECONDS
from tests.sso.attacks import CONNECTOR, attempt, check_refused, token
from tests.sso.deployments import CANARY, SECRETS, Deployment
from tests.sso.providers.forging import Answer, Forger, read_query
from tests.sso.providers.tokens import rsa_key, sign
from tests.sso.visits import Visitor

DISCOVERY = "/.well-known/openid-configuration"
UNAVAILABLE, MISCONFIGURED = "provider_unavailable", "provider_misconfigured"


@pytest.fixture
def deployment(running: Deployment, forger: Forger) -> Deployment:
    """With a provider of which it knows nothing yet."""
    forger.become_another()
    running.configure(running.connector(CONNECTOR, forger.issuer))
    return running


@pytest.fixture
def visitor(deployment: Deployment) -> Iterator[Visitor]:
    with Visitor(deployment.ca_file) as visitor:
        yield visitor


def grant(forger: Forger, authorization: str) -> str:
    return forger.grant(authorization)


# --- discovery

Change = Callable[[Forger], Answer]


def metadata(**changes: Any) -> Change:
    """The metadata of the provider, with changes. `{}` stands for its issuer."""

    def build(forger: Forger) -> Answer:
        values = {
            name: value.format(forger.issuer) if isinstance(value, str) else value for name, value in changes.items()
        }
        return Answer(forger.metadata() | values)

    return build


def always(answer: Answer) -> Change:
    return lambda _: answer


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(metadata(issuer="{}/"), "issuer_mismatch", id="a slash more"),
        pytest.param(metadata(issuer="https://evil.example"), "issuer_mismatch", id="another issuer"),
        pytest.param(metadata(issuer=["{}"]), "issuer_mismatch", id="a list as issuer"),
        pytest.param(metadata(jwks_uri="http://localhost/jwks"), "issuer_url", id="keys by http"),
        pytest.param(metadata(jwks_uri="file:///etc/passwd"), "issuer_url", id="keys in a file"),
        pytest.param(metadata(token_endpoint="http://localhost/token"), "issuer_url", id="tokens by http"),
        pytest.param(metadata(authorization_endpoint="javascript:alert(1)"), "issuer_url", id="a script"),
        pytest.param(metadata(authorization_endpoint=7), "issuer_url", id="a number as endpoint"),
        pytest.param(always(Answer({}, 500)), "provider_status", id="an error"),
        pytest.param(always(Answer({}, 404)), "provider_status", id="nothing"),
        pytest.param(always(Answer(b"<html>")), "response_invalid", id="a page"),
        pytest.param(always(Answer([1])), "response_invalid", id="a list"),
        pytest.param(always(Answer(b"[" * 100_000)), "response_invalid", id="nested deeply"),
        pytest.param(always(Answer(b" " * 3_000_000 + b"{}")), "response_too_large", id="3 MB"),
        pytest.param(
            always(Answer(status=302, headers={"location": "https://localhost/"})), "provider_redirect", id="a redirect"
        ),
    ],
)
def test_a_provider_with_bad_metadata_begins_no_login(
    deployment: Deployment, forger: Forger, visitor: Visitor, change: Change, reason: str
) -> None:
    forger.answers[DISCOVERY] = change(forger)
    response = deployment.start(visitor, CONNECTOR)
    assert not response.headers.get("location", "").startswith(("https://localhost", "javascript"))
    assert deployment.reason_of(response) in (UNAVAILABLE, MISCONFIGURED)
    assert deployment.detail_of(response) == reason


@pytest.mark.parametrize("address", ["https://169.254.169.254/jwks", "https://[fe80::1]/jwks", "https://0.0.0.0/jwks"])
def test_no_address_of_the_machine_itself_is_requested(deployment: Deployment, forger: Forger, address: str) -> None:
    forger.answers[DISCOVERY] = metadata(jwks_uri=address)(forger)
    response = attempt(deployment, forger, grant)
    assert LOGIN_COOKIE not in response.cookies and deployment.detail_of(response) == "address_blocked"


@pytest.mark.parametrize(
    "issuer",
    [
        "http://login.example.com",
        "file:///etc/passwd",
        "https://169.254.169.254",
        "https://[fe80::1]",
        "https://user@login.example.com",
        "https://login.example.com?x=y",
        "https://login.example.com#x",
        "https:login.example.com",
        "//login.example.com",
        "https://login.example.com\\@evil.example",
        "https://login.example.com\n.evil.example",
    ],
)
def test_the_settings_accept_https_addresses_only(running: Deployment, issuer: str) -> None:
    response = running.try_configure(running.connector(CONNECTOR, issuer))
    assert response.status_code == 422 and "issuerURL" in response.text


def test_a_loopback_address_must_be_allowed(running: Deployment, forger: Forger) -> None:
    response = running.try_configure(running.connector(CONNECTOR, forger.issuer, allowLoopback=False))
    assert response.status_code == 422 and "loopback" in response.text


def test_a_certificate_of_another_authority_is_refused(
    deployment: Deployment, forger: Forger, visitor: Visitor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = ensure_certificates(tmp_path_factory.mktemp("other"), ("localhost",))
    assert other.ca_file is not None
    deployment.configure(deployment.connector(CONNECTOR, forger.issuer, ca=other.ca_file.read_text()))
    response = deployment.start(visitor, CONNECTOR)
    assert (deployment.reason_of(response), deployment.detail_of(response)) == (MISCONFIGURED, "provider_tls")
    assert forger.requests == []


# --- keys


SHARED_SECRET = {"kty": "oct", "k": "c2VjcmV0", "kid": "rsa-0", "alg": "HS256"}


def keys(count: int) -> list[dict[str, Any]]:
    return [rsa_key(0).public | {"kid": f"key-{number}"} for number in range(count)]


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        pytest.param(Answer({"keys": keys(5_000)}), "response_too_large", id="5,000 keys"),
        pytest.param(Answer({"keys": keys(200)}), "jwks_invalid", id="200 keys"),
        pytest.param(Answer({"keys": []}), "jwks_invalid", id="no key"),
        pytest.param(Answer({"keys": "x"}), "jwks_invalid", id="a text"),
        pytest.param(
            Answer({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "rsa-0"}]}), "jwks_invalid", id="a secret"
        ),
        pytest.param(Answer({}, 500), "provider_status", id="an error"),
        pytest.param(
            Answer(status=302, headers={"location": "https://localhost/"}), "provider_redirect", id="a redirect"
        ),
    ],
)
def test_bad_keys_verify_nothing(deployment: Deployment, forger: Forger, answer: Answer, detail: str) -> None:
    forger.answers["/jwks"] = answer
    response = attempt(deployment, forger, grant)
    assert LOGIN_COOKIE not in response.cookies and deployment.detail_of(response) == detail


def test_unknown_key_ids_do_not_flood_the_provider(deployment: Deployment, forger: Forger) -> None:
    for number in range(8):
        unknown = token("", "", "", lambda f, right, kid=f"unknown-{number}": sign(right, f.key, kid=kid))  # type: ignore[misc]
        response = attempt(deployment, forger, unknown.build)
        check_refused(deployment, response, "token_rejected", "unknown_key")
    assert forger.count("/jwks") <= 5


def test_the_last_good_keys_are_kept_while_the_provider_fails(deployment: Deployment, forger: Forger) -> None:
    assert deployment.key_of(attempt(deployment, forger, grant))
    forger.answers["/jwks"] = Answer({}, 500)
    unknown = attempt(deployment, forger, lambda f, a: f.grant_token(a, sign(f.claims(a), f.key, kid="unknown")))
    check_refused(deployment, unknown, "token_rejected", "unknown_key")
    assert deployment.key_of(attempt(deployment, forger, grant))


def test_a_key_that_the_provider_has_just_begun_to_use_is_found(deployment: Deployment, forger: Forger) -> None:
    assert deployment.key_of(attempt(deployment, forger, grant))
    forger.key = rsa_key(1)
    forger.published = [rsa_key(0).public, rsa_key(1).public]
    assert deployment.key_of(attempt(deployment, forger, grant))
    forger.published = [rsa_key(1).public]
    assert deployment.key_of(attempt(deployment, forger, grant))


# --- the token endpoint


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(Answer({"error": "invalid_grant"}, 400), "code_rejected", id="a used code"),
        pytest.param(Answer({"error": "invalid_client"}, 401), MISCONFIGURED, id="a wrong secret"),
        pytest.param(Answer({"error": "<script>"}, 400), UNAVAILABLE, id="a script as error"),
        pytest.param(Answer({}, 500), UNAVAILABLE, id="an error"),
        pytest.param(Answer(b"<html>"), MISCONFIGURED, id="a page"),
        pytest.param(Answer({}), "token_rejected", id="no token"),
        pytest.param(Answer(b"x" * 11_000_000), MISCONFIGURED, id="11 MB"),
        pytest.param(Answer(b"[" * 10_000), MISCONFIGURED, id="nested deeply"),
    ],
)
def test_bad_answers_of_the_token_endpoint_sign_no_one_in(
    deployment: Deployment, forger: Forger, answer: Answer, reason: str
) -> None:
    response = attempt(deployment, forger, lambda f, authorization: f.grant_answer(authorization, answer))
    assert LOGIN_COOKIE not in response.cookies
    assert deployment.reason_of(response) == reason


def test_a_redirect_of_the_token_endpoint_gets_no_secret(deployment: Deployment, forger: Forger) -> None:
    forger.answers["/token"] = Answer(status=307, headers={"location": f"{forger.issuer}/stolen"})
    response = attempt(deployment, forger, grant)
    assert LOGIN_COOKIE not in response.cookies and deployment.detail_of(response) == "provider_redirect"
    assert forger.count("/stolen") == 0


def test_the_client_secret_is_sent_to_the_token_endpoint_only(deployment: Deployment, forger: Forger) -> None:
    assert deployment.key_of(attempt(deployment, forger, grant))
    for request in forger.requests:
        has_secret = "authorization" in request.headers or CANARY in str(request)
        assert has_secret == (request.path == "/token"), request.path


# --- slow providers


@pytest.mark.long
@pytest.mark.parametrize("path", [DISCOVERY, "/token"])
def test_a_stalled_provider_ends_in_a_page_and_delays_no_one_else(
    deployment: Deployment, forger: Forger, path: str
) -> None:
    forger.answers[path] = Answer({}, stall=True)

    def sign_in(_: int) -> httpx.Response:
        with Visitor(deployment.ca_file) as visitor:
            response = deployment.start(visitor, CONNECTOR)
            if path == DISCOVERY:
                return response
            authorization = response.headers["location"]
            return deployment.finish(visitor, CONNECTOR, authorization, "any", iss=forger.issuer)

    with ThreadPoolExecutor(8) as pool, deployment.console.server.client() as client:
        began = time.monotonic()
        logins = [pool.submit(sign_in, number) for number in range(8)]
        slowest = 0.0
        while not all(login.done() for login in logins):
            sent = time.monotonic()
            assert client.get(f"{GROUP}/projects").is_success
            slowest = max(slowest, time.monotonic() - sent)
        took = time.monotonic() - began
    assert took < 30 + BUSY_SECONDS
    assert slowest < 4 + BUSY_SECONDS, "requests of others waited for the provider"
    for login in logins:
        assert (deployment.reason_of(login.result()), deployment.detail_of(login.result())) == (
            UNAVAILABLE,
            "provider_timeout",
        )


def test_a_provider_that_is_down_refuses_new_logins_with_a_page(running: Deployment, forger: Forger) -> None:
    running.configure(running.connector(CONNECTOR, "https://localhost:1"))
    with Visitor(running.ca_file) as visitor:
        response = running.start(visitor, CONNECTOR)
        assert (running.reason_of(response), running.detail_of(response)) == (UNAVAILABLE, "provider_unreachable")
        page = response if not response.is_redirect else visitor.get(running.url + response.headers["location"])
    assert page.headers["content-type"].startswith("text/html")
    with running.console.server.client() as admin:  # one way in needs no provider
        assert admin.get(SECRETS).status_code == 200


def test_no_authorization_request_contains_a_secret(deployment: Deployment, forger: Forger, visitor: Visitor) -> None:
    query = read_query(deployment.begin(visitor, CONNECTOR))
    assert CANARY not in str(query) and "client_secret" not in query
