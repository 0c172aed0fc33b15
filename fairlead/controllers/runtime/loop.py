"""The reconcile loop that runs every controller: watch, queue keys, reconcile, requeue.

A controller watches resources and reconciles one object at a time, by key. It reads the current object itself, so
missed or repeated calls are harmless. `reconcile` returns the seconds after which to requeue the key, if any.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Protocol, runtime_checkable

import structlog

from fairlead.controllers.runtime.multi_watch import MultiWatch
from fairlead.core.backoff import BackoffPolicy
from fairlead.core.clock import Clock
from fairlead.core.errors import ApiError
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry, View

RETRY = BackoffPolicy(first_seconds=0.05, max_seconds=30.0)
IDLE_SECONDS = 60.0
ENQUEUE_BATCH_SIZE = 500
"""How many changes are enqueued before the loop yields to the event loop."""
BYTES_PER_BATCH_ITEM = 4096
"""Every this many bytes of an object count as one more change."""
UNEXPECTED_ERROR_RETRY_SECONDS = 60.0
"""Requeue delay after `reconcile` raised an unexpected exception."""

log = structlog.get_logger(__name__)


class Controller(Protocol):
    name: str
    workers: int
    """How many objects are reconciled concurrently."""

    @property
    def watches(self) -> Sequence[tuple[str, str]]:
        """The watched resources, as (group, plural)."""

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """Maps a changed object (`entry` is None if it was deleted) to the keys to reconcile. Usually `same_key`."""

    async def reconcile(self, key: Key) -> float | None:
        """Reconciles one object. Returns the seconds after which to requeue it; None: only when it changes."""


Requeue = Callable[[Key, float], None]
"""Queues a key to be reconciled after so many seconds, or earlier if it is already due earlier."""


@runtime_checkable
class ExternallyTriggered(Protocol):
    """A controller that is also triggered by events outside the store, such as changes in remote clusters."""

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Called when the loop starts. Returns the function to call when the loop ends."""


def same_key(key: Key, entry: Entry | None) -> Iterable[Key]:
    """`keys_for` of controllers that reconcile just the object that changed."""
    return (key,)


