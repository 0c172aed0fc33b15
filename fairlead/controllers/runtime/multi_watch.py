"""Watchers of several resources, drained and waited for as if they were one. Each controller's loop has a pair.

Every change of every resource that a controller follows comes by here, while its clients wait for their answers. So a
watcher rings when it has something, and neither waiting nor draining looks at those that have not.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from fairlead.storage.view.fan_out import Transition, Watcher
from fairlead.storage.view.view import Entry, View

QUEUE = 100_000
SHORTEST_SECONDS = 1e-6
"""A loop may find a timer due a hair before its clock says so. Who then waits for the rest must not go in circles."""


class Ears:
    """Hears of everything that happens to some resources from now on, until closed."""

    def __init__(self, view: View, resources: Sequence[tuple[str, str]]) -> None:
        self._view = view
        self._watchers = {resource: view.watch(*resource, "", view.revision, QUEUE) for resource in resources}
        self._heard: list[Watcher[Entry]] = []
        """Those that have something, in the order in which they got it."""
        self._nudged = False
        self._wake: asyncio.Future[None] | None = None
        self.ended = False
        self.overflowed = False
        """Whether something was missed: then everything has to be looked at again."""
        for watcher in self._watchers.values():
            watcher.bell = partial(self._hear, watcher)
            self.ended = self.ended or watcher.ended

    def drain(self) -> list[Transition[Entry]]:
        """Everything that was heard; what happened to one resource is in order."""
        heard, self._heard = self._heard, []
        return [transition for watcher in heard for transition in watcher.drain()]

    def nudge(self) -> None:
        """Ends the wait under way; if there is none, the next one at once."""
        self._nudged = True
        self._rouse()

    async def wait(self, seconds: float, until: asyncio.Event | None = None) -> None:
        """Returns when there is something to hear, when it is nudged, or when the time is over.

        Or when `until` is set. That costs a task for each wait, so it is for those who seldom wait.
        """
        if not (self._heard or self._nudged or self.ended or self.overflowed):
            await self._sleep(seconds, until)
        self._nudged = False

    def close(self) -> None:
        for resource, watcher in self._watchers.items():
            watcher.bell = None
            self._view.unwatch(*resource, watcher)

    async def _sleep(self, seconds: float, until: asyncio.Event | None) -> None:
        loop = asyncio.get_running_loop()
        wake = self._wake = loop.create_future()
        alarm = loop.call_later(max(seconds, SHORTEST_SECONDS), _finish, wake)
        other = asyncio.create_task(until.wait()) if until is not None else None
        if other is not None:
            # Of this wait only: it is also done when it is given up, and the next wait must not end with that.
            other.add_done_callback(lambda _: _finish(wake))
        try:
            await wake
        finally:
            self._wake = None
            alarm.cancel()
            if other is not None:
                other.cancel()

    def _hear(self, watcher: Watcher[Entry]) -> None:
        self._heard.append(watcher)
        self.ended = self.ended or watcher.ended
        self.overflowed = self.overflowed or watcher.overflowed
        self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None:
            _finish(self._wake)


def _finish(wake: "asyncio.Future[None]") -> None:
    if not wake.done():
        wake.set_result(None)
