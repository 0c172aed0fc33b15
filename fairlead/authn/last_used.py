"""Records the last use of access keys and writes it to `status.lastActivity` in the background.

A request only updates a dictionary (`record_use`); a background task writes the status. A key is written at most once
per cooldown period, by default once a minute, once an hour if a program uses it all the time, and more often if its
expiry depends on the last use (`domain/key_lifetime.py`). Replicas and workers see what others have written, so they do
not write the same again.

Workers of one server also share the uses of keys that expire soon after their last use, once a second.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import structlog

from fairlead.authn.access_keys import LastUse
from fairlead.core.clock import Clock, parse_rfc3339, timestamp
from fairlead.core.errors import ApiError, NotFound
from fairlead.core.objects import Object, get_path
from fairlead.core.user import User
from fairlead.domain.key_lifetime import cooldown_seconds, is_short_sliding
from fairlead.registry.codec import decode
from fairlead.registry.resource import Resource
from fairlead.registry.write_options import server_write_options

FLUSH_SECONDS = 1.0
PRUNE_SECONDS = 60.0
RETRY_SECONDS = 5.0
SAME_USE_SECONDS = 0.01
"""Uses less than this many seconds apart count as one: nothing depends on a higher precision."""
MAX_CONCURRENT_WRITES = 16
"""Concurrent writes; the store batches them."""

KeyUse = tuple[str, float, float]
"""The name of a key and its last use: as a POSIX timestamp, and by the monotonic clock, which all processes share."""

log = structlog.get_logger(__name__)


class LastUsedTracker:
    """The last use of each key, and which of them are not stored yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uses: dict[str, LastUse] = {}
        self._unwritten: set[str] = set()
        self._due: dict[str, float] = {}
        self._short_sliding: dict[str, LastUse | None] = {}
        """By key that expires soon after its last use: the use that was shared last."""
        self._share: Callable[[Sequence[KeyUse]], None] | None = None

    def share_with(self, share: Callable[[Sequence[KeyUse]], None]) -> None:
        """Sets the function that sends uses to the other workers."""
        self._share = share

    def merge(self, uses: Sequence[KeyUse]) -> None:
        """Records uses that other workers have seen, and will write."""
        for key, seconds, monotonic in uses:
            last = self._uses.get(key)
            if last is None or last.monotonic < monotonic:
                use = self._uses[key] = LastUse(datetime.fromtimestamp(seconds, UTC), monotonic)
                if key in self._short_sliding:
                    self._short_sliding[key] = use  # the others know it already

    def record_use(self, user: User) -> None:
        """Records that the user's key was used. On the hot path of every request."""
        key = user.key
        if not key:
            return
        now = self._clock.monotonic()
        last = self._uses.get(key)
        if last is None or not 0.0 <= now - last.monotonic < SAME_USE_SECONDS:
            self._uses[key] = LastUse(self._clock.now(), now)
        self._unwritten.add(key)

    def last_use(self, key: str) -> LastUse | None:
        """The last use that this process has seen."""
        return self._uses.get(key)

    async def run(self, keys: Resource) -> None:
        """Flushes periodically until cancelled, and a last time then."""
        tidied = self._clock.monotonic()
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                await self.flush(keys)
                if self._clock.monotonic() - tidied >= PRUNE_SECONDS:
                    self._prune_deleted(keys)
                    tidied = self._clock.monotonic()
        finally:
            await self.flush(keys, everything=True)

    async def flush(self, keys: Resource, *, everything: bool = False) -> None:
        """Writes the uses that are due, or all of them."""
        now = self._clock.monotonic()
        due = [name for name in self._unwritten if self._is_due(name, keys, now) or everything]
        self._share_uses()
        for start in range(0, len(due), MAX_CONCURRENT_WRITES):
            await asyncio.gather(*(self._write(name, keys) for name in due[start : start + MAX_CONCURRENT_WRITES]))

    def _is_due(self, name: str, keys: Resource, now: float) -> bool:
        """Runs every second for each key in use, so the object is decoded only when it may be due."""
        if now < self._due.get(name, 0.0):
            return False
        entry, wait = keys.get_cached("", name), 0.0
        if entry is not None:
            key = decode(entry)
            wait = _seconds_until_due(key, self._clock)
            if is_short_sliding(key):
                self._short_sliding.setdefault(name, None)
            else:
                self._short_sliding.pop(name, None)
        self._due[name] = now + wait
        return wait <= 0

    def _share_uses(self) -> None:
        if self._share is None:
            return
        uses = [(name, use) for name, shared in self._short_sliding.items() if (use := self._uses[name]) != shared]
        if uses:
            self._short_sliding.update(uses)
            self._share([(name, use.wall_time.timestamp(), use.monotonic) for name, use in uses])

    async def _write(self, name: str, keys: Resource) -> None:
        use, cooldown = self._uses[name], RETRY_SECONDS
        self._unwritten.discard(name)

        def used(key: Object) -> Object:
            nonlocal cooldown
            cooldown = cooldown_seconds(key)
            status = key.get("status") or {}
            last = max(_parse_time(status.get("lastActivity")), use.wall_time)
            return {**key, "status": {**status, "lastActivity": timestamp(last)}}

        try:
            await keys.modify("", name, used, server_write_options("status"))
        except NotFound:
            self._forget(name)
            return
        except ApiError as error:  # for example, the store is temporarily unavailable
            self._unwritten.add(name)
            cooldown = RETRY_SECONDS
            log.info("cannot write the last use of an access key, will retry", key=name, reason=error.message)
        self._due[name] = self._clock.monotonic() + cooldown

    def _prune_deleted(self, keys: Resource) -> None:
        for name in [name for name in self._uses if keys.get_cached("", name) is None]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._uses.pop(name, None)
        self._due.pop(name, None)
        self._short_sliding.pop(name, None)
        self._unwritten.discard(name)


def _seconds_until_due(key: Object, clock: Clock) -> float:
    """Seconds until the next write, counted from the stored one: a restart must not write all keys at once."""
    since = (clock.now() - _parse_time(get_path(key, "status.lastActivity"))).total_seconds()
    return max(0.0, cooldown_seconds(key) - max(0.0, since))


def _parse_time(text: object) -> datetime:
    return parse_rfc3339(text) or datetime(1, 1, 1, tzinfo=UTC)
