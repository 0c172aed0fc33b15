"""Limits the number and the total size of the access keys of one owner.

Users may create keys for themselves without any role, so nothing else bounds what one user puts into the store.

The limits are exact under concurrency: a write that adds to the usage takes the owner's write lock
(`registry/write_locks.py`). Expired keys are deleted, oldest first, to make room. Writes by administrators and by the
server are never rejected, but the keys they create count. Logins have a separate limit; the server deletes the oldest
logins (`signin/login_sessions.py`), so users cannot lock themselves out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.errors import QUOTA, Forbidden, Invalid, Problem
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.key_lifetime import (
    COOLDOWN_LABEL,
    COOLDOWN_SECONDS,
    MAX_COOLDOWN_SECONDS,
    OWNER_FIELDS,
    is_valid_cooldown,
)
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.access_key_usage import LOGIN_TYPE, MAX_LOGINS, Owner, key_usage_index, usage_category
from fairlead.registry import write_locks
from fairlead.registry.kind import Change
from fairlead.registry.owner_usage import OwnerUsageIndex, UsageEntry
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.registry.write_rules import is_removal
from fairlead.storage.contract import Key, Write

MAX_EXEMPT_BYTES = 4096
"""An update that leaves a key at this many bytes or fewer is always accepted: owners over the limit must still be able
to disable their keys."""
_OWNER_FIELDS = {"users": "user", "teams": "team"}
BYTES_PER_KEY = 10 * 1024
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


def enforce_key_limits(api_group: str, limits: KeyLimits) -> Rule:
    """Rejects access keys beyond the limits. Must run after `issue_access_key`, which sets the owner."""
    counted: OwnerUsageIndex | None = None

    @applies_to(lambda kind, verb: is_resource(kind, api_group, OWNED_ACCESS_KEY.plural, *_OWNER_FIELDS))
    async def rule(change: Change, registry: Registry) -> None:
        nonlocal counted
        if change.kind.plural in _OWNER_FIELDS:
            _delete_lock(change, registry)
        elif change.new is not None and not change.subresource and change.user != CONTROLLER_USER:
            _check_cooldown(change)
            if not change.user.is_unscoped_admin:
                if counted is None:
                    counted = key_usage_index(registry.view, api_group)
                await _enforce_limits(change, registry, counted, limits)

    return rule


def _check_cooldown(change: Change) -> None:
    old, new = (_cooldown_label(each) for each in (change.old or {}, change.obj))
    if new is None or old == new:
        return
    kind, name = change.kind, name_of(change.obj)
    if not change.user.is_unscoped_admin:
        why = f"only administrators may set the label {COOLDOWN_LABEL}; leave it out"
        raise Forbidden.of(kind.plural, kind.group, name, why)
    if not is_valid_cooldown(new):
        why = f"must be a whole number of seconds between {COOLDOWN_SECONDS} and {MAX_COOLDOWN_SECONDS}"
        problem = Problem.invalid(f"metadata.labels[{COOLDOWN_LABEL}]", new, why)
        raise Invalid.of(kind.name, kind.group, name, [problem])


def _cooldown_label(key: Object) -> object:
    labels = metadata(key).get("labels")
    return labels.get(COOLDOWN_LABEL) if isinstance(labels, dict) else None


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
    return next(((field, name) for field in OWNER_FIELDS if isinstance(name := spec.get(field), str) and name), None)


def _try_reserve(change: Change, registry: Registry, owned: Mapping[Key, UsageEntry], limits: KeyLimits) -> str | None:
    """Returns why the change exceeds the limits. If it does not, adds the write lock and the deletion of expired keys
    to its commit and returns None.

    Must not await: the count and the lock's revision have to be read from the same state of the view.
    """
    obj = change.obj
    key = change.kind.key("", metadata(obj).get("name") or "")
    current = owned.get(key)
    sort = usage_category(get_path(obj, "spec.type"))
    adds, size = current is None or current.category != sort, len(orjson.dumps(obj))
    if current is not None and not adds and size <= max(current.size, MAX_EXEMPT_BYTES):
        return None
    others = {each: found for each, found in owned.items() if each != key}
    evicted = _keys_to_evict(others, sort, size, adds, limits)
    if evicted is None:
        return _limit_message(change, others, sort, size, adds, limits)
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
        what = "logins" if key_type == LOGIN_TYPE else "access keys"
        how = "" if key_type == LOGIN_TYPE else ", or have an administrator raise the setting access_keys_per_owner"
        return f'{field} "{name}" has {count} {what}, and the limit is {most}; delete those that are not needed{how}'
    total = sum(each.size for each in others.values()) + size
    return (
        f'the access keys of {field} "{name}" would take {total} bytes in total, and the limit is {limits.max_bytes}; '
        "delete those that are not needed, use fewer labels, annotations and scope entries, or have an administrator "
        f"raise the setting access_keys_per_owner, which allows {BYTES_PER_KEY >> 10} KiB for each"
    )


def _lock_key(api_group: str, owner: Owner | None) -> Key:
    """Projects use the same lock namespace; the colons keep the two apart, since object names have none."""
    field, name = owner or ("", "")
    return write_locks.lock_key(api_group, f"keys:{field}:{name}")


def _delete_lock(change: Change, registry: Registry) -> None:
    """Deletes the write lock in the commit that deletes the user or team."""
    if is_removal(change):
        owner = _OWNER_FIELDS[change.kind.plural], name_of(change.obj)
        write = write_locks.delete_lock(registry.view, _lock_key(change.kind.group, owner))
        if write is not None:
            change.extra_writes.append(write)
