"""Carries requests of the server to the API server of the agent's cluster: each is one stream of the link.

The agent decides for itself what it carries. It refuses identities with a meaning in Kubernetes (`system:`), so a
server that was broken into does not own the cluster; the name of a cluster in a request is ignored, since the link
belongs to one; and its own credential is the only one that is attached. A refused stream has not begun; after ACCEPT,
it has.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import structlog

from fairlead.core.errors import ApiError
from fairlead.core.user import AUTHENTICATED, RESERVED_PREFIX
from fairlead.core.waiting import end_tasks
from fairlead.links.contract import Stream
from fairlead.links.frames import STDIN, STDOUT, FrameError
from fairlead.links.requests import HTTP, NOT_SUPPORTED, HttpExit, OpenRequest, Refused, RequestHead, ResponseHead
from fairlead.links.streams import Data, Eof, Message, ResetCode, StreamReset
from fairlead.upstream.access import Request
from fairlead.upstream.errors import ClusterLimitExceeded, TimedOut, TlsError, Unreachable, UpstreamError
from fairlead.upstream.messages import Response, check_request_line, select_headers
from fairlead.upstream.transport import ByteTransport
from fairlead.upstream.upstream import DialledExchanges

IMPERSONATION_PREFIX = "impersonate-"
USER_HEADER, GROUP_HEADER = "impersonate-user", "impersonate-group"
API_ROOTS = frozenset(
    {"", ".well-known", "api", "apis", "healthz", "livez", "metrics", "openapi", "openid", "readyz", "version"}
)
"""First segments of the paths that are carried: the API of Kubernetes, its discovery and its health. Not among them are
those for who operates the API server, such as `/debug` and `/logs`."""
RESPONSE_HEADER_SECONDS = 60.0
"""How long the API server may take for the head of a response."""
HIGH_WATER_BYTES = 256 * 1024
MAX_SHOWN_CHARS = 100

log = structlog.get_logger(__name__)


def check_identity(headers: Sequence[tuple[str, str]]) -> None:
    """Raises Refused for identities that the server must not have in the cluster."""
    users = [value for name, value in headers if name.lower() == USER_HEADER]
    groups = [value for name, value in headers if name.lower() == GROUP_HEADER]
    others = any(name.lower().startswith(IMPERSONATION_PREFIX) for name, _ in headers)
    if len(users) > 1 or (others and not users):
        raise Refused(400, "impersonation needs exactly one user")
    for value in (*users, *(group for group in groups if group != AUTHENTICATED)):
        if value.strip().startswith(RESERVED_PREFIX):
            raise Refused(403, f"it carries no requests as {value!a}: names of the cluster itself are not sent")


def check_path(target: str) -> None:
    """Raises Refused for paths that are not of the API."""
    root, slash, _ = target.partition("?")[0].removeprefix("/").partition("/")
    if root not in API_ROOTS or (slash and not root):
        shown = f"/{root}"[:MAX_SHOWN_CHARS]
        raise Refused(403, f"it carries no requests for {shown!a}: only the paths of the Kubernetes API are sent")


class RequestService:
    """Serves the streams of a link. `cluster` returns the connections to the API server, which are replaced with the
    agent's credential."""

    def __init__(self, cluster: Callable[[], DialledExchanges]) -> None:
        self._cluster = cluster

    async def serve(self, request: OpenRequest, stream: Stream) -> None:
        """The `OpenHandler` of the link."""
        head = request.http
        if request.action != HTTP or head is None:
            raise Refused(NOT_SUPPORTED, f"this agent does not support {request.action}; update it")
        check_identity(head.headers)
        try:
            check_request_line(head.method, head.target)
            headers = select_headers(head.headers, frozenset())
            check_path(head.target)
        except ApiError as error:
            raise Refused(400, error.message) from None
        await stream.accept({})
        try:
            await (self._serve_upgrade if head.upgrade else self._serve_request)(head, headers, stream)
        except UpstreamError as error:
            log.warning(
                "a request got no complete response", method=head.method, path=head.target, reason=error.message
            )
            await stream.send_exit(_exit_code(error))
        except (ApiError, FrameError) as error:
            log.warning("a request cannot be carried", method=head.method, path=head.target, reason=str(error))
            await stream.send_exit(HttpExit.INVALID)

    async def _serve_request(self, head: RequestHead, headers: Sequence[tuple[str, str]], stream: Stream) -> None:
        body = _read_body(stream) if head.has_body else b""
        response = await self._cluster().send(Request(head.method, head.target, headers, body), None)
        await _send_response(response, stream)

    async def _serve_upgrade(self, head: RequestHead, headers: Sequence[tuple[str, str]], stream: Stream) -> None:
        bridge = _Bridge(stream)
        upgrade = self._cluster().request_upgrade(Request("GET", head.target, headers), bridge.on_upgrade)
        try:
            async with asyncio.timeout(RESPONSE_HEADER_SECONDS):
                response = await upgrade
        except TimeoutError:
            raise TimedOut("the API server did not respond to an upgrade in time") from None
        if response.status == 101:
            await bridge.run()
        else:
            await _send_response(response, stream)


