"""WebSocket tunnels for exec, attach and port-forward, and the rejection of SPDY. `proxy.py` calls this.

The upstream WebSocket is opened first. Only then is the client's WebSocket accepted, with the subprotocol that the
cluster chose. Any other response of the cluster becomes the response to the client.

SPDY is not supported. kubectl tries a WebSocket first; if that fails, for whatever reason, it retries with SPDY and
shows only the error of the second attempt. So that error should be the cluster's own: forbidden, pod not found,
container not found. To get it, the same request is sent without upgrade and without command, so that nothing can be
executed: the cluster checks everything else, and then responds that an upgrade is required.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fairlead.core.call import Call, Reply, Socket, Upgrade
from fairlead.core.errors import ApiError, BadRequest
from fairlead.gateway.headers import handed_back, offered, refuse_unfit
from fairlead.upstream.access import Request
from fairlead.upstream.errors import Refused
from fairlead.upstream.fair_share import Share
from fairlead.upstream.upstream import Upstream
from fairlead.upstream.websocket import FarSocket

RECHECK_SECONDS = 5.0
ACCEPT_SECONDS = 30.0
"""Timeout for accepting the client's WebSocket: the client may disconnect before that."""

NORMAL, GOING_AWAY, NO_CODE, UNSAID, NOT_ALLOWED, FAILED = 1000, 1001, 1005, 1006, 1008, 1011

Farewell = tuple[int, str]
STREAMED = frozenset({"exec", "attach", "portforward"})
"""Pod subresources without any effect unless upgraded. Others, such as `proxy`, would have side effects."""
MOST_BYTES = 64 * 1024
UPGRADE_MISSING = "Upgrade request required"
"""Message of kube-apiserver for a request that is allowed but not upgraded."""
_UNSPOKEN = (
    "this server does not support SPDY; use a client that uses WebSockets for exec, attach and port-forward, such as "
    "kubectl 1.31 or newer"
)

Pairs = Sequence[tuple[str, str]]
_AS_JSON = ("accept", "application/json")


async def tunnelled(call: Call, upstream: Upstream, request: Request, user: str, what: str) -> Reply:
    """Replies to a WebSocket request. Raises UpstreamError, or BadGateway as `check_status` does."""
    slot = upstream.shares.socket(user)
    try:
        upstream_socket = await upstream.open_socket(request, offered(call.protocols))
    except Refused as refused:
        slot.give_back()
        refuse_unfit(refused.status, what)
        reply, _ = handed_back(refused.status, refused.headers)
        reply.body = refused.body
        return reply
    except BaseException:
        slot.give_back()
        raise
    return Reply(101, upgrade=Upgrade(upstream_socket.protocol, Tunnel(upstream_socket, call.recheck, slot).run))


class Tunnel:
    """Relays messages between the client's and the upstream WebSocket. If one closes, both do.

    The user's `slot` is released when both are closed: a client may take long to read the last messages.
    """

    def __init__(self, far: FarSocket, recheck: Callable[[], None], share: Share) -> None:
        self._far = far
        self._share = share
        self._is_running = self._is_far_gone = False
        far.when_gone(self._lose_far)
        self._recheck = recheck
        self._closing: asyncio.Task[None] | None = None
        self._unused = asyncio.get_running_loop().call_later(ACCEPT_SECONDS, self._give_up)

    def _give_up(self) -> None:
        closing = self._far.close(GOING_AWAY, "the client disconnected")
        self._closing = asyncio.get_running_loop().create_task(closing)

    def _lose_far(self, far: FarSocket) -> None:
        self._is_far_gone = True
        self._release_share()

    def _release_share(self) -> None:
        if self._is_far_gone and not self._is_running:
            self._share.give_back()

    async def run(self, near: Socket) -> None:
        self._is_running = True
        try:
            await self._relay(near)
        finally:
            self._is_running = False
            self._release_share()

    async def _relay(self, near: Socket) -> None:
        self._unused.cancel()
        to_cluster = asyncio.create_task(_pump(near, self._far))
        to_client = asyncio.create_task(_pump(self._far, near))
        close_reason: Farewell = GOING_AWAY, "the server closes this connection"
        try:
            close_reason = await self._until_over(to_cluster, to_client)
        finally:
            for pump in (to_cluster, to_client):
                pump.cancel()
            await asyncio.gather(to_cluster, to_client, return_exceptions=True)
            await asyncio.gather(near.close(*close_reason), self._far.close(*close_reason))

    async def _until_over(self, there: asyncio.Task[None], back: asyncio.Task[None]) -> Farewell:
        while True:
            done, _ = await asyncio.wait((there, back), timeout=RECHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for pump in done:
                pump.result()  # raises a bug of ours instead of treating it as a close
            if done:
                return handed_on(*self._far.goodbye) if back in done else (NORMAL, "")
            try:
                self._recheck()
            except ApiError as error:
                return NOT_ALLOWED, error.message


def handed_on(code: int, reason: str) -> Farewell:
    """The cluster's close reason for the client. Codes 1005 and 1006 are for local use only and are replaced."""
    if code == UNSAID:
        return FAILED, "the connection to the cluster was interrupted"
    return (NORMAL, "") if code == NO_CODE else (code, reason)


async def _pump(source: Socket, sink: Socket) -> None:
    """Relays one direction. `send` waits for room in the write buffer, so back pressure reaches the source."""
    while (message := await source.receive()) is not None:
        await sink.send(message)


async def refuse_spdy(upstream: Upstream, call: Call, inner: str, headers: Pairs, what: str) -> Reply:
    """Returns the cluster's error, if there is one; otherwise raises BadRequest. Raises UpstreamError."""
    target = call.target
    if target.group or target.resource != "pods" or target.subresource not in STREAMED:
        raise BadRequest(_UNSPOKEN)
    plain_headers = [*((name, value) for name, value in headers if name not in ("accept", "content-length")), _AS_JSON]
    without_command = _without_command(inner)
    error_reply = await _refusal(upstream, Request(call.method, without_command, plain_headers), what)
    if error_reply is not None:
        return error_reply
    websocket_error = await _refusal(upstream, Request("GET", without_command, plain_headers), what)
    message = _message(websocket_error.body) if websocket_error is not None else ""
    raise BadRequest(f"{_UNSPOKEN}. The cluster rejects a WebSocket, too: {message}" if message else _UNSPOKEN)


def _without_command(inner: str) -> str:
    path, mark, query = inner.partition("?")
    parameters = [each for each in parse_qsl(query, keep_blank_values=True) if each[0] != "command"]
    return f"{path}{mark}{urlencode(parameters)}"


async def _refusal(upstream: Upstream, request: Request, what: str) -> Reply | None:
    response = await upstream.send(request)
    try:
        refuse_unfit(response.status, what)
        body = await response.read(MOST_BYTES)
    except BaseException:
        await response.close()
        raise
    if response.status < 400 or _message(body) == UPGRADE_MISSING:
        return None
    reply, _ = handed_back(response.status, response.headers)
    reply.body = body
    return reply


def _message(body: bytes) -> str:
    """The message of a Status; empty for anything else."""
    try:
        status: Any = json.loads(body)
    except ValueError:
        return ""
    message = status.get("message") if isinstance(status, dict) else None
    return message if isinstance(message, str) else ""
