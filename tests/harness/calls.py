"""Calls as the HTTP server builds them, for tests without an HTTP server."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs

import orjson

from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.errors import (
    ApiError,
    BadRequest,
    Details,
    Forbidden,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from fairlead.core.user import User

ADMIN = User("admin", ("system:masters", "system:authenticated"))


class FakeHeaders:
    """Request headers with names in lower case; a name can have several values."""

    def __init__(self, headers: Mapping[str, str | Sequence[str]]) -> None:
        self._headers = {name: [value] if isinstance(value, str) else list(value) for name, value in headers.items()}

    def get(self, key: str, default: str = "") -> str:
        values = self._headers.get(key)
        return values[0] if values else default

    def get_all(self, key: str) -> list[str]:
        return self._headers.get(key, [])

    def find_single(self, name: bytes) -> bytes | None:
        values = self._headers.get(name.decode(), [])
        return values[0].encode() if len(values) == 1 else None

    def keys(self) -> list[str]:
        return list(self._headers)

    def has_prefix(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self._headers)


def call(
    path: str = "/",
    query: str = "",
    *,
    method: str = "GET",
    headers: Mapping[str, str | Sequence[str]] | None = None,
    body: bytes = b"",
    target: RequestInfo | None = None,
) -> Call:
    async def read_body() -> bytes:
        return body

    request = Call(method, path, parse_qs(query, keep_blank_values=True), FakeHeaders(headers or {}), read_body)
    request.audit_id = "0000-audit"
    if target is not None:
        request.target = target
    return request


def _allow(target: RequestInfo) -> None:
    return None


@dataclass(frozen=True, slots=True)
class FakeGuard:
    """The authorization of a call, which a handler can check again."""

    on_recheck: Callable[[], None] = lambda: None
    on_require: Callable[[RequestInfo], None] = _allow

    def require(self, call: Call, target: RequestInfo) -> None:
        self.on_require(target)

    def recheck(self, call: Call) -> None:
        self.on_recheck()


def always_reply(reply: Reply) -> Callable[[Call], Awaitable[Reply]]:
    """Returns a handler that always returns this reply."""

    async def proceed(call: Call) -> Reply:
        return reply

    return proceed


def always_raise(error: BaseException) -> Callable[[Call], Awaitable[Reply]]:
    async def proceed(call: Call) -> Reply:
        raise error

    return proceed


_ERRORS: Sequence[type[ApiError]] = (
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    TooManyRequests,
)
ERRORS = {error.code: error for error in _ERRORS}


def raise_for_status(reply: Reply) -> Reply:
    """Returns the reply, or raises the error that it contains."""
    if reply.status >= 400:
        raise _parse_error(reply)  # not in a variable, which would be a reference cycle through the traceback
    return reply


def _parse_error(reply: Reply) -> ApiError:
    status = orjson.loads(reply.body)
    error = ERRORS[reply.status](status["message"])
    error.details = Details(retry_after=status.get("details", {}).get("retryAfterSeconds", 0))
    return error


async def read_stream(reply: Reply) -> AsyncIterator[bytes]:
    """Yields the chunks of a stream and calls its callbacks, as the ASGI application does."""
    assert reply.stream is not None
    try:
        async for chunk in reply.stream:
            for observe in reply.on_chunk:
                observe(chunk)
            yield chunk
    finally:
        for close in reply.on_close:
            close()
