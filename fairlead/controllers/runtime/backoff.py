"""Exponential backoff for failed reconciles of instances, reset when an input changes.

For `controllers/instances/remote_instance.py`. Every write to an instance triggers a reconcile, including the status
write that reports the failure. So a reconcile that comes too early asks here how long to wait.
"""

from dataclasses import dataclass, replace

from fairlead.controllers.instances.remote_errors import INFO, InstanceError
from fairlead.core.backoff import BackoffPolicy, add_jitter
from fairlead.core.clock import Clock

RETRY = BackoffPolicy(first_seconds=5.0, max_seconds=120.0)
REQUEUE_SECONDS = 15.0
"""Requeue delay of an instance that is in progress."""

InstanceKey = tuple[str, str]
"""Namespace and name of an instance."""


@dataclass(frozen=True, slots=True)
class _Failure:
    attempt: object
    failures: int
    due: float


class InstanceBackoff:
    """`attempt` is a value for all inputs of a try. A try with other inputs is due at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[InstanceKey, _Failure] = {}

    def remaining_seconds(self, key: InstanceKey, attempt: object) -> float:
        """Seconds until the next try; 0 if it is due."""
        known = self._failures.get(key)
        if known is None or known.attempt != attempt:
            return 0.0
        return max(0.0, known.due - self._clock.monotonic())

    def record_failure(self, key: InstanceKey, attempt: object, error: InstanceError) -> float:
        """Records a failed try. Returns the seconds until the next one."""
        if error.severity == INFO:
            self.forget(key)
            return add_jitter(REQUEUE_SECONDS)
        known = self._failures.get(key)
        failures = 1 if known is None or known.attempt != attempt else known.failures + 1
        wait = add_jitter(RETRY.delay(failures))
        self._failures[key] = _Failure(attempt, failures, self._clock.monotonic() + wait)
        return wait

    def shorten(self, key: InstanceKey, seconds: float) -> bool:
        """Brings the next try forward to at most so many seconds from now. Returns whether that changed anything."""
        known = self._failures.get(key)
        due = self._clock.monotonic() + seconds
        if known is None or known.due <= due:
            return False
        self._failures[key] = replace(known, due=due)
        return True

    def forget(self, key: InstanceKey) -> None:
        self._failures.pop(key, None)
