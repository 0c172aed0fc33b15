"""Exponential backoff: the delays before attempts that follow failures, and jitter for what happens periodically."""

import random
from dataclasses import dataclass

MAX_DOUBLINGS = 60
"""More failures do not change a delay; the power would overflow."""


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """The delay doubles with each failure in a row, from the first one that has a delay up to a maximum."""

    first_seconds: float
    max_seconds: float
    free_attempts: int = 1
    """How many attempts in a row have no delay before them."""
    jitter: float = 0.0
    """The random part of each delay, from 0 to 1, so that many clients of one server do not retry all at once."""

    def delay(self, failures: int) -> float:
        """Seconds from the latest of so many failures in a row to the next attempt."""
        doublings = failures - self.free_attempts
        if doublings < 0:
            return 0.0
        longest = min(self.max_seconds, self.first_seconds * 2.0 ** min(doublings, MAX_DOUBLINGS))
        return longest * random.uniform(1 - self.jitter, 1)


class Backoff:
    """Counts the failures in a row of one thing that is tried repeatedly."""

    def __init__(self, policy: BackoffPolicy) -> None:
        self._policy = policy
        self._failures = 0

    def next_delay(self) -> float:
        """Records a failure. Returns the seconds until the next attempt."""
        self._failures += 1
        return self._policy.delay(self._failures)

    def reset(self) -> None:
        """Records a success."""
        self._failures = 0


def add_jitter(seconds: float) -> float:
    """Varies by up to 20 %, so that what started together spreads out."""
    return seconds * random.uniform(0.8, 1.2)
