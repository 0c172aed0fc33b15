"""Requests that could be read in two ways, as far as the HTTP server lets them through.

It refuses most of them itself. What it is lenient with and what can still be seen here is refused with 400, and the
connection is closed, since whoever stands in between may have read something else. `asgi.py` asks about each request.

Three things cannot be seen from here, because nothing is left of them when a request is handed over:

- Content-Length beside Transfer-Encoding: the length is ignored and the connection closed after the answer, which is
  what RFC 9112 asks for (6.1).
- Lines of the head that end in LF alone: they are taken for lines, as RFC 9112 allows (2.2). Around chunks they are
  refused.
- The host in an absolute request target: it is ignored, as is Host but for the origin of our own pages. Nothing is
  routed by either of them.
"""

import re
from collections.abc import Mapping, Sequence

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%-]+)(:[0-9]{0,5})?")
_ONCE = (b"host", b"content-length", b"transfer-encoding")
MAX_KNOWN = 1024

_known_hosts = set[bytes]()

Pairs = Sequence[tuple[bytes, bytes]]


def find_ambiguity(method: str, path: str, version: str, pairs: Pairs, first: Mapping[bytes, bytes]) -> str:
    """What is wrong with a request, in words; empty where nothing is. `first` has the first value of each header."""
    if len(first) != len(pairs):
        for name in _ONCE:
            if name in first and sum(each == name for each, _ in pairs) > 1:
                return f"the header {name.decode()} must not come more than once"
    if b"transfer-encoding" in first and first[b"transfer-encoding"].strip().lower() != b"chunked":
        return "of all transfer encodings only chunked is understood; send the body as it is, with its length"
    if method not in METHODS and (method == "CONNECT" or not _METHOD.fullmatch(method)):
        return "this is not a method of HTTP that a server like this one has; methods are in capital letters"
    if not path.startswith("/") and not (path == "*" and method == "OPTIONS"):
        return "the request target must be a path that begins with a slash"
    if first.get(b"host") not in _known_hosts:
        return _find_fault_of_host(first.get(b"host", b""), version)
    return ""


def _find_fault_of_host(host: bytes, version: str) -> str:
    if not host:
        return "the header host is missing; HTTP/1.1 demands one" if version == "1.1" else ""
    if not _HOST.fullmatch(host):
        return "the header host is not the name of a host with or without a port"
    if len(_known_hosts) < MAX_KNOWN:
        _known_hosts.add(host)
    return ""
