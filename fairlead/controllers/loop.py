"""The one loop that all controllers run in: look at what changed, make it true, look again when it is due.

A controller watches resources and is asked to reconcile one object at a time, by key. It reads the object itself, so
missed or repeated calls do no harm. What it returns is when it wants to look again, in seconds.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import structlog

from fairlead.controllers.ears import Ears
from fairlead.core.clock import Clock
from fairlead.core.errors import ApiError
from fairlead.storage.contract import Key
from fairlead.storage.view import Entry, View

FIRST_RETRY, LAST_RETRY = 0.05, 30.0
IDLE_SECONDS = 60.0

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


def itself(key: Key, entry: Entry | None) -> Iterable[Key]:
    """For controllers that look at an object when it changes, and at no other."""
    return (key,)


class Loop:
    """One controller at work."""

    def __init__(self, controller: Controller, view: View, clock: Clock) -> None:
        self._controller = controller
        self._view = view
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._retries: dict[Key, float] = {}

    async def run(self) -> None:
        """Works until it is cancelled or the server stops."""
        ears = self._start()
        try:
            while not ears.ended:
                if ears.overflowed:
                    ears.close()
                    ears = self._start()
                for transition in ears.drain():
                    self._note(transition.key, transition.current)
                await self.work()
                await ears.wait(self._idle_for())
        finally:
            ears.close()

    def _start(self) -> Ears:
        ears = Ears(self._view, self._controller.watches)
        for group, plural in self._controller.watches:
            for entry in self._view.entries(group, plural):
                self._note(entry.key, entry)
        return ears

    def _note(self, key: Key, entry: Entry | None) -> None:
        now = self._clock.monotonic()
        self._due.update((each, now) for each in self._controller.concerned(key, entry))

    async def work(self) -> None:
        """Reconciles everything that is due."""
        now = self._clock.monotonic()
        due = [key for key, at in self._due.items() if at <= now]
        for key in due:
            del self._due[key]
        keys = iter(due)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._controller.workers, len(due))):
                group.create_task(self._work_on(keys))

    async def _work_on(self, keys: Iterator[Key]) -> None:
        for key in keys:
            again = await self._reconcile(key)
            if again is not None:
                self._due[key] = min(self._due.get(key, float("inf")), self._clock.monotonic() + again)
            # Whoever finds nothing to do has not waited for anything: requests get their turn here.
            await asyncio.sleep(0)

    async def _reconcile(self, key: Key) -> float | None:
        try:
            again = await self._controller.reconcile(key)
        except ApiError as error:
            delay = min(LAST_RETRY, self._retries.get(key, FIRST_RETRY / 2) * 2)
            self._retries[key] = delay
            log.info("will try again", controller=self._controller.name, object=key[2:], reason=error.message)
            return delay
        self._retries.pop(key, None)
        return again

    def _idle_for(self) -> float:
        if not self._due:
            return IDLE_SECONDS
        return max(0.0, min(self._due.values()) - self._clock.monotonic())


async def run_all(controllers: Sequence[Controller], view: View, clock: Clock) -> None:
    """Runs controllers side by side. A fault in one is ours: it is logged and ends the process rather than hiding."""
    async with asyncio.TaskGroup() as group:
        for controller in controllers:
            group.create_task(Loop(controller, view, clock).run(), name=f"controller-{controller.name}")
