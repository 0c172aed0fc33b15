"""Rate limits for reconciles that are triggered by changes in remote clusters.

Users of a space can cause any number of changes there, and another controller may revert each repair. So each instance
has a token bucket of reconciles, and an object that is repaired repeatedly backs off exponentially.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlead.core.backoff import BackoffPolicy
from fairlead.core.clock import Clock
from fairlead.storage.contract import Key

COALESCE_SECONDS = 0.05
"""Changes within this time, as when a namespace is emptied, are coalesced into one reconcile."""
PASS_BURST, PASS_REFILL_SECONDS = 20, 3.0
"""Token bucket of reconciles: its size, and the seconds per token."""
URGENT_BURST, URGENT_REFILL_SECONDS = 3, 60.0
"""Token bucket of urgent reconciles, which bypass the one above: its size, and the seconds per token."""
EVENT_BURST, EVENT_REFILL_SECONDS = 25, 60.0
"""Token bucket of Events about one instance: its size, and the seconds per token. Does not limit repairs."""
REPAIRS = BackoffPolicy(first_seconds=2.0, max_seconds=300.0, free_attempts=5)
"""The delay of repairs of one object in a row."""
STREAK_RESET_SECONDS = 600.0
"""The streak ends when the object needed no repair for so many seconds."""


@dataclass(slots=True)
class _RepairStreak:
    """Consecutive repairs of one object."""

    count: int = 0
    last_repair_at: float = 0.0


@dataclass(slots=True)
class _TokenBucket:
    """Holds at most `size` tokens, and gains one every `seconds`."""

    size: float
    seconds: float
    updated_at: float
    tokens: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.size

    def try_take(self, now: float) -> bool:
        """Takes a token if one is available."""
        self._refill(now)
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def reserve(self, now: float) -> float:
        """Takes a token in any case. Returns the seconds until it is available."""
        self._refill(now)
        self.tokens -= 1
        return max(0.0, -self.tokens * self.seconds)

    def _refill(self, now: float) -> None:
        self.tokens = min(self.size, self.tokens + (now - self.updated_at) / self.seconds)
        self.updated_at = now


class _Budget:
    """The limits of one instance."""

    __slots__ = ("events", "passes", "repair_streaks", "urgent_passes")

    def __init__(self, now: float) -> None:
        self.passes = _TokenBucket(PASS_BURST, PASS_REFILL_SECONDS, now)
        self.urgent_passes = _TokenBucket(URGENT_BURST, URGENT_REFILL_SECONDS, now)
        self.events = _TokenBucket(EVENT_BURST, EVENT_REFILL_SECONDS, now)
        self.repair_streaks: dict[str, _RepairStreak] = {}


class ResyncLimiter:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._budgets: dict[Key, _Budget] = {}

    def next_delay(self, key: Key, path: str, *, urgent: bool = False) -> float:
        """Seconds until the reconcile for a change of this object. An urgent one takes no token of the main bucket."""
        now = self._clock.monotonic()
        budget = self._budget(key, now)
        wait = _repair_delay(budget.repair_streaks.get(path), now)
        if urgent:
            return wait
        return max(wait, COALESCE_SECONDS, budget.passes.reserve(now))

    def allow_urgent(self, key: Key) -> bool:
        """Whether a reconcile may be urgent. Takes a token if so."""
        now = self._clock.monotonic()
        return self._budget(key, now).urgent_passes.try_take(now)

    def record_repairs(self, key: Key, paths: Iterable[str]) -> int:
        """Records a repair of these objects. Returns the longest streak among them."""
        now = self._clock.monotonic()
        rows = self._budget(key, now).repair_streaks
        for path in [each for each, row in rows.items() if now - row.last_repair_at > STREAK_RESET_SECONDS]:
            del rows[path]
        longest = 0
        for path in paths:
            row = rows.setdefault(path, _RepairStreak())
            row.count, row.last_repair_at = row.count + 1, now
            longest = max(longest, row.count)
        return longest

    def allow_event(self, key: Key) -> bool:
        """Whether another Event may be recorded. Takes a token if so."""
        now = self._clock.monotonic()
        return self._budget(key, now).events.try_take(now)

    def forget(self, key: Key) -> None:
        self._budgets.pop(key, None)

    def _budget(self, key: Key, now: float) -> _Budget:
        if key not in self._budgets:
            self._budgets[key] = _Budget(now)
        return self._budgets[key]


def _repair_delay(streak: _RepairStreak | None, now: float) -> float:
    if streak is None or now - streak.last_repair_at > STREAK_RESET_SECONDS:
        return 0.0
    return max(0.0, streak.last_repair_at + REPAIRS.delay(streak.count) - now)
