"""Rejects ambiguous requests, which a proxy in front of the server may parse differently (request smuggling).

The HTTP server rejects most of them itself. The rest is rejected here with 400, and the connection is closed. `asgi.py`
checks every request.

Three cases cannot be detected here, because the HTTP server has already normalized them:

- Content-Length together with Transfer-Encoding: the length is ignored and the connection closed after the response,
  as RFC 9112 requires (6.1).
- Header lines that end in a bare LF: accepted, as RFC 9112 allows (2.2). Around chunks they are rejected.
- The host of a request target in absolute form: ignored. Routing uses neither it nor the Host header, which only serves
  to check the origin of browser requests.
"""

import re
from collections.abc import Mapping, Sequence

KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%-]+)(:[0-9]{0,5})?")
_SINGLE_VALUE_HEADERS = (b"host", b"content-length", b"transfer-encoding")
HOST_CACHE_SIZE = 1024

_valid_hosts = set[bytes]()

HeaderPairs = Sequence[tuple[bytes, bytes]]


def find_ambiguity(
    method: str, path: str, version: str, pairs: HeaderPairs, first_values: Mapping[bytes, bytes]
) -> str:
    """The problem as an error message, or an empty string. `first_values` has the first value of each header."""
    if len(first_values) != len(pairs):
        for name in _SINGLE_VALUE_HEADERS:
            if name in first_values and sum(key == name for key, _ in pairs) > 1:
                return f"the header {name.decode()} must not be repeated"
    if b"transfer-encoding" in first_values and first_values[b"transfer-encoding"].strip().lower() != b"chunked":
        return "the only supported transfer encoding is chunked; use it, or send the body with a Content-Length"
    if method not in KNOWN_METHODS and (method == "CONNECT" or not _METHOD.fullmatch(method)):
        return "unsupported HTTP method; method names are case-sensitive and in upper case"
    if not path.startswith("/") and not (path == "*" and method == "OPTIONS"):
        return "the request target must be a path that begins with a slash"
    if first_values.get(b"host") not in _valid_hosts:
        return _check_host(first_values.get(b"host", b""), version)
    return ""


def _check_host(host: bytes, version: str) -> str:
    if not host:
        return "the header host is missing; HTTP/1.1 requires it" if version == "1.1" else ""
    if not _HOST.fullmatch(host):
        return "the header host is not a valid host name with an optional port"
    if len(_valid_hosts) < HOST_CACHE_SIZE:
        _valid_hosts.add(host)
    return ""
