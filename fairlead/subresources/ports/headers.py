"""Headers of requests to a port, and of its responses.

To the program, a request looks like one that comes through `fairlead workspace port-forward`: as from a browser on the
same machine. Host, Origin and Referer name `localhost` with the port, since many servers for development refuse other
names, and compare these headers with each other. For the same reason, there are no `X-Forwarded-*` headers; those that
a client has sent are dropped. An absolute redirect to that name is turned back into one to the host of the port.

A response keeps its headers, except for those that would affect other hosts than its own.
"""

import re
from collections.abc import Iterator, Sequence

from fairlead.authn.access_keys import KEY_PREFIX
from fairlead.core.call import Headers
from fairlead.core.errors import BadRequest
from fairlead.subresources.ports.cookies import forwarded_cookies, parse_cookies, rewrite_set_cookies
from fairlead.upstream.messages import HOP_BY_HOP, encode_head

_DROPPED_REQUEST_HEADERS = HOP_BY_HOP | {
    "host",
    "origin",
    "referer",
    "cookie",
    "content-length",
    "expect",
    "http2-settings",
    "forwarded",
    "via",
    "x-real-ip",
}
_DROPPED_PREFIXES = ("x-forwarded-", "sec-websocket-")
_DROPPED_RESPONSE_HEADERS = HOP_BY_HOP | {
    "set-cookie",
    "set-cookie2",
    "content-length",
    "alt-svc",  # leads browsers to other servers
    "clear-site-data",  # would delete the cookies of the whole domain
    "strict-transport-security",
    "public-key-pins",
    "origin-agent-cluster",
    "audit-id",
}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"/[!-~]*")
_LOCAL_URL = re.compile(
    r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?(?=[/?#]|$)(.*)", re.IGNORECASE | re.DOTALL
)

HeaderPairs = Sequence[tuple[str, str]]


class PortHeadEncoder:
    """Encodes request heads for one port. Implements `HeadEncoder`."""

    def __init__(self, port: int) -> None:
        self._host = f"localhost:{port}"

    def encode(self, method: str, target: str, headers: HeaderPairs, framing: str) -> bytes:
        if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
            raise BadRequest("the method or the path has characters that HTTP does not allow; remove or encode them")
        lines = [f"{method} {target} HTTP/1.1", f"host: {self._host}"]
        for name, value in headers:
            if not _TOKEN.fullmatch(name):
                raise BadRequest("a header name has characters that HTTP does not allow; remove them")
            if name != "content-length":  # `framing` has it
                lines.append(f"{name}: {value}")
        text = "\r\n".join(lines) + "\r\n" + framing + "\r\n"
        return encode_head(text, len(lines) + framing.count("\n") + 1)


def request_headers(headers: Headers, origin: str, port: int) -> list[tuple[str, str]]:
    """The headers for the program. `origin` is that of the port in the browser."""
    named = {token.strip().lower() for value in headers.get_all("connection") for token in value.split(",")}
    pairs: list[tuple[str, str]] = []
    for name in headers.keys():  # noqa: SIM118 - Headers is not a mapping
        if name in _DROPPED_REQUEST_HEADERS or name in named or name.startswith(_DROPPED_PREFIXES):
            continue
        pairs += [(name, value) for value in headers.get_all(name) if not _is_our_key(name, value)]
    local = f"http://localhost:{port}"
    if headers.get_all("origin"):
        sent = headers.get("origin")
        pairs.append(("origin", local if sent == origin else sent))
    referer = headers.get("referer")
    if referer:
        pairs.append(("referer", local + referer[len(origin) :] if f"{referer}/".startswith(f"{origin}/") else referer))
    if cookies := forwarded_cookies(parse_cookies(headers.get_all("cookie"))):
        pairs.append(("cookie", cookies))
    length = headers.get_all("content-length")
    return pairs + [("content-length", value) for value in length]


def _is_our_key(name: str, value: str) -> bool:
    """An access key of this server is not for the workspace."""
    return name == "authorization" and KEY_PREFIX in value


def response_headers(headers: HeaderPairs, origin: str, port: int) -> Iterator[tuple[str, str]]:
    """The headers for the browser, without the length of the body."""
    for name, value in headers:
        if name == "location":
            yield name, rewrite_location(value, origin, port)
        elif name not in _DROPPED_RESPONSE_HEADERS:
            yield name, value
    for cookie in rewrite_set_cookies(value for name, value in headers if name == "set-cookie"):
        yield "set-cookie", cookie
    yield "origin-agent-cluster", "?1"  # a page must not widen its origin to the domain


def rewrite_location(location: str, origin: str, port: int) -> str:
    """A redirect to the port itself, by the name that the program knows, leads to its host name instead."""
    found = _LOCAL_URL.fullmatch(location)
    if found is None or found[1] != f":{port}":
        return location
    return origin + (found[2] if found[2].startswith("/") else f"/{found[2]}")
