"""A watch of several resources at once, for the controllers' loops and the leader election.

Every change of every watched resource passes through here, on the event loop that also serves requests. So a watcher
signals when it has events, and neither waiting nor draining iterates over idle watchers.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from fairlead.storage.view.fan_out import Transition, Watcher
from fairlead.storage.view.view import Entry, View

QUEUE = 100_000
SHORTEST_SECONDS = 1e-6
"""A timer may fire slightly before the clock reaches its time. Waiting for the rest must not become a busy loop."""


class Ears:
    """Receives all changes of some resources from now on, until closed."""

    def __init__(self, view: View, resources: Sequence[tuple[str, str]]) -> None:
        self._view = view
        self._watchers = {resource: view.watch(*resource, "", view.revision, QUEUE) for resource in resources}
        self._heard: list[Watcher[Entry]] = []
        """Watchers with pending events, in order of arrival."""
        self._nudged = False
        self._wake: asyncio.Future[None] | None = None
        self.ended = False
        self.overflowed = False
        """Whether events were dropped: then everything has to be listed again."""
        for watcher in self._watchers.values():
            watcher.bell = partial(self._hear, watcher)
            self.ended = self.ended or watcher.ended

    def drain(self) -> list[Transition[Entry]]:
        """All pending changes. Those of one resource are in order."""
        ready, self._heard = self._heard, []
        return [transition for watcher in ready for transition in watcher.drain()]

    def nudge(self) -> None:
        """Ends the current wait; if there is none, the next one returns at once."""
        self._nudged = True
        self._rouse()

    async def wait(self, seconds: float, until: asyncio.Event | None = None) -> None:
        """Returns when there are changes, on `wake`, on timeout, or when `until` is set.

        Each wait with `until` costs a task, so it is for callers that seldom wait.
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
        waiter = self._wake = loop.create_future()
        timer = loop.call_later(max(seconds, SHORTEST_SECONDS), _finish, waiter)
        until_task = asyncio.create_task(until.wait()) if until is not None else None
        if until_task is not None:
            # Ends this wait only: the task is also done when it is cancelled, which must not end the next wait.
            until_task.add_done_callback(lambda _: _finish(waiter))
        try:
            await waiter
        finally:
            self._wake = None
            timer.cancel()
            if until_task is not None:
                until_task.cancel()

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
