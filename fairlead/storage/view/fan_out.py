"""What a watcher hears, and the bounded queue that it hears it through.

The view offers each transition to the watchers of its resource; each watcher drains its own queue at its own pace. A
watcher that cannot keep up is marked as overflowed, so that its stream ends with an ERROR event: never buffered without
bound, never silently missing something.

With thousands of watchers, finding those that a transition concerns and waking them is most of the work. So they are
filed by what they look for, and woken in rounds: what happens until the next round comes to each of them together.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Generic, TypeVar

from fairlead.storage.contract import Key

E = TypeVar("E")

SLICE = 64
"""So many are woken in one turn of the event loop, so that requests get their turns in between."""
SHORTEST_REST_SECONDS = 0.001
LONGEST_REST_SECONDS = 0.1
"""A round is followed by a rest as long as itself: then at least half of the time is for others, and under load what
happens meanwhile goes out together. A few watchers are not made to wait."""

BY_NAME = "name"
_BY_NAMESPACE = "namespace"

Sought = tuple[str, str, frozenset[str]]
"""What an object must have for a watcher to care: under `labels` or `selectable`, a name with one of some values. Or
(BY_NAME, "", names), where it is the object's own name."""


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
    """A queue of transitions in one namespace, or (empty) in all. `limit` bounds what may wait in it live.

    With `sought`, it need not hear of objects that neither have nor had that. It may all the same: this only narrows.
    """

    __slots__ = (
        "_limit",
        "_queue",
        "_wake",
        "bell",
        "ended",
        "namespace",
        "overflowed",
        "sought",
    )

    def __init__(self, namespace: str, limit: int, sought: Sought | None = None) -> None:
        self.namespace = namespace
        self.sought = sought
        self._limit = limit
        self._queue: deque[Transition[E]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self.bell: Callable[[], None] | None = None
        """For those who do not wait here: called when something waits that nothing waited before, and at the end."""
        self.ended = False
        self.overflowed = False

    def replay(self, transition: Transition[E]) -> None:
        """Takes in a transition of the past. Not bounded: the history itself already is."""
        if not self.namespace or transition.key[2] == self.namespace:
            self._queue.append(transition)

    def offer(self, transition: Transition[E]) -> None:
        if self.hear(transition):
            self.rouse()

    def hear(self, transition: Transition[E]) -> bool:
        """Takes in a transition; says whether it is the first that somebody who sleeps has to be woken for."""
        queue = self._queue
        if self.overflowed or (self.namespace and transition.key[2] != self.namespace):
            return False
        if len(queue) >= self._limit:
            self.overflow()
            return False
        queue.append(transition)
        if len(queue) > 1:
            return False
        if self.bell is not None:
            self.bell()
        return self._wake is not None

    def overflow(self) -> None:
        """Too much to hold: what waits is dropped and the stream will end with an error."""
        self.overflowed = True
        self._queue.clear()
        self.rouse()

    def end(self) -> None:
        """Nothing more will come; what waits is still delivered."""
        self.ended = True
        self.rouse()

    @property
    def pending(self) -> bool:
        """Whether something waits."""
        return bool(self._queue)

    def waiting(self) -> list[Transition[E]]:
        """Everything that waits, left where it is."""
        return list(self._queue)

    def drain(self, most: int = 0) -> list[Transition[E]]:
        """What waits, without waiting: at most so many (0 = all), the oldest first."""
        queue = self._queue
        if most and len(queue) > most:
            return [queue.popleft() for _ in range(most)]
        drained = list(queue)
        queue.clear()
        return drained

    def drain_some(self, most: int, size: Callable[[Transition[E]], int], most_bytes: int) -> list[Transition[E]]:
        """The oldest of what waits: at most so many, and so many bytes, but one at least."""
        queue = self._queue
        drained: list[Transition[E]] = []
        while queue and len(drained) < most:
            most_bytes -= size(queue[0])
            if most_bytes < 0 and drained:
                break
            drained.append(queue.popleft())
        return drained

    def news(self) -> "asyncio.Future[None]":
        """Done when something waits or the watcher ended or overflowed, or when somebody calls `rouse`."""
        wake = asyncio.get_running_loop().create_future()
        if self._queue or self.ended or self.overflowed:
            wake.set_result(None)
        else:
            self._wake = wake
        return wake

    def rouse(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)
        if self.bell is not None:
            self.bell()


class Watchers(Generic[E]):
    """The watchers of one resource."""

    __slots__ = ("_all", "_files", "_now", "_resting", "_round", "_stirred")

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._all: dict[Watcher[E], None] = {}
        self._files: dict[tuple[str, str], dict[str, set[Watcher[E]]]] = {}
        """By what is looked at, then by the value that it must have."""
        self._stirred: list[Watcher[E]] = []
        self._round: deque[Watcher[E]] = deque()
        """Those of a round under way who have not been woken yet."""
        self._resting = False
        """Whether a round is under way or just over. Who is stirred meanwhile has to wait for the next."""

    def add(self, watcher: Watcher[E]) -> None:
        self._all[watcher] = None
        where, values = _place(watcher)
        file = self._files.setdefault(where, {})
        for value in values:
            file.setdefault(value, set()).add(watcher)

    def remove(self, watcher: Watcher[E]) -> None:
        if watcher not in self._all:
            return
        del self._all[watcher]
        where, values = _place(watcher)
        file = self._files[where]
        for value in values:
            file[value].discard(watcher)
            if not file[value]:
                del file[value]
        if not file:
            del self._files[where]

    def offer(self, transition: Transition[E]) -> None:
        stirred = [watcher for watcher in self._concerned(transition) if watcher.hear(transition)]
        if not stirred:
            return
        self._stirred += stirred
        if not self._resting:
            self._resting = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def overflow(self) -> None:
        for watcher in self._all:
            watcher.overflow()

    def end(self) -> None:
        for watcher in self._all:
            watcher.end()

    def _concerned(self, transition: Transition[E]) -> Iterable[Watcher[E]]:
        """Each of those that may care, once."""
        found: list[set[Watcher[E]]] = []
        for where, file in self._files.items():
            found += [file[value] for value in _values(where, transition) if value in file]
        return found[0] if len(found) == 1 else set().union(*found)

    def _begin_round(self) -> None:
        """Wakes those who were stirred, if any; if not, the next who is stirred need not wait."""
        stirred, self._stirred = self._stirred, []
        self._resting = bool(stirred)
        if stirred:
            self._round.extend(stirred)
            self._wake_some(asyncio.get_running_loop(), self._now())

    def _wake_some(self, loop: asyncio.AbstractEventLoop, begun: float) -> None:
        for _ in range(min(SLICE, len(self._round))):
            self._round.popleft().rouse()
        # What is called next comes after those who were just woken, so it knows how long they took.
        loop.call_soon(self._wake_some if self._round else self._rest, loop, begun)

    def _rest(self, loop: asyncio.AbstractEventLoop, begun: float) -> None:
        seconds = min(LONGEST_REST_SECONDS, self._now() - begun)
        if seconds < SHORTEST_REST_SECONDS:
            self._begin_round()
        else:
            loop.call_later(seconds, self._begin_round)


def _place(watcher: Watcher[E]) -> tuple[tuple[str, str], Iterable[str]]:
    """Where a watcher is filed, and under which values."""
    if watcher.sought is None:
        return (_BY_NAMESPACE, ""), (watcher.namespace,)
    sort, name, values = watcher.sought
    return (sort, name), values


def _values(where: tuple[str, str], transition: Transition[E]) -> set[str | None]:
    """The values under which those are filed whom a transition may concern: what it was, and what it has become."""
    sort, name = where
    if sort == _BY_NAMESPACE:
        return {"", transition.key[2]}
    if sort == BY_NAME:
        return {transition.key[3]}
    read = attrgetter(sort)
    return {read(state).get(name) for state in (transition.previous, transition.current) if state is not None}
