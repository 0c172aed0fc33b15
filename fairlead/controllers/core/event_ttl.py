"""Deletes Events when their TTL is over, counted from their last occurrence."""

from datetime import datetime

from fairlead.controllers.runtime.loop import same_key
from fairlead.core.objects import Object, get_path
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key

_TIMESTAMP_PATHS = ("series.lastObservedTime", "lastTimestamp", "eventTime", "metadata.creationTimestamp")


class EventTtlController:
    name, workers = "event-ttl", 1
    watches = (("", "events"),)
    keys_for = staticmethod(same_key)

    def __init__(self, registry: Registry, ttl_seconds: float) -> None:
        self._registry = registry
        self._ttl_seconds = ttl_seconds

    async def reconcile(self, key: Key) -> float | None:
        events = self._registry.resource("", "events")
        entry = events.get_cached(key[2], key[3])
        if entry is None:
            return None
        age = (self._registry.clock.now() - _last_occurrence(decode(entry))).total_seconds()
        if age < self._ttl_seconds:
            return self._ttl_seconds - age
        await events.delete_if_exists(key[2], key[3])
        return None


def _last_occurrence(event: Object) -> datetime:
    """The time of the last occurrence as the reporter gave it, but not before the Event was created here."""
    created = get_path(event, "metadata.creationTimestamp")
    reported = next((value for path in _TIMESTAMP_PATHS if (value := get_path(event, path))), created)
    return max(datetime.fromisoformat(reported), datetime.fromisoformat(created))
