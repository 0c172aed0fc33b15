"""Which virtual clusters were reconciled as a whole lately, with nothing changed since: for them, a probe is enough.

A full reconcile asks the cluster for everything that an instance has there. With a probe every few seconds, that would
be most of what idle virtual clusters cost. What is changed inside a virtual cluster is noticed by the next one.
"""

from fairlead.core.backoff import add_jitter
from fairlead.core.clock import Clock

FULL_RECONCILE_SECONDS = 300.0
InstanceKey = tuple[str, str]


class FullReconciles:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed: set[InstanceKey] = set()
        self._due: dict[InstanceKey, float] = {}

    def mark_changed(self, key: InstanceKey) -> None:
        """Something that the instance depends on has changed."""
        self._changed.add(key)

    def is_due(self, key: InstanceKey) -> bool:
        return key in self._changed or self._clock.monotonic() >= self._due.get(key, 0.0)

    def begin(self, key: InstanceKey) -> None:
        """A change from now on makes another one due."""
        self._changed.discard(key)
        self._due.pop(key, None)

    def finish(self, key: InstanceKey) -> None:
        """It has succeeded in everything."""
        self._due[key] = self._clock.monotonic() + add_jitter(FULL_RECONCILE_SECONDS)

    def forget(self, key: InstanceKey) -> None:
        self._changed.discard(key)
        self._due.pop(key, None)
