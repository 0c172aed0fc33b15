"""The one loop that all controllers run in: look at what changed, make it true, look again when it is due.

A controller watches resources and is asked to reconcile one object at a time, by key. It reads the object itself, so
missed or repeated calls do no harm. What it returns is when it wants to look again, in seconds.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Protocol, runtime_checkable

import structlog

from fairlead.controllers.runtime.multi_watch import Ears
from fairlead.core.clock import Clock
from fairlead.core.errors import ApiError
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry, View

FIRST_RETRY, LAST_RETRY = 0.05, 30.0
IDLE_SECONDS = 60.0
STEP = 500
"""How many objects are noted in a row, before others get their turn."""
BYTES_PER_STEP = 4096
"""So many bytes of an object count as one more."""
FAULT_SECONDS = 60.0
"""When an object is looked at again that a controller could not cope with."""

log = structlog.get_logger(__name__)


class Controller(Protocol):
    name: str
    workers: int
    """How many objects it looks at side by side."""

    @property
    def watches(self) -> Sequence[tuple[str, str]]:
        """The resources, by group and plural, whose changes it hears of."""

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """Which objects to look at now that this one is as it is, or gone (None). For most controllers: `itself`."""

    async def reconcile(self, key: Key) -> float | None:
        """Makes one object true. Returns the seconds after which to look at it again, or None for "when it changes"."""


Requeue = Callable[[Key, float], None]
"""Has an object reconciled after so many seconds, or earlier if it is due earlier."""


@runtime_checkable
class Prompted(Protocol):
    """A controller that also reacts to what happens outside of the stored objects."""

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """Called when the loop starts. What it returns is called when the loop ends."""


def itself(key: Key, entry: Entry | None) -> Iterable[Key]:
    """For controllers that look at an object when it changes, and at no other."""
    return (key,)


class Loop:
    """One controller at work.

    Workers take what is due, the longest due first, and go when nothing is. They do not wait for each other, so one
    object that takes long, such as a cluster that does not answer, holds up nobody but itself.
    """

    def __init__(self, controller: Controller, view: View, clock: Clock) -> None:
        self._controller = controller
        self._view = view
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._queue: list[tuple[float, int, Key]] = []
        """What is due, by time. An entry whose time is not the one in `_due` any more is passed over."""
        self._order = count()
        self._busy: set[Key] = set()
        self._workers = 0
        self._retries: dict[Key, float] = {}
        self._ears: Ears | None = None

    async def run(self) -> None:
        """Works until it is cancelled or the server stops."""
        unsubscribe = self._controller.subscribe(self.requeue) if isinstance(self._controller, Prompted) else None
        try:
            ears = await self._start()
            async with asyncio.TaskGroup() as group:
                while not ears.ended:
                    if ears.overflowed:
                        ears.close()
                        ears = await self._start()
                    await self._note((each.key, each.current) for each in ears.drain())
                    self._employ(group)
                    await ears.wait(self._idle_for())
        finally:
            if unsubscribe is not None:
                unsubscribe()
            if self._ears is not None:
                self._ears.close()

    def requeue(self, key: Key, seconds: float) -> None:
        """Has an object reconciled after so many seconds, or earlier if it is due earlier."""
        self._schedule(key, self._clock.monotonic() + seconds)
        self._hurry()

    async def _start(self) -> Ears:
        """Looks at all there is, in small steps so that requests get their turns, and listens meanwhile."""
        ears = self._ears = Ears(self._view, self._controller.watches)
        for group, plural in self._controller.watches:
            await self._note((entry.key, entry) for entry in self._view.entries(group, plural))
            await asyncio.sleep(0)
        return ears

    async def _note(self, news: Iterable[tuple[Key, Entry | None]]) -> None:
        """Has everything looked at that is concerned. One object may concern thousands, as an owner that goes does, and
        thousands may change at once: others get their turns meanwhile."""
        room = STEP
        for key, entry in news:
            now = self._clock.monotonic()
            room -= 1 + (len(entry.body) // BYTES_PER_STEP if entry is not None else 0)
            for each in (*self._controller.concerned(key, entry), None):
                if room <= 0:
                    await asyncio.sleep(0)
                    room = STEP
                if each is not None:
                    self._schedule(each, now)
                    room -= 1

    def _schedule(self, key: Key, at: float) -> None:
        if at < self._due.get(key, float("inf")):
            self._due[key] = at
            heappush(self._queue, (at, next(self._order), key))

    def _employ(self, group: asyncio.TaskGroup) -> None:
        """As many workers as there is work for, and as the controller wants."""
        wanted = min(self._controller.workers, self._workers + len(self._queue))
        while self._workers < wanted and (key := self._take()) is not None:
            self._workers += 1
            group.create_task(self._work(key))

    def _take(self) -> Key | None:
        """The next that is due. What is being looked at right now comes up again when that is done."""
        now = self._clock.monotonic()
        while self._queue and self._queue[0][0] <= now:
            at, _, key = heappop(self._queue)
            if self._due.get(key) == at and key not in self._busy:
                del self._due[key]
                self._busy.add(key)
                return key
        return None

    async def _work(self, key: Key | None) -> None:
        while key is not None:
            again = await self._reconcile(key)
            self._busy.discard(key)
            if key in self._due:  # it has changed meanwhile
                heappush(self._queue, (self._due[key], next(self._order), key))
            if again is not None:
                self._schedule(key, self._clock.monotonic() + again)
                self._hurry()
            # Whoever finds nothing to do has not waited for anything: requests get their turn here.
            await asyncio.sleep(0)
            key = self._take()
        self._workers -= 1
        if self._queue:
            self._hurry()

    def _hurry(self) -> None:
        """Something may be due sooner than what is being waited for."""
        if self._ears is not None:
            self._ears.nudge()

    async def _reconcile(self, key: Key) -> float | None:
        try:
            again = await self._controller.reconcile(key)
        except ApiError as error:
            delay = min(LAST_RETRY, self._retries.get(key, FIRST_RETRY / 2) * 2)
            self._retries[key] = delay
            log.info("will try again", controller=self._controller.name, object=key[2:], reason=error.message)
            return delay
        except Exception:  # a fault of ours, perhaps brought about by this one object: the others must not suffer
            log.exception("a controller failed unexpectedly", controller=self._controller.name, object=key[2:])
            return FAULT_SECONDS
        self._retries.pop(key, None)
        return again

    def _idle_for(self) -> float:
        """Until the next is due, as long as there is a worker to be had for it."""
        if not self._queue or self._workers >= self._controller.workers:
            return IDLE_SECONDS
        return max(0.0, self._queue[0][0] - self._clock.monotonic())


async def run_all(controllers: Sequence[Controller], view: View, clock: Clock) -> None:
    """Runs controllers side by side. A fault outside of any object ends the process rather than hiding."""
    async with asyncio.TaskGroup() as group:
        for controller in controllers:
            group.create_task(Loop(controller, view, clock).run(), name=f"controller-{controller.name}")
