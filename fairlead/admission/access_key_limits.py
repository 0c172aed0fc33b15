"""Limits the number and the total size of the access keys of one owner.

Users may create keys for themselves without any role, so nothing else bounds what one user puts into the store.

The limits are exact under concurrency: a write that adds to the usage takes the owner's write lock
(`registry/write_locks.py`). Expired keys are deleted, oldest first, to make room. Writes by administrators and by the
server are never rejected, but the keys they create count. Logins have a separate limit; the server deletes the oldest
logins (`authn/login_sessions.py`), so users cannot lock themselves out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from fairlead.admission import Rule, concerning, is_one_of
from fairlead.core.errors import Forbidden, Invalid, Problem
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.domain.access_key_usage import LOGIN, MOST_LOGINS, Owner, key_holdings, sort_of
from fairlead.domain.key_lifetime import COOLDOWN, COOLDOWN_LABEL, MAX_COOLDOWN, is_cooldown
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY, OWNERS
from fairlead.registry import write_locks
from fairlead.registry.deletion import is_ending
from fairlead.registry.kind import Change
from fairlead.registry.owner_usage import Held, Holdings
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import storage_errors
from fairlead.storage.contract import Change as Write
from fairlead.storage.contract import Key

SMALL = 4096
"""An update that leaves a key at this many bytes or fewer is always accepted: owners over the limit must still be able
to disable their keys."""
_PEOPLE = {"users": "user", "teams": "team"}


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits per owner."""

    keys: int
    size: int
    """Total size in bytes of all keys of the owner."""


def own_keys(api_group: str, limits: KeyLimits) -> Rule:
    """Rejects access keys beyond the limits. Must run after `issue_access_key`, which sets the owner."""
    counted: Holdings | None = None

    @concerning(lambda kind, verb: is_one_of(kind, api_group, OWNED_ACCESS_KEY.plural, *_PEOPLE))
    async def rule(change: Change, registry: Registry) -> None:
        nonlocal counted
        if change.kind.plural in _PEOPLE:
            _drop_ticket(change, registry)
        elif change.new is not None and not change.subresource and change.user != CONTROLLER:
            _check_cooldown(change)
            if not change.user.holds_everything:
                if counted is None:
                    counted = key_holdings(registry.view, api_group)
                await _keep_within(change, registry, counted, limits)

    return rule


def _check_cooldown(change: Change) -> None:
    old, new = (_cooldown(each) for each in (change.old or {}, change.obj))
    if new is None or old == new:
        return
    kind, name = change.kind, name_of(change.obj)
    if not change.user.holds_everything:
        why = f"only administrators may set the label {COOLDOWN_LABEL}; leave it out"
        raise Forbidden.of(kind.plural, kind.group, name, why)
    if not is_cooldown(new):
        why = f"must be a whole number of seconds between {COOLDOWN} and {MAX_COOLDOWN}"
        problem = Problem.invalid(f"metadata.labels[{COOLDOWN_LABEL}]", new, why)
        raise Invalid.of(kind.name, kind.group, name, [problem])


def _cooldown(key: Object) -> object:
    labels = metadata(key).get("labels")
    return labels.get(COOLDOWN_LABEL) if isinstance(labels, dict) else None


async def _keep_within(change: Change, registry: Registry, holdings: Holdings, limits: KeyLimits) -> None:
    owner = _owner_of(change.obj)
    if owner is None or _excess(change, registry, holdings.of(owner), limits) is None:
        return
    # Another replica may have deleted keys and this view may not have caught up yet.
    with storage_errors():
        await registry.view.fresh()
    why = _excess(change, registry, holdings.of(owner), limits)
    if why is not None:
        raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)


def _owner_of(key: Object) -> Owner | None:
    spec = key.get("spec")
    if not isinstance(spec, dict):
        return None
    return next(((field, name) for field in OWNERS if isinstance(name := spec.get(field), str) and name), None)


def _excess(change: Change, registry: Registry, held: Mapping[Key, Held], limits: KeyLimits) -> str | None:
    """Returns why the change exceeds the limits. If it does not, adds the write lock and the deletion of expired keys
    to its commit and returns None.

    Must not await: the count and the lock's revision have to be read from the same state of the view.
    """
    obj = change.obj
    key = change.kind.key("", metadata(obj).get("name") or "")
    current, sort = held.get(key), sort_of(dig(obj, "spec.type"))
    adds, size = current is None or current.sort != sort, len(orjson.dumps(obj))
    if current is not None and not adds and size <= max(current.size, SMALL):
        return None
    others = {each: found for each, found in held.items() if each != key}
    going = _to_go(others, sort, size, adds, limits)
    if going is None:
        return _reason(change, others, sort, size, adds, limits)
    change.also.append(write_locks.taken(registry.view, _ticket(change.kind.group, _owner_of(obj))))
    change.also.extend(Write(each, None, others[each].revision) for each in going)
    return None


def _to_go(others: Mapping[Key, Held], sort: str, size: int, adds: bool, limits: KeyLimits) -> list[Key] | None:
    """The expired keys to delete, oldest first, so that the new key fits; None if that is not enough."""
    count = sum(each.sort == sort for each in others.values()) + adds
    total = sum(each.size for each in others.values()) + size
    ended = sorted((each.ended, key) for key, each in others.items() if each.ended and not each.is_kept)
    going: list[Key] = []
    for _, key in ended:
        if not _is_too_much(count, total, sort, adds, limits):
            break
        count -= others[key].sort == sort
        total -= others[key].size
        going.append(key)
    return None if _is_too_much(count, total, sort, adds, limits) else going


def _is_too_much(count: int, total: int, sort: str, adds: bool, limits: KeyLimits) -> bool:
    return (adds and count > _most(sort, limits)) or total > limits.size


def _most(sort: str, limits: KeyLimits) -> int:
    return MOST_LOGINS if sort == LOGIN else limits.keys


def _reason(change: Change, others: Mapping[Key, Held], sort: str, size: int, adds: bool, limits: KeyLimits) -> str:
    field, name = _owner_of(change.obj) or ("user", "")
    count, most = sum(each.sort == sort for each in others.values()), _most(sort, limits)
    if adds and count + 1 > most:
        what = "logins" if sort == LOGIN else "access keys"
        how = "" if sort == LOGIN else ", or have an administrator raise the setting access_keys_per_owner"
        return f'{field} "{name}" has {count} {what}, and the limit is {most}; delete those that are not needed{how}'
    total = sum(each.size for each in others.values()) + size
    return (
        f'the access keys of {field} "{name}" would take {total} bytes in total, and the limit is {limits.size}; '
        "delete those that are not needed, use fewer labels, annotations and scope entries, or have an administrator "
        "raise the setting access_key_bytes_per_owner"
    )


def _ticket(api_group: str, owner: Owner | None) -> Key:
    """Projects use the same lock namespace; the colons keep the two apart, since object names have none."""
    field, name = owner or ("", "")
    return write_locks.key_of(api_group, f"keys:{field}:{name}")


def _drop_ticket(change: Change, registry: Registry) -> None:
    """Deletes the write lock in the commit that deletes the user or team."""
    if is_ending(change):
        owner = _PEOPLE[change.kind.plural], name_of(change.obj)
        write = write_locks.removed(registry.view, _ticket(change.kind.group, owner))
        if write is not None:
            change.also.append(write)
