"""`Upstream`: client for the API server of one connected cluster, with `send` and `open_websocket`.

`clusters.py` creates and caches them; gateways and controllers use them. Only this module attaches the stored
credential, and only for the address in its own kubeconfig. Redirects are not followed.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fairlead.upstream.access import Access, Limits, Request
from fairlead.upstream.connection import Connection
from fairlead.upstream.dial import Dialing, Resolve
from fairlead.upstream.errors import FAILURES, UNAUTHORIZED, Refused, Unreachable, ignore_failure
from fairlead.upstream.fair_share import Shares
from fairlead.upstream.messages import Response, Wire
from fairlead.upstream.pool import Pool, Turns
from fairlead.upstream.upload import Upload, framing
from fairlead.upstream.websocket import FarSocket, opened

__all__ = ["Limits", "Request", "Response", "Upstream"]

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Upstream:
    def __init__(
        self, access: Access, resolve: Resolve, limits: Limits, on_failure: Callable[[], None] = ignore_failure
    ) -> None:
        """`on_failure` is called for each request without a response, and for each 401."""
        self._limits = limits
        self._on_failure = on_failure
        self.shares = Shares(limits)
        """Limits per user. The gateways acquire a slot before they send a request of a user."""
        self._wire = Wire(access)
        self._dialing = Dialing(access, resolve)
        self._pool = Pool(self._dialing, limits)
        self._turns = Turns(limits.sockets, limits.waiting, limits.connect_seconds)
        self._sockets: set[FarSocket] = set()

    @property
    def in_use(self) -> int:
        """Number of open requests and WebSockets."""
        return self._pool.in_use + self._turns.taken

    async def send(self, request: Request, *, seconds: float | None = None) -> Response:
        """Returns a response whose head has been received. The caller reads it to its end, or closes it.

        `seconds`: timeout up to the end of the body. Without it, only the response head has a timeout.
        """
        with self._noticing_failures():
            response = await self._send(request, seconds)
        if response.status == UNAUTHORIZED:
            self._on_failure()
        return response

    def close_idle(self) -> None:
        """Closes idle connections, so that the next request connects anew and verifies the certificate again."""
        self._pool.close_idle()

    @contextmanager
    def _noticing_failures(self) -> Iterator[None]:
        try:
            yield
        except FAILURES:
            self._on_failure()
            raise
        except Refused as refused:
            if refused.status == UNAUTHORIZED:
                self._on_failure()
            raise

    async def _send(self, request: Request, seconds: float | None) -> Response:
        start = asyncio.get_running_loop().time()
        deadline = math.inf if seconds is None else start + seconds
        remaining = math.inf if seconds is None else seconds
        lines = framing(request.method, request.headers, request.body)
        head = self._wire.head(request.method, request.target, request.headers, lines)
        connection = self._pool.ready() or await self._pool.take(remaining)
        is_reused = connection.uses > 0
        try:
            return await self._exchange(connection, request, head, deadline)
        except Unreachable:
            # The cluster may have closed the idle connection just before. Safe methods are retried on a new one.
            if not is_reused or request.method not in _SAFE or not isinstance(request.body, bytes):
                raise
        return await self._exchange(await self._pool.fresh(remaining), request, head, deadline)

    async def _exchange(self, connection: Connection, request: Request, head: bytes, end: float) -> Response:
        wait = asyncio.get_running_loop().time() + self._limits.head_seconds
        response = connection.start(request.method == "HEAD", min(wait, end), end)
        try:
            if isinstance(request.body, bytes):
                connection.write(head + request.body if request.body else head)
                await response.arrival
            else:
                connection.write(head)
                upload = Upload(connection, request.headers, self._limits.head_seconds, end)
                await upload.run(request.body, response)
        except asyncio.CancelledError:
            # Not the connection: if the response was just received, it may already serve another exchange.
            await response.close()
            raise
        return response

    async def open_socket(self, request: Request, protocols: Sequence[str]) -> FarSocket:
        """Opens a WebSocket. Raises HandshakeRejected for any response but 101, and closes the connection."""
        await self._turns.take()
        try:
            with self._noticing_failures():
                websocket = await opened(self._dialing, self._wire, request, protocols, self._limits)
        except BaseException:
            self._turns.give()
            raise
        self._sockets.add(websocket)
        websocket.when_gone(self._socket_gone)
        return websocket

    def _socket_gone(self, far: FarSocket) -> None:
        if far in self._sockets:
            self._sockets.discard(far)
            self._turns.give()

    async def close(self) -> None:
        """Aborts open requests and WebSockets, and closes all connections."""
        self._pool.close()
        for websocket in list(self._sockets):
            websocket.abort()