class ControllerLoop:
    """Runs one controller.

    Workers take due keys, oldest first, and exit when none is due. They do not wait for each other, so a slow object,
    such as a cluster that does not answer, delays only itself.
    """

    def __init__(self, controller: Controller, view: View, clock: Clock) -> None:
        self._controller = controller
        self._view = view
        self._clock = clock
        self._due_at: dict[Key, float] = {}
        self._queue: list[tuple[float, int, Key]] = []
        """Heap of (time, sequence, key). An item whose time differs from `_due_at` is stale and is skipped."""
        self._sequence = count()
        self._in_progress: set[Key] = set()
        self._running_workers = 0
        self._failures: dict[Key, int] = {}
        self._watch: MultiWatch | None = None

    async def run(self) -> None:
        """Runs until cancelled or until the server stops."""
        unsubscribe = (
            self._controller.subscribe(self.requeue) if isinstance(self._controller, ExternallyTriggered) else None
        )
        try:
            watch = await self._list_and_watch()
            async with asyncio.TaskGroup() as group:
                while not watch.is_ended:
                    if watch.has_overflowed:
                        watch.close()
                        watch = await self._list_and_watch()
                    await self._enqueue((change.key, change.current) for change in watch.drain())
                    self._start_workers(group)
                    await watch.wait(self._idle_seconds())
        finally:
            if unsubscribe is not None:
                unsubscribe()
            if self._watch is not None:
                self._watch.close()

    def requeue(self, key: Key, seconds: float) -> None:
        """Queues a key to be reconciled after so many seconds, or earlier if it is already due earlier."""
        self._schedule(key, self._clock.monotonic() + seconds)
        self._wake()

    async def _list_and_watch(self) -> MultiWatch:
        """Starts to watch, then enqueues all existing objects, in batches so that requests are not delayed."""
        watch = self._watch = MultiWatch(self._view, self._controller.watches)
        for group, plural in self._controller.watches:
            await self._enqueue((entry.key, entry) for entry in self._view.entries(group, plural))
            await asyncio.sleep(0)
        return watch

    async def _enqueue(self, changes: Iterable[tuple[Key, Entry | None]]) -> None:
        """Enqueues the keys that changes map to. Yields to the event loop now and then: one object may map to
        thousands of keys, such as a deleted owner, and thousands may change at once."""
        budget = ENQUEUE_BATCH_SIZE
        for key, entry in changes:
            now = self._clock.monotonic()
            budget -= 1 + (len(entry.body) // BYTES_PER_BATCH_ITEM if entry is not None else 0)
            for target in (*self._controller.keys_for(key, entry), None):
                if budget <= 0:
                    await asyncio.sleep(0)
                    budget = ENQUEUE_BATCH_SIZE
                if target is not None:
                    self._schedule(target, now)
                    budget -= 1

    def _schedule(self, key: Key, at: float) -> None:
        if at < self._due_at.get(key, float("inf")):
            self._due_at[key] = at
            heappush(self._queue, (at, next(self._sequence), key))

    def _start_workers(self, group: asyncio.TaskGroup) -> None:
        """Starts workers for the due keys, up to the limit of the controller."""
        limit = min(self._controller.workers, self._running_workers + len(self._queue))
        while self._running_workers < limit and (key := self._next_due()) is not None:
            self._running_workers += 1
            group.create_task(self._run_worker(key))

    def _next_due(self) -> Key | None:
        """The next due key. A key that is being reconciled is queued again when that is done."""
        now = self._clock.monotonic()
        while self._queue and self._queue[0][0] <= now:
            at, _, key = heappop(self._queue)
            if self._due_at.get(key) == at and key not in self._in_progress:
                del self._due_at[key]
                self._in_progress.add(key)
                return key
        return None

    async def _run_worker(self, key: Key | None) -> None:
        while key is not None:
            requeue_after = await self._reconcile(key)
            self._in_progress.discard(key)
            if key in self._due_at:  # it was queued again meanwhile
                heappush(self._queue, (self._due_at[key], next(self._sequence), key))
            if requeue_after is not None:
                self._schedule(key, self._clock.monotonic() + requeue_after)
                self._wake()
            # A reconcile that had nothing to do has not awaited anything: yield to requests here.
            await asyncio.sleep(0)
            key = self._next_due()
        self._running_workers -= 1
        if self._queue:
            self._wake()

    def _wake(self) -> None:
        """Wakes the main loop: a key may be due sooner than it waits for."""
        if self._watch is not None:
            self._watch.wake()

    async def _reconcile(self, key: Key) -> float | None:
        try:
            requeue_after = await self._controller.reconcile(key)
        except ApiError as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            log.info(
                "reconcile failed; will retry", controller=self._controller.name, object=key[2:], reason=error.message
            )
            return RETRY.delay(failures)
        except Exception:  # a bug, maybe triggered by this one object: keep the others going
            log.exception("unexpected error in a controller", controller=self._controller.name, object=key[2:])
            return UNEXPECTED_ERROR_RETRY_SECONDS
        self._failures.pop(key, None)
        return requeue_after

    def _idle_seconds(self) -> float:
        """Seconds until the next key is due, or a default if there is none or no worker is free."""
        if not self._queue or self._running_workers >= self._controller.workers:
            return IDLE_SECONDS
        return max(0.0, self._queue[0][0] - self._clock.monotonic())


async def run_controllers(controllers: Sequence[Controller], view: View, clock: Clock) -> None:
    """Runs controllers concurrently. An error outside of `reconcile` propagates and ends the process."""
    async with asyncio.TaskGroup() as group:
        for controller in controllers:
            group.create_task(ControllerLoop(controller, view, clock).run(), name=f"controller-{controller.name}")
