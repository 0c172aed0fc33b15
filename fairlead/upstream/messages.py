"""The answer of a cluster: its head, and the body as it comes. `connection.py` fills it in, callers take from it.

There is no task between the two. Data waits here until somebody takes it, and from a certain amount on the connection
is not read until then, so a slow client slows down the cluster and fills no memory of ours.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from typing import Protocol

from fairlead.core.errors import BadRequest
from fairlead.upstream.access import Access
from fairlead.upstream.errors import Broken, TooLarge

HIGH_WATER = 256 * 1024
LARGE_PIECE = 64 * 1024
"""Smaller pieces are handed out together; from here on, to join them costs more than to hand out one more."""


class Source(Protocol):
    """The connection that an answer comes by."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def abandon(self) -> None: ...


class Response:
    """`status` and `headers` hold once `arrival` is done, which `Upstream.send` waits for.

    The connection is free again as soon as all of the body has come, taken or not. `close` breaks off what has not.
    """

    __slots__ = ("_chunks", "_error", "_paused", "_size", "_source", "_waiter", "arrival", "ended", "headers", "status")

    def __init__(self, source: Source, arrival: asyncio.Future[None]) -> None:
        self.status = 0
        self.headers: Sequence[tuple[str, str]] = ()
        """Names in lower case; nothing that is between us and the cluster only."""
        self.arrival = arrival
        self.ended = False
        self._source: Source | None = source
        self._chunks: list[bytes] = []
        self._size = 0
        self._paused = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    # --- for callers -------------------------------------------------------------------------------------------------

    def whole(self) -> bytes | None:
        """The body, or what is left of it, if its end has come already: nothing to wait for, as with small answers."""
        return self._taken(len(self._chunks)) if self.ended else None

    async def next(self) -> bytes:
        """What has come since the last time, as far as that makes a piece worth its way, or else what comes next. Empty
        at the end."""
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self.ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._taken(self._worthwhile())

    async def chunks(self) -> AsyncIterator[bytes]:
        while data := await self.next():
            yield data

    async def read(self, limit: int) -> bytes:
        """All of the body. One past `limit` bytes is broken off and raises TooLarge."""
        parts, size = [], 0
        while data := await self.next():
            size += len(data)
            if size > limit:
                await self.close()
                raise TooLarge(f"the cluster's answer is larger than {limit} bytes; ask for less at once")
            parts.append(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            self.fail(Broken("the answer was closed before its end"))
            source.abandon()

    # --- for the connection ------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER and not self._paused and self._source is not None:
            self._paused = True
            self._source.pause()
        self._wake()

    def finish(self) -> None:
        """The end of the body has come, and the connection is somebody else's now."""
        self.ended, self._source = True, None
        self._wake()

    def fail(self, error: BaseException) -> None:
        """What came before is still there to be taken."""
        if not self.ended and self._error is None:
            self._source, self._error = None, error
            if not self.arrival.done():
                self.arrival.set_exception(error)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _worthwhile(self) -> int:
        """How many chunks make the next piece."""
        count = size = 0
        for chunk in self._chunks:
            size += len(chunk)
            if count and size > LARGE_PIECE:
                break
            count += 1
        return count

    def _taken(self, count: int) -> bytes:
        chunks = self._chunks
        data = chunks[0] if count == 1 else b"".join(chunks[:count])
        del chunks[:count]
        self._size -= len(data)
        if self._paused and self._size <= HIGH_WATER and self._source is not None:
            self._paused = False
            self._source.resume()
        return data


# DOC-MERGED upstream/wire
# The head of a request as bytes, with our credential for the cluster and without anything that is not its business.
#
# `upstream.py` and `websocket.py` call this. What came from a client is checked here, whatever was
# checked before: a line break in a header would be another request to the cluster, sent with our credential.


HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
OURS = HOP_BY_HOP | {"authorization", "cookie", "host", "expect", "content-length"}
"""Never taken from the request: we say these ourselves, or not at all."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"/[!-~]*")
_DETOUR = re.compile(r"[^?]*/(?:\.|%2[Ee]){1,2}(?:[/?]|$)")
"""A `.` or `..` step in the path: the cluster would read another path than whoever has judged this one."""


class Wire:
    """Heads for one cluster. Its secret is inside, hence no text of it."""

    __slots__ = ("_after_target", "_lines", "_path")

    def __init__(self, access: Access) -> None:
        host = f"[{access.host}]" if ":" in access.host else access.host
        name = host if access.port == 443 else f"{host}:{access.port}"
        self._path = access.path
        authorization = f"authorization: Bearer {access.token}\r\n" if access.token else ""
        self._after_target = f" HTTP/1.1\r\nhost: {name}\r\n{authorization}"
        self._lines = 4 if access.token else 3

    def head(self, method: str, target: str, headers: Sequence[tuple[str, str]], framing: str) -> bytes:
        """`framing` are header lines of ours: where the body ends, or the handshake of a WebSocket."""
        if not _TARGET.fullmatch(target):
            raise _unfit("the path")
        if ("/." in target or "/%2" in target) and _DETOUR.match(target):
            raise BadRequest("the path has a `.` or `..` step; send the path that is meant, without detours")
        parts = [_method(method), self._path, target, self._after_target, framing]
        lines = self._lines + framing.count("\n")
        for name, value in headers:
            start = _line_start(name)
            if start:
                parts += (start, value, "\r\n")
                lines += 1
        parts.append("\r\n")
        return _checked("".join(parts), lines)


@lru_cache(1024)
def _line_start(name: str) -> str:
    """`name: `, or nothing for a header that does not go along."""
    if not _TOKEN.fullmatch(name):
        raise _unfit("a header's name")
    return "" if name.lower() in OURS else f"{name}: "


@lru_cache(64)
def _method(method: str) -> str:
    if not _TOKEN.fullmatch(method):
        raise _unfit("the method")
    return f"{method} "


def _checked(text: str, lines: int) -> bytes:
    """Text that has the line breaks that we put there, and no others. Values are one byte per character, as in HTTP."""
    if text.count("\n") != lines or text.count("\r") != lines or "\0" in text:
        raise _unfit("a header")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise _unfit("a header") from None


def _unfit(what: str) -> BadRequest:
    return BadRequest(f"{what} has characters that HTTP does not allow there; remove or encode them")
