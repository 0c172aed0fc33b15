"""Moves an object, its dependents and its companions to another namespace, in one commit.

`subresources/migration.py` calls it. Each object is checked like a create in the target namespace and a delete in the
source namespace. Then all are written at once, on condition that none has changed. No reader ever sees an object twice
or not at all, and after a crash either all have moved or none.

Objects keep their spec, status, labels, annotations, finalizers and managedFields. They get new uids, so that
references to the old ones do not match, and ownerReferences between them are updated.

A move that is refused says everything that prevents it, so that a dry run is needed once: first all permissions that
are missing, without a word about objects that the requester may not know of, and then all else.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fairlead.core.clock import timestamp
from fairlead.core.errors import AlreadyExists, ApiError, Conflict, Details, NotFound, qualified_resource
from fairlead.core.objects import Object, deep_copy, metadata, name_of
from fairlead.registry.codec import decode, encode
from fairlead.registry.kind import Change, Kind
from fairlead.registry.quota.usage import StoredUsage, stored_size
from fairlead.registry.registry import Registry
from fairlead.registry.resource import MAX_ATTEMPTS, Resource
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.registry.write_options import WriteOptions
from fairlead.storage import contract
from fairlead.storage.contract import Key, Precondition
from fairlead.storage.view.view import Entry

MAX_OBJECTS = 10_000
"""How many objects can move at once. All are held in memory, and other writers wait for the commit."""

MAX_OBSTACLES = 20
"""How many reasons an error names."""

_OWNER_REFERENCES_MARKER = b'"ownerReferences":['

Expectation = TypeVar("Expectation", contract.Write, Precondition)

OwnerIdentity = tuple[str, ...]
"""The owner in an ownerReference: apiVersion, kind, name and uid."""


def _no_changes(obj: Object, uids: Mapping[str, str]) -> None:
    return None


def _no_companions(entry: Entry) -> Sequence[Entry]:
    return ()


@dataclass(frozen=True, slots=True)
class MovedObject:
    """One of the objects that move, as it is before."""

    kind: Kind
    name: str
    obj: Object


def _no_obstacles(objects: Sequence[MovedObject]) -> Iterable[ApiError]:
    return ()


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """What to move, from one namespace to another.

    `required_active` are cluster-scoped objects that must exist, and not be in deletion, when the commit happens.
    `find_companions` returns objects of the source namespace that do not depend on the requested one by an
    ownerReference, and move all the same. `check_access` is called on each attempt with all objects that would move,
    the requested one first, and raises to refuse; `find_obstacles` returns what else prevents the move. `adapt` updates
    fields that depend on the namespace; it gets the new uids by the old ones.
    """

    resource: Resource
    name: str
    source: str
    target: str
    required_active: tuple[tuple[Resource, str], ...]
    check_access: Callable[[Sequence[MovedObject]], None]
    adapt: Callable[[Object, Mapping[str, str]], None] = _no_changes
    find_companions: Callable[[Entry], Sequence[Entry]] = _no_companions
    find_obstacles: Callable[[Sequence[MovedObject]], Iterable[ApiError]] = _no_obstacles


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The object before and after, and the others that moved with it."""

    old: Object
    new: Object
    others: Sequence[MovedObject]


@dataclass(frozen=True, slots=True)
class _MovePair:
    """One object in its source and in its target namespace."""

    entry: Entry
    old: Object
    new: Object
    key: Key


async def move(registry: Registry, request: MoveRequest, options: WriteOptions) -> MoveResult:
    """Moves the object and its dependents, or nothing. A dry run makes every check and writes nothing."""
    for _ in range(MAX_ATTEMPTS):
        pairs, conditions, obstacles = await _plan_move(registry, request, options)
        changes = await _admit(registry, pairs, options, obstacles)
        if registry.quota is not None and not obstacles:
            sizes = [stored_size(pair.entry) for pair in pairs]
            await registry.quota.reserve_move(changes[-1], request.target, StoredUsage(len(sizes), sum(sizes)))
        if obstacles:
            raise combine_errors(obstacles)
        for change in changes:
            options.add_warnings(change.warnings)
        moved = MoveResult(pairs[0].old, pairs[0].new, [_moved_object(registry, pair.entry) for pair in pairs[1:]])
        if options.dry_run:
            return moved
        try:
            revision = await request.resource.commit(*_build_commit(pairs, changes, conditions))
        except contract.RevisionConflict as conflict:
            if conflict.key in {pair.key for pair in pairs}:
                raise _already_exists(conflict.key, request) from None
            continue
        metadata(moved.new)["resourceVersion"] = str(revision)
        return moved
    raise _conflict(request.resource, request.name, "it changes too often; try again later")


