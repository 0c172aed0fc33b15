"""Passes requests and WebSockets on to the port, and the responses back, both as streams.

Access is checked again every few seconds while a response or a WebSocket is open. A WebSocket of the client is accepted
once the program has accepted its own.
"""

from collections.abc import Awaitable

from fairlead.core.call import Call, Reply, Upgrade
from fairlead.core.errors import ApiError
from fairlead.gateway.proxy import MAX_BUFFERED_BYTES, StreamGuard, may_have_body, relay, request_body
from fairlead.gateway.websocket import WebSocketTunnel
from fairlead.subresources.ports.clients import PortClients
from fairlead.subresources.ports.grants import Grant
from fairlead.subresources.ports.headers import request_headers, response_headers
from fairlead.subresources.ports.stages import PortRequest, PortStages, build_page
from fairlead.upstream.access import Request
from fairlead.upstream.errors import (
    ClusterLimitExceeded,
    HandshakeRejected,
    ProtocolError,
    TimedOut,
    UpstreamError,
)
from fairlead.upstream.fair_share import UserSlot
from fairlead.upstream.messages import Response
from fairlead.upstream.upstream import HttpClient

MAX_TARGET_CHARS = 16 * 1024
MAX_REJECTION_HEADERS = 100


class PortProxy:
    """The handler at the end of the pipeline of ports."""

    def __init__(self, stages: PortStages, clients: PortClients) -> None:
        self._stages = stages
        self._clients = clients

    def __call__(self, call: Call) -> Awaitable[Reply]:
        return self._serve(call)

    async def _serve(self, call: Call) -> Reply:
        request = self._stages.request_of(call)
        grant = request.grant
        if grant is None:
            return build_page(401, "Open the port in a browser.")
        if len(call.raw_target) > MAX_TARGET_CHARS:
            return build_page(414, f"The address may have at most {MAX_TARGET_CHARS} characters.")
        try:
            client = await self._clients.get(grant)
            if call.is_websocket:
                return await _open_websocket(call, client, request)
            return await _forward(call, client, request)
        except UpstreamError as error:
            return build_page(*describe_failure(error, grant))
        except ApiError as error:
            return build_page(error.code, error.message)


def describe_failure(error: UpstreamError, grant: Grant) -> tuple[int, str]:
    """Status and text for a request without a response."""
    port = f"port {grant.port} of the workspace {grant.workspace}"
    match error:
        case ClusterLimitExceeded():
            return 429, f"There are too many open requests to {port}. Close some pages, and reload this one."
        case TimedOut():
            return 504, f"The program at {port} did not respond in time."
        case ProtocolError():
            return 502, f"The program at {port} does not speak HTTP, or its response is invalid."
    listing = "`fairlead workspace ports` lists the ports on which programs listen"
    return 502, f"Nothing answers on {port}. Start the program, and reload this page; {listing}."


async def _forward(call: Call, client: HttpClient, request: PortRequest) -> Reply:
    port = request.address.port
    headers = request_headers(call.headers, request.origin, port)
    body = await request_body(call) if may_have_body(call) else b""
    response = await client.send(Request(call.method, call.raw_target, headers, body))
    try:
        return await _build_reply(call, response, request)
    except BaseException:
        await response.close()
        raise


async def _build_reply(call: Call, response: Response, request: PortRequest) -> Reply:
    headers = list(response_headers(response.headers, request.origin, request.address.port))
    lengths = [value for name, value in response.headers if name == "content-length"]
    length = int(lengths[0]) if len(lengths) == 1 and lengths[0].isdecimal() else None
    reply = Reply(response.status, b"", "", headers, cacheable=True, is_relayed=True)
    if call.method == "HEAD":
        headers += [("content-length", value) for value in lengths[:1]]
        return reply
    if length is not None and length <= MAX_BUFFERED_BYTES:
        reply.body = await response.read(MAX_BUFFERED_BYTES)
        return reply
    if length is not None:
        headers.append(("content-length", str(length)))
    guard = StreamGuard(response, call.recheck, UserSlot(()))
    reply.stream = relay(response, guard, is_watch=False)
    return reply


async def _open_websocket(call: Call, client: HttpClient, request: PortRequest) -> Reply:
    headers = request_headers(call.headers, request.origin, request.address.port)
    try:
        opened = await client.open_websocket(Request("GET", call.raw_target, headers), call.subprotocols)
    except HandshakeRejected as rejected:
        found = response_headers(rejected.headers, request.origin, request.address.port)
        headers = list(found)[:MAX_REJECTION_HEADERS]
        return Reply(rejected.status, rejected.body, "", headers, cacheable=True, is_relayed=True)
    tunnel = WebSocketTunnel(opened, call.recheck, UserSlot(()))
    return Reply(101, upgrade=Upgrade(opened.subprotocol, tunnel.run))
