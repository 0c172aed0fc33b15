"""The `Authorization` header: one well-formed bearer token, or nothing at all.

Whatever else stands there is invalid rather than absent: who tries to say who they are is never taken for somebody who
does not. That holds for what is no text at all, too: the HTTP server keeps such values from us, and only their name is
there.
"""

import re
from collections.abc import Sequence
from typing import Protocol

from fairlead.core.call import Call
from fairlead.core.errors import Forbidden, Unauthorized
from fairlead.core.user import User

INVALID = "invalid bearer token"
"""What is wrong with a credential is not told."""
MAX_HEADER = 4 * 1024


def bearer_token(call: Call, longest: int = MAX_HEADER) -> str | None:
    """The token that a call carries; None if there is no such header. Raises Unauthorized for any other content."""
    headers = call.headers.get_all("authorization")
    if not headers:
        if "authorization" in call.headers.keys():  # noqa: SIM118 - they are no mapping
            raise Unauthorized(INVALID)
        return None
    header = headers[0]
    if len(headers) > 1 or len(header) > longest or not header.isascii():
        raise Unauthorized(INVALID)
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized(INVALID)
    return token


# DOC-MERGED authn/cookie
# Access keys in a cookie, for browsers: the console signs in once, and scripts on its pages never see the key.
#
# A browser sends cookies along whoever made it send the request, so a cookie alone does not say that the user wanted it.
# Whatever could change something, or opens a socket, must also come from our own pages, which browsers say in headers
# that no script can forge. Clients that send an Authorization header are not concerned.
#
# Whoever has signed in with an earlier version signs in again: the cookie had another name then, which is only removed.


COOKIE = "__Host-service_access_key"
"""With this prefix browsers take it over TLS only, for all paths, and from this very host: neither a server on a
neighbouring subdomain nor one without TLS can give our users a cookie of its own."""
FORMER_COOKIE = "service_access_key"
"""What it was called before. It is not accepted any more, or a neighbour could still give our users one."""
MAX_BYTES = 16 * 1024
MAX_COOKIES = 100
_INVALID = "invalid access key in the cookie; sign in again"
_VALUE = re.compile(r"[A-Za-z0-9._~+/=-]{1,512}")
_SAFE_METHODS = frozenset({"GET", "HEAD"})


class Keys(Protocol):
    """Whose access key a token is; `authn/access_keys.py` knows."""

    def of_token(self, token: str) -> User:
        """The user behind a key. Raises Unauthorized for one that is unknown, disabled or expired."""


class CookieKeys:
    """Authenticates the cookie, where there is no Authorization header. `public_url` is the origin of our pages where
    a proxy stands before the server."""

    def __init__(self, keys: Keys, public_url: str = "") -> None:
        self._keys = keys
        self._public_url = public_url

    def __call__(self, call: Call) -> User | None:
        if call.headers.get_all("authorization"):
            return None
        token = token_in(call.headers.get_all("cookie"))
        if token is None:
            return None
        user = self._keys.of_token(token)
        if call.method not in _SAFE_METHODS or call.headers.get_all("upgrade"):
            refuse_foreign(call, self._public_url)
        return user


def token_in(headers: Sequence[str]) -> str | None:
    """The key in a request's Cookie headers, None if there is none. HTTP/2 may spread cookies over several headers.

    Other cookies are none of our business and not looked into. Two of ours are: one of them is not from us.
    """
    if not headers:
        return None
    if sum(map(len, headers)) > MAX_BYTES:
        raise Unauthorized("the Cookie header is too large; remove this site's cookies and sign in again")
    pairs = [pair.strip(" \t").partition("=") for header in headers for pair in header.split(";")]
    if len(pairs) > MAX_COOKIES:
        raise Unauthorized("there are too many cookies; remove this site's cookies and sign in again")
    values = [value for name, _, value in pairs if name == COOKIE]
    if not values:
        return None
    if len(values) > 1 or not _VALUE.fullmatch(values[0]):
        raise Unauthorized(_INVALID)
    return values[0]


def refuse_foreign(call: Call, public_url: str = "") -> None:
    """Refuses what does not come from one of our own pages."""
    if call.headers.get_all("sec-fetch-site") == ["same-origin"]:
        return
    origins = call.headers.get_all("origin")
    if len(origins) == 1 and origins[0] in _own_origins(call, public_url):
        return
    raise Forbidden(
        "a request with a cookie that changes something must come from a page of this server: its Origin is another "
        "one or missing. Programs send the access key in the Authorization header instead"
    )


def _own_origins(call: Call, public_url: str) -> set[str]:
    """The host that the browser believes to talk to is a claim of the browser, which is who must be protected."""
    hosts = call.headers.get_all("host")
    named = {f"https://{hosts[0].lower()}"} if len(hosts) == 1 and hosts[0] else set()
    return named | ({public_url} if public_url else set())


def set_cookie(key: str, ttl: int) -> str:
    """The header value that gives a browser its key; `ttl` 0 for a cookie that goes when the browser does."""
    lasting = f"; Max-Age={ttl}" if ttl else ""
    return f"{COOKIE}={key}; Path=/{lasting}; HttpOnly; Secure; SameSite=Strict"


def clear_cookie(name: str = COOKIE) -> str:
    """The header value that takes it away."""
    return f"{name}=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict"
