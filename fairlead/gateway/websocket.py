"""A WebSocket through a gateway: exec, attach and port-forward, message by message, as they are.

The cluster is asked first. Only when it has agreed is the client's own WebSocket accepted, with the subprotocol that
the cluster chose; whatever else the cluster says is the answer to the client's request. `proxy.py` calls.
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
"""How long the cluster's side waits for ours: a client may be gone before it is accepted."""

NORMAL, GOING_AWAY, NO_CODE, UNSAID, NOT_ALLOWED, FAILED = 1000, 1001, 1005, 1006, 1008, 1011

Farewell = tuple[int, str]


async def tunnelled(call: Call, upstream: Upstream, request: Request, user: str, what: str) -> Reply:
    """The reply to a request to go on as a WebSocket. Raises UpstreamError, and BadGateway for an unfit answer."""
    share = upstream.shares.socket(user)
    try:
        far = await upstream.open_socket(request, offered(call.protocols))
    except Refused as refused:
        share.give_back()
        refuse_unfit(refused.status, what)
        reply, _ = handed_back(refused.status, refused.headers)
        reply.body = refused.body
        return reply
    except BaseException:
        share.give_back()
        raise
    return Reply(101, upgrade=Upgrade(far.protocol, Tunnel(far, call.recheck, share).run))


class Tunnel:
    """Two WebSockets, each with what the other says. Where one ends, both do.

    Both count for the user's `share`: it is given back when the cluster's side is gone, and the client, who may take
    long to read the end of it, is, too.
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
        closing = self._far.close(GOING_AWAY, "the client is gone")
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
        there = asyncio.create_task(_pump(near, self._far))
        back = asyncio.create_task(_pump(self._far, near))
        farewell: Farewell = GOING_AWAY, "the server ends this connection"
        try:
            farewell = await self._until_over(there, back)
        finally:
            for pump in (there, back):
                pump.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            await asyncio.gather(near.close(*farewell), self._far.close(*farewell))

    async def _until_over(self, there: asyncio.Task[None], back: asyncio.Task[None]) -> Farewell:
        while True:
            done, _ = await asyncio.wait((there, back), timeout=RECHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for pump in done:
                pump.result()  # a fault of ours is not to be taken for an end
            if done:
                return handed_on(*self._far.goodbye) if back in done else (NORMAL, "")
            try:
                self._recheck()
            except ApiError as error:
                return NOT_ALLOWED, error.message


def handed_on(code: int, reason: str) -> Farewell:
    """The cluster's goodbye as the client gets it: two codes mean that there was none, or none with a code."""
    if code == UNSAID:
        return FAILED, "the connection to the cluster broke off"
    return (NORMAL, "") if code == NO_CODE else (code, reason)


async def _pump(source: Socket, sink: Socket) -> None:
    """To send waits until there is room, and then no more is taken in: whoever is slow slows down the other side."""
    while (message := await source.receive()) is not None:
        await sink.send(message)


# DOC-MERGED gateway/spdy
# Requests to go on in SPDY, which is not spoken here: why they are refused, in the cluster's words where it has any.
#
# kubectl asks for a WebSocket first. When that is refused, for whatever reason, it asks again for SPDY, and shows the
# answer to the second question only. So the second answer has to be the cluster's own: not allowed, no such pod, no such
# container. The cluster is asked for it with the same request, but without an upgrade and without the command, so there
# is nothing that could be run: it looks everything up and then says that an upgrade is missing. `proxy.py` calls.


STREAMED = frozenset({"exec", "attach", "portforward"})
"""The subresources of pods that do nothing at all without an upgrade. Others, such as `proxy`, would do something."""
MOST_BYTES = 64 * 1024
UPGRADE_MISSING = "Upgrade request required"
"""What a cluster says that would let the request through."""

_UNSPOKEN = (
    "this server does not speak SPDY; use a client that opens WebSockets for exec, attach and port-forward, such as "
    "kubectl 1.31 or newer"
)

Pairs = Sequence[tuple[str, str]]


async def refuse_spdy(upstream: Upstream, call: Call, inner: str, headers: Pairs, what: str) -> Reply:
    """The cluster's refusal, if it refuses; otherwise raises BadRequest. Raises UpstreamError, too."""
    target = call.target
    if target.group or target.resource != "pods" or target.subresource not in STREAMED:
        raise BadRequest(_UNSPOKEN)
    plain = [*((name, value) for name, value in headers if name not in ("accept", "content-length")), _AS_JSON]
    without_command = _without_command(inner)
    refusal = await _refusal(upstream, Request(call.method, without_command, plain), what)
    if refusal is not None:
        return refusal
    of_socket = await _refusal(upstream, Request("GET", without_command, plain), what)
    message = _message(of_socket.body) if of_socket is not None else ""
    raise BadRequest(f"{_UNSPOKEN}. The cluster refuses a WebSocket, too: {message}" if message else _UNSPOKEN)


_AS_JSON = ("accept", "application/json")


def _without_command(inner: str) -> str:
    path, mark, query = inner.partition("?")
    kept = [each for each in parse_qsl(query, keep_blank_values=True) if each[0] != "command"]
    return f"{path}{mark}{urlencode(kept)}"


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
    """What a Status says; empty for anything else."""
    try:
        status: Any = json.loads(body)
    except ValueError:
        return ""
    message = status.get("message") if isinstance(status, dict) else None
    return message if isinstance(message, str) else ""
