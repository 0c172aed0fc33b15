"""Requests whose end can be read in two ways: what one reader takes for a body, another takes for the next request.

HIDDEN is that next request. Whoever answers it has been smuggled one.
"""

from tests.harness.server_process import CONFIGMAPS

HIDDEN = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"smuggled"}}'
_LINE = f"POST {CONFIGMAPS}?dryRun=All HTTP/1.1\r\nHost: x\r\n"
_POST = f"{_LINE}Authorization: Bearer {{key}}\r\nContent-Type: application/json\r\n"
_CHUNK = f"{len(BODY):x}\r\n{BODY}\r\n"
_LENGTH = f"Content-Length: {len(BODY)}\r\n"
_CHUNKED = "Transfer-Encoding: chunked\r\n"
_AS_BODY = f"Content-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}"


def _lengths(*lines: str) -> str:
    return _POST + "".join(f"{line}\r\n" for line in lines) + "\r\n" + BODY + HIDDEN


def _encodings(*lines: str) -> str:
    return _POST + "".join(f"{line}\r\n" for line in lines) + "\r\n" + _CHUNK + "0\r\n\r\n" + HIDDEN


def _chunks(chunks: str) -> str:
    return _POST + _CHUNKED + "\r\n" + chunks + HIDDEN


def _head(lines: str) -> str:
    return f"GET /version HTTP/1.1\r\n{lines}\r\n\r\n{HIDDEN}"


REFUSED = {
    "two lengths": _lengths(f"Content-Length: {len(BODY)}", f"Content-Length: {len(BODY) + len(HIDDEN)}"),
    "two lengths in one": _lengths(f"Content-Length: {len(BODY)}, {len(BODY) + len(HIDDEN)}"),
    "a length with a sign": _lengths(f"Content-Length: +{len(BODY)}"),
    "a negative length": _lengths("Content-Length: -1"),
    "a length in hex": _lengths("Content-Length: 0x10"),
    "an empty length": _lengths("Content-Length: "),
    "a length beyond all numbers": _lengths(f"Content-Length: {'9' * 30}"),
    "a length with a space before its colon": _lengths(f"Content-Length : {len(BODY)}"),
    "an unknown encoding": _encodings("Transfer-Encoding: xchunked"),
    "chunked, but not in the end": _encodings("Transfer-Encoding: chunked, identity"),
    "identity beside a length": _lengths("Transfer-Encoding: identity", f"Content-Length: {len(BODY)}"),
    "chunked behind a vertical tab": _encodings("Transfer-Encoding: \x0bchunked"),
    "chunked with a tab before its colon": _encodings("Transfer-Encoding\t: chunked"),
    "chunked on a folded line": _encodings("Transfer-Encoding:", " chunked"),
    "a chunk size that is none": _chunks("zz\r\n"),
    "a negative chunk size": _chunks("-1\r\n"),
    "a chunk size with a prefix": _chunks(f"0x{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"),
    "a chunk size beyond all numbers": _chunks(f"{'f' * 18}\r\n{BODY}\r\n0\r\n\r\n"),
    "a chunk size behind a space": _chunks(f" {len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"),
    "a line break in a chunk extension": _chunks(f"{len(BODY):x};a\nb\r\n{BODY}\r\n0\r\n\r\n"),
    "chunks that end in line feeds": _chunks(f"{len(BODY):x}\n{BODY}\n0\n\n"),
    "a chunk longer than its size": _chunks(f"{len(BODY) - 1:x}\r\n{BODY}\r\n0\r\n\r\n"),
    "a chunk that does not end": _chunks(f"{len(BODY):x}\r\n{BODY}XX0\r\n\r\n"),
    "a trailer that is none": _chunks(f"{_CHUNK}0\r\njunk\r\n\r\n"),
    "a folded header": _head("Host: x\r\nX-Folded: a\r\n b"),
    "a header that begins with a space": _head(" X-Space: a\r\nHost: x"),
    "a header without a colon": _head("Host: x\r\njunk"),
    "a space before a colon": _head("Host : x"),
    "a carriage return in a value": _head("Host: x\r\nX-Return: a\rb"),
    "a NUL in a value": _head("Host: x\r\nX-Null: a\x00b"),
    "a NUL in a name": _head("Host: x\r\nX-N\x00ll: a"),
    "a request line without a version": f"GET /version\r\n\r\n{HIDDEN}",
    "a version of the future": f"GET /version HTTP/1.2\r\nHost: x\r\n\r\n{HIDDEN}",
    "a version in small letters": f"GET /version http/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "two spaces in the request line": f"GET  /version HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "tabs in the request line": f"GET\t/version\tHTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a NUL in the method": f"G\x00T /version HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "two hosts": _head("Host: x\r\nHost: y"),
    "one host, twice": _head("Host: x\r\nHost: x"),
    "no host": _head("X-Host: x"),
    "an empty host": _head("Host:"),
    "a host with a path": _head("Host: x/y"),
    "a host with a user": _head("Host: x@y"),
    "chunked twice": _encodings("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "chunked twice in one": _encodings("Transfer-Encoding: chunked, chunked"),
    "chunked over gzip": _encodings("Transfer-Encoding: gzip, chunked"),
    "a method in small letters": f"get /version HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a method with a mark": f"GE!T /version HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a method without end": f"{'G' * 99} /version HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a tunnel": f"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a target that is a host": f"GET x:443 HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "a target that is an asterisk": f"GET * HTTP/1.1\r\nHost: x\r\n\r\n{HIDDEN}",
    "no HTTP at all": f"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n{HIDDEN}",
}
"""Answered with 400 at most, and never anything else: then the connection is closed."""

SWALLOWED = {
    "chunked, with a shorter length": _encodings("Content-Length: 4", _CHUNKED.strip()),
    "chunked, with a length before": _encodings(_LENGTH.strip(), _CHUNKED.strip()),
    "chunked, with a length behind": _encodings(_CHUNKED.strip(), _LENGTH.strip()),
    "HTTP/1.0 with chunks": _encodings(_CHUNKED.strip()).replace("HTTP/1.1", "HTTP/1.0", 1),
    "HTTP/1.0": f"GET /version HTTP/1.0\r\n\r\n{HIDDEN}",
}
"""Answered, as one reading is the agreed one, but then the connection is closed, as somebody may disagree."""

LENIENT = {
    "lines that end in line feeds": "GET /version HTTP/1.1\nHost: x\n\n",
    "a line that ends in a line feed": "GET /version HTTP/1.1\r\nHost: x\nX-Fed: y\r\n\r\n",
    "another host in the target": "GET http://y/version HTTP/1.1\r\nHost: x\r\n\r\n",
    "empty lines before": "\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n",
}
"""What the HTTP server reads as RFC 9112 allows, and of which nothing can be seen afterwards: one request each."""

CARRIED = {
    "a GET with a body": f"GET /version HTTP/1.1\r\nHost: x\r\n{_AS_BODY}",
    "a HEAD with a body": f"HEAD /version HTTP/1.1\r\nHost: x\r\n{_AS_BODY}",
    "a body that nobody reads": f"{_LINE}{_AS_BODY}",
    "a body of an unknown method": f"BREW /version HTTP/1.1\r\nHost: x\r\n{_AS_BODY}",
    "chunks that nobody reads": f"{_LINE}{_CHUNKED}\r\n{len(HIDDEN):x}\r\n{HIDDEN}\r\n0\r\n\r\n",
    "one length, twice": f"{_POST}Content-Length: {len(HIDDEN)}\r\n{_AS_BODY}",
}
"""There is no doubt about these: what looks like a request is a body."""
