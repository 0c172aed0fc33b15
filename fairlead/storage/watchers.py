"""What a watcher hears, and the bounded queue that it hears it through.

The view offers each transition to the watchers of its resource; each watcher drains its own queue at its own pace. A
watcher that cannot keep up is marked as overflowed, so that its stream ends with an ERROR event: never buffered without
bound, never silently missing something.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from fairlead.storage.contract import Key

E = TypeVar("E")


class Transition(Generic[E]):
    """One object's step from one revision to the next. `previous` or `current` is None where it did not exist.

    `encoded` is where the first watcher leaves the finished event for all the others.
    """

    __slots__ = ("current", "encoded", "key", "previous", "revision")

    def __init__(self, key: Key, revision: int, previous: E | None, current: E | None) -> None:
        self.key = key
        self.revision = revision
        self.previous = previous
        self.current = current
        self.encoded: dict[str, object] = {}


class Watcher(Generic[E]):
    """A queue of transitions in one namespace, or (empty) in all. `limit` bounds what may wait in it live."""

    __slots__ = ("_limit", "_namespace", "_queue", "_wake", "ended", "overflowed")

    def __init__(self, namespace: str, limit: int) -> None:
        self._namespace = namespace
        self._limit = limit
        self._queue: deque[Transition[E]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self.ended = False
        self.overflowed = False

    def replay(self, transition: Transition[E]) -> None:
        """Takes in a transition of the past. Not bounded: the history itself already is."""
        if self._concerns(transition):
            self._queue.append(transition)

    def offer(self, transition: Transition[E]) -> None:
        if self.overflowed or not self._concerns(transition):
            return
        if len(self._queue) >= self._limit:
            self.overflow()
            return
        self._queue.append(transition)
        self._rouse()

    def overflow(self) -> None:
        """Too much to hold: what waits is dropped and the stream will end with an error."""
        self.overflowed = True
        self._queue.clear()
        self._rouse()

    def end(self) -> None:
        """Nothing more will come; what waits is still delivered."""
        self.ended = True
        self._rouse()

    @property
    def pending(self) -> bool:
        """Whether something waits."""
        return bool(self._queue)

    def waiting(self) -> list[Transition[E]]:
        """Everything that waits, left where it is."""
        return list(self._queue)

    def drain(self) -> list[Transition[E]]:
        """Everything that waits, without waiting."""
        drained = list(self._queue)
        self._queue.clear()
        return drained

    async def wait(self, seconds: float) -> None:
        """Returns when something waits, the watcher ended or overflowed, or the time is over."""
        if self._queue or self.ended or self.overflowed:
            return
        self._wake = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._wake
        except TimeoutError:
            pass
        finally:
            self._wake = None

    def _concerns(self, transition: Transition[E]) -> bool:
        return not self._namespace or transition.key[2] == self._namespace

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Watchers(Generic[E]):
    """The watchers of one resource."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: dict[Watcher[E], None] = {}

    def add(self, watcher: Watcher[E]) -> None:
        self._all[watcher] = None

    def remove(self, watcher: Watcher[E]) -> None:
        self._all.pop(watcher, None)

    def offer(self, transition: Transition[E]) -> None:
        for watcher in self._all:
            watcher.offer(transition)

    def overflow(self) -> None:
        for watcher in self._all:
            watcher.overflow()

    def end(self) -> None:
        for watcher in self._all:
            watcher.end()
