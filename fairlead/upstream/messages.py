"""HTTP messages: the response of a cluster with its streamed body, and the encoder of request heads.

`connection.py` feeds a `Response`, callers read from it; there is no task between the two. Unread data is buffered, and
above a limit the connection is not read until the caller catches up. This back pressure lets a slow client slow down
the cluster instead of filling our memory.

`upstream.py` and `websocket.py` encode request heads, which adds the stored credential and drops hop-by-hop headers.
Client input is validated here, whatever was checked before: a line break in a header would smuggle a second request
to the cluster, sent with the stored credential.
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
"""Chunks are joined up to this size. Beyond it, joining costs more than returning one chunk more."""
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
"""Never forwarded from the client: set by us, or not sent at all."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"/[!-~]*")
_DETOUR = re.compile(r"[^?]*/(?:\.|%2[Ee]){1,2}(?:[/?]|$)")
"""A `.` or `..` segment in the path: the cluster would resolve it to another path than the authorized one."""


class Source(Protocol):
    """The connection that a response is read from."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def abandon(self) -> None: ...


class Response:
    """A response. `status` and `headers` are set once `head_received` is done, which `Upstream.send` waits for.

    The connection is free again as soon as the body has been received, read by the caller or not. `close` aborts the
    rest of the body.
    """

    __slots__ = ("_chunks", "_error", "_paused", "_size", "_source", "_waiter", "arrival", "ended", "headers", "status")

    def __init__(self, source: Source, arrival: asyncio.Future[None]) -> None:
        self.status = 0
        self.headers: Sequence[tuple[str, str]] = ()
        """Names in lower case, without hop-by-hop headers."""
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
        """The unread body if all of it has been received, else None. Avoids waiting for small responses."""
        return self._taken(len(self._chunks)) if self.ended else None

    async def next(self) -> bytes:
        """Returns buffered data, joined up to MAX_JOINED_BYTES, or waits for the next data. Empty at the end."""
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
        """Reads the whole body. Beyond `max_bytes`, aborts it and raises ResponseTooLarge."""
        parts, size = [], 0
        while data := await self.next():
            size += len(data)
            if size > limit:
                await self.close()
                raise TooLarge(f"the cluster's response is larger than {limit} bytes; request less at once")
            parts.append(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            self.fail(Broken("the response was closed before its end"))
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
        """Marks the body as complete. The connection may serve another exchange from now on."""
        self.ended, self._source = True, None
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Ends the response with an error. Data received before remains readable."""
        if not self.ended and self._error is None:
            self._source, self._error = None, error
            if not self.arrival.done():
                self.arrival.set_exception(error)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _worthwhile(self) -> int:
        """Number of chunks to join for the next read."""
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


class Wire:
    """Encodes request heads for one cluster. Holds its bearer token, so it has no `repr` of its fields."""

    __slots__ = ("_after_target", "_lines", "_path")

    def __init__(self, access: Access) -> None:
        host = f"[{access.host}]" if ":" in access.host else access.host
        name = host if access.port == 443 else f"{host}:{access.port}"
        self._path = access.path
        authorization = f"authorization: Bearer {access.token}\r\n" if access.token else ""
        self._after_target = f" HTTP/1.1\r\nhost: {name}\r\n{authorization}"
        self._lines = 4 if access.token else 3

    def head(self, method: str, target: str, headers: Sequence[tuple[str, str]], framing: str) -> bytes:
        """`framing`: header lines of ours, for the length of the body or for a WebSocket handshake."""
        if not _TARGET.fullmatch(target):
            raise _unfit("the path")
        if ("/." in target or "/%2" in target) and _DETOUR.match(target):
            raise BadRequest("the path has a `.` or `..` segment; send the resolved path")
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
    """`name: `, or empty for a header that is never forwarded."""
    if not _TOKEN.fullmatch(name):
        raise _unfit("a header name")
    return "" if name.lower() in OURS else f"{name}: "


@lru_cache(64)
def _method(method: str) -> str:
    if not _TOKEN.fullmatch(method):
        raise _unfit("the method")
    return f"{method} "


def _checked(text: str, lines: int) -> bytes:
    """Encodes the head as latin-1. Raises BadRequest if it has line breaks other than those between the lines."""
    if text.count("\n") != lines or text.count("\r") != lines or "\0" in text:
        raise _unfit("a header")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise _unfit("a header") from None


def _unfit(what: str) -> BadRequest:
    return BadRequest(f"{what} has characters that HTTP does not allow; remove or encode them")
