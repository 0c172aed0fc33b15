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
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from fairlead.core.errors import BadRequest
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.errors import ProtocolError, ResponseTooLarge

HIGH_WATER_BYTES = 256 * 1024
MAX_JOINED_BYTES = 64 * 1024
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
AUTHORIZATION = "authorization"
NEVER_FORWARDED = HOP_BY_HOP | {AUTHORIZATION, "cookie", "host", "expect", "content-length"}
"""Never forwarded from the client: set by us, or not sent at all."""
MAX_LENGTH_DIGITS = 18
BODYLESS_STATUSES = frozenset({204, 304})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_REQUEST_TARGET = re.compile(r"/[!-~]*")
_DOT_SEGMENT = re.compile(r"[^?]*/(?:\.|%2[Ee]){1,2}(?:[/?]|$)")
"""A `.` or `..` segment in the path: the cluster would resolve it to another path than the authorized one."""


class ByteSource(Protocol):
    """The connection that a response is read from."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def abort(self) -> None: ...


class Response:
    """A response. `status` and `headers` are set once `head_received` is done, which `Upstream.send` waits for.

    The connection is free again as soon as the body has been received, read by the caller or not. `close` aborts the
    rest of the body.
    """

    __slots__ = (
        "_chunks",
        "_error",
        "_is_paused",
        "_size",
        "_source",
        "_waiter",
        "head_received",
        "headers",
        "is_complete",
        "status",
    )

    def __init__(self, source: ByteSource, head_received: asyncio.Future[None]) -> None:
        self.status = 0
        self.headers: Sequence[tuple[str, str]] = ()
        """Names in lower case, without hop-by-hop headers."""
        self.head_received = head_received
        self.is_complete = False
        self._source: ByteSource | None = source
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    # --- for callers -------------------------------------------------------------------------------------------------

    def buffered_body(self) -> bytes | None:
        """The unread body if all of it has been received, else None. Avoids waiting for small responses."""
        return self._take_chunks(len(self._chunks)) if self.is_complete else None

    async def read_chunk(self) -> bytes:
        """Returns buffered data, joined up to MAX_JOINED_BYTES, or waits for the next data. Empty at the end."""
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self.is_complete:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._take_chunks(self._next_batch_size())

    async def read(self, max_bytes: int) -> bytes:
        """Reads the whole body. Beyond `max_bytes`, aborts it and raises ResponseTooLarge."""
        parts, size = [], 0
        while data := await self.read_chunk():
            size += len(data)
            if size > max_bytes:
                await self.close()
                raise ResponseTooLarge(f"the cluster's response is larger than {max_bytes} bytes; request less at once")
            parts.append(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            self.fail(ProtocolError("the response was closed before its end"))
            source.abort()

    # --- for the connection ------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER_BYTES and not self._is_paused and self._source is not None:
            self._is_paused = True
            self._source.pause()
        self._wake()

    def finish(self) -> None:
        """Marks the body as complete. The connection may serve another exchange from now on."""
        self.is_complete, self._source = True, None
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Ends the response with an error. Data received before remains readable."""
        if not self.is_complete and self._error is None:
            self._source, self._error = None, error
            if not self.head_received.done():
                self.head_received.set_exception(error)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _next_batch_size(self) -> int:
        """Number of chunks to join for the next read."""
        count = size = 0
        for chunk in self._chunks:
            size += len(chunk)
            if count and size > MAX_JOINED_BYTES:
                break
            count += 1
        return count

    def _take_chunks(self, count: int) -> bytes:
        chunks = self._chunks
        data = chunks[0] if count == 1 else b"".join(chunks[:count])
        del chunks[:count]
        self._size -= len(data)
        if self._is_paused and self._size <= HIGH_WATER_BYTES and self._source is not None:
            self._is_paused = False
            self._source.resume()
        return data


