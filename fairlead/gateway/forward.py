"""A request handed on to a cluster, and its answer handed back.

    headers.py -> upstream -> answers.py -> stream.py or tunnel.py

`gateways.py` calls it, and so does whoever stands beside a cluster and knows no registry: it takes an Upstream, whom
the request is from, the Call, and the path and query to ask for. That all of this is allowed was decided before.
"""

import asyncio
from collections.abc import AsyncIterator

from fairlead.core.call import Call, Reply
from fairlead.core.errors import BadRequest
from fairlead.core.user import User
from fairlead.gateway.answers import as_api_error, handed_back, refuse_unfit
from fairlead.gateway.headers import handed_on
from fairlead.gateway.stream import RECHECK_SECONDS, Guard, relayed
from fairlead.gateway.tunnel import tunnelled
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.request import Request
from fairlead.upstream.response import Response
from fairlead.upstream.upstream import Upstream

AT_ONCE = 64 * 1024
"""Bodies up to this many bytes are taken in whole, which is faster than piece by piece; larger ones are streamed."""

_SPDY = (
    "this server does not speak SPDY; use a client that opens WebSockets for exec, attach and port-forward, such as "
    "kubectl 1.31 or newer. If yours does, the cluster has refused its WebSocket, and this was the second try: run it "
    "again with -v=8 to see why"
)


async def forward(upstream: Upstream, user: User, call: Call, inner: str, what: str) -> Reply:
    """The cluster's answer to a call. `inner` is a path and query from `paths.below`, `what` a name for messages."""
    if "spdy/" in call.headers.get("upgrade", "").lower():
        raise BadRequest(_SPDY)
    headers = handed_on(call.headers, user, call.audit_id)
    try:
        if call.wants_socket:
            return await tunnelled(call, upstream, Request("GET", inner, headers), what)
        began = asyncio.get_running_loop().time()
        response = await upstream.send(Request(call.method, inner, headers, await _body(call)))
        reply = await _handed_back(call, response, what)
    except UpstreamError as error:
        raise as_api_error(error, what) from error
    if asyncio.get_running_loop().time() - began > RECHECK_SECONDS:
        call.recheck()
    return reply


async def _body(call: Call) -> bytes | AsyncIterator[bytes]:
    """What the client sends: small bodies whole, others as they come."""
    length = call.headers.get("content-length")
    if length.isdecimal() and int(length) <= AT_ONCE:
        return b"".join([chunk async for chunk in call.stream_body()]) if int(length) else b""
    if length or call.headers.get("transfer-encoding"):
        return call.stream_body()
    if call.method in ("GET", "HEAD"):
        return b""
    chunks = call.stream_body()  # HTTP/2 may announce none and send one
    first = await anext(chunks, b"")
    return _preceded(first, chunks) if first else b""


async def _preceded(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in chunks:
        yield chunk


async def _handed_back(call: Call, response: Response, what: str) -> Reply:
    """An answer that was not taken in to its end is closed here, whatever happens, unless it goes on as a stream."""
    try:
        refuse_unfit(response.status, what)
        content_type, headers, length = handed_back(response.headers)
        is_small = length is not None and length <= AT_ONCE
        if call.method == "HEAD":
            is_small, headers = True, headers if length is None else [*headers, ("content-length", str(length))]
        body = response.whole()
        if body is None and is_small:
            body = await response.read(AT_ONCE)
        if body is not None and len(body) <= AT_ONCE:
            return Reply(response.status, body, content_type, headers)
    except BaseException:
        await response.close()
        raise
    if length is not None:
        headers.append(("content-length", str(length)))
    chunks = relayed(response, Guard(response, call.recheck)) if body is None else _alone(body)
    return Reply(response.status, b"", content_type, headers, chunks)


async def _alone(body: bytes) -> AsyncIterator[bytes]:
    yield body