async def _send_response(response: Response, stream: Stream) -> None:
    try:
        await stream.send_head(ResponseHead(response.status, tuple(response.headers)))
        while chunk := await response.read_chunk():
            await stream.send(STDOUT, chunk)
        await stream.send_exit(HttpExit.COMPLETE)
    finally:
        await response.close()


async def _read_body(stream: Stream) -> AsyncIterator[bytes]:
    while (message := await stream.receive()) is not None:
        match message:
            case Data(channel, content) if channel == STDIN:
                yield content
            case Eof(channel) if channel == STDIN:
                return
    raise StreamReset(ResetCode.CANCELLED, "the request has ended before its body")


def _exit_code(error: UpstreamError) -> HttpExit:
    match error:
        case Unreachable():
            return HttpExit.UNREACHABLE
        case TimedOut():
            return HttpExit.TIMED_OUT
        case TlsError():
            return HttpExit.NOT_TRUSTED
        case ClusterLimitExceeded():
            return HttpExit.BUSY
        case _:
            return HttpExit.INVALID


class _Bridge:
    """Copies between a stream and a connection that has switched to another protocol. The `TransportProtocol` of the
    connection."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._transport: ByteTransport | None = None
        self._headers: Sequence[tuple[str, str]] = ()
        self._received = bytearray()
        self._changed = asyncio.Event()
        self._is_lost = False
        self._may_write = asyncio.Event()
        self._may_write.set()

    def on_upgrade(self, transport: ByteTransport, headers: Sequence[tuple[str, str]], rest: bytes) -> None:
        self._headers = headers
        self._transport = transport
        self._received += rest
        transport.switch_protocol(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """`on_upgrade` has the transport already."""

    def data_received(self, data: bytes | memoryview) -> None:
        self._received += data
        self._changed.set()
        if len(self._received) > HIGH_WATER_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._changed.set()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    async def run(self) -> None:
        """Until either end has closed. The rest of what the cluster has sent is still carried."""
        await self._stream.send_head(ResponseHead(101, tuple(self._headers)))
        pumps = [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in done:
                pump.result()
        finally:
            await end_tasks(*pumps)
            if self._transport is not None:
                self._transport.abort()
        with suppress(StreamReset):
            await self._stream.send_exit(HttpExit.COMPLETE)

    async def _send(self) -> None:
        """From the cluster to the stream."""
        while self._received or not self._is_lost:
            if not self._received:
                self._changed.clear()
                await self._changed.wait()
                continue
            content = bytes(self._received)
            self._received.clear()
            await self._stream.send(STDOUT, content)
            if self._transport is not None and not self._is_lost:
                self._transport.resume_reading()

    async def _receive(self) -> None:
        """From the stream to the cluster."""
        while (message := await self._next_message()) is not None:
            if self._transport is not None and isinstance(message, Data):
                self._transport.write(message.content)
            await self._may_write.wait()

    async def _next_message(self) -> Message | None:
        try:
            message = await self._stream.receive()
        except StreamReset:
            return None
        return None if isinstance(message, Eof) else message
