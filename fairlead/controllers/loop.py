"""The one loop that all controllers run in: look at what changed, make it true, look again when it is due.

A controller watches resources and is asked to reconcile one object at a time, by key. It reads the object itself, so
missed or repeated calls do no harm. What it returns is when it wants to look again, in seconds.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from fairlead.core.clock import Clock
from fairlead.core.errors import ApiError
from fairlead.storage.contract import Key
from fairlead.storage.view import Entry, View
from fairlead.storage.watchers import Watcher

QUEUE = 100_000
FIRST_RETRY, LAST_RETRY = 0.05, 30.0
IDLE_SECONDS = 60.0

log = structlog.get_logger(__name__)


class Controller(Protocol):
    name: str
    group: str
    plural: str

    async def reconcile(self, key: Key) -> float | None:
        """Makes one object true. Returns the seconds after which to look at it again, or None for "when it changes"."""


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
        watcher = self._start()
        try:
            while not watcher.ended:
                if watcher.overflowed:
                    self._view.unwatch(self._controller.group, self._controller.plural, watcher)
                    watcher = self._start()
                for transition in watcher.drain():
                    self._due[transition.key] = self._clock.monotonic()
                await self.work()
                await watcher.wait(self._idle_for())
        finally:
            self._view.unwatch(self._controller.group, self._controller.plural, watcher)

    def _start(self) -> Watcher[Entry]:
        group, plural = self._controller.group, self._controller.plural
        watcher = self._view.watch(group, plural, "", self._view.revision, QUEUE)
        now = self._clock.monotonic()
        self._due.update((entry.key, now) for entry in self._view.entries(group, plural))
        return watcher

    async def work(self) -> None:
        """Reconciles everything that is due."""
        now = self._clock.monotonic()
        for key in [key for key, at in self._due.items() if at <= now]:
            del self._due[key]
            again = await self._reconcile(key)
            if again is not None:
                self._due[key] = min(self._due.get(key, float("inf")), self._clock.monotonic() + again)

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
