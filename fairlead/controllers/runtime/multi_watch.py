"""A watch of several resources at once, for the controllers' loops and the leader election.

Every change of every watched resource passes through here, on the event loop that also serves requests. So a watcher
signals when it has events, and neither waiting nor draining iterates over idle watchers.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

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
        self._wake_requested = False
        self._waiter: asyncio.Future[None] | None = None
        self.is_ended = False
        self.has_overflowed = False
        """Whether events were dropped: then everything has to be listed again."""
        for watcher in self._watchers.values():
            watcher.on_ready = partial(self._on_ready, watcher)
            self.is_ended = self.is_ended or watcher.ended

    def drain(self) -> list[Transition[Entry]]:
        """All pending changes. Those of one resource are in order."""
        ready, self._ready_watchers = self._ready_watchers, []
        return [transition for watcher in ready for transition in watcher.drain()]

    def wake(self) -> None:
        """Ends the current wait; if there is none, the next one returns at once."""
        self._wake_requested = True
        self._wake_waiter()

    async def wait(self, seconds: float, until: asyncio.Event | None = None) -> None:
        """Returns when there are changes, on `wake`, on timeout, or when `until` is set.

        Each wait with `until` costs a task, so it is for callers that seldom wait.
        """
        if not (self._ready_watchers or self._wake_requested or self.is_ended or self.has_overflowed):
            await self._sleep(seconds, until)
        self._wake_requested = False

    def close(self) -> None:
        for resource, watcher in self._watchers.items():
            watcher.on_ready = None
            self._view.unwatch(*resource, watcher)

    async def _sleep(self, seconds: float, until: asyncio.Event | None) -> None:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = loop.call_later(max(seconds, MIN_WAIT_SECONDS), _resolve, waiter)
        until_task = asyncio.create_task(until.wait()) if until is not None else None
        if until_task is not None:
            # Ends this wait only: the task is also done when it is cancelled, which must not end the next wait.
            until_task.add_done_callback(lambda _: _resolve(waiter))
        try:
            await waiter
        finally:
            self._waiter = None
            timer.cancel()
            if until_task is not None:
                until_task.cancel()

    def _on_ready(self, watcher: Watcher[Entry]) -> None:
        self._ready_watchers.append(watcher)
        self.is_ended = self.is_ended or watcher.ended
        self.has_overflowed = self.has_overflowed or watcher.overflowed
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter is not None:
            _resolve(self._waiter)


def _resolve(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
