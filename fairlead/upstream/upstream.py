"""`Upstream`: client for the API server of one connected cluster, with `send` and `open_websocket`. `HttpClient` is
the same without the cluster.

`clusters.py` creates and caches them; gateways and controllers use them. Only this module attaches the stored
credential, and only for the address in its own kubeconfig. Redirects are not followed.

A streamed request body is uploaded in a task of its own (`Upload`), because a cluster may respond before it has
received the whole body: with an error, or in a bidirectional stream.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from fairlead.core.errors import BadRequest
from fairlead.upstream.access import ClusterEndpoint, Limits, Request
from fairlead.upstream.connection import Connection, UpgradeHandler
from fairlead.upstream.dial import Connector, Dialer, ProtocolConnector
from fairlead.upstream.errors import CLUSTER_FAILURES, UNAUTHORIZED, HandshakeRejected, Unreachable, ignore_failure
from fairlead.upstream.fair_share import UserLimits
from fairlead.upstream.messages import HeadEncoder, RequestHeadEncoder, Response, read_content_length
from fairlead.upstream.pool import BoundedSlots, ConnectionPool
from fairlead.upstream.websocket import UpstreamWebSocket, connect_websocket, request_upgrade

__all__ = ["Limits", "Request", "Response", "Upstream"]

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_CHUNKED = "transfer-encoding: chunked\r\n"


def framing(method: str, headers: Sequence[tuple[str, str]], body: bytes | AsyncIterator[bytes]) -> str:
    """The header line that delimits the body; empty for methods that usually have no body."""
    if isinstance(body, bytes):
        return f"content-length: {len(body)}\r\n" if body or method in _METHODS_WITH_BODY else ""
    length = read_content_length(headers)
    return _CHUNKED if length is None else f"content-length: {length}\r\n"


class Upload:
    """A streamed request body.

    `write_seconds`: how long the cluster may leave a full write buffer unread. `deadline`: end of the whole exchange.
    There is no timeout for a slow client: the HTTP server that reads from it enforces that.
    """

    def __init__(
        self, connection: Connection, headers: Sequence[tuple[str, str]], write_seconds: float, deadline: float
    ) -> None:
        self._connection = connection
        self._remaining = read_content_length(headers)
        self._write_seconds = write_seconds
        self._deadline = deadline

    async def run(self, body: AsyncIterator[bytes], response: Response) -> None:
        """Starts the upload. Returns when the response head is received, even if the upload is still running."""
        connection = self._connection
        connection.deadline = self._deadline
        task = asyncio.get_running_loop().create_task(self._send(body, response))
        connection.upload = task
        task.add_done_callback(lambda done: self._on_done(done, response))
        await response.head_received

    def _on_done(self, task: asyncio.Task[None], response: Response) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if self._connection.upload is not task:
            return  # the exchange is over, and the connection may serve another one
        if error is not None:
            self._connection.fail(error)
            return
        self._connection.upload = None
        if not response.head_received.done():
            self._connection.deadline = self._write_deadline()

    async def _send(self, body: AsyncIterator[bytes], response: Response) -> None:
        connection, counted = self._connection, self._remaining is not None
        async for data in body:
            if not data:
                continue
            if self._remaining is not None:
                self._remaining -= len(data)
                if self._remaining < 0:
                    raise BadRequest("the body is longer than its content-length")
            connection.write(data if counted else b"%x\r\n%b\r\n" % (len(data), data))
            if not response.head_received.done():
                connection.deadline = self._write_deadline()
            await connection.drain()
            if not response.head_received.done():
                connection.deadline = self._deadline
        if self._remaining:
            raise BadRequest("the body is shorter than its content-length")
        if not counted:
            connection.write(b"0\r\n\r\n")

    def _write_deadline(self) -> float:
        return min(self._deadline, asyncio.get_running_loop().time() + self._write_seconds)


class Exchanges(Protocol):
    """Carries requests to one server. `DialledExchanges` connects to it; in `linked.py`, an agent carries them."""

    @property
    def in_use(self) -> int:
        """Number of open requests."""

    async def send(self, request: Request, seconds: float | None) -> Response: ...

    async def open_websocket(self, request: Request, subprotocols: Sequence[str]) -> UpstreamWebSocket: ...

    def close_idle(self) -> None: ...

    def close(self) -> None: ...


class DialledExchanges:
    """Over the connections that `connector` opens: to a cluster, or to a port of a workspace.

    `is_tunnel`: its connections are streams that share one connection, see `Dialer`.
    """

    def __init__(
        self, connector: ProtocolConnector, head_encoder: HeadEncoder, limits: Limits, *, is_tunnel: bool = False
    ) -> None:
        self._limits = limits
        self._is_tunnel = is_tunnel
        self._head_encoder = head_encoder
        self._connector = connector
        self._pool = ConnectionPool(connector, limits)

    @property
    def in_use(self) -> int:
        return self._pool.in_use

    async def send(self, request: Request, seconds: float | None) -> Response:
        start = asyncio.get_running_loop().time()
        deadline = math.inf if seconds is None else start + seconds
        remaining = math.inf if seconds is None else seconds
        lines = framing(request.method, request.headers, request.body)
        head = self._head_encoder.encode(request.method, request.target, request.headers, lines)
        if request.is_streaming and self._is_tunnel:
            connection = await self._pool.acquire_new(remaining, is_exclusive=True)
        else:
            connection = self._pool.try_acquire() or await self._pool.acquire(remaining)
        is_reused = connection.use_count > 0
        try:
            return await self._exchange(connection, request, head, deadline)
        except Unreachable:
            # The cluster may have closed the idle connection just before. Safe methods are retried on a new one.
            if not is_reused or request.method not in _SAFE_METHODS or not isinstance(request.body, bytes):
                raise
        return await self._exchange(await self._pool.acquire_new(remaining), request, head, deadline)

    async def _exchange(self, connection: Connection, request: Request, head: bytes, deadline: float) -> Response:
        wait = asyncio.get_running_loop().time() + self._limits.response_header_seconds
        response = connection.start_exchange(request.method == "HEAD", min(wait, deadline), deadline)
        try:
            if isinstance(request.body, bytes):
                connection.write(head + request.body if request.body else head)
                await response.head_received
            else:
                connection.write(head)
                upload = Upload(connection, request.headers, self._limits.response_header_seconds, deadline)
                await upload.run(request.body, response)
        except asyncio.CancelledError:
            # Not the connection: if the response was just received, it may already serve another exchange.
            await response.close()
            raise
        return response

    async def open_websocket(self, request: Request, subprotocols: Sequence[str]) -> UpstreamWebSocket:
        return await connect_websocket(self._connector, self._head_encoder, request, subprotocols, self._limits)

    async def request_upgrade(self, request: Request, on_upgrade: UpgradeHandler) -> Response:
        """See `websocket.request_upgrade`."""
        return await request_upgrade(self._connector, self._head_encoder, request, on_upgrade, self._limits)

    def close_idle(self) -> None:
        self._pool.close_idle()

    def close(self) -> None:
        self._pool.close()


class HttpClient:
    """HTTP and WebSockets to one server. `on_failure` is called for each request without a response and each 401."""

    def __init__(
        self, exchanges: Exchanges, limits: Limits, *, on_failure: Callable[[], None] = ignore_failure
    ) -> None:
        self._exchanges = exchanges
        self._on_failure = on_failure
        self._websocket_slots = BoundedSlots(limits.max_websockets, limits.max_queued, limits.connect_seconds)
        self._websockets: set[UpstreamWebSocket] = set()

    @property
    def in_use(self) -> int:
        """Number of open requests and WebSockets."""
        return self._exchanges.in_use + self._websocket_slots.in_use

    async def send(self, request: Request, *, seconds: float | None = None) -> Response:
        """Returns a response whose head has been received. The caller reads it to its end, or closes it.

        `seconds`: timeout up to the end of the body. Without it, only the response head has a timeout.
        """
        with self._report_failures():
            response = await self._exchanges.send(request, seconds)
        if response.status == UNAUTHORIZED:
            self._on_failure()
        return response

    def close_idle(self) -> None:
        """Closes idle connections, so that the next request connects anew and verifies the certificate again."""
        self._exchanges.close_idle()

    @contextmanager
    def _report_failures(self) -> Iterator[None]:
        try:
            yield
        except CLUSTER_FAILURES:
            self._on_failure()
            raise
        except HandshakeRejected as refused:
            if refused.status == UNAUTHORIZED:
                self._on_failure()
            raise

    async def open_websocket(self, request: Request, subprotocols: Sequence[str]) -> UpstreamWebSocket:
        """Opens a WebSocket. Raises HandshakeRejected for any response but 101, and closes the connection."""
        await self._websocket_slots.acquire()
        try:
            with self._report_failures():
                websocket = await self._exchanges.open_websocket(request, subprotocols)
        except BaseException:
            self._websocket_slots.release()
            raise
        self._websockets.add(websocket)
        websocket.on_closed(self._on_websocket_closed)
        return websocket

    def _on_websocket_closed(self, websocket: UpstreamWebSocket) -> None:
        if websocket in self._websockets:
            self._websockets.discard(websocket)
            self._websocket_slots.release()

    async def close(self) -> None:
        """Aborts open requests and WebSockets, and closes all connections."""
        self._exchanges.close()
        for websocket in list(self._websockets):
            websocket.abort()


class Upstream(HttpClient):
    """The API server of one connected cluster."""

    def __init__(self, exchanges: Exchanges, limits: Limits, on_failure: Callable[[], None] = ignore_failure) -> None:
        super().__init__(exchanges, limits, on_failure=on_failure)
        self.user_limits = UserLimits(limits)
        """Limits per user. The gateways acquire a slot before they send a request of a user."""


def dialled_upstream(
    endpoint: ClusterEndpoint,
    dialer: Dialer,
    limits: Limits,
    on_failure: Callable[[], None] = ignore_failure,
    user_agent: str = "",
) -> Upstream:
    """`user_agent` is for requests that do not name one of their own."""
    return Upstream(dialled_exchanges(endpoint, dialer, limits, user_agent), limits, on_failure)


def dialled_exchanges(
    endpoint: ClusterEndpoint, dialer: Dialer, limits: Limits, user_agent: str = ""
) -> DialledExchanges:
    encoder = RequestHeadEncoder(endpoint, user_agent)
    return DialledExchanges(Connector(endpoint, dialer), encoder, limits, is_tunnel=dialer.is_tunnel)
