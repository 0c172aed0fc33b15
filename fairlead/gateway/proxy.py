"""Forwards a request to a cluster and returns its response: buffered, streamed, or as a WebSocket tunnel.

`routes.py` and the agent (`agent/endpoint.py`) call this with authorized requests. It does not use the registry.

Streams are read from the cluster as fast as the client reads them. A watch or a log may last for hours, so a timer per
stream rechecks every few seconds whether the access key is still valid and the user still authorized. The same timer
closes streams that a client never started or stopped reading. There is no task per stream.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from fairlead.core.call import RECHECK_SECONDS, Call, Reply
from fairlead.core.errors import ApiError, BadGateway, Forbidden
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.gateway.headers import (
    CredentialRejected,
    HeaderPairs,
    as_api_error,
    build_reply_head,
    check_status,
    forwarded_headers,
    impersonation_headers,
)
from fairlead.gateway.websocket import open_tunnel, reject_spdy
from fairlead.upstream.access import Request
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.fair_share import UserSlot
from fairlead.upstream.messages import Response
from fairlead.upstream.upstream import Upstream

MAX_IDLE_CHECKS = 60
"""A stream is aborted after this many checks without a read of the next chunk. Generous, because a client on a slow
network may need minutes for the chunks before. The HTTP server detects a stalled client much earlier."""
MAX_BUFFERED_BYTES = 64 * 1024
"""Bodies up to this size are buffered, which is faster; larger ones are streamed."""
WATCH = "watch"


class StreamGuard:
    """Rechecks authorization of one stream, and aborts its upstream response when access is lost or it is idle."""

    __slots__ = (
        "_close_task",
        "_idle_checks",
        "_is_client_waiting",
        "_recheck",
        "_response",
        "_slot",
        "_timer",
        "end_error",
    )

    def __init__(self, response: Response, recheck: Callable[[], None], slot: UserSlot) -> None:
        """Takes over `slot`, and releases it when the stream ends."""
        slot.transfer()
        self._slot = slot
        self.end_error: ApiError | None = None
        self._response = response
        self._recheck = recheck
        self._is_client_waiting = False
        self._idle_checks = 0
        self._close_task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(RECHECK_SECONDS, self._check)

    def mark_waiting(self) -> None:
        """The client waits for the next chunk."""
        self._is_client_waiting = True

    def mark_delivered(self) -> None:
        """The client got a chunk and is busy with it."""
        self._is_client_waiting, self._idle_checks = False, 0

    def stop(self) -> None:
        self._timer.cancel()
        self._slot.release()

    def _check(self) -> None:
        try:
            self._recheck()
        except ApiError as error:
            self._abort(error)
            return
        self._idle_checks = 0 if self._is_client_waiting else self._idle_checks + 1
        if self._idle_checks >= MAX_IDLE_CHECKS:
            self._abort(BadGateway("the client stopped reading this response"))
            return
        self._timer = asyncio.get_running_loop().call_later(RECHECK_SECONDS, self._check)

    def _abort(self, error: ApiError) -> None:
        self.end_error = error
        self._slot.release()
        self._close_task = asyncio.get_running_loop().create_task(self._response.close())


async def relay(response: Response, guard: StreamGuard, *, is_watch: bool) -> AsyncIterator[bytes]:
    """Yields the body. Raises if the cluster aborts it, or if the guard has ended it.

    A watch that the cluster aborts ends normally: clients restart a watch anyway, and an abort would also break the
    client's other requests on the same connection.
    """
    try:
        guard.mark_waiting()
        while (chunk := await response.read_chunk()) and guard.end_error is None:
            guard.mark_delivered()
            yield chunk
            guard.mark_waiting()
    except UpstreamError:
        if guard.end_error is None and not is_watch:
            raise
    finally:
        guard.stop()
        await response.close()
    if guard.end_error is not None:
        raise guard.end_error


async def forward_with_token(
    upstream: Upstream, user: User, token: str, call: Call, request_target: str, title: str
) -> Reply:
    """Forwards a call with the user's own token, to a virtual cluster that authenticates it. `upstream` has no stored
    credential."""
    identity = [("authorization", f"Bearer {token}")]
    try:
        return await _forward(upstream, user, identity, call, request_target, title)
    except CredentialRejected:
        # Not 401: the token is valid here, and clients would discard it.
        message = (
            f"{title} does not accept your token: its template has forwardToken, so it has to authenticate tokens of "
            "this server itself; ask an administrator to configure that, and use a key without a scope"
        )
        raise Forbidden(message) from None


async def forward(
    upstream: Upstream, user: User, names: ClusterIdentityMapper, call: Call, request_target: str, title: str
) -> Reply:
    """Forwards a call and returns the cluster's response.

    `names` maps the user to its identity in the cluster, `request_target` is path and query from `strip_prefix`, and
    `title` names the cluster in messages.
    """
    return await _forward(upstream, user, impersonation_headers(user, names), call, request_target, title)


async def _forward(
    upstream: Upstream, user: User, identity: HeaderPairs, call: Call, request_target: str, title: str
) -> Reply:
    headers = forwarded_headers(call.headers, identity, call.audit_id)
    payer = user.flow_distinguisher  # counted under the impersonator, or impersonation would multiply a user's limit
    try:
        if call.is_websocket:
            return await open_tunnel(call, upstream, Request("GET", request_target, headers), payer, title)
        if "spdy/" in call.headers.get("upgrade", "").lower():
            with upstream.user_limits.acquire_request(payer, is_streaming=False):
                return await reject_spdy(upstream, call, request_target, headers, title)
        began = asyncio.get_running_loop().time()
        is_streaming = _is_streaming(call)
        with upstream.user_limits.acquire_request(payer, is_streaming=is_streaming) as slot:
            body = await request_body(call) if may_have_body(call) else b""
            is_endless = is_streaming and call.target.verb != WATCH
            response = await upstream.send(Request(call.method, request_target, headers, body, is_endless))
            reply = await _build_reply(call, response, title, slot)
    except UpstreamError as error:
        raise as_api_error(error, title) from error
    if asyncio.get_running_loop().time() - began > RECHECK_SECONDS:
        call.recheck()
    return reply


def _is_streaming(call: Call) -> bool:
    """Whether the response has no defined end: watches, followed logs, and the proxy subresource."""
    target = call.target
    follows = "follow" in call.query and call.parameter("follow").lower() not in (
        "false",
        "0",
    )  # as Kubernetes parses it
    return target.verb == WATCH or target.subresource == "proxy" or follows


def may_have_body(call: Call) -> bool:
    """Whether a body is possible, judging by method and headers, without waiting for it."""
    headers = call.headers
    return call.method not in ("GET", "HEAD") or bool(headers.get("content-length") or headers.get("transfer-encoding"))


async def request_body(call: Call) -> bytes | AsyncIterator[bytes]:
    """The request body: small ones buffered, others streamed."""
    length = call.headers.get("content-length")
    if length.isdecimal() and int(length) <= MAX_BUFFERED_BYTES:
        return b"".join([chunk async for chunk in call.stream_body()]) if int(length) else b""
    if length or call.headers.get("transfer-encoding"):
        return call.stream_body()
    chunks = call.stream_body()  # HTTP/2 may send a body without announcing its length
    first = await anext(chunks, b"")
    return _prepend(first, chunks) if first else b""


async def _prepend(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in chunks:
        yield chunk


async def _build_reply(call: Call, response: Response, title: str, slot: UserSlot) -> Reply:
    """Builds the reply, buffered or streamed. Closes the response on any error."""
    try:
        check_status(response.status, title)
        reply, length = build_reply_head(response.status, response.headers)
        is_small = length is not None and length <= MAX_BUFFERED_BYTES
        if call.method == "HEAD":
            is_small = True
            _set_content_length(reply, length)
        body = response.buffered_body()
        if body is None and is_small:
            body = await response.read(MAX_BUFFERED_BYTES)
        if body is not None and len(body) <= MAX_BUFFERED_BYTES:
            reply.body = body
            return reply
    except BaseException:
        await response.close()
        raise
    _set_content_length(reply, length)
    if body is not None:
        reply.stream = _single_chunk(body)
        return reply
    guard = StreamGuard(response, call.recheck, slot)
    # With a content-length, a shorter body is always an incomplete response.
    reply.stream = relay(response, guard, is_watch=call.target.verb == WATCH and length is None)
    return reply


def _set_content_length(reply: Reply, length: int | None) -> None:
    if length is not None:
        reply.headers.append(("content-length", str(length)))


async def _single_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body
