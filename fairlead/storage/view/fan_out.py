"""The bounded queues of watchers, and the fan-out of transitions to them.

The view publishes each transition to the `WatchHub` of its resource; each watcher drains its own queue. A watcher
that cannot keep up is marked as overflowed, and its stream ends with an ERROR event. It is never buffered without
bound and never loses events silently.

With thousands of watchers, most of the work is finding those that match a transition and waking them. So watchers are
indexed by their filter and woken in batches: all transitions until the next batch are delivered together.
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
"""Watchers to wake per iteration of the event loop, so that requests run in between."""
SHORTEST_REST_SECONDS = 0.001
LONGEST_REST_SECONDS = 0.1
"""The pause after a batch is as long as the batch took, within these bounds. So fan-out takes at most half of the
event loop's time, and under load transitions are combined. A few watchers are not delayed."""

BY_NAME = "name"
_BY_NAMESPACE = "namespace"

Sought = tuple[str, str, frozenset[str]]
"""A filter: the source (`labels` or `selectable`), the name, and the accepted values. Or (BY_NAME, "", names) for the
object's own name."""


class Transition(Generic[E]):
    """The change of one object at one revision. `previous` or `current` is None if it did not exist.

    `encoded` caches the encoded watch events, so that the first watcher encodes for all others.
    """

    __slots__ = ("current", "encoded", "key", "previous", "revision")

    def __init__(self, key: Key, revision: int, previous: E | None, current: E | None) -> None:
        self.key = key
        self.revision = revision
        self.previous = previous
        self.current = current
        self.encoded: dict[str, object] = {}


class Watcher(Generic[E]):
    """A queue of transitions in one namespace, or (empty) in all. `limit` bounds the number of live ones.

    With `watch_filter`, transitions whose previous and current states do not match may be skipped, but need not be.
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
        """Callback for consumers that do not await: called when the queue becomes non-empty, and at the end."""
        self.ended = False
        self.overflowed = False

    def replay(self, transition: Transition[E]) -> None:
        """Enqueue a transition of the history. Not bounded, because the history is."""
        if not self.namespace or transition.key[2] == self.namespace:
            self._queue.append(transition)

    def offer(self, transition: Transition[E]) -> None:
        if self.hear(transition):
            self.rouse()

    def hear(self, transition: Transition[E]) -> bool:
        """Enqueue a live transition. Returns whether a waiting consumer must be woken."""
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
        """Drop the queue; the stream will end with an error."""
        self.overflowed = True
        self._queue.clear()
        self.rouse()

    def end(self) -> None:
        """End the watch after the queued transitions."""
        self.ended = True
        self.rouse()

    @property
    def pending(self) -> bool:
        """Whether the queue is non-empty."""
        return bool(self._queue)

    def waiting(self) -> list[Transition[E]]:
        """All queued transitions, without removing them."""
        return list(self._queue)

    def drain(self, most: int = 0) -> list[Transition[E]]:
        """Remove and return queued transitions, oldest first, at most `max_count` (0 = all). Does not wait."""
        queue = self._queue
        if most and len(queue) > most:
            return [queue.popleft() for _ in range(most)]
        drained = list(queue)
        queue.clear()
        return drained

    def drain_some(self, most: int, size: Callable[[Transition[E]], int], most_bytes: int) -> list[Transition[E]]:
        """Remove and return the oldest transitions, within a limit on count and bytes, but at least one."""
        queue = self._queue
        drained: list[Transition[E]] = []
        while queue and len(drained) < most:
            most_bytes -= size(queue[0])
            if most_bytes < 0 and drained:
                break
            drained.append(queue.popleft())
        return drained

    def news(self) -> "asyncio.Future[None]":
        """A future that completes when the queue is non-empty, or the watcher ended, overflowed or was woken."""
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
    """Delivers the transitions of one resource to its watchers."""

    __slots__ = ("_all", "_files", "_now", "_resting", "_round", "_stirred")

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._all: dict[Watcher[E], None] = {}
        self._files: dict[tuple[str, str], dict[str, set[Watcher[E]]]] = {}
        """Watchers by filter name, then by accepted value."""
        self._stirred: list[Watcher[E]] = []
        self._round: deque[Watcher[E]] = deque()
        """Watchers of the current batch that are still to be woken."""
        self._resting = False
        """Whether a batch or the pause after it is in progress. Watchers to be woken meanwhile wait for the next
        batch."""

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
        """The watchers that may match, without repetition."""
        found: list[set[Watcher[E]]] = []
        for where, file in self._files.items():
            found += [file[value] for value in _values(where, transition) if value in file]
        return found[0] if len(found) == 1 else set().union(*found)

    def _begin_round(self) -> None:
        """Start the next batch, if any watchers are to be woken; otherwise the next one is woken immediately."""
        stirred, self._stirred = self._stirred, []
        self._resting = bool(stirred)
        if stirred:
            self._round.extend(stirred)
            self._wake_some(asyncio.get_running_loop(), self._now())

    def _wake_some(self, loop: asyncio.AbstractEventLoop, begun: float) -> None:
        for _ in range(min(SLICE, len(self._round))):
            self._round.popleft().rouse()
        # The next callback runs after the watchers that were just woken, so it measures their time, too.
        loop.call_soon(self._wake_some if self._round else self._rest, loop, begun)

    def _rest(self, loop: asyncio.AbstractEventLoop, begun: float) -> None:
        seconds = min(LONGEST_REST_SECONDS, self._now() - begun)
        if seconds < SHORTEST_REST_SECONDS:
            self._begin_round()
        else:
            loop.call_later(seconds, self._begin_round)


def _place(watcher: Watcher[E]) -> tuple[tuple[str, str], Iterable[str]]:
    """The index key of a watcher, and the values it accepts."""
    if watcher.sought is None:
        return (_BY_NAMESPACE, ""), (watcher.namespace,)
    source, name, values = watcher.sought
    return (source, name), values


def _values(where: tuple[str, str], transition: Transition[E]) -> set[str | None]:
    """The values of a transition for an index key, of its previous and current state."""
    source, name = where
    if source == _BY_NAMESPACE:
        return {"", transition.key[2]}
    if source == BY_NAME:
        return {transition.key[3]}
    read = attrgetter(source)
    return {read(state).get(name) for state in (transition.previous, transition.current) if state is not None}
