"""The access key in a cookie: strict parsing, and only same-origin requests where something could change."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.authn.credentials import (
    COOKIE,
    MAX_COOKIE_BYTES,
    MAX_COOKIES,
    CookieAuthenticator,
    clear_cookie_header,
    parse_cookie_token,
    set_cookie_header,
)
from fairlead.core.errors import Forbidden, Unauthorized
from fairlead.core.user import User
from tests.harness.calls import call
from tests.harness.properties import at_least

ALICE = User("alice", key="login-alice-1")
KEY = "fairlead_0123456789abcdefghijklmnopqrstuvwxyzABCD-_"
HOST = "fairlead.example.com:8443"
SAME_ORIGIN = {"host": HOST, "origin": f"https://{HOST}"}


class SingleKeyAuthenticator:
    """A token authenticator with a single key."""

    def authenticate_token(self, token: str) -> User:
        if token != KEY:
            raise Unauthorized("invalid bearer token")
        return ALICE


authenticator = CookieAuthenticator(SingleKeyAuthenticator())


def authenticate(method: str = "GET", cookie: str | Sequence[str] = f"{COOKIE}={KEY}", **headers: str) -> User | None:
    request_headers: dict[str, str | Sequence[str]] = {name.replace("_", "-"): value for name, value in headers.items()}
    return authenticator(call(method=method, headers={"cookie": cookie, **request_headers}))


def test_the_cookie_authenticates_its_user() -> None:
    assert authenticate() == ALICE
    assert authenticate("HEAD") == ALICE


def test_other_cookies_are_ignored() -> None:
    assert authenticate(cookie=f'theme=dark; {COOKIE}={KEY}; odd; =; x="a b"; {COOKIE}2=no') == ALICE


def test_cookies_in_several_headers_are_combined_as_in_http2() -> None:
    assert authenticate(cookie=["theme=dark", f"{COOKIE}={KEY}"]) == ALICE


def test_a_request_without_the_cookie_gets_no_decision() -> None:
    assert authenticator(call()) is None
    assert authenticate(cookie="theme=dark") is None
    assert authenticate(cookie=f"{COOKIE.upper()}={KEY}; x{COOKIE}={KEY}; theme={COOKIE}={KEY}") is None


@pytest.mark.parametrize("header", ["Bearer anything", "", "Basic eDp5"])
def test_any_authorization_header_takes_precedence(header: str) -> None:
    assert authenticate(authorization=header) is None


@pytest.mark.parametrize(
    "cookie",
    [
        f"{COOKIE}=",
        COOKIE,
        f"{COOKIE}= ",
        f'{COOKIE}="{KEY}"',
        f"{COOKIE}={KEY},{KEY}",
        f"{COOKIE}={KEY}\x00",
        f"{COOKIE}= {KEY}",
        f"{COOKIE}={KEY}; {COOKIE}={KEY}",
        [f"{COOKIE}={KEY}", f"{COOKIE}=other"],
        f"{COOKIE}=" + "a" * 513,
    ],
)
def test_t10_a_cookie_that_is_not_exactly_one_valid_key_is_rejected(cookie: str | Sequence[str]) -> None:
    with pytest.raises(Unauthorized) as error:
        parse_cookie_token([cookie] if isinstance(cookie, str) else cookie)
    assert KEY not in error.value.message


def test_an_unknown_key_is_rejected() -> None:
    with pytest.raises(Unauthorized):
        authenticate(cookie=f"{COOKIE}={KEY}x")


def test_a_cookie_header_that_is_too_large_is_not_parsed() -> None:
    with pytest.raises(Unauthorized, match="too large"):
        authenticate(cookie=f"a={'x' * MAX_COOKIE_BYTES}; {COOKIE}={KEY}")
    with pytest.raises(Unauthorized, match="too many"):
        authenticate(cookie=";" * MAX_COOKIES + f"{COOKIE}={KEY}")


@settings(max_examples=at_least(100))
@given(st.lists(st.text(max_size=60), max_size=4))
def test_t45_only_the_cookie_itself_yields_a_token(headers: list[str]) -> None:
    try:
        token = parse_cookie_token(headers)
    except Unauthorized:
        return
    assert token is None or any(f"{COOKIE}={token}" in header for header in headers)


@settings(max_examples=at_least(100))
@given(st.text(alphabet=f"{COOKIE}={KEY}; \t,\"'", max_size=200))
def test_t45_a_malformed_header_of_valid_parts_yields_no_other_token(header: str) -> None:
    try:
        token = parse_cookie_token([header])
    except Unauthorized:
        return
    parts = [part.strip(" \t") for part in header.split(";")]
    assert [part for part in parts if part.startswith(f"{COOKIE}=")] == ([f"{COOKIE}={token}"] if token else [])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "get", "ANY"])
def test_unsafe_methods_require_the_same_origin(method: str) -> None:
    assert authenticate(method, **SAME_ORIGIN) == ALICE
    assert authenticate(method, sec_fetch_site="same-origin") == ALICE
    with pytest.raises(Forbidden, match="Authorization header"):
        authenticate(method, host=HOST)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": HOST, "origin": "https://evil.example"},
        {"host": HOST, "origin": f"http://{HOST}"},
        {"host": HOST, "origin": "https://fairlead.example.com"},
        {"host": HOST, "origin": f"https://{HOST}.evil.example"},
        {"host": HOST, "origin": "null"},
        {"host": HOST, "origin": ""},
        {"host": "", "origin": "https://"},
        {"origin": f"https://{HOST}"},
        {"host": HOST, "sec_fetch_site": "same-site"},
        {"host": HOST, "sec_fetch_site": "cross-site"},
        {"host": HOST, "sec_fetch_site": "none"},
        {"host": HOST, "referer": f"https://{HOST}/"},
    ],
)
def test_another_origin_cannot_use_the_cookie(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        authenticate("POST", **headers)


def test_two_origins_or_two_fetch_sites_are_rejected() -> None:
    two_origins = {"cookie": f"{COOKIE}={KEY}", "host": HOST, "origin": [f"https://{HOST}", f"https://{HOST}"]}
    with pytest.raises(Forbidden):
        authenticator(call(method="POST", headers=two_origins))
    two_fetch_sites = {"cookie": f"{COOKIE}={KEY}", "sec-fetch-site": ["same-origin", "cross-site"]}
    with pytest.raises(Forbidden):
        authenticator(call(method="POST", headers=two_fetch_sites))


def test_a_websocket_upgrade_requires_the_same_origin() -> None:
    with pytest.raises(Forbidden):
        authenticate("GET", host=HOST, upgrade="websocket", origin="https://evil.example")
    with pytest.raises(Forbidden):
        authenticate("GET", host=HOST, upgrade="WebSocket")
    assert authenticate("GET", upgrade="websocket", **SAME_ORIGIN) == ALICE


def test_behind_a_proxy_the_origin_is_the_public_one() -> None:
    proxied_authenticator = CookieAuthenticator(SingleKeyAuthenticator(), "https://fairlead.example.com")
    request_headers = {"cookie": f"{COOKIE}={KEY}", "host": "10.0.0.7:8443", "origin": "https://fairlead.example.com"}
    assert proxied_authenticator(call(method="POST", headers=request_headers)) == ALICE
    with pytest.raises(Forbidden):
        authenticator(call(method="POST", headers=request_headers))


def test_an_invalid_key_is_reported_before_the_origin() -> None:
    with pytest.raises(Unauthorized):
        authenticate("POST", cookie=f"{COOKIE}=unknown")


def test_the_cookie_is_set_and_cleared_with_the_same_attributes() -> None:
    for cookie in (set_cookie_header(KEY, 3600), set_cookie_header(KEY, 0), clear_cookie_header()):
        first, *attributes = cookie.split("; ")
        assert first.startswith(f"{COOKIE}=")
        assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} <= set(attributes)
        assert not any(attribute.startswith("Domain") for attribute in attributes)
    assert "Max-Age=3600" in set_cookie_header(KEY, 3600) and "Max-Age" not in set_cookie_header(KEY, 0)
    assert clear_cookie_header().startswith(f"{COOKIE}=;") and "Max-Age=0" in clear_cookie_header()
    assert parse_cookie_token([set_cookie_header(KEY, 3600).partition(";")[0]]) == KEY
