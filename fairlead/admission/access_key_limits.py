"""How many access keys an owner may have, and how large they may be all together: everybody may make keys for
themselves without a role, so nothing else bounds what one user puts into the store.

Exact, also when many are made at once: a change that adds something takes the owner's ticket (`registry/write_locks.py`).
Expired keys, which are only kept to be looked at, make room by themselves. Administrators and the server are not
bounded: keys that they make for somebody count, and are never refused. Logins have a number of their own, and the
server ends the oldest where there are more (`authn/login_sessions.py`), so nobody is kept out by their own keys.
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
"""Bytes that a key may always grow to when it is changed: whoever has too many must still be able to disable them."""
_PEOPLE = {"users": "user", "teams": "team"}


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one owner may have without an administrator's help."""

    keys: int
    size: int
    """Bytes of all of the owner's keys together."""


def own_keys(api_group: str, limits: KeyLimits) -> Rule:
    """The rule. It comes after the one that fills in whom a key stands for."""
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
        why = f"only administrators set the label {COOLDOWN_LABEL}; leave it out"
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
    # Another replica may have made room that this one has not seen yet.
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
    """Why the change is too much, or None: then its commit takes the ticket, and expired keys go with it. Nothing is
    awaited in here, so that the count and the ticket are of one moment."""
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
    """The expired keys that make room for one more, the oldest first; None if there are not enough of them."""
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
        return f'{field} "{name}" has {count} {what}, and {most} is the limit; delete those that nobody needs{how}'
    total = sum(each.size for each in others.values()) + size
    return (
        f'the access keys of {field} "{name}" would have {total} bytes together, and {limits.size} is the limit; '
        "delete those that nobody needs, use fewer labels, annotations and scope entries, or have an administrator "
        "raise the setting access_key_bytes_per_owner"
    )


def _ticket(api_group: str, owner: Owner | None) -> Key:
    """No project is called like this: names have no colons."""
    field, name = owner or ("", "")
    return write_locks.key_of(api_group, f"keys:{field}:{name}")


def _drop_ticket(change: Change, registry: Registry) -> None:
    """The ticket of a user or team that goes is of no use to a later one of that name."""
    if is_ending(change):
        owner = _PEOPLE[change.kind.plural], name_of(change.obj)
        write = write_locks.removed(registry.view, _ticket(change.kind.group, owner))
        if write is not None:
            change.also.append(write)
