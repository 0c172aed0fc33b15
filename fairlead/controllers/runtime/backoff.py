"""How long to wait before what has failed is tried again: longer each time, as long as nothing has changed.

For `controllers/instances/remote_instance.py`. Each write to an instance has it looked at, also the one that says what has failed, so
whoever comes too early is told how long to wait.
"""

import random
from dataclasses import dataclass, replace

from fairlead.controllers.instances.remote_errors import INFO, Trouble
from fairlead.core.clock import Clock

FIRST, LONGEST = 5.0, 120.0
RETRY = 15.0
"""Seconds until the next look at one that is on its way."""

Where = tuple[str, str]
"""Namespace and name of an instance."""


def jittered(seconds: float) -> float:
    """Up to a fifth off either way, so that what began together does not stay together."""
    return seconds * random.uniform(0.8, 1.2)


@dataclass(frozen=True, slots=True)
class _Failure:
    attempt: object
    delay: float
    due: float


class Backoff:
    """`attempt` stands for everything that a try depends on: another one is due at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[Where, _Failure] = {}

    def wait(self, where: Where, attempt: object) -> float:
        """Seconds until the next try; 0 when it is due."""
        known = self._failures.get(where)
        if known is None or known.attempt != attempt:
            return 0.0
        return max(0.0, known.due - self._clock.monotonic())

    def failed(self, where: Where, attempt: object, trouble: Trouble) -> float:
        """Takes note of a try that has failed. Returns the seconds until the next."""
        if trouble.severity == INFO:
            self.forget(where)
            return jittered(RETRY)
        known = self._failures.get(where)
        delay = FIRST
        if known is not None and known.attempt == attempt:
            delay = min(LONGEST, known.delay * 2)
        wait = jittered(delay)
        self._failures[where] = _Failure(attempt, delay, self._clock.monotonic() + wait)
        return wait

    def shorten(self, where: Where, seconds: float) -> bool:
        """Has the next try made after so many seconds, if it would be made later than that. Tells whether it would."""
        known, due = self._failures.get(where), self._clock.monotonic() + seconds
        if known is None or known.due <= due:
            return False
        self._failures[where] = replace(known, due=due)
        return True

    def forget(self, where: Where) -> None:
        self._failures.pop(where, None)
