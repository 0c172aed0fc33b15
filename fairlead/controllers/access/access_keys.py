"""Ends access keys: marks those that have expired, and removes them when they have been kept long enough.

Authentication does not wait for this. The mark makes an end final, whatever becomes of the clock, and says when it was;
the object stays for a while, so that people find out why their key does not work any more.
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
"""How often keys that can expire are looked at at least: clocks jump."""


class Keys:
    name, workers = "keys", 1
    concerned = staticmethod(itself)

    def __init__(
        self, registry: Registry, api_group: str, retention: float, last_use: Callable[[str], Use | None]
    ) -> None:
        """`retention` is how many seconds an expired key is kept; `last_use` tells of uses not written down yet."""
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
        with suppress(NotFound):  # somebody was faster
            if "deletionTimestamp" in metadata(found):
                return None
            if is_account_key(found):
                return await self._end_token(found)
            if dig(found, "status.expired"):
                return await self._remove(found)
            return _sooner(await self._expire(found), await self._drop_previous(found))
        return None

    async def _end_token(self, key: Object) -> float | None:
        """Deletes the token of a service account when it has expired or its account is gone.

        Programs ask for the next one by themselves, so nobody needs to be told why it does not work any more.
        """
        now, end = self._registry.clock.now(), end_of(key)
        account = self._registry.resource("", "serviceaccounts").peek(*account_of(dig(key, "spec.subject")))
        gone = account is None or metadata(decode(account))["uid"] != account_uid(key)
        if end is not None and now < end and not gone:
            return min((end - now).total_seconds(), LOOK_AGAIN)
        meta = metadata(key)
        with suppress(Conflict):  # it was changed, and so will be looked at again
            await self._keys.delete("", meta["name"], Deleting(meta["uid"], meta["resourceVersion"]), by_the_server())
        return None

    async def _expire(self, key: Object) -> float | None:
        now, end = self._registry.clock.now(), self._end(key)
        if end is None:
            return None
        if now < end:
            return min((end - now).total_seconds(), LOOK_AGAIN)
        marked = False

        def mark(current: Object) -> Object:
            nonlocal marked
            end = self._end(current)
            marked = end is not None and now >= end and not dig(current, "status.expired")
            new = copied(current)
            if marked:
                new["status"] = {**(new.get("status") or {}), "expired": timestamp(now), "previous": []}
            return new

        await self._keys.modify("", name_of(key), mark, by_the_server("status"))
        if marked:
            kept = timedelta(seconds=self._retention)
            message = f"the key has expired and works no longer; it will be removed in {kept}"
            await record(self._registry, key, "Expired", message)
        return None

    def _end(self, key: Object) -> datetime | None:
        """When to mark the key. A last use may still be on its way here, from another process."""
        use = self._last_use(name_of(key))
        end = end_of(key, use.moment if use is not None else None)
        return end + timedelta(seconds=2 * cooldown_of(key)) if end is not None and slides(key) else end

    async def _drop_previous(self, key: Object) -> float | None:
        """Takes away values from before a rotation whose time is over."""
        now = self._registry.clock.now()
        ends = [parsed(each["until"]) or now for each in dig(key, "status.previous") or ()]
        if not ends or min(ends) > now:
            return min((min(ends) - now).total_seconds(), LOOK_AGAIN) if ends else None

        def drop(current: Object) -> Object:
            status = current.get("status") or {}
            kept = [each for each in status.get("previous") or () if (parsed(each["until"]) or now) > now]
            return {**current, "status": {**status, "previous": kept}}

        await self._keys.modify("", name_of(key), drop, by_the_server("status"))
        return None

    async def _remove(self, key: Object) -> float | None:
        """Deletes an expired key whose time is over: this very one, as it was judged."""
        now = self._registry.clock.now()
        age = (now - (parsed(dig(key, "status.expired")) or now)).total_seconds()
        if age < self._retention:
            return self._retention - max(0.0, age)
        meta = metadata(key)
        deleting = Deleting(meta["uid"], meta["resourceVersion"])
        with suppress(Conflict):  # it was changed, and so will be looked at again
            await self._keys.delete("", name_of(key), deleting, by_the_server())
            await record(self._registry, key, "Removed", "the key had expired and was kept long enough")
        return None


def _sooner(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)
