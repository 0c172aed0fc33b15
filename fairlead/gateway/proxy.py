"""Forwards a request to a cluster and returns its response: buffered, streamed, or as a WebSocket tunnel.

`routes.py` and the agent (`agent/endpoint.py`) call `forward` with authorized requests. It does not use the registry.

Streams are read from the cluster as fast as the client reads them. A watch or a log may last for hours, so a timer per
stream rechecks every few seconds whether the access key is still valid and the user still authorized. The same timer
closes streams that a client never started or stopped reading. There is no task per stream.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from fairlead.core.call import Call, Reply
from fairlead.core.cluster_identity import ClusterNames
from fairlead.core.errors import ApiError, BadGateway
from fairlead.core.user import User
from fairlead.gateway.headers import as_api_error, handed_back, handed_on, refuse_unfit
from fairlead.gateway.websocket import refuse_spdy, tunnelled
from fairlead.upstream.access import Request
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.fair_share import Share
from fairlead.upstream.messages import Response
from fairlead.upstream.upstream import Upstream

RECHECK_SECONDS = 5.0
LEFT_LOOKS = 60
"""A stream is aborted after this many checks without a read of the next chunk. Generous, because a client on a slow
network may need minutes for the chunks before. The HTTP server detects a stalled client much earlier."""
AT_ONCE = 64 * 1024
"""Bodies up to this size are buffered, which is faster; larger ones are streamed."""
WATCH = "watch"


class Guard:
    """Rechecks authorization of one stream, and aborts its upstream response when access is lost or it is idle."""

    __slots__ = ("_closing", "_fetched", "_looks", "_recheck", "_response", "_share", "_timer", "ended")

    def __init__(self, response: Response, recheck: Callable[[], None], share: Share) -> None:
        """Takes over `slot`, and releases it when the stream ends."""
        share.keep()
        self._share = share
        self.ended: ApiError | None = None
        self._response = response
        self._recheck = recheck
        self._fetched = False
        self._looks = 0
        self._closing: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(RECHECK_SECONDS, self._look)

    def fetching(self) -> None:
        """The client waits for the next chunk."""
        self._fetched = True

    def fetched(self) -> None:
        """The client got a chunk and is busy with it."""
        self._fetched, self._looks = False, 0

    def stop(self) -> None:
        self._timer.cancel()
        self._share.give_back()

    def _look(self) -> None:
        try:
            self._recheck()
        except ApiError as error:
            self._cut(error)
            return
        self._looks = 0 if self._fetched else self._looks + 1
        if self._looks >= LEFT_LOOKS:
            self._cut(BadGateway("the client stopped reading this response"))
            return
        self._timer = asyncio.get_running_loop().call_later(RECHECK_SECONDS, self._look)

    def _cut(self, error: ApiError) -> None:
        self.ended = error
        self._share.give_back()
        self._closing = asyncio.get_running_loop().create_task(self._response.close())


async def relayed(response: Response, guard: Guard, *, is_watch: bool) -> AsyncIterator[bytes]:
    """Yields the body. Raises if the cluster aborts it, or if the guard has ended it.

    A watch that the cluster aborts ends normally: clients restart a watch anyway, and an abort would also break the
    client's other requests on the same connection.
    """
    try:
        guard.fetching()
        while (chunk := await response.next()) and guard.ended is None:
            guard.fetched()
            yield chunk
            guard.fetching()
    except UpstreamError:
        if guard.ended is None and not is_watch:
            raise
    finally:
        guard.stop()
        await response.close()
    if guard.ended is not None:
        raise guard.ended


async def forward(upstream: Upstream, user: User, names: ClusterNames, call: Call, inner: str, what: str) -> Reply:
    """Forwards a call and returns the cluster's response.

    `names` maps the user to its identity in the cluster, `request_target` is path and query from `strip_prefix`, and
    `title` names the cluster in messages.
    """
    headers = handed_on(call.headers, user, names, call.audit_id)
    payer = user.payer  # counted under the impersonator, or impersonation would multiply a user's limit
    try:
        if call.wants_socket:
            return await tunnelled(call, upstream, Request("GET", inner, headers), payer, what)
        if "spdy/" in call.headers.get("upgrade", "").lower():
            with upstream.shares.request(payer, is_endless=False):
                return await refuse_spdy(upstream, call, inner, headers, what)
        began = asyncio.get_running_loop().time()
        with upstream.shares.request(payer, is_endless=_is_endless(call)) as slot:
            body = await _body(call) if _may_have_body(call) else b""
            response = await upstream.send(Request(call.method, inner, headers, body))
            reply = await _handed_back(call, response, what, slot)
    except UpstreamError as error:
        raise as_api_error(error, what) from error
    if asyncio.get_running_loop().time() - began > RECHECK_SECONDS:
        call.recheck()
    return reply


def _is_endless(call: Call) -> bool:
    """Whether the response has no defined end: watches, followed logs, and the proxy subresource."""
    target = call.target
    follows = "follow" in call.query and call.parameter("follow").lower() not in (
        "false",
        "0",
    )  # as Kubernetes parses it
    return target.verb == WATCH or target.subresource == "proxy" or follows


def _may_have_body(call: Call) -> bool:
    """Whether a body is possible, judging by method and headers, without waiting for it."""
    headers = call.headers
    return call.method not in ("GET", "HEAD") or bool(headers.get("content-length") or headers.get("transfer-encoding"))


async def _body(call: Call) -> bytes | AsyncIterator[bytes]:
    """The request body: small ones buffered, others streamed."""
    length = call.headers.get("content-length")
    if length.isdecimal() and int(length) <= AT_ONCE:
        return b"".join([chunk async for chunk in call.stream_body()]) if int(length) else b""
    if length or call.headers.get("transfer-encoding"):
        return call.stream_body()
    chunks = call.stream_body()  # HTTP/2 may send a body without announcing its length
    first = await anext(chunks, b"")
    return _preceded(first, chunks) if first else b""


async def _preceded(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in chunks:
        yield chunk


async def _handed_back(call: Call, response: Response, what: str, share: Share) -> Reply:
    """Builds the reply, buffered or streamed. Closes the response on any error."""
    try:
        refuse_unfit(response.status, what)
        reply, length = handed_back(response.status, response.headers)
        is_small = length is not None and length <= AT_ONCE
        if call.method == "HEAD":
            is_small = True
            _say_length(reply, length)
        body = response.whole()
        if body is None and is_small:
            body = await response.read(AT_ONCE)
        if body is not None and len(body) <= AT_ONCE:
            reply.body = body
            return reply
    except BaseException:
        await response.close()
        raise
    _say_length(reply, length)
    if body is not None:
        reply.stream = _alone(body)
        return reply
    guard = Guard(response, call.recheck, share)
    # With a content-length, a shorter body is always an incomplete response.
    reply.stream = relayed(response, guard, is_watch=call.target.verb == WATCH and length is None)
    return reply


def _say_length(reply: Reply, length: int | None) -> None:
    if length is not None:
        reply.headers.append(("content-length", str(length)))


async def _alone(body: bytes) -> AsyncIterator[bytes]:
    yield body
