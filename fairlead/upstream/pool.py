"""Connection pool of one cluster: bounded concurrency, a bounded queue, idle connections, and deadlines.

`upstream.py` acquires connections; a connection returns to the pool by itself when its response has been received. One
timer per pool checks all deadlines a few times a second, because a timer per request would be too expensive.
"""

import asyncio
from collections import deque

from fairlead.upstream.access import Limits
from fairlead.upstream.connection import Connection
from fairlead.upstream.dial import Dialing
from fairlead.upstream.errors import Broken, Busy

TICK = 0.25

_BUSY = "too many concurrent requests to this cluster; try again later"


class Turns:
    """A semaphore with a bounded queue and a timeout for queued waiters."""

    def __init__(self, most: int, waiting: int, seconds: float) -> None:
        self.taken = 0
        self._most = most
        self._waiting = waiting
        self._seconds = seconds
        self._row: deque[asyncio.Future[None]] = deque()

    def now(self) -> bool:
        """Acquires a slot if one is free."""
        if self.taken >= self._most:
            return False
        self.taken += 1
        return True

    async def take(self) -> None:
        """Acquires a slot. Raises Busy if the queue is full, or after the timeout."""
        if self.now():
            return
        if len(self._row) >= self._waiting:
            raise Busy(_BUSY)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._row.append(waiter)
        try:
            async with asyncio.timeout(self._seconds):
                await waiter
        except TimeoutError:
            self._give_up(waiter)
            raise Busy(_BUSY) from None
        except asyncio.CancelledError:
            self._give_up(waiter)
            raise

    def give(self) -> None:
        """Passes the slot to the first waiter, or frees it."""
        while self._row:
            waiter = self._row.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.taken -= 1

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            self.give()  # the slot was assigned just before the timeout
        elif turn in self._row:
            self._row.remove(turn)


class Pool:
    """Pool of the HTTP connections to one cluster. WebSockets have their own connections."""

    def __init__(self, dialing: Dialing, limits: Limits) -> None:
        self._dialing = dialing
        self._limits = limits
        self._turns = Turns(limits.requests, limits.waiting, limits.connect_seconds)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def in_use(self) -> int:
        return self._turns.taken

    def ready(self) -> Connection | None:
        """Returns an idle connection, if any. Most recently used first, so that the others reach the idle timeout."""
        while self._idle and self._turns.now():
            connection = self._idle.pop()
            if connection.usable:
                self._busy.add(connection)
                return connection
            self._turns.give()
        return None

    async def take(self, seconds: float) -> Connection:
        """Returns an idle or a new connection, after waiting for a slot. Raises UpstreamError."""
        await self._turns.take()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                self._busy.add(connection)
                return connection
        return await self._new(seconds)

    async def fresh(self, seconds: float) -> Connection:
        """Returns a new connection, after waiting for a slot. Raises UpstreamError."""
        await self._turns.take()
        return await self._new(seconds)

    async def _new(self, seconds: float) -> Connection:
        try:
            limit = min(seconds, self._limits.connect_seconds)
            connection = await self._dialing(lambda: Connection(self._settled), limit)
        except BaseException:
            self._turns.give()
            raise
        self._busy.add(connection)
        self._watch()
        return connection

    def _settled(self, connection: Connection) -> None:
        """Called when an exchange is over or the connection is closed. May be called twice."""
        if connection in self._busy:
            self._busy.discard(connection)
            if connection.usable and not self._closed:
                connection.idle_since = asyncio.get_running_loop().time()
                self._idle.append(connection)
            else:
                connection.close()
            self._turns.give()
        elif not connection.usable and connection in self._idle:
            self._idle.remove(connection)

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self._busy if each.deadline < now]:
            connection.time_out()
        for connection in [each for each in self._idle if now - each.idle_since > self._limits.idle_seconds]:
            self._idle.remove(connection)
            connection.close()
        if self._busy or self._idle:
            self._watch()

    def close_idle(self) -> None:
        """Closes the idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Closes all connections and aborts open requests."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in [*self._idle, *self._busy]:
            connection.fail(Broken("the connection to this cluster was closed"))
        self._idle.clear()
