"""Request headers and request bodies, as a `Call` provides them.

`asgi.py` creates both for every request. They are cheap to create and work lazily: most requests have no body, and most
headers are never read.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from fairlead.core.errors import BadRequest, Timeout, TooLarge
from fairlead.server.http.framing import find_ambiguity

MAX_PAUSES = 16
"""Empty chunks allowed in a body. Some clients send a few; more are treated as an attack."""
DISCARD_SECONDS = 5.0
BODY_SECONDS, BODY_RATE = 10.0, 64 * 1024
"""Timeout for a body that is buffered in memory: this many seconds, plus one for every `MIN_BODY_RATE` bytes."""
DRAIN_FACTOR = 4
"""An oversized body is drained up to this multiple of the limit, so that the client gets to read the response."""

Receive = Callable[[], Awaitable[dict[str, Any]]]

_BROKE_OFF = "the request body is incomplete"


class ReceivedHeaders:
    """Request headers by lower-case name. If one value of a header is not ASCII, all values of that header are ignored:
    a partial header might mean something else."""

    __slots__ = ("_first", "_pairs")

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._pairs = pairs
        self._first = dict(reversed(pairs))

    def get(self, key: str, default: str = "") -> str:
        value = self._first.get(key.encode())
        if value is None:
            return default
        try:
            return value.decode("ascii")
        except UnicodeDecodeError:
            return next(iter(self.get_all(key)), default)

    def get_all(self, key: str) -> list[str]:
        name = key.encode()
        first = self._first.get(name)
        if first is None:
            return []
        if len(self._first) == len(self._pairs):  # no repeated headers
            return [first.decode()] if first.isascii() else []
        values = [value for header, value in self._pairs if header == name]
        return [value.decode() for value in values] if all(map(bytes.isascii, values)) else []

    def keys(self) -> Iterable[str]:
        # One decode for all names: a header name cannot contain a line break.
        return b"\n".join(self._first).decode("latin-1").split("\n") if self._first else ()

    def any_begins(self, prefix: str) -> bool:
        # One substring test first: every request runs this, and hardly any has such a header.
        return prefix.encode() in b"".join(self._first) and any(
            name.startswith(prefix.encode()) for name in self._first
        )

    def find_ambiguity(self, method: str, path: str, version: str) -> str:
        """See `framing.find_ambiguity`."""
        return find_ambiguity(method, path, version, self._pairs, self._first)

    @property
    def body_length(self) -> int:
        """The Content-Length; -1 if it is missing or not a number."""
        text = self._first.get(b"content-length", b"")
        return int(text) if text.isdigit() else -1

    @property
    def announce_a_body(self) -> bool:
        length = self._first.get(b"content-length")
        return (length is not None and length != b"0") or b"transfer-encoding" in self._first


class Body:
    """A request body. It can be read once, either whole or as a stream."""

    __slots__ = ("_headers", "_is_framed", "_limit", "_missing", "_receive", "_untouched", "_whole")

    def __init__(self, headers: ReceivedHeaders, receive: Receive, limit: int, is_framed: bool = False) -> None:
        """With `is_http1`, the body ends after Content-Length bytes. In HTTP/2, more data may follow."""
        self._headers = headers
        self._is_framed = is_framed
        self._receive = receive
        self._limit = limit
        self._untouched = True
        self._missing = -1
        self._whole = False

    async def read(self) -> bytes:
        """Reads the whole body. Raises TooLarge over the limit, BadRequest if it is incomplete, Timeout if slow."""
        body = await self._next()
        if not self._whole:  # nearly every body arrives in one message
            kept = bytearray(body)
            if await self._take_in_time(kept) <= self._limit:
                return bytes(kept)
        elif len(body) <= self._limit:
            return body
        raise TooLarge(f"Request entity too large: limit is {self._limit}")

    async def _take_in_time(self, kept: bytearray) -> int:
        """Reads the rest with a timeout, because the part that has arrived stays in memory."""
        length = self._headers.body_length
        seconds = BODY_SECONDS + min(length if length >= 0 else self._limit, self._limit) / BODY_RATE
        try:
            async with asyncio.timeout(seconds):
                return await self._take_in(kept)
        except TimeoutError:
            message = f"the body was not complete after {seconds:.0f} seconds; send at least {BODY_RATE} bytes a second"
            raise Timeout(message) from None

    async def _take_in(self, kept: bytearray | None) -> int:
        """Reads to the end, or to `DRAIN_FACTOR` times the limit. Buffers up to the limit; returns the size read."""
        size = len(kept or b"")
        async for chunk in self.stream():
            size += len(chunk)
            if kept is not None and size <= self._limit:
                kept += chunk
            if size > self._limit * DRAIN_FACTOR:
                break
        return size

    async def stream(self) -> AsyncIterator[bytes]:
        """The chunks of the body, without a size limit. Raises BadRequest if the body ends early."""
        pauses = 0
        while not self._whole:
            chunk = await self._next()
            pauses += not chunk
            if pauses > MAX_PAUSES:
                raise BadRequest(_BROKE_OFF)
            if chunk:
                yield chunk

    async def _next(self) -> bytes:
        if self._untouched:
            self._untouched = False
            self._missing = self._headers.body_length if self._is_framed else -1
        message = await self._receive()
        if message["type"] != "http.request":
            raise BadRequest(_BROKE_OFF)
        chunk: bytes = message["body"]
        self._missing -= len(chunk)
        # After Content-Length bytes the body is complete; no need to wait for the final message.
        self._whole = not message["more_body"] or self._missing == 0
        return chunk

    async def discard(self) -> None:
        """Drains an unread body: a client that is still sending does not read the response."""
        if not self.is_left:
            return
        with suppress(TimeoutError, BadRequest):
            async with asyncio.timeout(DISCARD_SECONDS):
                await self._take_in(None)

    @property
    def is_left(self) -> bool:
        """Whether there is a body of which nothing was read."""
        return self._untouched and self._headers.announce_a_body

    @property
    def is_unfinished(self) -> bool:
        """Whether part of the body was never read. The connection cannot be reused then."""
        return not self._whole and self._headers.announce_a_body