class HeadEncoder(Protocol):
    """Encodes request heads for one server."""

    def encode(self, method: str, target: str, headers: Sequence[tuple[str, str]], framing: str) -> bytes:
        """`framing`: header lines of ours, for the length of the body or for a WebSocket handshake. Raises BadRequest
        for what HTTP does not allow."""


class RequestHeadEncoder:
    """Encodes request heads for one cluster. Holds its bearer token, so it has no `repr` of its fields."""

    __slots__ = ("_after_target", "_authorization_prefix", "_base_path", "_line_count")

    def __init__(self, endpoint: ClusterEndpoint, user_agent: str = "") -> None:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        name = host if endpoint.port == 443 else f"{host}:{endpoint.port}"
        self._base_path = endpoint.base_path
        authorization = f"authorization: Bearer {endpoint.token}\r\n" if endpoint.token else ""
        self._authorization_prefix = "authorization: " if endpoint.forwards_authorization else ""
        agent = f"user-agent: {user_agent}\r\n" if user_agent else ""
        self._after_target = f" HTTP/1.1\r\nhost: {name}\r\n{authorization}{agent}"
        self._line_count = self._after_target.count("\n") + 1

    def encode(self, method: str, target: str, headers: Sequence[tuple[str, str]], framing: str) -> bytes:
        """See `HeadEncoder`."""
        check_request_line(method, target)
        parts = [_method_prefix(method), self._base_path, target, self._after_target, framing]
        lines = self._line_count + framing.count("\n")
        for name, value in headers:
            start = self._authorization_prefix if name == AUTHORIZATION else _header_prefix(name)
            if start:
                parts += (start, value, "\r\n")
                lines += 1
        parts.append("\r\n")
        return encode_head("".join(parts), lines)


def check_request_line(method: str, target: str) -> None:
    """Raises BadRequest for a method or path that must not be sent to a cluster."""
    if not _REQUEST_TARGET.fullmatch(target):
        raise _invalid_characters("the path")
    if ("/." in target or "/%2" in target) and _DOT_SEGMENT.match(target):
        raise BadRequest("the path has a `.` or `..` segment; send the resolved path")
    _method_prefix(method)


def select_headers(
    headers: Sequence[tuple[str, str]], dropped: frozenset[str] = NEVER_FORWARDED
) -> tuple[tuple[str, str], ...]:
    """The headers that may be forwarded, names in lower case. Raises BadRequest for what HTTP does not allow."""
    selected = []
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise _invalid_characters("a header name")
        if not _HEADER_VALUE.fullmatch(value):
            raise _invalid_characters("a header")
        if name.lower() not in dropped:
            selected.append((name.lower(), value))
    return tuple(selected)


@lru_cache(1024)
def _header_prefix(name: str) -> str:
    """`name: `, or empty for a header that is never forwarded."""
    if not _TOKEN.fullmatch(name):
        raise _invalid_characters("a header name")
    return "" if name.lower() in NEVER_FORWARDED else f"{name}: "


@lru_cache(64)
def _method_prefix(method: str) -> str:
    if not _TOKEN.fullmatch(method):
        raise _invalid_characters("the method")
    return f"{method} "


def read_content_length(headers: Sequence[tuple[str, str]]) -> int | None:
    """The `content-length` of a message, or None. Raises BadRequest if it is repeated or invalid."""
    values = [value.strip() for name, value in headers if name.lower() == "content-length"]
    if not values:
        return None
    value = values[0]
    if len(values) > 1 or not (value.isascii() and value.isdecimal()) or len(value) > MAX_LENGTH_DIGITS:
        raise BadRequest("content-length is not a single number; send it once, or omit it")
    return int(value)


def encode_head(text: str, line_count: int) -> bytes:
    """Encodes the head as latin-1. Raises BadRequest if it has line breaks other than those between the lines."""
    if text.count("\n") != line_count or text.count("\r") != line_count or "\0" in text:
        raise _invalid_characters("a header")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise _invalid_characters("a header") from None


def _invalid_characters(subject: str) -> BadRequest:
    return BadRequest(f"{subject} has characters that HTTP does not allow; remove or encode them")
