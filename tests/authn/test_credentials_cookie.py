"""The access key in a cookie: only from our own pages where something could change, and parsed without goodwill."""

from collections.abc import Sequence

import pytest
from hypothesis import given
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

ALICE = User("alice", key="login-alice-1")
KEY = "fairlead_0123456789abcdefghijklmnopqrstuvwxyzABCD-_"
HOST = "fairlead.example.com:8443"
OWN = {"host": HOST, "origin": f"https://{HOST}"}


class OneKey:
    """What knows a single key."""

    def authenticate_token(self, token: str) -> User:
        if token != KEY:
            raise Unauthorized("invalid bearer token")
        return ALICE


cookies = CookieAuthenticator(OneKey())


def ask(method: str = "GET", cookie: str | Sequence[str] = f"{COOKIE}={KEY}", **headers: str) -> User | None:
    sent: dict[str, str | Sequence[str]] = {name.replace("_", "-"): value for name, value in headers.items()}
    return cookies(call(method=method, headers={"cookie": cookie, **sent}))


def test_the_cookie_says_who_asks() -> None:
    assert ask() == ALICE
    assert ask("HEAD") == ALICE


def test_other_cookies_beside_it_do_not_matter() -> None:
    assert ask(cookie=f'theme=dark; {COOKIE}={KEY}; odd; =; x="a b"; {COOKIE}2=no') == ALICE


def test_cookies_spread_over_several_headers_are_one_as_in_http2() -> None:
    assert ask(cookie=["theme=dark", f"{COOKIE}={KEY}"]) == ALICE


def test_without_the_cookie_it_is_not_for_this_authenticator() -> None:
    assert cookies(call()) is None
    assert ask(cookie="theme=dark") is None
    assert ask(cookie=f"{COOKIE.upper()}={KEY}; x{COOKIE}={KEY}; theme={COOKIE}={KEY}") is None


@pytest.mark.parametrize("header", ["Bearer anything", "", "Basic eDp5"])
def test_an_authorization_header_of_any_sort_comes_first(header: str) -> None:
    assert ask(authorization=header) is None


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
def test_t10_a_cookie_of_ours_that_is_not_exactly_one_valid_key_is_refused(cookie: str | Sequence[str]) -> None:
    with pytest.raises(Unauthorized) as caught:
        parse_cookie_token([cookie] if isinstance(cookie, str) else cookie)
    assert KEY not in caught.value.message


def test_a_key_that_nobody_has_is_refused() -> None:
    with pytest.raises(Unauthorized):
        ask(cookie=f"{COOKIE}={KEY}x")


def test_what_is_too_large_is_not_parsed() -> None:
    with pytest.raises(Unauthorized, match="too large"):
        ask(cookie=f"a={'x' * MAX_COOKIE_BYTES}; {COOKIE}={KEY}")
    with pytest.raises(Unauthorized, match="too many"):
        ask(cookie=";" * MAX_COOKIES + f"{COOKIE}={KEY}")


@given(st.lists(st.text(max_size=60), max_size=4))
def test_t45_nothing_but_the_cookie_itself_yields_a_token(headers: list[str]) -> None:
    try:
        token = parse_cookie_token(headers)
    except Unauthorized:
        return
    assert token is None or any(f"{COOKIE}={token}" in header for header in headers)


@given(st.text(alphabet=f"{COOKIE}={KEY}; \t,\"'", max_size=200))
def test_t45_a_header_made_of_the_right_pieces_in_the_wrong_way_yields_no_other_token(header: str) -> None:
    try:
        token = parse_cookie_token([header])
    except Unauthorized:
        return
    pieces = [piece.strip(" \t") for piece in header.split(";")]
    assert [piece for piece in pieces if piece.startswith(f"{COOKIE}=")] == ([f"{COOKIE}={token}"] if token else [])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "get", "ANY"])
def test_what_could_change_something_must_come_from_our_own_page(method: str) -> None:
    assert ask(method, **OWN) == ALICE
    assert ask(method, sec_fetch_site="same-origin") == ALICE
    with pytest.raises(Forbidden, match="Authorization header"):
        ask(method, host=HOST)


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
def test_a_page_elsewhere_cannot_use_the_cookie(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        ask("POST", **headers)


def test_two_origins_or_two_claims_are_none() -> None:
    twice = {"cookie": f"{COOKIE}={KEY}", "host": HOST, "origin": [f"https://{HOST}", f"https://{HOST}"]}
    with pytest.raises(Forbidden):
        cookies(call(method="POST", headers=twice))
    claims = {"cookie": f"{COOKIE}={KEY}", "sec-fetch-site": ["same-origin", "cross-site"]}
    with pytest.raises(Forbidden):
        cookies(call(method="POST", headers=claims))


def test_opening_a_socket_must_come_from_our_own_page_although_it_is_a_get() -> None:
    with pytest.raises(Forbidden):
        ask("GET", host=HOST, upgrade="websocket", origin="https://evil.example")
    with pytest.raises(Forbidden):
        ask("GET", host=HOST, upgrade="WebSocket")
    assert ask("GET", upgrade="websocket", **OWN) == ALICE


def test_behind_a_proxy_the_origin_is_the_public_one() -> None:
    proxied = CookieAuthenticator(OneKey(), "https://fairlead.example.com")
    sent = {"cookie": f"{COOKIE}={KEY}", "host": "10.0.0.7:8443", "origin": "https://fairlead.example.com"}
    assert proxied(call(method="POST", headers=sent)) == ALICE
    with pytest.raises(Forbidden):
        cookies(call(method="POST", headers=sent))


def test_an_invalid_key_is_told_before_anything_about_origins() -> None:
    with pytest.raises(Unauthorized):
        ask("POST", cookie=f"{COOKIE}=unknown")


def test_the_cookie_is_given_and_taken_away_with_the_same_protection() -> None:
    for cookie in (set_cookie_header(KEY, 3600), set_cookie_header(KEY, 0), clear_cookie_header()):
        first, *attributes = cookie.split("; ")
        assert first.startswith(f"{COOKIE}=")
        assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} <= set(attributes)
        assert not any(attribute.startswith("Domain") for attribute in attributes)
    assert "Max-Age=3600" in set_cookie_header(KEY, 3600) and "Max-Age" not in set_cookie_header(KEY, 0)
    assert clear_cookie_header().startswith(f"{COOKIE}=;") and "Max-Age=0" in clear_cookie_header()
    assert parse_cookie_token([set_cookie_header(KEY, 3600).partition(";")[0]]) == KEY
