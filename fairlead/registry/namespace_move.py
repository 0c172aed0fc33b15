"""Objects that move to another namespace, with everything that depends on them, in one commit.

`subresources/migration.py` calls it. Each object is checked as if it were created where it goes and deleted where it comes
from; then all of them are written at once, each on condition that it is still what was looked at. So nobody ever sees
one of them twice or not at all, and a server that is killed leaves them all here or all there.

What moves keeps its spec, status, labels, annotations, finalizers and managedFields. It gets a new uid, so that whoever
knows the old one is not led astray, and the references among those that move follow.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fairlead.core.clock import timestamp
from fairlead.core.errors import AlreadyExists, Conflict, Details, NotFound, qualified
from fairlead.core.objects import Object, copied, metadata, name_of
from fairlead.registry.codec import decode, encode
from fairlead.registry.kind import Change, Kind
from fairlead.registry.registry import Registry
from fairlead.registry.resource import ATTEMPTS, Resource
from fairlead.registry.storage_errors import storage_errors
from fairlead.registry.write_options import Writing
from fairlead.storage import contract
from fairlead.storage.contract import Check, Key
from fairlead.storage.view.view import Entry

MOST = 10_000
"""How many objects move at once. All of them are in memory meanwhile, and other writers wait for their commit."""

_OWNED = b'"ownerReferences":['

Wish = TypeVar("Wish", contract.Change, Check)

Identity = tuple[str, ...]
"""What a reference says about an owner: apiVersion, kind, name and uid."""


def _as_it_is(obj: Object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Part:
    """One of the objects that move."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Move:
    """What is to move, from one namespace to another.

    `alive` are objects without a namespace that must be there, and not on their way out, when the commit happens.
    `allow` is asked on each attempt with all that would move, the object itself first, and raises to refuse. `adapt`
    changes what an object says about where it is.
    """

    resource: Resource
    name: str
    source: str
    target: str
    alive: tuple[tuple[Resource, str], ...]
    allow: Callable[[Sequence[Part]], None]
    adapt: Callable[[Object], None] = _as_it_is


@dataclass(frozen=True, slots=True)
class Moved:
    """The object before and after, and how many went with it."""

    old: Object
    new: Object
    dependants: int


@dataclass(frozen=True, slots=True)
class _Pair:
    """One object where it was and where it goes."""

    entry: Entry
    old: Object
    new: Object
    key: Key


async def move(registry: Registry, what: Move, writing: Writing) -> Moved:
    """Moves the object and its dependants, or nothing at all. A dry run goes through every check and writes nothing."""
    for _ in range(ATTEMPTS):
        pairs, conditions = await _looked_up(registry, what, writing)
        changes = [await _resource(registry, pair).leaving(pair.old, writing) for pair in pairs]
        changes += [await _resource(registry, pair).arriving(pair.new, writing) for pair in pairs]
        for change in changes:
            writing.tell(change.warnings)
        moved = Moved(pairs[0].old, pairs[0].new, len(pairs) - 1)
        if writing.dry_run:
            return moved
        try:
            revision = await what.resource.write_all(*_commit(pairs, changes, conditions))
        except contract.Conflict as conflict:
            if conflict.key in {pair.key for pair in pairs}:
                raise _taken(conflict.key, what) from None
            continue
        metadata(moved.new)["resourceVersion"] = str(revision)
        return moved
    raise _refused(what.resource, what.name, "it changes too often; try again later")


def _resource(registry: Registry, pair: _Pair) -> Resource:
    return registry.resource(pair.key[0], pair.key[1])


async def _looked_up(registry: Registry, what: Move, writing: Writing) -> tuple[list[_Pair], list[Check]]:
    """Everything that moves, as it is now and as it will be. Refuses what could not be written."""
    with storage_errors():
        await registry.view.fresh()
    conditions = [_living(resource, name) for resource, name in what.alive]
    entry = _leading(what)
    entries = gathered(registry, entry)
    what.allow([Part(registry.resource(each.key[0], each.key[1]).kind, each.key[3]) for each in entries])
    if len(entries) > MOST:
        why = f"{len(entries) - 1} objects depend on it, and {MOST - 1} can move along at once; delete some of them"
        raise _refused(what.resource, what.name, why)
    for each in entries:
        key = (*each.key[:2], what.target, each.key[3])
        if registry.view.get(key) is not None:
            raise _taken(key, what)
    return _paired(registry, entries, what, writing), conditions


def _living(resource: Resource, name: str) -> Check:
    """That an object is there, and still is when the commit happens."""
    entry = resource.peek("", name)
    if entry is None:
        raise NotFound.of(resource.kind.plural, resource.kind.group, name)
    if _is_going(entry):
        raise _refused(resource, name, "it is being deleted; nothing can be moved out of it or into it")
    return Check(entry.key, entry.revision)


