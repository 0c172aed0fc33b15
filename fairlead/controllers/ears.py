"""Watchers of several resources, drained and waited for as if they were one. Each controller's loop has a pair."""

import asyncio
from collections.abc import Iterator, Sequence

from fairlead.storage.view import Entry, View
from fairlead.storage.watchers import Transition, Watcher

QUEUE = 100_000
WAIT_SECONDS = 60.0
"""How long one wait for one watcher lasts before it is begun again; nobody depends on it."""


class Ears:
    """Hears of everything that happens to some resources from now on, until closed."""

    def __init__(self, view: View, resources: Sequence[tuple[str, str]]) -> None:
        self._view = view
        self._watchers = {resource: view.watch(*resource, "", view.revision, QUEUE) for resource in resources}
        self._waits: dict[Watcher[Entry], asyncio.Task[None]] = {}
        self._nudged: asyncio.Task[bool] | None = None

    @property
    def ended(self) -> bool:
        return any(watcher.ended for watcher in self._watchers.values())

    @property
    def overflowed(self) -> bool:
        """Whether something was missed: then everything has to be looked at again."""
        return any(watcher.overflowed for watcher in self._watchers.values())

    def drain(self) -> Iterator[Transition[Entry]]:
        """Everything that was heard; what happened to one resource is in order."""
        for watcher in self._watchers.values():
            yield from watcher.drain()

    async def wait(self, seconds: float, nudge: asyncio.Event) -> None:
        """Returns when there is something to hear, when it is nudged, or when the time is over.

        A wait that was not answered stays for the next call, so hearing one resource costs nothing for the others.
        """
        for watcher in self._watchers.values():
            if watcher not in self._waits or self._waits[watcher].done():
                self._waits[watcher] = asyncio.create_task(watcher.wait(WAIT_SECONDS))
        if self._nudged is None or self._nudged.done():
            self._nudged = asyncio.create_task(nudge.wait())
        waits = (*self._waits.values(), self._nudged)
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def close(self) -> None:
        for wait in self._waits.values():
            wait.cancel()
        if self._nudged is not None:
            self._nudged.cancel()
        for resource, watcher in self._watchers.items():
            self._view.unwatch(*resource, watcher)
