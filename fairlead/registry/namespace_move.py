"""Moves an object and its dependents to another namespace, in one commit.

`subresources/migration.py` calls it. Each object is checked like a create in the target namespace and a delete in the
source namespace. Then all are written at once, on condition that none has changed. No reader ever sees an object twice
or not at all, and after a crash either all have moved or none.

Objects keep their spec, status, labels, annotations, finalizers and managedFields. They get new uids, so that
references to the old ones do not match, and ownerReferences between them are updated.
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
"""How many objects can move at once. All are held in memory, and other writers wait for the commit."""

_OWNED = b'"ownerReferences":['

Expectation = TypeVar("Expectation", contract.Change, Check)

Identity = tuple[str, ...]
"""The owner in an ownerReference: apiVersion, kind, name and uid."""


def _as_it_is(obj: Object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Part:
    """One of the objects that move."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Move:
    """What to move, from one namespace to another.

    `required_active` are cluster-scoped objects that must exist, and not be in deletion, when the commit happens.
    `authorize` is called on each attempt with all objects that would move, the requested one first, and raises to
    refuse. `adapt` updates fields that depend on the namespace.
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
    """The object before and after, and the number of dependents that moved with it."""

    old: Object
    new: Object
    dependants: int


@dataclass(frozen=True, slots=True)
class _Pair:
    """One object in its source and in its target namespace."""

    entry: Entry
    old: Object
    new: Object
    key: Key


async def move(registry: Registry, what: Move, writing: Writing) -> Moved:
    """Moves the object and its dependents, or nothing. A dry run makes every check and writes nothing."""
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
    """All objects that move, before and after, and preconditions of the commit. Raises if they cannot be moved."""
    with storage_errors():
        await registry.view.fresh()
    conditions = [_living(resource, name) for resource, name in what.alive]
    entry = _leading(what)
    entries = gathered(registry, entry)
    what.allow([Part(registry.resource(each.key[0], each.key[1]).kind, each.key[3]) for each in entries])
    if len(entries) > MOST:
        reason = f"it has {len(entries) - 1} dependents, and at most {MOST - 1} can move with it; delete some of them"
        raise _refused(what.resource, what.name, reason)
    for each in entries:
        key = (*each.key[:2], what.target, each.key[3])
        if registry.view.get(key) is not None:
            raise _taken(key, what)
    return _paired(registry, entries, what, writing), conditions


def _living(resource: Resource, name: str) -> Check:
    """The precondition that an object exists. Raises if it does not, or is being deleted."""
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
        raise _refused(what.resource, what.name, "it is being deleted and cannot be moved")
    return entry


def _is_going(entry: Entry) -> bool:
    return "deletionTimestamp" in metadata(decode(entry))


def _refused(resource: Resource, name: str, why: str) -> Conflict:
    return Conflict.of(resource.kind.plural, resource.kind.group, name, why)


def gathered(registry: Registry, entry: Entry) -> list[Entry]:
    """The object, then all its direct and indirect dependents in its namespace, each once."""
    dependents: dict[Identity, list[Entry]] = {}
    for resource in registry.namespaced():
        for each in registry.view.entries(resource.kind.group, resource.kind.plural, entry.key[2]):
            if _OWNED in each.body:
                for reference in metadata(decode(each)).get("ownerReferences") or ():
                    dependents.setdefault(_referred(reference), []).append(each)
    found, queue = {entry.key: entry}, [entry]
    while queue:
        for each in dependents.get(_identity(decode(queue.pop())), ()):
            if each.key not in found:
                found[each.key] = each
                queue.append(each)
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
    """Updates ownerReferences. Those to owners that move get the new uid.

    References to owners that stay behind are dropped: the garbage collector would take the owner for missing and delete
    the object.
    """
    kept: list[Object] = []
    for reference in metadata(new).get("ownerReferences") or ():
        uid = uids.get(_referred(reference))
        if uid is not None:
            kept.append({**reference, "uid": uid})
        elif _stays(registry, reference):
            owner = f'{reference["kind"]} "{reference["name"]}"'
            writing.tell([f'{new["kind"]} "{name_of(new)}" loses its ownerReference to {owner}, which does not move'])
        else:
            kept.append(reference)
    if kept:
        metadata(new)["ownerReferences"] = kept
    else:
        metadata(new).pop("ownerReferences", None)


def _stays(registry: Registry, reference: Object) -> bool:
    """Whether the owner is namespaced, so that it stays behind. Unknown kinds count as cluster-scoped."""
    owner = reference.get("apiVersion"), reference.get("kind")
    return any(kind.namespaced and (kind.api_version, kind.name) == owner for kind in registry.catalog.kinds)


def _commit(
    pairs: Sequence[_Pair], changes: Sequence[Change], conditions: Iterable[Check]
) -> tuple[list[contract.Change], list[Check]]:
    """All writes, removals first so that watchers see them first, and all preconditions, one per key."""
    writes = {pair.entry.key: contract.Change(pair.entry.key, None, pair.entry.revision) for pair in pairs}
    writes |= {pair.key: contract.Change(pair.key, encode(pair.new), 0) for pair in pairs}
    checks = {check.key: check for check in conditions}
    for change in changes:
        _add(writes, change.also)
        _add(checks, change.checks)
    return list(writes.values()), [check for key, check in checks.items() if key not in writes]


def _add(by_key: dict[Key, Expectation], more: Iterable[Expectation]) -> None:
    """Adds writes or preconditions by key. Several objects may need the same one. If they expect different revisions,
    it has changed in between, and the move must be retried."""
    for each in more:
        known = by_key.setdefault(each.key, each)
        if known.expected != each.expected:
            raise contract.Conflict(each.key, known.expected, each.expected)


def _taken(key: Key, what: Move) -> AlreadyExists:
    group, plural, _, name = key
    is_requested = (group, plural, name) == (what.resource.kind.group, what.resource.kind.plural, what.name)
    detail = "" if is_requested else f', and a dependent of "{what.name}" has the same name'
    message = f'{qualified(plural, group)} "{name}" already exists in the namespace {what.target}{detail}'
    return AlreadyExists(f"{message}; rename or delete one of the two", Details(name, group, plural))