def combine_errors(errors: Sequence[ApiError]) -> ApiError:
    """One error that says all of them, with the code of the first."""
    first, *others = errors
    if not others:
        return first
    listed = errors[:MAX_OBSTACLES]
    more = f"; and {len(errors) - MAX_OBSTACLES} more" if len(errors) > MAX_OBSTACLES else ""
    texts = "; ".join(f"({number}) {each.message}" for number, each in enumerate(listed, 1))
    combined = type(first)(f"{len(errors)} reasons prevent this: {texts}{more}", first.details)
    combined.refused_by = first.refused_by
    return combined


async def _admit(
    registry: Registry, pairs: Sequence[_MovePair], options: WriteOptions, obstacles: list[ApiError]
) -> list[Change]:
    """The changes, each checked like a delete and a create. Adds to `obstacles` what refuses them."""
    changes = list[Change]()
    placed: dict[str, list[Object]] = {}
    for pair in pairs:
        try:
            changes.append(await _resource(registry, pair).prepare_move_out(pair.old, options))
        except ApiError as error:
            obstacles.append(error)
    for pair in pairs:
        same_kind = placed.setdefault(pair.new["kind"], [])
        try:
            changes.append(await _resource(registry, pair).prepare_move_in(pair.new, options, tuple(same_kind)))
        except ApiError as error:
            obstacles.append(error)
        same_kind.append(pair.new)
    return changes


def _resource(registry: Registry, pair: _MovePair) -> Resource:
    return registry.resource(pair.key[0], pair.key[1])


def _moved_object(registry: Registry, entry: Entry) -> MovedObject:
    return MovedObject(registry.resource(entry.key[0], entry.key[1]).kind, entry.key[3], decode(entry))


async def _plan_move(
    registry: Registry, request: MoveRequest, options: WriteOptions
) -> tuple[list[_MovePair], list[Precondition], list[ApiError]]:
    """All objects that move, before and after, preconditions of the commit, and what prevents it. Raises if that is
    not to be told, or would be too much."""
    with translate_storage_errors():
        await registry.view.wait_current()
    conditions = [_require_active(resource, name) for resource, name in request.required_active]
    entry = _get_source_entry(request)
    entries = collect_dependents(registry, entry, *request.find_companions(entry))
    objects = [_moved_object(registry, each) for each in entries]
    request.check_access(objects)
    if len(entries) > MAX_OBJECTS:
        reason = (
            f"it has {len(entries) - 1} dependents, and at most {MAX_OBJECTS - 1} can move with it; delete some of them"
        )
        raise _conflict(request.resource, request.name, reason)
    obstacles = list(request.find_obstacles(objects))
    for each in entries:
        key = (*each.key[:2], request.target, each.key[3])
        if registry.view.get(key) is not None:
            obstacles.append(_already_exists(key, request))
    return _build_pairs(registry, entries, request, options), conditions, obstacles


def _require_active(resource: Resource, name: str) -> Precondition:
    """The precondition that an object exists. Raises if it does not, or is being deleted."""
    entry = resource.get_cached("", name)
    if entry is None:
        raise NotFound.of(resource.kind.plural, resource.kind.group, name)
    if _is_deleting(entry):
        raise _conflict(resource, name, "it is being deleted; nothing can be moved out of it or into it")
    return Precondition(entry.key, entry.revision)


def _get_source_entry(request: MoveRequest) -> Entry:
    entry = request.resource.get_cached(request.source, request.name)
    if entry is None:
        raise NotFound.of(request.resource.kind.plural, request.resource.kind.group, request.name)
    if _is_deleting(entry):
        raise _conflict(request.resource, request.name, "it is being deleted and cannot be moved")
    return entry


def _is_deleting(entry: Entry) -> bool:
    return "deletionTimestamp" in metadata(decode(entry))


def _conflict(resource: Resource, name: str, reason: str) -> Conflict:
    return Conflict.of(resource.kind.plural, resource.kind.group, name, reason)


def collect_dependents(registry: Registry, entry: Entry, *others: Entry) -> list[Entry]:
    """The objects, which are in one namespace, then all their direct and indirect dependents there, each once."""
    dependents: dict[OwnerIdentity, list[Entry]] = {}
    for resource in registry.namespaced_resources():
        for each in registry.view.entries(resource.kind.group, resource.kind.plural, entry.key[2]):
            if _OWNER_REFERENCES_MARKER in each.body:
                for reference in metadata(decode(each)).get("ownerReferences") or ():
                    dependents.setdefault(_reference_identity(reference), []).append(each)
    found = {each.key: each for each in (entry, *others)}
    queue = list(found.values())
    while queue:
        for each in dependents.get(_object_identity(decode(queue.pop())), ()):
            if each.key not in found:
                found[each.key] = each
                queue.append(each)
    return list(found.values())


