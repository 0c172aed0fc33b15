"""Request headers and request bodies, as a `Call` provides them, and the rejection of ambiguous requests.

`asgi.py` creates headers and body for every request. They are cheap to create and work lazily: most requests have no
body, and most headers are never read.

A proxy in front of the server may parse an ambiguous request differently (request smuggling). The HTTP server rejects
most of them itself. `find_ambiguity` finds the rest: they are rejected with 400, and the connection is closed. Three
cases cannot be detected here, because the HTTP server has already normalized them:

- Content-Length together with Transfer-Encoding: the length is ignored and the connection closed after the response,
  as RFC 9112 requires (6.1).
- Header lines that end in a bare LF: accepted, as RFC 9112 allows (2.2). Around chunks they are rejected.
- The host of a request target in absolute form: ignored. Routing uses neither it nor the Host header, which only serves
  to check the origin of browser requests.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from fairlead.core.errors import BadRequest, Timeout, TooLarge

MAX_HEADER_BYTES = 64 * 1024
"""Request line and headers. The HTTP server has this limit, too, but checks it after each read, which may be large."""
HEADERS_TOO_LARGE = f"the request line and the headers have more than {MAX_HEADER_BYTES} bytes"

KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%-]+)(:[0-9]{0,5})?")
_SINGLE_VALUE_HEADERS = (b"host", b"content-length", b"transfer-encoding")
HOST_CACHE_SIZE = 1024

MAX_EMPTY_CHUNKS = 16
"""Empty chunks allowed in a body. Some clients send a few; more are treated as an attack."""
DISCARD_TIMEOUT = 5.0
BODY_TIMEOUT = 10.0
MIN_BODY_RATE = 64 * 1024
"""Timeout for a body that is buffered in memory: `BODY_TIMEOUT` seconds, plus one for every `MIN_BODY_RATE` bytes."""
DRAIN_FACTOR = 4
"""An oversized body is drained up to this multiple of the limit, so that the client gets to read the response."""
_INCOMPLETE_BODY = "the request body is incomplete"

HeaderPairs = Sequence[tuple[bytes, bytes]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

_valid_hosts = set[bytes]()


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


def are_headers_too_large(target: str, pairs: HeaderPairs) -> bool:
    return len(target) + count_header_bytes(pairs) > MAX_HEADER_BYTES


def count_header_bytes(pairs: HeaderPairs) -> int:
    """The size of all headers with their separators, as `MAX_HEADER_BYTES` counts them."""
    return 4 * len(pairs) + sum(map(len, chain.from_iterable(pairs)))


def _check_host(host: bytes, version: str) -> str:
    if not host:
        return "the header host is missing; HTTP/1.1 requires it" if version == "1.1" else ""
    if not _HOST.fullmatch(host):
        return "the header host is not a valid host name with an optional port"
    if len(_valid_hosts) < HOST_CACHE_SIZE:
        _valid_hosts.add(host)
    return ""


class RequestHeaders:
    """Request headers by lower-case name. If one value of a header is not ASCII, all values of that header are ignored:
    a partial header might mean something else."""

    __slots__ = ("_first_values", "_pairs", "has_body")

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._pairs = pairs
        self._first_values = values = dict(reversed(pairs))
        self.has_body = values.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in values

    def get(self, key: str, default: str = "") -> str:
        if (value := self._first_values.get(key.encode())) is None:
            return default
        try:
            return value.decode("ascii")
        except UnicodeDecodeError:
            return next(iter(self.get_all(key)), default)

    def get_all(self, key: str) -> list[str]:
        name = key.encode()
        first = self._first_values.get(name)
        if first is None:
            return []
        if len(self._first_values) == len(self._pairs):  # no repeated headers
            return [first.decode()] if first.isascii() else []
        values = [value for header, value in self._pairs if header == name]
        return [value.decode() for value in values] if all(map(bytes.isascii, values)) else []

    def get_all_raw(self, key: str) -> list[str]:
        """All values, also if one is not ASCII: each byte is one character."""
        name = key.encode()
        if name not in self._first_values:
            return []
        return [value.decode("latin-1") for header, value in self._pairs if header == name]

    def find_single(self, name: bytes) -> bytes | None:
        value, pairs = self._first_values.get(name), self._pairs
        if len(self._first_values) != len(pairs) and sum(header == name for header, _ in pairs) > 1:
            return None
        return value

    def keys(self) -> Iterable[str]:
        # One decode for all names: a header name cannot contain a line break.
        return b"\n".join(self._first_values).decode("latin-1").split("\n") if self._first_values else ()

    @property
    def pairs(self) -> HeaderPairs:
        """Names and values, as they were sent."""
        return self._pairs

    def joined_names(self) -> bytes:
        """All names, for a substring test."""
        return b"\n".join(self._first_values)

    def has_prefix(self, prefix: str) -> bool:
        # One substring test first: every request runs this, and hardly any has such a header.
        return prefix.encode() in b"".join(self._first_values) and any(
            name.startswith(prefix.encode()) for name in self._first_values
        )

    def find_ambiguity(self, method: str, path: str, version: str) -> str:
        """See the function `find_ambiguity`."""
        return find_ambiguity(method, path, version, self._pairs, self._first_values)

    @property
    def content_length(self) -> int:
        """The Content-Length; -1 if it is missing or not a number."""
        text = self._first_values.get(b"content-length", b"")
        return int(text) if text.isdigit() else -1


class RequestBody:
    """A request body. It can be read once, either whole or as a stream."""

    __slots__ = ("_headers", "_is_complete", "_is_http1", "_is_untouched", "_limit", "_receive", "_remaining")

    def __init__(self, headers: RequestHeaders, receive: Receive, limit: int, is_http1: bool = False) -> None:
        """With `is_http1`, the body ends after Content-Length bytes. In HTTP/2, more data may follow."""
        self._headers = headers
        self._is_http1 = is_http1
        self._receive = receive
        self._limit = limit
        self._is_untouched = True
        self._remaining = -1
        self._is_complete = False

    async def read(self) -> bytes:
        """Reads the whole body. Raises TooLarge over the limit, BadRequest if it is incomplete, Timeout if slow."""
        body = await self._receive_chunk()
        if not self._is_complete:  # nearly every body arrives in one message
            buffer = bytearray(body)
            if await self._read_with_timeout(buffer) <= self._limit:
                return bytes(buffer)
        elif len(body) <= self._limit:
            return body
        raise TooLarge(f"Request entity too large: limit is {self._limit}")

    async def _read_with_timeout(self, buffer: bytearray) -> int:
        """Reads the rest with a timeout, because the part that has arrived stays in memory."""
        length = self._headers.content_length
        seconds = BODY_TIMEOUT + min(length if length >= 0 else self._limit, self._limit) / MIN_BODY_RATE
        try:
            async with asyncio.timeout(seconds):
                return await self._read_into(buffer)
        except TimeoutError:
            message = (
                f"the body was not complete after {seconds:.0f} seconds; send at least {MIN_BODY_RATE} bytes a second"
            )
            raise Timeout(message) from None

    async def _read_into(self, buffer: bytearray | None) -> int:
        """Reads to the end, or to `DRAIN_FACTOR` times the limit. Buffers up to the limit; returns the size read."""
        size = len(buffer or b"")
        async for chunk in self.stream():
            size += len(chunk)
            if buffer is not None and size <= self._limit:
                buffer += chunk
            if size > self._limit * DRAIN_FACTOR:
                break
        return size

    async def stream(self) -> AsyncIterator[bytes]:
        """The chunks of the body, without a size limit. Raises BadRequest if the body ends early."""
        pauses = 0
        while not self._is_complete:
            chunk = await self._receive_chunk()
            pauses += not chunk
            if pauses > MAX_EMPTY_CHUNKS:
                raise BadRequest(_INCOMPLETE_BODY)
            if chunk:
                yield chunk

    async def _receive_chunk(self) -> bytes:
        if self._is_untouched:
            self._is_untouched = False
            self._remaining = self._headers.content_length if self._is_http1 else -1
        message = await self._receive()
        if message["type"] != "http.request":
            raise BadRequest(_INCOMPLETE_BODY)
        chunk: bytes = message["body"]
        self._remaining -= len(chunk)
        # After Content-Length bytes the body is complete; no need to wait for the final message.
        self._is_complete = not message["more_body"] or self._remaining == 0
        return chunk

    async def discard(self) -> None:
        """Drains an unread body: a client that is still sending does not read the response."""
        if not self.is_unread:
            return
        with suppress(TimeoutError, BadRequest):
            async with asyncio.timeout(DISCARD_TIMEOUT):
                await self._read_into(None)

    @property
    def is_unread(self) -> bool:
        """Whether there is a body of which nothing was read."""
        return self._is_untouched and self._headers.has_body

    @property
    def is_unfinished(self) -> bool:
        """Whether part of the body was never read. The connection cannot be reused then."""
        return not self._is_complete and self._headers.has_body
