"""Limits the number and the total size of the access keys of one owner.

Users may create keys for themselves without any role, so nothing else bounds what one user puts into the store.

The limits are exact under concurrency: a write that adds to the usage takes the owner's write lock
(`registry/quota/write_locks.py`). Expired keys are deleted, oldest first, to make room. Writes by administrators and by
the server are never rejected, but the keys they create count. Logins have a separate limit; the server deletes the
oldest logins (`signin/login_sessions.py`), so users cannot lock themselves out. Keys that are exported to tools have a
limit of their own, too: there is one for each cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.errors import QUOTA, Forbidden
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.key_lifetime import KEY_OWNER_FIELDS
from fairlead.kinds.access.access_key import (
    EXPORT_CATEGORY,
    LOGIN_TYPE,
    MAX_LOGINS,
    OWNED_ACCESS_KEY,
    Owner,
    key_usage_index,
    usage_category,
)
from fairlead.registry.informer import OwnerUsageIndex, UsageEntry
from fairlead.registry.kind import Change
from fairlead.registry.quota import write_locks
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.registry.write_rules import is_removal
from fairlead.storage.contract import Key, Write

MAX_EXEMPT_BYTES = 4096
"""An update that leaves a key at this many bytes or fewer is always accepted: owners over the limit must still be able
to disable their keys."""
_OWNER_FIELD_BY_PLURAL = {"users": "user", "teams": "team"}
BYTES_PER_KEY, BYTES_PER_EXPORT = 10 * 1024, 2 * 1024
EXPORTS_PER_KEY = 10
"""How many exported keys there may be for each other one that is allowed."""
MIN_TOTAL_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits per owner."""

    max_keys: int
    max_bytes: int
    """Total size in bytes of all keys of the owner."""

    @staticmethod
    def for_count(max_keys: int) -> "KeyLimits":
        """So many keys, with 10 KiB for each, and at least 1 MiB in total."""
        return KeyLimits(max_keys, max(MIN_TOTAL_BYTES, max_keys * BYTES_PER_KEY))

    def for_exports(self) -> "KeyLimits":
        """The limits of exported keys, which are small."""
        count = EXPORTS_PER_KEY * self.max_keys
        return KeyLimits(count, count * BYTES_PER_EXPORT)


def enforce_key_limits(api_group: str, limits: KeyLimits) -> Rule:
    """Rejects access keys beyond the limits. Must run after `issue_access_key`, which sets the owner."""
    counted: OwnerUsageIndex | None = None

    @applies_to(lambda kind, verb: is_resource(kind, api_group, OWNED_ACCESS_KEY.plural, *_OWNER_FIELD_BY_PLURAL))
    async def rule(change: Change, registry: Registry) -> None:
        nonlocal counted
        if change.kind.plural in _OWNER_FIELD_BY_PLURAL:
            _delete_lock(change, registry)
        elif change.new is not None and not change.subresource and not _is_exempt(change.user):
            if counted is None:
                counted = key_usage_index(registry.view, api_group)
            await _enforce_limits(change, registry, counted, limits)

    return rule


def _is_exempt(user: User) -> bool:
    return user == CONTROLLER_USER or user.is_unscoped_admin


async def _enforce_limits(change: Change, registry: Registry, usage: OwnerUsageIndex, limits: KeyLimits) -> None:
    owner = _owner_of(change.obj)
    if owner is None or _try_reserve(change, registry, usage.get(owner), limits) is None:
        return
    # Another replica may have deleted keys and this view may not have caught up yet.
    with translate_storage_errors():
        await registry.view.wait_current()
    why = _try_reserve(change, registry, usage.get(owner), limits)
    if why is not None:
        kind = change.kind
        raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why, refused_by=QUOTA)


def _owner_of(key: Object) -> Owner | None:
    spec = key.get("spec")
    if not isinstance(spec, dict):
        return None
    return next(
        ((field, name) for field in KEY_OWNER_FIELDS if isinstance(name := spec.get(field), str) and name), None
    )


