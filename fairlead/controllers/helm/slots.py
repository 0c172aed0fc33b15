"""Limits how many charts are deployed at the same time, and shares the slots fairly between projects.

There is no queue of tasks: a release without a slot reports that in a condition. What is remembered here are the
projects that were refused, and the keys of their instances. The next free slot is for the project that holds the fewest
slots, and among these for the one that waits longest, however often others ask meanwhile. When a slot becomes free,
`on_free` is called with the key of an instance that is next. If that does not ask again, the others do after some
seconds.

A project holds at most half of the slots, and the last free slot is for a project that holds none. So two projects with
many slow charts never keep a third one waiting.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fairlead.controllers.instances.remote_errors import INFO, InstanceError
from fairlead.core.clock import Clock
from fairlead.storage.contract import Key

MAX_CONCURRENT_RUNS = 4
WAITING_FOR_HELM_SLOT = "WaitingForHelmSlot"
"""The reason while no slot for a helm run is free."""
FORGET_SECONDS = 20.0
"""A waiting project that does not ask for so long has no more charts to deploy. Releases ask more often."""


@dataclass(slots=True)
class _Wait:
    """Since when a project waits, and when it asked last."""

    since: float
    latest_at: float


class HelmSlots:
    """The slots of one server."""

    def __init__(
        self,
        clock: Clock,
        max_runs: int = MAX_CONCURRENT_RUNS,
        on_free: Callable[[Key], None] = lambda key: None,
    ) -> None:
        self._clock = clock
        self._on_free = on_free
        self._waiting_keys: dict[Key, str] = {}
        """The project of each instance that waits, in the order in which they were refused."""
        self._max_runs = max_runs
        self._in_use: Counter[str] = Counter()
        self._waits: dict[str, _Wait] = {}

    @contextmanager
    def acquire(self, project: str, key: Key | None = None) -> Iterator[None]:
        """Holds a slot for the block. Raises InstanceError if the project has to wait; then `on_free` is called with
        the key when it is its turn."""
        if not self._may_run(project):
            if key is not None:
                self._waiting_keys[key] = project
            message = "the limit of concurrent helm runs is reached; this is retried soon"
            raise InstanceError(WAITING_FOR_HELM_SLOT, message, INFO)
        self._waits.pop(project, None)
        if key is not None:
            self._waiting_keys.pop(key, None)
        self._in_use[project] += 1
        try:
            yield
        finally:
            self._in_use[project] -= 1
            if not self._in_use[project]:
                del self._in_use[project]
            self._wake_next()

    def _wake_next(self) -> None:
        """Calls `on_free` for as many instances as there are free slots, in turn."""
        now = self._clock.monotonic()

        def turn(key: Key) -> tuple[int, float]:
            project = self._waiting_keys[key]
            wait = self._waits.get(project)
            return self._in_use[project], wait.since if wait is not None else now

        free = self._max_runs - self._in_use.total()
        for key in sorted(self._waiting_keys, key=turn)[:free]:
            del self._waiting_keys[key]
            self._on_free(key)

    def _may_run(self, project: str) -> bool:
        """Whether a slot is free for the project, after those that others wait for. If not, the project waits."""
        now = self._clock.monotonic()
        self._waits = {name: wait for name, wait in self._waits.items() if now - wait.latest_at < FORGET_SECONDS}
        wait = self._waits.setdefault(project, _Wait(since=now, latest_at=now))
        wait.latest_at = now
        held = self._in_use[project]
        if held and held >= self._max_runs // 2:
            return False
        turn = (held, wait.since)
        earlier = sum((self._in_use[name], other.since) < turn for name, other in self._waits.items())
        reserved = 1 if held else 0
        return self._max_runs - self._in_use.total() - earlier > reserved
