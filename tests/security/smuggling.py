"""Requests with an ambiguous end: one parser reads a body where another reads the next request.

HIDDEN is that next request. A server that answers it is vulnerable to request smuggling.
"""

from tests.harness.server_process import CONFIGMAPS

HIDDEN = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"smuggled"}}'
_REQUEST_LINE = f"POST {CONFIGMAPS}?dryRun=All HTTP/1.1\r\nHost: x\r\n"
_POST = f"{_REQUEST_LINE}Authorization: Bearer {{key}}\r\nContent-Type: application/json\r\n"
_CHUNK = f"{len(BODY):x}\r\n{BODY}\r\n"
_LENGTH = f"Content-Length: {len(BODY)}\r\n"
_CHUNKED = "Transfer-Encoding: chunked\r\n"
_HIDDEN_AS_BODY = f"Content-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}"


def _build_with_body(*lines: str) -> str:
    return _POST + "".join(f"{line}\r\n" for line in lines) + "\r\n" + BODY + HIDDEN


def _build_with_chunk(*lines: str) -> str:
    return _POST + "".join(f"{line}\r\n" for line in lines) + "\r\n" + _CHUNK + "0\r\n\r\n" + HIDDEN


def _build_chunked(chunks: str) -> str:
    return _POST + _CHUNKED + "\r\n" + chunks + HIDDEN


def _build_without_body(lines: str) -> str:
    return f"GET /version HTTP/1.1\r\n{lines}\r\n\r\n{HIDDEN}"


