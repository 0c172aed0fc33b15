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

WAKE_BATCH_SIZE = 64
"""Watchers to wake per iteration of the event loop, so that requests run in between."""
MIN_PAUSE_SECONDS = 0.001
MAX_PAUSE_SECONDS = 0.1
"""The pause after a batch is as long as the batch took, within these bounds. So fan-out takes at most half of the
event loop's time, and under load transitions are combined. A few watchers are not delayed."""

BY_NAME = "name"
_BY_NAMESPACE = "namespace"

WatchFilter = tuple[str, str, frozenset[str]]
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
        "ended",
        "namespace",
        "on_ready",
        "overflowed",
        "watch_filter",
    )

    def __init__(self, namespace: str, limit: int, watch_filter: WatchFilter | None = None) -> None:
        self.namespace = namespace
        self.watch_filter = watch_filter
        self._limit = limit
        self._queue: deque[Transition[E]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self.on_ready: Callable[[], None] | None = None
        """Callback for consumers that do not await: called when the queue becomes non-empty, and at the end."""
        self.ended = False
        self.overflowed = False

    def replay(self, transition: Transition[E]) -> None:
        """Enqueue a transition of the history. Not bounded, because the history is."""
        if not self.namespace or transition.key[2] == self.namespace:
            self._queue.append(transition)

    def notify(self, transition: Transition[E]) -> None:
        if self.enqueue(transition):
            self.wake()

    def enqueue(self, transition: Transition[E]) -> bool:
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
        if self.on_ready is not None:
            self.on_ready()
        return self._wake is not None

    def overflow(self) -> None:
        """Drop the queue; the stream will end with an error."""
        self.overflowed = True
        self._queue.clear()
        self.wake()

    def end(self) -> None:
        """End the watch after the queued transitions."""
        self.ended = True
        self.wake()

    @property
    def has_pending(self) -> bool:
        """Whether the queue is non-empty."""
        return bool(self._queue)

    def peek_all(self) -> list[Transition[E]]:
        """All queued transitions, without removing them."""
        return list(self._queue)

    def drain(self, max_count: int = 0) -> list[Transition[E]]:
        """Remove and return queued transitions, oldest first, at most `max_count` (0 = all). Does not wait."""
        queue = self._queue
        if max_count and len(queue) > max_count:
            return [queue.popleft() for _ in range(max_count)]
        drained = list(queue)
        queue.clear()
        return drained

    def drain_bounded(
        self, max_count: int, size: Callable[[Transition[E]], int], max_bytes: int
    ) -> list[Transition[E]]:
        """Remove and return the oldest transitions, within a limit on count and bytes, but at least one."""
        queue = self._queue
        drained: list[Transition[E]] = []
        while queue and len(drained) < max_count:
            max_bytes -= size(queue[0])
            if max_bytes < 0 and drained:
                break
            drained.append(queue.popleft())
        return drained

    def wait_ready(self) -> "asyncio.Future[None]":
        """A future that completes when the queue is non-empty, or the watcher ended, overflowed or was woken."""
        wake = asyncio.get_running_loop().create_future()
        if self._queue or self.ended or self.overflowed:
            wake.set_result(None)
        else:
            self._wake = wake
        return wake

    def wake(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)
        if self.on_ready is not None:
            self.on_ready()


class WatchHub(Generic[E]):
    """Delivers the transitions of one resource to its watchers."""

    __slots__ = ("_batch", "_by_filter", "_clock", "_throttled", "_to_wake", "_watchers")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watchers: dict[Watcher[E], None] = {}
        self._by_filter: dict[tuple[str, str], dict[str, set[Watcher[E]]]] = {}
        """Watchers by filter name, then by accepted value."""
        self._to_wake: list[Watcher[E]] = []
        self._batch: deque[Watcher[E]] = deque()
        """Watchers of the current batch that are still to be woken."""
        self._throttled = False
        """Whether a batch or the pause after it is in progress. Watchers to be woken meanwhile wait for the next
        batch."""

    def add(self, watcher: Watcher[E]) -> None:
        self._watchers[watcher] = None
        where, values = _filter_key(watcher)
        file = self._by_filter.setdefault(where, {})
        for value in values:
            file.setdefault(value, set()).add(watcher)

    def remove(self, watcher: Watcher[E]) -> None:
        if watcher not in self._watchers:
            return
        del self._watchers[watcher]
        where, values = _filter_key(watcher)
        file = self._by_filter[where]
        for value in values:
            file[value].discard(watcher)
            if not file[value]:
                del file[value]
        if not file:
            del self._by_filter[where]

    def publish(self, transition: Transition[E]) -> None:
        stirred = [watcher for watcher in self._matching(transition) if watcher.enqueue(transition)]
        if not stirred:
            return
        self._to_wake += stirred
        if not self._throttled:
            self._throttled = True
            asyncio.get_running_loop().call_soon(self._start_batch)

    def overflow(self) -> None:
        for watcher in self._watchers:
            watcher.overflow()

    def end(self) -> None:
        for watcher in self._watchers:
            watcher.end()

    def _matching(self, transition: Transition[E]) -> Iterable[Watcher[E]]:
        """The watchers that may match, without repetition."""
        found: list[set[Watcher[E]]] = []
        for where, file in self._by_filter.items():
            found += [file[value] for value in _filter_values(where, transition) if value in file]
        return found[0] if len(found) == 1 else set().union(*found)

    def _start_batch(self) -> None:
        """Start the next batch, if any watchers are to be woken; otherwise the next one is woken immediately."""
        stirred, self._to_wake = self._to_wake, []
        self._throttled = bool(stirred)
        if stirred:
            self._batch.extend(stirred)
            self._wake_batch(asyncio.get_running_loop(), self._clock())

    def _wake_batch(self, loop: asyncio.AbstractEventLoop, start: float) -> None:
        for _ in range(min(WAKE_BATCH_SIZE, len(self._batch))):
            self._batch.popleft().wake()
        # The next callback runs after the watchers that were just woken, so it measures their time, too.
        loop.call_soon(self._wake_batch if self._batch else self._throttle, loop, start)

    def _throttle(self, loop: asyncio.AbstractEventLoop, start: float) -> None:
        seconds = min(MAX_PAUSE_SECONDS, self._clock() - start)
        if seconds < MIN_PAUSE_SECONDS:
            self._start_batch()
        else:
            loop.call_later(seconds, self._start_batch)


def _filter_key(watcher: Watcher[E]) -> tuple[tuple[str, str], Iterable[str]]:
    """The index key of a watcher, and the values it accepts."""
    if watcher.watch_filter is None:
        return (_BY_NAMESPACE, ""), (watcher.namespace,)
    source, name, values = watcher.watch_filter
    return (source, name), values


def _filter_values(filter_key: tuple[str, str], transition: Transition[E]) -> set[str | None]:
    """The values of a transition for an index key, of its previous and current state."""
    source, name = filter_key
    if source == _BY_NAMESPACE:
        return {"", transition.key[2]}
    if source == BY_NAME:
        return {transition.key[3]}
    read = attrgetter(source)
    return {read(state).get(name) for state in (transition.previous, transition.current) if state is not None}
