"""How soon an instance is reconciled when something changes in its cluster: at once, but not without end.

Users of a space can bring about as many changes there as they like, and another controller may undo each repair. So
each instance has a budget of passes, and an object that has to be repaired again and again waits longer each time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlead.core.clock import Clock
from fairlead.storage.contract import Key

GATHER_SECONDS = 0.05
"""Changes that come together, as when a namespace is emptied, are answered with one pass."""
BURST, REFILL_SECONDS = 20, 3.0
"""So many passes in a row, and one more for each of so many seconds."""
HURRIES, HURRY_SECONDS = 3, 60.0
"""So many passes in a row can be urgent, and one more for each of so many seconds. Others go by the budget."""
EVENTS, EVENT_SECONDS = 25, 60.0
"""So many Events in a row about one instance, and one more for each of so many seconds. Repairs go on without them."""
PATIENCE, QUIET_SECONDS, LONGEST = 4, 600.0, 300.0
"""So many repairs of an object in a row are nothing special. After that each waits twice as long as the one before, up
to a limit. A row ends when the object did not have to be repaired for so many seconds."""


@dataclass(slots=True)
class _Row:
    """Repairs of one object."""

    count: int = 0
    at: float = 0.0


@dataclass(slots=True)
class _TokenBucket:
    """So many tokens at most, and one more for each of `seconds`."""

    size: float
    seconds: float
    at: float
    tokens: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.size

    def take(self, now: float) -> bool:
        """Takes a token if there is one."""
        self._refill(now)
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def reserve(self, now: float) -> float:
        """Takes a token in any case. Returns the seconds until it is there."""
        self._refill(now)
        self.tokens -= 1
        return max(0.0, -self.tokens * self.seconds)

    def _refill(self, now: float) -> None:
        self.tokens = min(self.size, self.tokens + (now - self.at) / self.seconds)
        self.at = now


class _Budget:
    """Of one instance."""

    __slots__ = ("events", "passes", "rows", "urgent_passes")

    def __init__(self, now: float) -> None:
        self.passes = _TokenBucket(BURST, REFILL_SECONDS, now)
        self.urgent_passes = _TokenBucket(HURRIES, HURRY_SECONDS, now)
        self.events = _TokenBucket(EVENTS, EVENT_SECONDS, now)
        self.rows: dict[str, _Row] = {}


class Pace:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._budgets: dict[Key, _Budget] = {}

    def delay(self, key: Key, path: str, *, urgent: bool = False) -> float:
        """Seconds until the pass that a change of this object calls for. If urgent, it is not charged."""
        now = self._clock.monotonic()
        budget = self._budget(key, now)
        wait = _wait_after(budget.rows.get(path), now)
        if urgent:
            return wait
        return max(wait, GATHER_SECONDS, budget.passes.reserve(now))

    def may_hurry(self, key: Key) -> bool:
        """Whether a pass for it may be urgent once more, which is then counted."""
        now = self._clock.monotonic()
        return self._budget(key, now).urgent_passes.take(now)

    def repaired(self, key: Key, paths: Iterable[str]) -> int:
        """Counts a repair of these objects. Returns how many in a row one of them has had, at most."""
        now = self._clock.monotonic()
        rows = self._budget(key, now).rows
        for path in [each for each, row in rows.items() if now - row.at > QUIET_SECONDS]:
            del rows[path]
        most = 0
        for path in paths:
            row = rows.setdefault(path, _Row())
            row.count, row.at = row.count + 1, now
            most = max(most, row.count)
        return most

    def may_tell(self, key: Key) -> bool:
        """Whether there may be another Event about it, which is then counted."""
        now = self._clock.monotonic()
        return self._budget(key, now).events.take(now)

    def forget(self, key: Key) -> None:
        self._budgets.pop(key, None)

    def _budget(self, key: Key, now: float) -> _Budget:
        if key not in self._budgets:
            self._budgets[key] = _Budget(now)
        return self._budgets[key]


def _wait_after(row: _Row | None, now: float) -> float:
    if row is None or row.count <= PATIENCE or now - row.at > QUIET_SECONDS:
        return 0.0
    return max(0.0, row.at + min(LONGEST, 2.0 ** min(row.count - PATIENCE, 16)) - now)
