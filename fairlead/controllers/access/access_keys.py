"""Marks expired access keys, and deletes them after the retention period.

Authentication checks the expiry itself and does not depend on this. The mark makes the expiry final, even if the clock
is set back, and records its time. The object is kept for a while, so that users can find out why a key stopped working.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from fairlead.authn.access_keys import LastUse
from fairlead.controllers.runtime.loop import same_key
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.errors import Conflict, NotFound
from fairlead.core.objects import Object, deep_copy, get_path, metadata, name_of
from fairlead.domain.key_lifetime import cooldown_seconds, expires_at, is_sliding
from fairlead.kinds.core.service_account import account_uid, is_account_key, parse_account_username
from fairlead.registry.codec import decode
from fairlead.registry.events import record_event
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.storage.contract import Key

ACCESS_KEYS = "ownedaccesskeys"
MAX_REQUEUE_SECONDS = 60.0
"""The longest requeue delay of keys that can expire: the wall clock may jump."""


class AccessKeyController:
    name, workers = "access-keys", 1
    keys_for = staticmethod(same_key)

    def __init__(
        self, registry: Registry, api_group: str, retention: float, last_use: Callable[[str], LastUse | None]
    ) -> None:
        """`retention`: seconds that an expired key is kept. `last_use`: uses that are not in the status yet."""
        self.watches = ((api_group, ACCESS_KEYS),)
        self._registry = registry
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._retention = retention
        self._last_use = last_use

    async def reconcile(self, key: Key) -> float | None:
        entry = self._keys.get_cached("", key[3])
        if entry is None:
            return None
        found = decode(entry)
        with suppress(NotFound):  # it was deleted meanwhile
            if "deletionTimestamp" in metadata(found):
                return None
            if is_account_key(found):
                return await self._delete_invalid_token(found)
            if get_path(found, "status.expired"):
                return await self._delete_expired(found)
            return _earliest(await self._mark_expired(found), await self._remove_rotated_values(found))
        return None

    async def _delete_invalid_token(self, key: Object) -> float | None:
        """Deletes a service account token when it has expired or its account was deleted.

        Without retention: clients request the next token by themselves.
        """
        now, expiry = self._registry.clock.now(), expires_at(key)
        account = self._registry.resource("", "serviceaccounts").get_cached(
            *parse_account_username(get_path(key, "spec.subject"))
        )
        account_missing = account is None or metadata(decode(account))["uid"] != account_uid(key)
        if expiry is not None and now < expiry and not account_missing:
            return min((expiry - now).total_seconds(), MAX_REQUEUE_SECONDS)
        meta = metadata(key)
        with suppress(Conflict):  # it was changed, and so is queued again
            await self._keys.delete(
                "", meta["name"], DeleteOptions(meta["uid"], meta["resourceVersion"]), server_write_options()
            )
        return None

    async def _mark_expired(self, key: Object) -> float | None:
        now, end = self._registry.clock.now(), self._expiry_time(key)
        if end is None:
            return None
        if now < end:
            return min((end - now).total_seconds(), MAX_REQUEUE_SECONDS)
        was_marked = False

        def mark(current: Object) -> Object:
            nonlocal was_marked
            end = self._expiry_time(current)
            was_marked = end is not None and now >= end and not get_path(current, "status.expired")
            new = deep_copy(current)
            if was_marked:
                new["status"] = {**(new.get("status") or {}), "expired": timestamp(now), "previous": []}
            return new

        await self._keys.modify("", name_of(key), mark, server_write_options("status"))
        if was_marked:
            retention = timedelta(seconds=self._retention)
            message = f"the key has expired and is no longer accepted; it will be deleted in {retention}"
            await record_event(self._registry, key, "Expired", message)
        return None

    def _expiry_time(self, key: Object) -> datetime | None:
        """When to mark the key as expired. Sliding keys get a margin: a use may be reported late by another process."""
        use = self._last_use(name_of(key))
        end = expires_at(key, use.wall_time if use is not None else None)
        return end + timedelta(seconds=2 * cooldown_seconds(key)) if end is not None and is_sliding(key) else end

    async def _remove_rotated_values(self, key: Object) -> float | None:
        """Removes values from before a rotation whose overlap period is over."""
        now = self._registry.clock.now()
        expiries = [parse_rfc3339(each["until"]) or now for each in get_path(key, "status.previous") or ()]
        if not expiries or min(expiries) > now:
            return min((min(expiries) - now).total_seconds(), MAX_REQUEUE_SECONDS) if expiries else None

        def drop(current: Object) -> Object:
            status = current.get("status") or {}
            valid = [each for each in status.get("previous") or () if (parse_rfc3339(each["until"]) or now) > now]
            return {**current, "status": {**status, "previous": valid}}

        await self._keys.modify("", name_of(key), drop, server_write_options("status"))
        return None

    async def _delete_expired(self, key: Object) -> float | None:
        """Deletes an expired key after its retention, with uid and resourceVersion as preconditions."""
        now = self._registry.clock.now()
        age = (now - (parse_rfc3339(get_path(key, "status.expired")) or now)).total_seconds()
        if age < self._retention:
            return self._retention - max(0.0, age)
        meta = metadata(key)
        options = DeleteOptions(meta["uid"], meta["resourceVersion"])
        with suppress(Conflict):  # it was changed, and so is queued again
            await self._keys.delete("", name_of(key), options, server_write_options())
            await record_event(self._registry, key, "Removed", "the key had expired, and its retention period is over")
        return None


def _earliest(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)
