"""The connections to one cluster: how many, who waits, which are kept, and which have taken too long.

`upstream.py` takes connections from here; each comes back by itself once its answer has come.
One timer for the whole pool looks at all deadlines, a few times a second: a timer for each request would cost more than
many a request.
"""

import asyncio
from collections import deque

from fairlead.upstream.access import Limits
from fairlead.upstream.connection import Connection
from fairlead.upstream.dial import Dialing
from fairlead.upstream.errors import Broken, Busy

TICK = 0.25

_BUSY = "too many requests to this cluster are under way; try again in a while"


class Turns:
    """At most so many at once; the others wait in a row, which has an end, too."""

    def __init__(self, most: int, waiting: int, seconds: float) -> None:
        self.taken = 0
        self._most = most
        self._waiting = waiting
        self._seconds = seconds
        self._row: deque[asyncio.Future[None]] = deque()

    def now(self) -> bool:
        """Takes a turn if one is free."""
        if self.taken >= self._most:
            return False
        self.taken += 1
        return True

    async def take(self) -> None:
        if self.now():
            return
        if len(self._row) >= self._waiting:
            raise Busy(_BUSY)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._row.append(turn)
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except TimeoutError:
            self._give_up(turn)
            raise Busy(_BUSY) from None
        except asyncio.CancelledError:
            self._give_up(turn)
            raise

    def give(self) -> None:
        """A turn is over: it goes to the next in the row."""
        while self._row:
            turn = self._row.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            self.give()  # it came just now
        elif turn in self._row:
            self._row.remove(turn)


class Pool:
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
        """A connection that can be had without waiting: the one used last, so that the others get old and go."""
        while self._idle and self._turns.now():
            connection = self._idle.pop()
            if connection.usable:
                self._busy.add(connection)
                return connection
            self._turns.give()
        return None

    async def take(self, seconds: float) -> Connection:
        """A connection, sooner or later. Raises UpstreamError."""
        await self._turns.take()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                self._busy.add(connection)
                return connection
        return await self._new(seconds)

    async def fresh(self, seconds: float) -> Connection:
        """One that nobody has used yet."""
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
        """An exchange is over, or the connection is. May be told twice."""
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
        """Closes the kept connections that are not in use."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Ends everything: what is under way breaks off."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in [*self._idle, *self._busy]:
            connection.fail(Broken("the connection to this cluster was closed"))
        self._idle.clear()