def _try_reserve(change: Change, registry: Registry, owned: Mapping[Key, UsageEntry], limits: KeyLimits) -> str | None:
    """Returns why the change exceeds the limits. If it does not, adds the write lock and the deletion of expired keys
    to its commit and returns None.

    Must not await: the count and the lock's revision have to be read from the same state of the view.
    """
    obj = change.obj
    key = change.kind.key("", metadata(obj).get("name") or "")
    current = owned.get(key)
    category = usage_category(get_path(obj, "spec.type"), metadata(obj).get("labels"))
    is_export = category == EXPORT_CATEGORY
    limits = limits.for_exports() if is_export else limits
    adds = current is None or current.category != category
    size = len(orjson.dumps(obj))
    if current is not None and not adds and size <= max(current.size, MAX_EXEMPT_BYTES):
        return None
    others = {
        each: found for each, found in owned.items() if each != key and (found.category == EXPORT_CATEGORY) == is_export
    }
    evicted = _keys_to_evict(others, category, size, adds, limits)
    if evicted is None:
        return _limit_message(change, others, category, size, adds, limits)
    change.extra_writes.append(write_locks.acquire_lock(registry.view, _lock_key(change.kind.group, _owner_of(obj))))
    change.extra_writes.extend(Write(each, None, others[each].revision) for each in evicted)
    return None


def _keys_to_evict(
    others: Mapping[Key, UsageEntry], key_type: str, size: int, is_new: bool, limits: KeyLimits
) -> list[Key] | None:
    """The expired keys to delete, oldest first, so that the new key fits; None if that is not enough."""
    count = sum(each.category == key_type for each in others.values()) + is_new
    total = sum(each.size for each in others.values()) + size
    ended = sorted((each.ended_at, key) for key, each in others.items() if each.ended_at and not each.has_finalizers)
    evicted: list[Key] = []
    for _, key in ended:
        if not _exceeds_limits(count, total, key_type, is_new, limits):
            break
        count -= others[key].category == key_type
        total -= others[key].size
        evicted.append(key)
    return None if _exceeds_limits(count, total, key_type, is_new, limits) else evicted


def _exceeds_limits(count: int, total: int, key_type: str, is_new: bool, limits: KeyLimits) -> bool:
    return (is_new and count > _max_count(key_type, limits)) or total > limits.max_bytes


def _max_count(key_type: str, limits: KeyLimits) -> int:
    return MAX_LOGINS if key_type == LOGIN_TYPE else limits.max_keys


def _limit_message(
    change: Change, others: Mapping[Key, UsageEntry], key_type: str, size: int, is_new: bool, limits: KeyLimits
) -> str:
    field, name = _owner_of(change.obj) or ("user", "")
    count = sum(each.category == key_type for each in others.values())
    most = _max_count(key_type, limits)
    if is_new and count + 1 > most:
        what = {LOGIN_TYPE: "logins", EXPORT_CATEGORY: "exported access keys"}.get(key_type, "access keys")
        how = "" if key_type == LOGIN_TYPE else ", or have an administrator raise the setting access_keys_per_owner"
        return f'{field} "{name}" has {count} {what}, and the limit is {most}; delete those that are not needed{how}'
    total = sum(each.size for each in others.values()) + size
    each = BYTES_PER_EXPORT if key_type == EXPORT_CATEGORY else BYTES_PER_KEY
    return (
        f'the access keys of {field} "{name}" would take {total} bytes in total, and the limit is {limits.max_bytes}; '
        "delete those that are not needed, use fewer labels, annotations and scope entries, or have an administrator "
        f"raise the setting access_keys_per_owner, which allows {each >> 10} KiB for each"
    )


def _lock_key(api_group: str, owner: Owner | None) -> Key:
    """Projects use the same lock namespace; the colons keep the two apart, since object names have none."""
    field, name = owner or ("", "")
    return write_locks.lock_key(api_group, f"keys:{field}:{name}")


def _delete_lock(change: Change, registry: Registry) -> None:
    """Deletes the write lock in the commit that deletes the user or team."""
    if is_removal(change):
        owner = _OWNER_FIELD_BY_PLURAL[change.kind.plural], name_of(change.obj)
        write = write_locks.delete_lock(registry.view, _lock_key(change.kind.group, owner))
        if write is not None:
            change.extra_writes.append(write)
