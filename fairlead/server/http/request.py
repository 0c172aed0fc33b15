"""What the HTTP server hands over of a request, as the Call has it: headers and body.

`asgi.py` makes these. Both are cheap to make and do their work only when asked: most requests have no body, and of most
headers nobody wants to know.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from fairlead.core.errors import BadRequest, Timeout, TooLarge
from fairlead.server.http.framing import find_ambiguity

MAX_PAUSES = 16
"""Empty chunks in a body: a few are a client's habit, more are somebody's idea of an attack."""
DISCARD_SECONDS = 5.0
BODY_SECONDS, BODY_RATE = 10.0, 64 * 1024
"""How long a body may take that is kept in memory until it is whole, and a second more for each so many bytes."""
DRAIN_FACTOR = 4
"""How many times the limit of a body is read and thrown away, so that its sender comes to read the answer."""

Receive = Callable[[], Awaitable[dict[str, Any]]]

_BROKE_OFF = "the body broke off before its end"


class ReceivedHeaders:
    """Request headers by their lower case names. A value that is no ASCII cannot be read, nor can others of its name:
    the half that can be read might say something else than the whole."""

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
        if len(self._first) == len(self._pairs):  # no name is there twice
            return [first.decode()] if first.isascii() else []
        values = [value for each, value in self._pairs if each == name]
        return [value.decode() for value in values] if all(map(bytes.isascii, values)) else []

    def keys(self) -> Iterable[str]:
        # In one step: names are tokens, and a line break cannot be in one.
        return b"\n".join(self._first).decode("latin-1").split("\n") if self._first else ()

    def any_begins(self, prefix: str) -> bool:
        # One look at all names at once: every request is asked this, and hardly any has such a header.
        return prefix.encode() in b"".join(self._first) and any(
            name.startswith(prefix.encode()) for name in self._first
        )

    def find_ambiguity(self, method: str, path: str, version: str) -> str:
        """What of the request could be read in two ways; empty where nothing could."""
        return find_ambiguity(method, path, version, self._pairs, self._first)

    @property
    def body_length(self) -> int:
        """What was announced, -1 if nothing was that is a number."""
        text = self._first.get(b"content-length", b"")
        return int(text) if text.isdigit() else -1

    @property
    def announce_a_body(self) -> bool:
        length = self._first.get(b"content-length")
        return (length is not None and length != b"0") or b"transfer-encoding" in self._first


class Body:
    """A request's body: taken in at most once, by whoever needs it."""

    __slots__ = ("_headers", "_is_framed", "_limit", "_missing", "_receive", "_untouched", "_whole")

    def __init__(self, headers: ReceivedHeaders, receive: Receive, limit: int, is_framed: bool = False) -> None:
        """`is_framed` where the announced length is what ends it, as in HTTP/1.1. In HTTP/2, more may come."""
        self._headers = headers
        self._is_framed = is_framed
        self._receive = receive
        self._limit = limit
        self._untouched = True
        self._missing = -1
        self._whole = False

    async def read(self) -> bytes:
        """The whole body, or an error if it is too large or only a part of it came."""
        body = await self._next()
        if not self._whole:  # which nearly every body is by now
            kept = bytearray(body)
            if await self._take_in_time(kept) <= self._limit:
                return bytes(kept)
        elif len(body) <= self._limit:
            return body
        raise TooLarge(f"Request entity too large: limit is {self._limit}")

    async def _take_in_time(self, kept: bytearray) -> int:
        """Not for ever: what has come so far is in memory until the rest is there."""
        length = self._headers.body_length
        seconds = BODY_SECONDS + min(length if length >= 0 else self._limit, self._limit) / BODY_RATE
        try:
            async with asyncio.timeout(seconds):
                return await self._take_in(kept)
        except TimeoutError:
            why = (
                f"the body was not complete after {seconds:.0f} seconds; send it faster than {BODY_RATE} bytes a second"
            )
            raise Timeout(why) from None

    async def _take_in(self, kept: bytearray | None) -> int:
        """Reads as far as it makes sense and keeps what fits; tells the size."""
        size = len(kept or b"")
        async for chunk in self.stream():
            size += len(chunk)
            if kept is not None and size <= self._limit:
                kept += chunk
            if size > self._limit * DRAIN_FACTOR:
                break
        return size

    async def stream(self) -> AsyncIterator[bytes]:
        """Chunk by chunk, without a limit. Half a body must never be taken for a whole one."""
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
        # When all is there that was announced, there is no need to wait for being told so.
        self._whole = not message["more_body"] or self._missing == 0
        return chunk

    async def discard(self) -> None:
        """Takes in what nobody asked for: a client that is still sending would never see an answer sent before."""
        if not self.is_left:
            return
        with suppress(TimeoutError, BadRequest):
            async with asyncio.timeout(DISCARD_SECONDS):
                await self._take_in(None)

    @property
    def is_left(self) -> bool:
        """Whether there is a body that nobody has asked for."""
        return self._untouched and self._headers.announce_a_body

    @property
    def is_unfinished(self) -> bool:
        """Whether a part of it was never taken in: nothing else can come over that connection then."""
        return not self._whole and self._headers.announce_a_body
