"""Connection pool of one cluster: bounded concurrency, a bounded queue, idle connections, and deadlines.

`upstream.py` acquires connections; a connection returns to the pool by itself when its response has been received. One
timer per pool checks all deadlines a few times a second, because a timer per request would be too expensive.
"""

import asyncio
from collections import deque

from fairlead.upstream.access import Limits
from fairlead.upstream.connection import Connection
from fairlead.upstream.dial import ProtocolConnector
from fairlead.upstream.errors import ClusterLimitExceeded, ProtocolError

TICK_SECONDS = 0.25

_BUSY_MESSAGE = "too many concurrent requests to this cluster; try again later"


class BoundedSlots:
    """A semaphore with a bounded queue and a timeout for queued waiters."""

    def __init__(self, max_slots: int, max_queued: int, queue_seconds: float) -> None:
        self.in_use = 0
        self._max_slots = max_slots
        self._max_queued = max_queued
        self._queue_seconds = queue_seconds
        self._queue: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Acquires a slot if one is free."""
        if self.in_use >= self._max_slots:
            return False
        self.in_use += 1
        return True

    async def acquire(self) -> None:
        """Acquires a slot. Raises ClusterLimitExceeded if the queue is full, or after the timeout."""
        if self.try_acquire():
            return
        if len(self._queue) >= self._max_queued:
            raise ClusterLimitExceeded(_BUSY_MESSAGE)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        try:
            async with asyncio.timeout(self._queue_seconds):
                await waiter
        except TimeoutError:
            self._abandon_wait(waiter)
            raise ClusterLimitExceeded(_BUSY_MESSAGE) from None
        except asyncio.CancelledError:
            self._abandon_wait(waiter)
            raise

    def release(self) -> None:
        """Passes the slot to the first waiter, or frees it."""
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.in_use -= 1

    def _abandon_wait(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():
            self.release()  # the slot was assigned just before the timeout
        elif waiter in self._queue:
            self._queue.remove(waiter)


class ConnectionPool:
    """Pool of the HTTP connections to one cluster. WebSockets have their own connections."""

    def __init__(self, connector: ProtocolConnector, limits: Limits) -> None:
        self._connector = connector
        self._limits = limits
        self._slots = BoundedSlots(limits.max_requests, limits.max_queued, limits.connect_seconds)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def in_use(self) -> int:
        return self._slots.in_use

    def try_acquire(self) -> Connection | None:
        """Returns an idle connection, if any. Most recently used first, so that the others reach the idle timeout."""
        while self._idle and self._slots.try_acquire():
            connection = self._idle.pop()
            if connection.is_usable:
                self._busy.add(connection)
                return connection
            self._slots.release()
        return None

    async def acquire(self, seconds: float) -> Connection:
        """Returns an idle or a new connection, after waiting for a slot. Raises UpstreamError."""
        await self._slots.acquire()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                self._busy.add(connection)
                return connection
        return await self._connect(seconds)

    async def acquire_new(self, seconds: float, *, is_exclusive: bool = False) -> Connection:
        """Returns a new connection, after waiting for a slot. Raises UpstreamError."""
        await self._slots.acquire()
        return await self._connect(seconds, is_exclusive)

    async def _connect(self, seconds: float, is_exclusive: bool = False) -> Connection:
        try:
            limit = min(seconds, self._limits.connect_seconds)
            connection = await self._connector(lambda: Connection(self._on_released), limit, is_exclusive)
        except BaseException:
            self._slots.release()
            raise
        self._busy.add(connection)
        self._schedule_tick()
        return connection

    def _on_released(self, connection: Connection) -> None:
        """Called when an exchange is over or the connection is closed. May be called twice."""
        if connection in self._busy:
            self._busy.discard(connection)
            if connection.is_usable and not self._is_closed:
                connection.idle_since = asyncio.get_running_loop().time()
                self._idle.append(connection)
            else:
                connection.close()
            self._slots.release()
        elif not connection.is_usable and connection in self._idle:
            self._idle.remove(connection)

    def _schedule_tick(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._on_tick)

    def _on_tick(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self._busy if each.deadline < now]:
            connection.time_out()
        for connection in [each for each in self._idle if now - each.idle_since > self._limits.idle_seconds]:
            self._idle.remove(connection)
            connection.close()
        if self._busy or self._idle:
            self._schedule_tick()

    def close_idle(self) -> None:
        """Closes the idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Closes all connections and aborts open requests."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in [*self._idle, *self._busy]:
            connection.fail(ProtocolError("the connection to this cluster was closed"))
        self._idle.clear()
