"""Extracts the credential from a request: the bearer token of the `Authorization` header, or the session cookie.

A malformed `Authorization` header is an error and never treated as anonymous. That includes values that are not text:
the HTTP server drops such a value and keeps only the header's name.

The cookie is for browsers: the console signs in once, and scripts on its pages never see the key (HttpOnly). Browsers
send cookies with cross-site requests, too, so a request that changes something or opens a WebSocket must also be
same-origin (CSRF protection). Clients that send an `Authorization` header are not affected.
"""

import re
from collections.abc import Sequence
from typing import Protocol

from fairlead.core.call import Call
from fairlead.core.errors import Forbidden, Unauthorized
from fairlead.core.user import User

INVALID_TOKEN = "invalid bearer token"
"""The only message for an invalid credential: clients must not learn what is wrong with it."""
MAX_HEADER_BYTES = 4 * 1024


def bearer_token(call: Call, max_bytes: int = MAX_HEADER_BYTES) -> str | None:
    """The bearer token; None without an Authorization header. Raises Unauthorized for any other content."""
    headers = call.headers.get_all("authorization")
    if not headers:
        if "authorization" in call.headers.keys():  # noqa: SIM118 - not a mapping
            raise Unauthorized(INVALID_TOKEN)
        return None
    header = headers[0]
    if len(headers) > 1 or len(header) > max_bytes or not header.isascii():
        raise Unauthorized(INVALID_TOKEN)
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized(INVALID_TOKEN)
    return token


COOKIE = "__Host-service_access_key"
"""With the `__Host-` prefix, browsers accept the cookie only over TLS, for all paths, and from this exact host: neither
another subdomain nor a server without TLS can set it."""
MAX_COOKIE_BYTES = 16 * 1024
MAX_COOKIES = 100
_INVALID_COOKIE = "invalid access key in the cookie; sign in again"
_COOKIE_VALUE = re.compile(r"[A-Za-z0-9._~+/=-]{1,512}")
_SAFE_METHODS = frozenset({"GET", "HEAD"})


class TokenAuthenticator(Protocol):
    """Authenticates a token; implemented in `authn/access_keys.py`."""

    def authenticate_token(self, token: str) -> User:
        """The user of an access key. Raises Unauthorized if it is unknown, disabled or expired."""


class CookieAuthenticator:
    """Authenticates the session cookie, if there is no Authorization header.

    `public_url` is the origin of the console if the server is behind a proxy.
    """

    def __init__(self, tokens: TokenAuthenticator, public_url: str = "") -> None:
        self._tokens = tokens
        self._public_url = public_url

    def __call__(self, call: Call) -> User | None:
        if call.headers.get_all("authorization"):
            return None
        token = parse_cookie_token(call.headers.get_all("cookie"))
        if token is None:
            return None
        user = self._tokens.authenticate_token(token)
        if call.method not in _SAFE_METHODS or call.headers.get_all("upgrade"):
            check_same_origin(call, self._public_url)
        return user


def parse_cookie_token(headers: Sequence[str]) -> str | None:
    """The key in the Cookie headers, None if there is none. HTTP/2 may split cookies over several headers.

    Other cookies are ignored. Two cookies of this name are an error: one of them was not set by this server.
    """
    if not headers:
        return None
    if sum(map(len, headers)) > MAX_COOKIE_BYTES:
        raise Unauthorized("the Cookie header is too large; remove this site's cookies and sign in again")
    pairs = [pair.strip(" \t").partition("=") for header in headers for pair in header.split(";")]
    if len(pairs) > MAX_COOKIES:
        raise Unauthorized("there are too many cookies; remove this site's cookies and sign in again")
    values = [value for name, _, value in pairs if name == COOKIE]
    if not values:
        return None
    if len(values) > 1 or not _COOKIE_VALUE.fullmatch(values[0]):
        raise Unauthorized(_INVALID_COOKIE)
    return values[0]


def check_same_origin(call: Call, public_url: str = "") -> None:
    """Raises Forbidden unless the request comes from a page of this server."""
    if call.headers.get_all("sec-fetch-site") == ["same-origin"]:
        return
    origins = call.headers.get_all("origin")
    if len(origins) == 1 and origins[0] in _accepted_origins(call, public_url):
        return
    raise Forbidden(
        "a request that changes something with a cookie must come from a page of this server: its Origin is different "
        "or missing. Programs send the access key in the Authorization header instead"
    )


def check_browser_origin(call: Call, public_url: str = "") -> None:
    """Raises Forbidden if a browser sends a request that changes something, or opens a WebSocket, for another site.

    For credentials of a connection, which programs use as well: unlike browsers, they send neither header.
    """
    if call.method in _SAFE_METHODS and not call.headers.get_all("upgrade"):
        return
    if call.headers.get_all("origin") or call.headers.get_all("sec-fetch-site"):
        check_same_origin(call, public_url)


def _accepted_origins(call: Call, public_url: str) -> set[str]:
    """The accepted origins. The Host header can be trusted here: it comes from the browser that this check protects."""
    hosts = call.headers.get_all("host")
    named = {f"https://{hosts[0].lower()}"} if len(hosts) == 1 and hosts[0] else set()
    return named | ({public_url} if public_url else set())


def set_cookie_header(key: str, ttl: int) -> str:
    """The Set-Cookie value for a key; with a `ttl` of 0 the cookie ends with the browser session."""
    max_age = f"; Max-Age={ttl}" if ttl else ""
    return f"{COOKIE}={key}; Path=/{max_age}; HttpOnly; Secure; SameSite=Strict"


def clear_cookie_header() -> str:
    """The Set-Cookie value that deletes the cookie."""
    return f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict"
