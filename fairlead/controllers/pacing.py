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
class _Budget:
    tokens: float
    at: float
    hurries: float = HURRIES
    hurried_at: float = 0.0
    events: float = EVENTS
    told_at: float = 0.0
    rows: dict[str, _Row] = field(default_factory=dict)


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
        budget.tokens = min(BURST, budget.tokens + (now - budget.at) / REFILL_SECONDS) - 1
        budget.at = now
        return max(wait, GATHER_SECONDS, -budget.tokens * REFILL_SECONDS)

    def may_hurry(self, key: Key) -> bool:
        """Whether a pass for it may be urgent once more, which is then counted."""
        now = self._clock.monotonic()
        budget = self._budget(key, now)
        budget.hurries = min(HURRIES, budget.hurries + (now - budget.hurried_at) / HURRY_SECONDS)
        budget.hurried_at = now
        if budget.hurries < 1:
            return False
        budget.hurries -= 1
        return True

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
        budget = self._budget(key, now)
        budget.events = min(EVENTS, budget.events + (now - budget.told_at) / EVENT_SECONDS)
        budget.told_at = now
        if budget.events < 1:
            return False
        budget.events -= 1
        return True

    def forget(self, key: Key) -> None:
        self._budgets.pop(key, None)

    def _budget(self, key: Key, now: float) -> _Budget:
        if key not in self._budgets:
            self._budgets[key] = _Budget(BURST, now)
        return self._budgets[key]


def _wait_after(row: _Row | None, now: float) -> float:
    if row is None or row.count <= PATIENCE or now - row.at > QUIET_SECONDS:
        return 0.0
    return max(0.0, row.at + min(LONGEST, 2.0 ** min(row.count - PATIENCE, 16)) - now)
