"""Deletes Events when their TTL is over, counted from their last occurrence."""

from contextlib import suppress
from datetime import datetime

from fairlead.controllers.runtime.loop import itself
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, dig
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import Deleting, by_the_server
from fairlead.storage.contract import Key

_TIMES = ("series.lastObservedTime", "lastTimestamp", "eventTime", "metadata.creationTimestamp")


class Expiry:
    name, workers = "expiry", 1
    watches = (("", "events"),)
    concerned = staticmethod(itself)

    def __init__(self, registry: Registry, seconds: float) -> None:
        self._registry = registry
        self._seconds = seconds

    async def reconcile(self, key: Key) -> float | None:
        events = self._registry.resource("", "events")
        entry = events.peek(key[2], key[3])
        if entry is None:
            return None
        age = (self._registry.clock.now() - _last_seen(decode(entry))).total_seconds()
        if age < self._seconds:
            return self._seconds - age
        with suppress(NotFound):
            await events.delete(key[2], key[3], Deleting(), by_the_server())
        return None


def _last_seen(event: Object) -> datetime:
    """The time of the last occurrence as the reporter gave it, but not before the Event was created here."""
    created = dig(event, "metadata.creationTimestamp")
    reported = next((value for path in _TIMES if (value := dig(event, path))), created)
    return max(datetime.fromisoformat(reported), datetime.fromisoformat(created))
