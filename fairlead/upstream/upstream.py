"""A connected cluster's API server, as everything else of ours sees it: `send` a request, `open_socket`.

`clusters.py` makes one for each cluster and keeps it; gateways and controllers use it. The stored credential is put on
here and nowhere else, and goes to the address of its own kubeconfig only: redirects are answers like others.
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
        """`on_failure` is called for each request that gets no answer, and for each 401."""
        self._limits = limits
        self._on_failure = on_failure
        self.shares = Shares(limits)
        """For whoever sends requests of many users, to be taken before."""
        self._wire = Wire(access)
        self._dialing = Dialing(access, resolve)
        self._pool = Pool(self._dialing, limits)
        self._turns = Turns(limits.sockets, limits.waiting, limits.connect_seconds)
        self._sockets: set[FarSocket] = set()

    @property
    def in_use(self) -> int:
        """Requests and sockets under way."""
        return self._pool.in_use + self._turns.taken

    async def send(self, request: Request, *, seconds: float | None = None) -> Response:
        """An answer whose head has come. Whoever gets it reads it to its end, or closes it.

        `seconds` are for all of it, to the end of the body; without them only the head has a deadline.
        """
        with self._noticing_failures():
            response = await self._send(request, seconds)
        if response.status == UNAUTHORIZED:
            self._on_failure()
        return response

    def close_idle(self) -> None:
        """Closes the connections that nobody uses, so that the next request dials, and checks certificates again."""
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
        end = math.inf if seconds is None else start + seconds
        left = math.inf if seconds is None else seconds
        lines = framing(request.method, request.headers, request.body)
        head = self._wire.head(request.method, request.target, request.headers, lines)
        connection = self._pool.ready() or await self._pool.take(left)
        used = connection.uses > 0
        try:
            return await self._exchange(connection, request, head, end)
        except Unreachable:
            # The cluster may have closed the connection just before: no reason to trouble anybody, where asking twice
            # does no harm.
            if not used or request.method not in _SAFE or not isinstance(request.body, bytes):
                raise
        return await self._exchange(await self._pool.fresh(left), request, head, end)

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
            # Not the connection: where the answer has come just now, that may be somebody else's already.
            await response.close()
            raise
        return response

    async def open_socket(self, request: Request, protocols: Sequence[str]) -> FarSocket:
        """A WebSocket to the cluster. Raises Refused for any answer but 101, and closes the connection then."""
        await self._turns.take()
        try:
            with self._noticing_failures():
                far = await opened(self._dialing, self._wire, request, protocols, self._limits)
        except BaseException:
            self._turns.give()
            raise
        self._sockets.add(far)
        far.when_gone(self._socket_gone)
        return far

    def _socket_gone(self, far: FarSocket) -> None:
        if far in self._sockets:
            self._sockets.discard(far)
            self._turns.give()

    async def close(self) -> None:
        """Breaks off everything that is under way."""
        self._pool.close()
        for far in list(self._sockets):
            far.abort()
