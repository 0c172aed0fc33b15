"""Marks expired access keys, and deletes them after the retention period.

Authentication checks the expiry itself and does not depend on this. The mark makes the expiry final, even if the clock
is set back, and records its time. The object is kept for a while, so that users can find out why a key stopped working.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from fairlead.authn.access_keys import Use
from fairlead.controllers.runtime.loop import itself
from fairlead.core.clock import parsed, timestamp
from fairlead.core.errors import Conflict, NotFound
from fairlead.core.objects import Object, copied, dig, metadata, name_of
from fairlead.domain.key_lifetime import cooldown_of, end_of, slides
from fairlead.kinds.core.service_account import account_of, account_uid, is_account_key
from fairlead.registry.codec import decode
from fairlead.registry.events import record
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import Deleting, by_the_server
from fairlead.storage.contract import Key

PLURAL = "ownedaccesskeys"
LOOK_AGAIN = 60.0
"""The longest requeue delay of keys that can expire: the wall clock may jump."""


class Keys:
    name, workers = "keys", 1
    concerned = staticmethod(itself)

    def __init__(
        self, registry: Registry, api_group: str, retention: float, last_use: Callable[[str], Use | None]
    ) -> None:
        """`retention`: seconds that an expired key is kept. `last_use`: uses that are not in the status yet."""
        self.watches = ((api_group, PLURAL),)
        self._registry = registry
        self._keys = registry.resource(api_group, PLURAL)
        self._retention = retention
        self._last_use = last_use

    async def reconcile(self, key: Key) -> float | None:
        entry = self._keys.peek("", key[3])
        if entry is None:
            return None
        found = decode(entry)
        with suppress(NotFound):  # it was deleted meanwhile
            if "deletionTimestamp" in metadata(found):
                return None
            if is_account_key(found):
                return await self._end_token(found)
            if dig(found, "status.expired"):
                return await self._remove(found)
            return _sooner(await self._expire(found), await self._drop_previous(found))
        return None

    async def _end_token(self, key: Object) -> float | None:
        """Deletes a service account token when it has expired or its account was deleted.

        Without retention: clients request the next token by themselves.
        """
        now, expiry = self._registry.clock.now(), end_of(key)
        account = self._registry.resource("", "serviceaccounts").peek(*account_of(dig(key, "spec.subject")))
        account_missing = account is None or metadata(decode(account))["uid"] != account_uid(key)
        if expiry is not None and now < expiry and not account_missing:
            return min((expiry - now).total_seconds(), LOOK_AGAIN)
        meta = metadata(key)
        with suppress(Conflict):  # it was changed, and so is queued again
            await self._keys.delete("", meta["name"], Deleting(meta["uid"], meta["resourceVersion"]), by_the_server())
        return None

    async def _expire(self, key: Object) -> float | None:
        now, end = self._registry.clock.now(), self._end(key)
        if end is None:
            return None
        if now < end:
            return min((end - now).total_seconds(), LOOK_AGAIN)
        was_marked = False

        def mark(current: Object) -> Object:
            nonlocal was_marked
            end = self._end(current)
            was_marked = end is not None and now >= end and not dig(current, "status.expired")
            new = copied(current)
            if was_marked:
                new["status"] = {**(new.get("status") or {}), "expired": timestamp(now), "previous": []}
            return new

        await self._keys.modify("", name_of(key), mark, by_the_server("status"))
        if was_marked:
            retention = timedelta(seconds=self._retention)
            message = f"the key has expired and is no longer accepted; it will be deleted in {retention}"
            await record(self._registry, key, "Expired", message)
        return None

    def _end(self, key: Object) -> datetime | None:
        """When to mark the key as expired. Sliding keys get a margin: a use may be reported late by another process."""
        use = self._last_use(name_of(key))
        end = end_of(key, use.moment if use is not None else None)
        return end + timedelta(seconds=2 * cooldown_of(key)) if end is not None and slides(key) else end

    async def _drop_previous(self, key: Object) -> float | None:
        """Removes values from before a rotation whose overlap period is over."""
        now = self._registry.clock.now()
        expiries = [parsed(each["until"]) or now for each in dig(key, "status.previous") or ()]
        if not expiries or min(expiries) > now:
            return min((min(expiries) - now).total_seconds(), LOOK_AGAIN) if expiries else None

        def drop(current: Object) -> Object:
            status = current.get("status") or {}
            valid = [each for each in status.get("previous") or () if (parsed(each["until"]) or now) > now]
            return {**current, "status": {**status, "previous": valid}}

        await self._keys.modify("", name_of(key), drop, by_the_server("status"))
        return None

    async def _remove(self, key: Object) -> float | None:
        """Deletes an expired key after its retention, with uid and resourceVersion as preconditions."""
        now = self._registry.clock.now()
        age = (now - (parsed(dig(key, "status.expired")) or now)).total_seconds()
        if age < self._retention:
            return self._retention - max(0.0, age)
        meta = metadata(key)
        options = Deleting(meta["uid"], meta["resourceVersion"])
        with suppress(Conflict):  # it was changed, and so is queued again
            await self._keys.delete("", name_of(key), options, by_the_server())
            await record(self._registry, key, "Removed", "the key had expired, and its retention period is over")
        return None


def _sooner(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)