def _leading(what: Move) -> Entry:
    entry = what.resource.peek(what.source, what.name)
    if entry is None:
        raise NotFound.of(what.resource.kind.plural, what.resource.kind.group, what.name)
    if _is_going(entry):
        raise _refused(what.resource, what.name, "it is being deleted; what goes away cannot move")
    return entry


def _is_going(entry: Entry) -> bool:
    return "deletionTimestamp" in metadata(decode(entry))


def _refused(resource: Resource, name: str, why: str) -> Conflict:
    return Conflict.of(resource.kind.plural, resource.kind.group, name, why)


def gathered(registry: Registry, entry: Entry) -> list[Entry]:
    """The object, then everything in its namespace that depends on it, directly or through others; each once."""
    waiting: dict[Identity, list[Entry]] = {}
    for resource in registry.namespaced():
        for each in registry.view.entries(resource.kind.group, resource.kind.plural, entry.key[2]):
            if _OWNED in each.body:
                for reference in metadata(decode(each)).get("ownerReferences") or ():
                    waiting.setdefault(_referred(reference), []).append(each)
    found, ahead = {entry.key: entry}, [entry]
    while ahead:
        for each in waiting.get(_identity(decode(ahead.pop())), ()):
            if each.key not in found:
                found[each.key] = each
                ahead.append(each)
    return list(found.values())


def _referred(reference: Object) -> Identity:
    return tuple(str(reference.get(part) or "") for part in ("apiVersion", "kind", "name", "uid"))


def _identity(obj: Object) -> Identity:
    meta = metadata(obj)
    return obj["apiVersion"], obj["kind"], meta["name"], meta["uid"]


def _paired(registry: Registry, entries: Sequence[Entry], what: Move, writing: Writing) -> list[_Pair]:
    before = [decode(entry) for entry in entries]
    uids = {_identity(old): str(uuid.uuid4()) for old in before}
    now, pairs = timestamp(registry.clock.now()), list[_Pair]()
    for entry, old in zip(entries, before, strict=True):
        new = copied(old)
        meta = metadata(new)
        meta.pop("resourceVersion", None)
        meta.update(namespace=what.target, uid=uids[_identity(old)], creationTimestamp=now)
        _refer(registry, new, uids, writing)
        what.adapt(new)
        pairs.append(_Pair(entry, old, new, (*entry.key[:2], what.target, entry.key[3])))
    return pairs


def _refer(registry: Registry, new: Object, uids: Mapping[Identity, str], writing: Writing) -> None:
    """References to owners that move along follow them. One to an owner that stays would be taken for one to an owner
    that is gone, which could cost the object its life, so it ends here."""
    kept: list[Object] = []
    for reference in metadata(new).get("ownerReferences") or ():
        uid = uids.get(_referred(reference))
        if uid is not None:
            kept.append({**reference, "uid": uid})
        elif _stays(registry, reference):
            owner = f'{reference["kind"]} "{reference["name"]}"'
            writing.tell([f'{new["kind"]} "{name_of(new)}" no longer depends on {owner}, which does not move along'])
        else:
            kept.append(reference)
    if kept:
        metadata(new)["ownerReferences"] = kept
    else:
        metadata(new).pop("ownerReferences", None)


def _stays(registry: Registry, reference: Object) -> bool:
    """Whether the owner is one that has its place in the old namespace. Of unknown kinds nobody can tell."""
    named = reference.get("apiVersion"), reference.get("kind")
    return any(kind.namespaced and (kind.api_version, kind.name) == named for kind in registry.catalog.kinds)


def _commit(
    pairs: Sequence[_Pair], changes: Sequence[Change], conditions: Iterable[Check]
) -> tuple[list[contract.Change], list[Check]]:
    """All writes, the ends first so that watchers of both places see them first, and all conditions, each key once."""
    writes = {pair.entry.key: contract.Change(pair.entry.key, None, pair.entry.revision) for pair in pairs}
    writes |= {pair.key: contract.Change(pair.key, encode(pair.new), 0) for pair in pairs}
    checks = {check.key: check for check in conditions}
    for change in changes:
        _add(writes, change.also)
        _add(checks, change.checks)
    return list(writes.values()), [check for key, check in checks.items() if key not in writes]


def _add(wishes: dict[Key, Wish], more: Iterable[Wish]) -> None:
    """Several objects may depend on the same thing, or touch it. When they have seen it at different revisions, it has
    changed in between, and all of them have to look again."""
    for each in more:
        known = wishes.setdefault(each.key, each)
        if known.expected != each.expected:
            raise contract.Conflict(each.key, known.expected, each.expected)


def _taken(key: Key, what: Move) -> AlreadyExists:
    group, plural, _, name = key
    leads = (group, plural, name) == (what.resource.kind.group, what.resource.kind.plural, what.name)
    why = "" if leads else f', and "{what.name}" would bring along one that depends on it'
    message = f'{qualified(plural, group)} "{name}" already exists in the namespace {what.target}{why}'
    return AlreadyExists(f"{message}; rename or delete one of the two", Details(name, group, plural))