def _reference_identity(reference: Object) -> OwnerIdentity:
    return tuple(str(reference.get(part) or "") for part in ("apiVersion", "kind", "name", "uid"))


def _object_identity(obj: Object) -> OwnerIdentity:
    meta = metadata(obj)
    return obj["apiVersion"], obj["kind"], meta["name"], meta["uid"]


def _build_pairs(
    registry: Registry, entries: Sequence[Entry], request: MoveRequest, options: WriteOptions
) -> list[_MovePair]:
    before = [decode(entry) for entry in entries]
    uids = {_object_identity(old): str(uuid.uuid4()) for old in before}
    new_uids = {metadata(old)["uid"]: uids[_object_identity(old)] for old in before}
    now = timestamp(registry.clock.now())
    pairs = list[_MovePair]()
    for entry, old in zip(entries, before, strict=True):
        new = deep_copy(old)
        meta = metadata(new)
        meta.pop("resourceVersion", None)
        meta.update(namespace=request.target, uid=uids[_object_identity(old)], creationTimestamp=now)
        _update_owner_references(registry, new, uids, options)
        request.adapt(new, new_uids)
        pairs.append(_MovePair(entry, old, new, (*entry.key[:2], request.target, entry.key[3])))
    return pairs


def _update_owner_references(
    registry: Registry, new: Object, uids: Mapping[OwnerIdentity, str], options: WriteOptions
) -> None:
    """Updates ownerReferences. Those to owners that move get the new uid.

    References to owners that stay behind are dropped: the garbage collector would take the owner for missing and delete
    the object.
    """
    retained: list[Object] = []
    for reference in metadata(new).get("ownerReferences") or ():
        uid = uids.get(_reference_identity(reference))
        if uid is not None:
            retained.append({**reference, "uid": uid})
        elif _is_left_behind(registry, reference):
            owner = f'{reference["kind"]} "{reference["name"]}"'
            options.add_warnings(
                [f'{new["kind"]} "{name_of(new)}" loses its ownerReference to {owner}, which does not move']
            )
        else:
            retained.append(reference)
    if retained:
        metadata(new)["ownerReferences"] = retained
    else:
        metadata(new).pop("ownerReferences", None)


def _is_left_behind(registry: Registry, reference: Object) -> bool:
    """Whether the owner is namespaced, so that it stays behind. Unknown kinds count as cluster-scoped."""
    owner = reference.get("apiVersion"), reference.get("kind")
    return any(kind.namespaced and (kind.api_version, kind.name) == owner for kind in registry.catalog.kinds)


def _build_commit(
    pairs: Sequence[_MovePair], changes: Sequence[Change], conditions: Iterable[Precondition]
) -> tuple[list[contract.Write], list[Precondition]]:
    """All writes, removals first so that watchers see them first, and all preconditions, one per key."""
    writes = {pair.entry.key: contract.Write(pair.entry.key, None, pair.entry.revision) for pair in pairs}
    writes |= {pair.key: contract.Write(pair.key, encode(pair.new), 0) for pair in pairs}
    checks = {check.key: check for check in conditions}
    for change in changes:
        _merge_by_key(writes, change.extra_writes)
        _merge_by_key(checks, change.preconditions)
    return list(writes.values()), [check for key, check in checks.items() if key not in writes]


def _merge_by_key(by_key: dict[Key, Expectation], more: Iterable[Expectation]) -> None:
    """Adds writes or preconditions by key. Several objects may need the same one. If they expect different revisions,
    it has changed in between, and the move must be retried."""
    for each in more:
        known = by_key.setdefault(each.key, each)
        if known.expected_revision != each.expected_revision:
            raise contract.RevisionConflict(each.key, known.expected_revision, each.expected_revision)


def _already_exists(key: Key, request: MoveRequest) -> AlreadyExists:
    group, plural, _, name = key
    is_requested = (group, plural, name) == (request.resource.kind.group, request.resource.kind.plural, request.name)
    detail = "" if is_requested else f', and an object that moves with "{request.name}" has the same name'
    message = f'{qualified_resource(plural, group)} "{name}" already exists in the namespace {request.target}{detail}'
    return AlreadyExists(f"{message}; rename or delete one of the two", Details(name, group, plural))
