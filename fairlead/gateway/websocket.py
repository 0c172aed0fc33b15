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

from fairlead.core.call import RECHECK_SECONDS, Call, Reply, Upgrade, WebSocket
from fairlead.core.errors import ApiError, BadRequest
from fairlead.core.waiting import end_tasks
from fairlead.gateway.headers import build_reply_head, check_status, forwarded_subprotocols
from fairlead.upstream.access import Request
from fairlead.upstream.errors import HandshakeRejected
from fairlead.upstream.fair_share import UserSlot
from fairlead.upstream.upstream import Upstream
from fairlead.upstream.websocket import UpstreamWebSocket

ACCEPT_SECONDS = 30.0
"""Timeout for accepting the client's WebSocket: the client may disconnect before that."""

NORMAL_CLOSURE, GOING_AWAY, NO_STATUS, ABNORMAL_CLOSURE, POLICY_VIOLATION, INTERNAL_ERROR = (
    1000,
    1001,
    1005,
    1006,
    1008,
    1011,
)

CloseReason = tuple[int, str]
STREAMING_SUBRESOURCES = frozenset({"exec", "attach", "portforward"})
"""Pod subresources without any effect unless upgraded. Others, such as `proxy`, would have side effects."""
MAX_ERROR_BYTES = 64 * 1024
UPGRADE_REQUIRED = "Upgrade request required"
"""Message of kube-apiserver for a request that is allowed but not upgraded."""
_SPDY_UNSUPPORTED = (
    "this server does not support SPDY; use a client that uses WebSockets for exec, attach and port-forward, such as "
    "kubectl 1.31 or newer"
)

HeaderPairs = Sequence[tuple[str, str]]
_ACCEPT_JSON = ("accept", "application/json")


async def open_tunnel(call: Call, upstream: Upstream, request: Request, user: str, title: str) -> Reply:
    """Replies to a WebSocket request. Raises UpstreamError, or BadGateway as `check_status` does."""
    slot = upstream.user_limits.acquire_websocket(user)
    try:
        upstream_socket = await upstream.open_websocket(request, forwarded_subprotocols(call.subprotocols))
    except HandshakeRejected as refused:
        slot.release()
        check_status(refused.status, title)
        reply, _ = build_reply_head(refused.status, refused.headers)
        reply.body = refused.body
        return reply
    except BaseException:
        slot.release()
        raise
    return Reply(
        101, upgrade=Upgrade(upstream_socket.subprotocol, WebSocketTunnel(upstream_socket, call.recheck, slot).run)
    )


class WebSocketTunnel:
    """Relays messages between the client's and the upstream WebSocket. If one closes, both do.

    The user's `slot` is released when both are closed: a client may take long to read the last messages.
    """

    def __init__(self, upstream_socket: UpstreamWebSocket, recheck: Callable[[], None], slot: UserSlot) -> None:
        self._upstream_socket = upstream_socket
        self._slot = slot
        self._is_running = self._is_upstream_closed = False
        upstream_socket.on_closed(self._on_upstream_closed)
        self._recheck = recheck
        self._close_task: asyncio.Task[None] | None = None
        self._accept_timer = asyncio.get_running_loop().call_later(ACCEPT_SECONDS, self._abandon)

    def _abandon(self) -> None:
        closing = self._upstream_socket.close(GOING_AWAY, "the client disconnected")
        self._close_task = asyncio.get_running_loop().create_task(closing)

    def _on_upstream_closed(self, upstream_socket: UpstreamWebSocket) -> None:
        self._is_upstream_closed = True
        self._release_slot()

    def _release_slot(self) -> None:
        if self._is_upstream_closed and not self._is_running:
            self._slot.release()

    async def run(self, client_socket: WebSocket) -> None:
        self._is_running = True
        try:
            await self._relay(client_socket)
        finally:
            self._is_running = False
            self._release_slot()

    async def _relay(self, client_socket: WebSocket) -> None:
        self._accept_timer.cancel()
        to_cluster = asyncio.create_task(_pump(client_socket, self._upstream_socket))
        to_client = asyncio.create_task(_pump(self._upstream_socket, client_socket))
        close_reason: CloseReason = GOING_AWAY, "the server closes this connection"
        try:
            close_reason = await self._wait_closed(to_cluster, to_client)
        finally:
            await end_tasks(to_cluster, to_client)
            await asyncio.gather(client_socket.close(*close_reason), self._upstream_socket.close(*close_reason))

    async def _wait_closed(self, to_cluster: asyncio.Task[None], to_client: asyncio.Task[None]) -> CloseReason:
        while True:
            done, _ = await asyncio.wait(
                (to_cluster, to_client), timeout=RECHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for pump in done:
                pump.result()  # raises a bug of ours instead of treating it as a close
            if done:
                return (
                    client_close_reason(*self._upstream_socket.close_reason)
                    if to_client in done
                    else (NORMAL_CLOSURE, "")
                )
            try:
                self._recheck()
            except ApiError as error:
                return POLICY_VIOLATION, error.message


def client_close_reason(code: int, reason: str) -> CloseReason:
    """The cluster's close reason for the client. Codes 1005 and 1006 are for local use only and are replaced."""
    if code == ABNORMAL_CLOSURE:
        return INTERNAL_ERROR, "the connection to the cluster was interrupted"
    return (NORMAL_CLOSURE, "") if code == NO_STATUS else (code, reason)


async def _pump(source: WebSocket, sink: WebSocket) -> None:
    """Relays one direction. `send` waits for room in the write buffer, so back pressure reaches the source."""
    while (message := await source.receive()) is not None:
        await sink.send(message)


async def reject_spdy(upstream: Upstream, call: Call, request_target: str, headers: HeaderPairs, title: str) -> Reply:
    """Returns the cluster's error, if there is one; otherwise raises BadRequest. Raises UpstreamError."""
    target = call.target
    if target.group or target.resource != "pods" or target.subresource not in STREAMING_SUBRESOURCES:
        raise BadRequest(_SPDY_UNSUPPORTED)
    plain_headers = [
        *((name, value) for name, value in headers if name not in ("accept", "content-length")),
        _ACCEPT_JSON,
    ]
    without_command = _without_command(request_target)
    error_reply = await _probe_error(upstream, Request(call.method, without_command, plain_headers), title)
    if error_reply is not None:
        return error_reply
    websocket_error = await _probe_error(upstream, Request("GET", without_command, plain_headers), title)
    message = _status_message(websocket_error.body) if websocket_error is not None else ""
    raise BadRequest(
        f"{_SPDY_UNSUPPORTED}. The cluster rejects a WebSocket, too: {message}" if message else _SPDY_UNSUPPORTED
    )


def _without_command(request_target: str) -> str:
    path, mark, query = request_target.partition("?")
    parameters = [each for each in parse_qsl(query, keep_blank_values=True) if each[0] != "command"]
    return f"{path}{mark}{urlencode(parameters)}"


async def _probe_error(upstream: Upstream, request: Request, title: str) -> Reply | None:
    response = await upstream.send(request)
    try:
        check_status(response.status, title)
        body = await response.read(MAX_ERROR_BYTES)
    except BaseException:
        await response.close()
        raise
    if response.status < 400 or _status_message(body) == UPGRADE_REQUIRED:
        return None
    reply, _ = build_reply_head(response.status, response.headers)
    reply.body = body
    return reply


def _status_message(body: bytes) -> str:
    """The message of a Status; empty for anything else."""
    try:
        status: Any = json.loads(body)
    except ValueError:
        return ""
    message = status.get("message") if isinstance(status, dict) else None
    return message if isinstance(message, str) else ""