REJECTED = {
    "two lengths": _build_with_body(f"Content-Length: {len(BODY)}", f"Content-Length: {len(BODY) + len(HIDDEN)}"),
    "two lengths in one": _build_with_body(f"Content-Length: {len(BODY)}, {len(BODY) + len(HIDDEN)}"),
    "a length with a sign": _build_with_body(f"Content-Length: +{len(BODY)}"),
    "a negative length": _build_with_body("Content-Length: -1"),
    "a length in hex": _build_with_body("Content-Length: 0x10"),
    "an empty length": _build_with_body("Content-Length: "),
    "a length too large for an integer": _build_with_body(f"Content-Length: {'9' * 30}"),
    "a length with a space before its colon": _build_with_body(f"Content-Length : {len(BODY)}"),
    "an unknown encoding": _build_with_chunk("Transfer-Encoding: xchunked"),
    "chunked, but not last": _build_with_chunk("Transfer-Encoding: chunked, identity"),
    "identity beside a length": _build_with_body("Transfer-Encoding: identity", f"Content-Length: {len(BODY)}"),
    "chunked behind a vertical tab": _build_with_chunk("Transfer-Encoding: \x0bchunked"),
    "chunked with a tab before its colon": _build_with_chunk("Transfer-Encoding\t: chunked"),
    "chunked on a folded line": _build_with_chunk("Transfer-Encoding:", " chunked"),
    "a chunk size that is not a number": _build_chunked("zz\r\n"),
    "a negative chunk size": _build_chunked("-1\r\n"),
    "a chunk size with a prefix": _build_chunked(f"0x{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"),
    "a chunk size too large for an integer": _build_chunked(f"{'f' * 18}\r\n{BODY}\r\n0\r\n\r\n"),
    "a chunk size behind a space": _build_chunked(f" {len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"),
    "a line break in a chunk extension": _build_chunked(f"{len(BODY):x};a\nb\r\n{BODY}\r\n0\r\n\r\n"),
    "chunks that end in line feeds": _build_chunked(f"{len(BODY):x}\n{BODY}\n0\n\n"),
    "a chunk longer than its size": _build_chunked(f"{len(BODY) - 1:x}\r\n{BODY}\r\n0\r\n\r\n"),
    "a chunk that does not end": _build_chunked(f"{len(BODY):x}\r\n{BODY}XX0\r\n\r\n"),
    "a malformed trailer": _build_chunked(f"{_CHUNK}0\r\njunk\r\n\r\n"),
    "a folded header": _build_without_body("Host: x\r\nX-Folded: a\r\n b"),
    "a header that begins with a space": _build_without_body(" X-Space: a\r\nHost: x"),
    "a header without a colon": _build_without_body("Host: x\r\njunk"),
    "a space before a colon": _build_without_body("Host : x"),
    "a carriage return in a value": _build_without_body("Host: x\r\nX-Return: a\rb"),
    "a NUL in a value": _build_without_body("Host: x\r\nX-Null: a\x00b"),
    "a NUL in a name": _build_without_body("Host: x\r\nX-N\x00ll: a"),
    "a request line without a version": f"GET /version\r\n\r\n{HIDDEN}",
    "a future version": f"GET /version HTTP/1.2\r\nHost: x\r\n\r\n{HIDDEN}",
    "a version in lower case": f"GET /version http/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "two spaces in the request line": f"GET  /version HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "tabs in the request line": f"GET\t/version\tHTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a NUL in the method": f"G\x00T /version HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "two hosts": _build_without_body("Host: x\r\nHost: y"),
    "one host, twice": _build_without_body("Host: x\r\nHost: x"),
    "no host": _build_without_body("X-Host: x"),
    "an empty host": _build_without_body("Host:"),
    "a host with a path": _build_without_body("Host: x/y"),
    "a host with a user": _build_without_body("Host: x@y"),
    "chunked twice": _build_with_chunk("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "chunked twice in one": _build_with_chunk("Transfer-Encoding: chunked, chunked"),
    "chunked over gzip": _build_with_chunk("Transfer-Encoding: gzip, chunked"),
    "a method in lower case": f"get /version HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a method with a punctuation mark": f"GE!T /version HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a very long method": f"{'G' * 99} /version HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a tunnel": f"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a target that is a host": f"GET x:443 HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a target that is an asterisk": f"GET * HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "not HTTP": f"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n{HIDDEN}",
}
"""Rejected with 400, and the connection is closed."""

AMBIGUOUS = {
    "chunked, with a shorter length": _build_with_chunk("Content-Length: 4", _CHUNKED.strip()),
    "chunked, with a length before": _build_with_chunk(_LENGTH.strip(), _CHUNKED.strip()),
    "chunked, with a length after": _build_with_chunk(_CHUNKED.strip(), _LENGTH.strip()),
    "HTTP/1.0 with chunks": _build_with_chunk(_CHUNKED.strip()).replace("HTTP/1.1", "HTTP/1.0", 1),
    "HTTP/1.0": f"GET /version HTTP/1.0\r\n\r\n{HIDDEN}",
}
"""Answered, because RFC 9112 settles their meaning. Then the connection is closed, as a proxy may disagree."""

LENIENT = {
    "lines that end in line feeds": "GET /version HTTP/1.1\nHost: x\n\n",
    "a line that ends in a line feed": "GET /version HTTP/1.1\r\nHost: x\nX-Fed: y\r\n\r\n",
    "another host in the target": "GET http://y/version HTTP/1.1\r\nHost: x\r\n\r\n",
    "empty lines before": "\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n",
}
"""Accepted leniently by the HTTP server, as RFC 9112 allows: one request each."""

UNAMBIGUOUS = {
    "a GET with a body": f"GET /version HTTP/1.1\r\nHost: x\r\n{_HIDDEN_AS_BODY}",
    "a HEAD with a body": f"HEAD /version HTTP/1.1\r\nHost: x\r\n{_HIDDEN_AS_BODY}",
    "an unread body": f"{_REQUEST_LINE}{_HIDDEN_AS_BODY}",
    "a body of an unknown method": f"BREW /version HTTP/1.1\r\nHost: x\r\n{_HIDDEN_AS_BODY}",
    "unread chunks": f"{_REQUEST_LINE}{_CHUNKED}\r\n{len(HIDDEN):x}\r\n{HIDDEN}\r\n0\r\n\r\n",
    "one length, twice": f"{_POST}Content-Length: {len(HIDDEN)}\r\n{_HIDDEN_AS_BODY}",
}
"""Unambiguous: what looks like a request is a body."""
