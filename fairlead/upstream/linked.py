"""Sends requests to a cluster through its agent, which has opened a link to this server (`fairlead/links`).

`LinkExchanges` opens one stream per request. Nothing is dialled: without an agent, a request fails. An agent that
refuses a stream has not begun the request, so those who open streams may use another agent; after that, nothing is
sent twice.

The agent is not trusted with more than its own cluster: what it sends is bounded and validated as that of a cluster is.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from fairlead.core.errors import ApiError, BadRequest, Forbidden, HeadersTooLarge
from fairlead.links.contract import Stream
from fairlead.links.frames import STDIN, STDOUT
from fairlead.links.requests import HTTP, LOST, UNAVAILABLE, HttpExit, OpenRequest, Refused, RequestHead, ResponseHead
from fairlead.links.streams import Data, Exit, StreamReset
from fairlead.upstream.access import Limits, Request
from fairlead.upstream.errors import (
    AgentUnavailable,
    ClusterLimitExceeded,
    HandshakeRejected,
    ProtocolError,
    TimedOut,
    TlsError,
    Unreachable,
    UpstreamError,
)
from fairlead.upstream.messages import (
    BODYLESS_STATUSES,
    HOP_BY_HOP,
    NEVER_FORWARDED,
    Response,
    check_request_line,
    read_content_length,
    select_headers,
)
from fairlead.upstream.pool import BoundedSlots
from fairlead.upstream.stream_transport import StreamTransport
from fairlead.upstream.websocket import MAX_REJECTION_BYTES, Handshake, UpstreamWebSocket

OpenStream = Callable[[OpenRequest], Awaitable[Stream]]
"""Opens a stream to an agent of the cluster. Raises Refused: then nothing has begun, unless its code is LOST."""


async def refuse_stream(request: OpenRequest) -> Stream:
    """The `OpenStream` of a process that no agents connect to."""
    raise Refused(UNAVAILABLE, "this process has no connections of agents")


_DROPPED = NEVER_FORWARDED - {"content-length"}
_EXITS: dict[int, UpstreamError] = {
    HttpExit.UNREACHABLE: Unreachable(
        "its agent is connected, but the API server of the cluster is unreachable for it; see the agent's log"
    ),
    HttpExit.TIMED_OUT: TimedOut("its agent is connected, but the API server of the cluster did not respond in time"),
    HttpExit.NOT_TRUSTED: TlsError(
        "its agent is connected, but does not trust the certificate of the cluster's API server; see the agent's log"
    ),
    HttpExit.BUSY: ClusterLimitExceeded("too many concurrent requests to this cluster; try again later"),
}


class LinkExchanges:
    """Requests to one cluster. `user_agent` is for those that do not name one of their own."""

    def __init__(self, cluster: str, open_stream: OpenStream, limits: Limits, user_agent: str = "") -> None:
        self._cluster = cluster
        self._open_stream = open_stream
        self._limits = limits
        self._user_agent = user_agent
        self._slots = BoundedSlots(limits.max_requests, limits.max_queued, limits.connect_seconds)
        self._exchanges: set[_Exchange] = set()

    @property
    def in_use(self) -> int:
        return self._slots.in_use

    async def send(self, request: Request, seconds: float | None) -> Response:
        loop = asyncio.get_running_loop()
        deadline = math.inf if seconds is None else loop.time() + seconds
        head = self._build_head(request)
        await self._slots.acquire()
        exchange = _Exchange(self._on_ended, has_body=request.method != "HEAD")
        self._exchanges.add(exchange)
        try:
            async with asyncio.timeout(min(self._limits.response_header_seconds, deadline - loop.time())):
                exchange.start(await self._open(request, head), request.body)
                await exchange.response.head_received
        except TimeoutError:
            exchange.abort()
            raise _no_response() from None
        except BaseException:
            exchange.abort()
            raise
        if deadline < math.inf:
            exchange.set_deadline(deadline)
        return exchange.response

    async def open_websocket(self, request: Request, subprotocols: Sequence[str]) -> UpstreamWebSocket:
        handshake = Handshake(subprotocols)
        headers = [each for each in request.headers if not each[0].lower().startswith("sec-websocket-")]
        head = self._build_head(Request("GET", request.target, [*headers, *handshake.headers()]), upgrade=True)
        try:
            async with asyncio.timeout(self._limits.response_header_seconds):
                stream = await self._open(request, head)
                try:
                    return await _shake_hands(stream, handshake)
                except BaseException:
                    stream.abandon("the handshake is over")
                    raise
        except TimeoutError:
            raise _no_response() from None

    def close_idle(self) -> None:
        """There are no idle connections: each request is a stream of its own."""

    def close(self) -> None:
        for exchange in list(self._exchanges):
            exchange.fail(ProtocolError("the connection to this cluster was closed"))

    def _build_head(self, request: Request, *, upgrade: bool = False) -> RequestHead:
        """Raises BadRequest."""
        check_request_line(request.method, request.target)
        headers = select_headers(request.headers, _DROPPED)
        if self._user_agent and all(name != "user-agent" for name, _ in headers):
            headers = (("user-agent", self._user_agent), *headers)
        if isinstance(request.body, bytes) and request.body:
            remaining = tuple(each for each in headers if each[0] != "content-length")
            headers = (("content-length", str(len(request.body))), *remaining)
        return RequestHead(request.method, request.target, headers, has_body=bool(request.body), upgrade=upgrade)

    async def _open(self, request: Request, head: RequestHead) -> Stream:
        try:
            return await self._open_stream(OpenRequest(HTTP, user=request.user, cluster=self._cluster, http=head))
        except Refused as refusal:
            raise _refusal_error(refusal) from None

    def _on_ended(self, exchange: "_Exchange") -> None:
        if exchange in self._exchanges:
            self._exchanges.discard(exchange)
            self._slots.release()


class _Exchange:
    """One request and its response. The `ByteSource` of the response. `has_body`: whether the response may have one."""

    def __init__(self, on_ended: Callable[["_Exchange"], None], *, has_body: bool) -> None:
        self._has_body = has_body
        self._body_left: int | None = None
        """How much of the body is to come; None if the head does not say."""
        self._loop = asyncio.get_running_loop()
        self.response = Response(self, self._loop.create_future())
        self._on_ended = on_ended
        self._stream: Stream | None = None
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self, stream: Stream, body: bytes | AsyncIterator[bytes]) -> None:
        self._stream = stream
        self._tasks.append(self._loop.create_task(self._read(stream)))
        if body:
            self._tasks.append(self._loop.create_task(self._upload(stream, body)))

    def set_deadline(self, deadline: float) -> None:
        if self._stream is not None:
            self._timer = self._loop.call_at(deadline, self.fail, _no_response())

    def pause(self) -> None:
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    def abort(self) -> None:
        self.fail(ProtocolError("the response was closed before its end"))

    def fail(self, error: BaseException) -> None:
        """Ends the exchange at once."""
        self._end(error)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self.response.finish()
        else:
            self.response.fail(error)
            if self.response.head_received.done() and not self.response.head_received.cancelled():
                self.response.head_received.exception()  # it is not lost if no request waits for it any more
        if self._stream is not None:
            self._stream.abandon("the exchange is over")
            self._stream = None
        if self._timer is not None:
            self._timer.cancel()
        self._on_ended(self)

    async def _read(self, stream: Stream) -> None:
        try:
            while (message := await stream.receive()) is not None:
                match message:
                    case ResponseHead():
                        self._receive_head(message)
                    case Data(channel, content) if channel == STDOUT:
                        await self._may_read.wait()
                        self._receive_body(content)
                    case Exit(HttpExit.COMPLETE) if self.response.head_received.done():
                        if self._body_left:
                            raise ProtocolError("the cluster's response is shorter than its Content-Length")
                        self._end(None)
                        for task in self._tasks[1:]:
                            task.cancel()
                        return
                    case Exit(code):
                        self.fail(_exit_error(code, self.response))
                        return
            self.fail(_exit_error(HttpExit.INVALID, self.response))
        except StreamReset:
            self.fail(_lost_error(self.response))
        except ApiError:  # headers that HTTP does not allow
            self.fail(_not_http())
        except ProtocolError as error:
            self.fail(error)

    def _receive_head(self, head: ResponseHead) -> None:
        if head.status < 200:  # the client would wait for another one, or take what follows for another protocol
            raise _not_http()
        self.response.headers = select_headers(head.headers, HOP_BY_HOP)
        length = read_content_length(self.response.headers)
        self._body_left = length if self._has_body and head.status not in BODYLESS_STATUSES else 0
        self.response.status = head.status
        if not self.response.head_received.done():
            self.response.head_received.set_result(None)

    def _receive_body(self, content: bytes) -> None:
        """No client may get more than the head has announced: it would take that for its next response."""
        if self._body_left is not None:
            self._body_left -= len(content)
            if self._body_left < 0:
                raise ProtocolError("the cluster's response is longer than its Content-Length")
        self.response.feed(content)

    async def _upload(self, stream: Stream, body: bytes | AsyncIterator[bytes]) -> None:
        try:
            if isinstance(body, bytes):
                await stream.send(STDIN, body)
            else:
                async for data in body:
                    await stream.send(STDIN, data)
            await stream.send_eof(STDIN)
        except StreamReset:
            return  # the reader reports it
        except Exception as error:  # noqa: BLE001 - the body comes from a client, who gets the error
            self.fail(error)


async def _shake_hands(stream: Stream, handshake: Handshake) -> UpstreamWebSocket:
    """Raises HandshakeRejected and other UpstreamErrors."""
    head: ResponseHead | None = None
    body = b""
    try:
        while (message := await stream.receive()) is not None:
            match message:
                case ResponseHead(status=101):
                    transport = StreamTransport(stream)
                    handshake.on_upgrade(transport, select_headers(message.headers, HOP_BY_HOP), b"")
                    transport.run()
                    assert handshake.websocket is not None
                    return handshake.websocket
                case ResponseHead():
                    if message.status < 200:
                        raise _not_http()
                    head = message
                case Data(channel, content) if channel == STDOUT and len(body) + len(content) <= MAX_REJECTION_BYTES:
                    body += content
                case Exit(code) if code or head is None:
                    raise _exit_error(code, None)
                case Exit():
                    break
    except StreamReset:
        raise _lost_error(None) from None
    except BadRequest:
        raise _not_http() from None
    if head is None:
        raise _lost_error(None)
    stream.abandon("the handshake is over")
    raise HandshakeRejected(head.status, select_headers(head.headers, HOP_BY_HOP), body)


def _refusal_error(refusal: Refused) -> UpstreamError | ApiError:
    match refusal.code:
        case 400:
            return BadRequest(refusal.message)
        case 403:
            return Forbidden(f"the agent of the cluster refuses the request: {refusal.message}")
        case 413:
            return HeadersTooLarge("the headers of the request are too large for the connection of the agent")
        case 429:
            return ClusterLimitExceeded(f"too many concurrent requests to this cluster: {refusal.message}")
        case 504:
            return _no_response()
        case _ if refusal.code == LOST:
            return _lost_error(None)
        case _:
            return AgentUnavailable(refusal.message)


def _exit_error(code: int, response: Response | None) -> UpstreamError:
    known = _EXITS.get(code)
    if known is not None and (response is None or not response.head_received.done()):
        return type(known)(known.message)
    return ProtocolError("the cluster closed the connection in the middle of its response")


def _lost_error(response: Response | None) -> UpstreamError:
    if response is not None and response.head_received.done():
        return ProtocolError("the connection of the cluster's agent was lost in the middle of the response")
    return Unreachable(
        "the connection of its agent was lost before the response, so the request may have been executed; try again"
    )


def _not_http() -> ProtocolError:
    return ProtocolError("the cluster's response is not valid HTTP")


def _no_response() -> TimedOut:
    return TimedOut("the cluster did not respond in time through its agent; check whether it is overloaded")
