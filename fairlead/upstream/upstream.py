"""`Upstream`: client for the API server of one connected cluster, with `send` and `open_websocket`.

`clusters.py` creates and caches them; gateways and controllers use them. Only this module attaches the stored
credential, and only for the address in its own kubeconfig. Redirects are not followed.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fairlead.upstream.access import ClusterEndpoint, Limits, Request
from fairlead.upstream.connection import Connection
from fairlead.upstream.dial import Connector, Resolve
from fairlead.upstream.errors import CLUSTER_FAILURES, UNAUTHORIZED, HandshakeRejected, Unreachable, ignore_failure
from fairlead.upstream.fair_share import UserLimits
from fairlead.upstream.messages import RequestHeadEncoder, Response
from fairlead.upstream.pool import BoundedSlots, ConnectionPool
from fairlead.upstream.upload import Upload, framing
from fairlead.upstream.websocket import UpstreamWebSocket, connect_websocket

__all__ = ["Limits", "Request", "Response", "Upstream"]

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Upstream:
    def __init__(
        self,
        endpoint: ClusterEndpoint,
        resolve: Resolve,
        limits: Limits,
        on_failure: Callable[[], None] = ignore_failure,
    ) -> None:
        """`on_failure` is called for each request without a response, and for each 401."""
        self._limits = limits
        self._on_failure = on_failure
        self.user_limits = UserLimits(limits)
        """Limits per user. The gateways acquire a slot before they send a request of a user."""
        self._head_encoder = RequestHeadEncoder(endpoint)
        self._connector = Connector(endpoint, resolve)
        self._pool = ConnectionPool(self._connector, limits)
        self._websocket_slots = BoundedSlots(limits.max_websockets, limits.max_queued, limits.connect_seconds)
        self._websockets: set[UpstreamWebSocket] = set()

    @property
    def in_use(self) -> int:
        """Number of open requests and WebSockets."""
        return self._pool.in_use + self._websocket_slots.in_use

    async def send(self, request: Request, *, seconds: float | None = None) -> Response:
        """Returns a response whose head has been received. The caller reads it to its end, or closes it.

        `seconds`: timeout up to the end of the body. Without it, only the response head has a timeout.
        """
        with self._report_failures():
            response = await self._send(request, seconds)
        if response.status == UNAUTHORIZED:
            self._on_failure()
        return response

    def close_idle(self) -> None:
        """Closes idle connections, so that the next request connects anew and verifies the certificate again."""
        self._pool.close_idle()

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

    async def _send(self, request: Request, seconds: float | None) -> Response:
        start = asyncio.get_running_loop().time()
        deadline = math.inf if seconds is None else start + seconds
        remaining = math.inf if seconds is None else seconds
        lines = framing(request.method, request.headers, request.body)
        head = self._head_encoder.encode(request.method, request.target, request.headers, lines)
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
        """Opens a WebSocket. Raises HandshakeRejected for any response but 101, and closes the connection."""
        await self._websocket_slots.acquire()
        try:
            with self._report_failures():
                websocket = await connect_websocket(
                    self._connector, self._head_encoder, request, subprotocols, self._limits
                )
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
        self._pool.close()
        for websocket in list(self._websockets):
            websocket.abort()
