"""Marks expired access keys, and deletes them after the retention period. Deletes logins whose parent is gone.

Authentication checks the expiry itself and does not depend on this. The mark makes the expiry final, even if the clock
is set back, and records its time. The object is kept for a while, so that users can find out why a key stopped working.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

import structlog

from fairlead.authn.access_keys import LastUse
from fairlead.controllers.runtime.loop import same_key
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.errors import Conflict, NotFound
from fairlead.core.objects import Object, annotations_of, deep_copy, get_path, metadata, name_of
from fairlead.domain.key_lifetime import FIRST_KEY_ANNOTATION, cooldown_seconds, expires_at, is_sliding, temporary_until
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY, TTL_ANNOTATION, is_cli_login, is_exchanged_key
from fairlead.kinds.core.service_account import account_uid, is_account_key, parse_account_username
from fairlead.registry.codec import decode
from fairlead.registry.conditions import record_event
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.storage.contract import Key

log = structlog.get_logger(__name__)

MAX_REQUEUE_SECONDS = 60.0
"""The longest requeue delay of keys that can expire: the wall clock may jump."""


class AccessKeyController:
    name, workers = "access-keys", 1
    keys_for = staticmethod(same_key)

    def __init__(
        self,
        registry: Registry,
        api_group: str,
        retention: float,
        last_use: Callable[[str], LastUse | None],
        has_other_access: Callable[[str], bool] = lambda key: True,
    ) -> None:
        """`retention`: seconds that an expired key is kept. `last_use`: uses that are not in the status yet.

        `has_other_access`: whether an administrator can get in without the first key, which then does not expire.
        """
        self._has_other_access = has_other_access
        self.watches = ((api_group, OWNED_ACCESS_KEY.plural),)
        self._registry = registry
        self._keys = registry.resource(api_group, OWNED_ACCESS_KEY.plural)
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
            if is_exchanged_key(found):
                return await self._delete_exchanged(found)
            if get_path(found, "status.expired"):
                return await self._delete_expired(found)
            if self._is_orphaned(found):
                await self._delete_orphaned(found)
                return None
            if self._is_replaced(found):
                await self._make_permanent(found)
                return None  # it is queued again
            requeue = _earliest(await self._mark_expired(found), await self._remove_rotated_values(found))
            return _earliest(requeue, MAX_REQUEUE_SECONDS) if _parent_of(found) else requeue
        return None

    def _is_orphaned(self, key: Object) -> bool:
        """Whether this is a login of the command line, and the key is gone with which it was allowed."""
        parent = _parent_of(key)
        return bool(parent) and self._keys.get_cached("", parent) is None

    async def _delete_orphaned(self, key: Object) -> None:
        """Authentication rejects it already; the list of keys should not show it any longer."""
        meta = metadata(key)
        with suppress(Conflict):  # it was changed, and so is queued again
            options = DeleteOptions(meta["uid"], meta["resourceVersion"])
            await self._keys.delete("", meta["name"], options, server_write_options())

    async def _delete_invalid_token(self, key: Object) -> float | None:
        """Deletes a service account token when it has expired or its account was deleted.

        Without retention: clients request the next token by themselves.
        """
        now = self._registry.clock.now()
        expiry = expires_at(key)
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

    async def _delete_exchanged(self, key: Object) -> float | None:
        """Deletes a key of workload identity when it has expired. Without retention: each CI job gets new ones."""
        now = self._registry.clock.now()
        expiry = expires_at(key)
        if expiry is None or now < expiry:
            return MAX_REQUEUE_SECONDS if expiry is None else min((expiry - now).total_seconds(), MAX_REQUEUE_SECONDS)
        meta = metadata(key)
        with suppress(Conflict):  # it was changed, and so is queued again
            options = DeleteOptions(meta["uid"], meta["resourceVersion"])
            await self._keys.delete("", meta["name"], options, server_write_options())
        return None

    async def _mark_expired(self, key: Object) -> float | None:
        now = self._registry.clock.now()
        end = self._expiry_time(key)
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
            if temporary_until(key) is not None:
                message = "the first key has expired; replace it with `fairlead admin reset` on the server's machine"
                log.warning(message, key=name_of(key))
            await record_event(self._registry, key, "Expired", message)
        return None

    def _is_replaced(self, key: Object) -> bool:
        """Whether this is the first key, its day is over, and there is another way in."""
        until = temporary_until(key)
        return until is not None and until <= self._registry.clock.now() and self._has_other_access(name_of(key))

    async def _make_permanent(self, key: Object) -> None:
        """Removes the expiry of the first key: from now on it is like any other key."""

        def edit(current: Object) -> Object:
            new = deep_copy(current)
            (metadata(new).get("annotations") or {}).pop(FIRST_KEY_ANNOTATION, None)
            return new

        await self._keys.modify("", name_of(key), edit, server_write_options())

    def _expiry_time(self, key: Object) -> datetime | None:
        """When to mark the key as expired. Sliding keys get a margin: a use may be reported late by another process."""
        use = self._last_use(name_of(key))
        end = expires_at(key, use.wall_time if use is not None else None)
        if end is not None and is_sliding(key):
            end += timedelta(seconds=2 * cooldown_seconds(key))
        ends = [each for each in (end, temporary_until(key)) if each is not None]
        return min(ends, default=None)

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
        """Deletes an expired key after its retention, with uid and resourceVersion as preconditions.

        A login of the command line whose code was never redeemed is of no interest, so it is deleted at once. The first
        key is kept, because `fairlead up` replaces it if it has expired, and not if it was deleted.
        """
        if temporary_until(key) is not None:
            return None
        now = self._registry.clock.now()
        retention = 0.0 if TTL_ANNOTATION in annotations_of(key) else self._retention
        age = (now - (parse_rfc3339(get_path(key, "status.expired")) or now)).total_seconds()
        if age < retention:
            return retention - max(0.0, age)
        meta = metadata(key)
        options = DeleteOptions(meta["uid"], meta["resourceVersion"])
        with suppress(Conflict):  # it was changed, and so is queued again
            await self._keys.delete("", name_of(key), options, server_write_options())
            await record_event(self._registry, key, "Removed", "the key had expired, and its retention period is over")
        return None


def _parent_of(key: Object) -> str:
    return (get_path(key, "spec.parent") or "") if is_cli_login(key) else ""


def _earliest(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)
