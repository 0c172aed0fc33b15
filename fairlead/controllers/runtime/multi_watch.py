"""A watch of several resources at once, for the controllers' loops and the leader election.

Every change of every watched resource passes through here, on the event loop that also serves requests. So a watcher
signals when it has events, and neither waiting nor draining iterates over idle watchers.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from fairlead.core.waiting import Signal
from fairlead.storage.view.fan_out import Transition, Watcher
from fairlead.storage.view.view import Entry, View

WATCH_QUEUE_SIZE = 100_000
MIN_WAIT_SECONDS = 1e-6
"""A timer may fire slightly before the clock reaches its time. Waiting for the rest must not become a busy loop."""


class MultiWatch:
    """Receives all changes of some resources from now on, until closed."""

    def __init__(self, view: View, resources: Sequence[tuple[str, str]]) -> None:
        self._view = view
        self._watchers = {
            resource: view.watch(*resource, "", view.revision, WATCH_QUEUE_SIZE) for resource in resources
        }
        self._ready_watchers: list[Watcher[Entry]] = []
        """Watchers with pending events, in order of arrival."""
        self._signal = Signal()
        self.is_ended = False
        self.has_overflowed = False
        """Whether events were dropped: then everything has to be listed again."""
        for watcher in self._watchers.values():
            watcher.on_ready = partial(self._on_ready, watcher)
            self.is_ended = self.is_ended or watcher.ended

    def drain(self) -> list[Transition[Entry]]:
        """All pending changes. Those of one resource are in order."""
        self._signal.clear()
        ready, self._ready_watchers = self._ready_watchers, []
        return [transition for watcher in ready for transition in watcher.drain()]

    def wake(self) -> None:
        """Ends the current wait; if there is none, the next one returns at once, unless `drain` is called before."""
        self._signal.wake()

    async def wait(self, seconds: float, until: asyncio.Event | None = None) -> None:
        """Returns when there are changes, on `wake`, on timeout, or when `until` is set.

        Each wait with `until` costs a task, so it is for callers that seldom wait.
        """
        if self._ready_watchers or self.is_ended or self.has_overflowed:
            return
        seconds = max(seconds, MIN_WAIT_SECONDS)
        if until is None:
            await self._signal.wait(seconds)
            return
        until_task = asyncio.create_task(until.wait())
        until_task.add_done_callback(self._on_until_done)
        try:
            await self._signal.wait(seconds)
        finally:
            until_task.remove_done_callback(self._on_until_done)
            until_task.cancel()

    def close(self) -> None:
        for resource, watcher in self._watchers.items():
            watcher.on_ready = None
            self._view.unwatch(*resource, watcher)

    def _on_until_done(self, _: object) -> None:
        self._signal.wake()

    def _on_ready(self, watcher: Watcher[Entry]) -> None:
        self._ready_watchers.append(watcher)
        self.is_ended = self.is_ended or watcher.ended
        self.has_overflowed = self.has_overflowed or watcher.overflowed
        self._signal.wake()
