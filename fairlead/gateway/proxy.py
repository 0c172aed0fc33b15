"""A request handed on to a cluster, and its answer handed back.

    headers.py -> upstream -> answers.py -> stream.py or tunnel.py

`routes.py` calls it, and so does whoever stands beside a cluster and knows no registry: it takes an Upstream, whom
the request is from, the Call, and the path and query to ask for. That all of this is allowed was decided before.
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

# DOC-MERGED gateway/stream
# A body on its way back through a gateway, piece by piece, for as long as whoever asked may have it.
#
# The pieces are taken from the cluster as fast as the client takes them from here. A watch or a log may last for hours,
# so a timer beside the stream asks every few seconds whether the key and the rights still hold; a stream that is never
# begun, or left standing by a client that is gone, ends the same way. There is one timer and no task for each stream.


RECHECK_SECONDS = 5.0
LEFT_LOOKS = 60
"""After so many looks at a piece that nobody has come to fetch the rest for, nobody will. A client on a slow network
may take minutes for the pieces before; one that takes nothing is noticed by the server much earlier."""


class Guard:
    """Looks after one stream, and cuts it off at the cluster when it is over."""

    __slots__ = ("_closing", "_fetched", "_looks", "_recheck", "_response", "_share", "_timer", "ended")

    def __init__(self, response: Response, recheck: Callable[[], None], share: Share) -> None:
        """`share` is given back when the stream is over."""
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
        """Somebody waits for the next piece."""
        self._fetched = True

    def fetched(self) -> None:
        """Somebody has a piece, and is busy with it."""
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
            self._cut(BadGateway("nobody has come for the rest of this answer"))
            return
        self._timer = asyncio.get_running_loop().call_later(RECHECK_SECONDS, self._look)

    def _cut(self, error: ApiError) -> None:
        self.ended = error
        self._share.give_back()
        self._closing = asyncio.get_running_loop().create_task(self._response.close())


async def relayed(response: Response, guard: Guard, *, is_watch: bool) -> AsyncIterator[bytes]:
    """The body until its end. Raises where it breaks off, or where the guard has ended it.

    A watch that the cluster breaks off just ends. It has no end of its own that could be missed, its clients begin
    another whenever it is over, and to break it off would cut whatever else they have on the same connection.
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


AT_ONCE = 64 * 1024
"""Bodies up to this many bytes are taken in whole, which is faster than piece by piece; larger ones are streamed."""
WATCH = "watch"


async def forward(upstream: Upstream, user: User, names: ClusterNames, call: Call, inner: str, what: str) -> Reply:
    """The cluster's answer to a call. `names` say what the user is called there, `inner` is a path and query from
    `paths.below`, `what` a name for messages."""
    headers = handed_on(call.headers, user, names, call.audit_id)
    whose = user.payer  # with a share for each identity, impersonation would multiply one's own
    try:
        if call.wants_socket:
            return await tunnelled(call, upstream, Request("GET", inner, headers), whose, what)
        if "spdy/" in call.headers.get("upgrade", "").lower():
            with upstream.shares.request(whose, is_endless=False):
                return await refuse_spdy(upstream, call, inner, headers, what)
        began = asyncio.get_running_loop().time()
        with upstream.shares.request(whose, is_endless=_is_endless(call)) as share:
            body = await _body(call) if _may_have_body(call) else b""
            response = await upstream.send(Request(call.method, inner, headers, body))
            reply = await _handed_back(call, response, what, share)
    except UpstreamError as error:
        raise as_api_error(error, what) from error
    if asyncio.get_running_loop().time() - began > RECHECK_SECONDS:
        call.recheck()
    return reply


def _is_endless(call: Call) -> bool:
    """Whether the answer will last until somebody has enough: watches, logs that are followed, pages of a service."""
    target = call.target
    follows = "follow" in call.query and call.parameter("follow").lower() not in ("false", "0")  # as it is read there
    return target.verb == WATCH or target.subresource == "proxy" or follows


def _may_have_body(call: Call) -> bool:
    """Most requests have none, which can be seen without waiting for it."""
    headers = call.headers
    return call.method not in ("GET", "HEAD") or bool(headers.get("content-length") or headers.get("transfer-encoding"))


async def _body(call: Call) -> bytes | AsyncIterator[bytes]:
    """What the client sends: small bodies whole, others as they come."""
    length = call.headers.get("content-length")
    if length.isdecimal() and int(length) <= AT_ONCE:
        return b"".join([chunk async for chunk in call.stream_body()]) if int(length) else b""
    if length or call.headers.get("transfer-encoding"):
        return call.stream_body()
    chunks = call.stream_body()  # HTTP/2 may announce none and send one
    first = await anext(chunks, b"")
    return _preceded(first, chunks) if first else b""


async def _preceded(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in chunks:
        yield chunk


async def _handed_back(call: Call, response: Response, what: str, share: Share) -> Reply:
    """An answer that was not taken in to its end is closed here, whatever happens, unless it goes on as a stream."""
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
    # Where a length was said, less than that is never a whole answer.
    reply.stream = relayed(response, guard, is_watch=call.target.verb == WATCH and length is None)
    return reply


def _say_length(reply: Reply, length: int | None) -> None:
    if length is not None:
        reply.headers.append(("content-length", str(length)))


async def _alone(body: bytes) -> AsyncIterator[bytes]:
    yield body
