"""The garbage collector: deletes objects without owners, and implements Foreground and Orphan deletion.

A dependent names its owners in `metadata.ownerReferences`. Each object is processed by itself, by the current state:

- an existing owner keeps it; dangling references, and those to owners in foreground deletion, are then removed
- without such an owner it is deleted, with its uid and resourceVersion as preconditions
- for an owner that is deleted with Orphan, the references of its dependents are removed, then its finalizer
- for one that is deleted with Foreground, the finalizer is removed when no dependent blocks it any more

If the kind of an owner is not served, the owner may exist elsewhere, so its dependents are left alone. A reference to
an owner in another namespace is invalid; it is reported by an Event when the reference is first processed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Final

from fairlead.controllers.core.owner_index import (
    OwnerIndex,
    OwnerReference,
    OwnerReferenceReader,
    PartialMetadata,
    is_awaiting_gc,
    partial_metadata,
)
from fairlead.core.errors import ApiError, Conflict, Forbidden, NotFound
from fairlead.core.objects import Object, metadata, remove_finalizer
from fairlead.registry.codec import decode
from fairlead.registry.conditions import record_event
from fairlead.registry.kind import Kind
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.registry.write_rules import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

INVALID_NAMESPACE_REASON = "OwnerRefInvalidNamespace"
IGNORED_RESOURCES: Final = frozenset({("", "events")})
"""Events are numerous, own nothing and expire by themselves."""
MIN_SECONDS = 0.002
"""How long an object without owners stays at least, and an owner whose dependents are orphaned: one or two requests, as
in Kubernetes."""
MIN_FOREGROUND_SECONDS = 0.1
"""The same for an owner that is deleted after its dependents. Dependents that are just being created are found."""
REQUEUE_SECONDS = 10.0
"""Requeue delay of an owner that waits for dependents, in case the triggering change was missed."""


class OwnerState(Enum):
    """The state of an owner, as far as it matters to a dependent."""

    SOLID = "exists"
    ABSENT = "does not exist"
    WAITING_FOR_DEPENDENTS = "is in foreground deletion"
    ORPHANING = "orphans its dependents"
    UNKNOWN = "is of a kind that is not served"


class GarbageCollector:
    name, workers = "garbage-collector", 16

    def __init__(self, registry: Registry) -> None:
        deletable = dict.fromkeys(kind.stored_resource for kind in registry.catalog.kinds if "delete" in kind.verbs)
        self.watches = tuple(each for each in deletable if each not in IGNORED_RESOURCES)
        self._registry = registry
        self._reference_reader = OwnerReferenceReader(registry.catalog.kinds)
        self._owner_index = OwnerIndex()
        self._new_dependents: set[Key] = set()
        self._noticed: dict[Key, float] = {}
        """When each object that has to go was first found so."""

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The object if it has owners; former owners that may wait for it; its dependents if it is being deleted."""
        before = self._owner_index.references(key)
        after = self._reference_reader.read_all(entry)
        keys = [key] if after else []
        if before != after:
            self._owner_index.set_references(key, after)
            self._new_dependents.update(keys)
            owners = (each.owner for each in before if each.owner is not None)
            keys.extend(owner for owner in owners if is_awaiting_gc(self._registry.view.get(owner)))
        if entry is None:
            self._new_dependents.discard(key)
            self._noticed.pop(key, None)
            keys.extend(self._owner_index.dependents_of_key(key))
        elif is_awaiting_gc(entry):
            keys.append(key)
            keys.extend(self._owner_index.dependents_of_key(key))
        return keys

    async def reconcile(self, key: Key) -> float | None:
        resource = self._registry.resource(key[0], key[1])
        # NotFound: already deleted. Conflict: changed meanwhile, and so queued again. Forbidden: an admission rule
        # protects it, such as the namespace of a project, whatever its references say.
        with suppress(NotFound, Conflict, Forbidden):
            entry = await resource.get(key[2], key[3])
            if key in self._new_dependents:
                self._new_dependents.discard(key)
                await warn_cross_namespace_owner(self._registry, self._reference_reader, entry)
            return await self._process(entry)
        return None

    async def _process(self, entry: Entry) -> float | None:
        meta = partial_metadata(entry)
        states = {each: self._owner_state(each) for each in self._reference_reader.read_all(entry)}
        distinct = set(states.values())
        if OwnerState.ORPHANING in distinct:
            await self._remove_references(
                entry, meta, [each for each in states if states[each] is OwnerState.ORPHANING]
            )
        elif meta.is_deleting:
            return await self._remove_gc_finalizer(entry.key, meta)
        elif distinct and OwnerState.UNKNOWN not in distinct:
            dangling = [each for each in states if states[each] is not OwnerState.SOLID]
            if len(dangling) == len(states):
                if (delay := self._remaining_delay(entry.key, MIN_SECONDS)) is not None:
                    return delay
                await self._delete(entry.key, meta, distinct)
                return None
            self._noticed.pop(entry.key, None)
            if dangling:
                await self._remove_references(entry, meta, dangling)
        return None

    def _remaining_delay(self, key: Key, minimum: float) -> float | None:
        """Seconds until the minimum has passed since the first call."""
        now = self._registry.clock.monotonic()
        earliest = self._noticed.setdefault(key, now) + minimum
        return earliest - now if now < earliest else None

    def _owner_state(self, reference: OwnerReference) -> OwnerState:
        if reference.owner is None:
            return OwnerState.UNKNOWN
        entry = self._registry.view.get(reference.owner)
        meta = partial_metadata(entry) if entry is not None else None
        if meta is None or meta.uid != reference.uid:
            return OwnerState.ABSENT
        if meta.orphans_dependents:
            return OwnerState.ORPHANING
        return OwnerState.WAITING_FOR_DEPENDENTS if meta.waits_for_dependents else OwnerState.SOLID

    async def _delete(self, key: Key, meta: PartialMetadata, states: set[OwnerState]) -> None:
        """Deletes an object without owners. If an owner is in foreground deletion, so is this one."""
        if OwnerState.WAITING_FOR_DEPENDENTS in states and any(self._existing_dependents(key, meta.uid)):
            policy = "Foreground"
        elif meta.has_finalizer(ORPHAN_FINALIZER):
            policy = "Orphan"
        else:
            policy = "Foreground" if meta.has_finalizer(FOREGROUND_FINALIZER) else "Background"
        options = DeleteOptions(meta.uid, meta.resourceVersion, policy)
        await self._registry.resource(key[0], key[1]).delete(key[2], key[3], options, server_write_options())

    async def _remove_references(self, entry: Entry, meta: PartialMetadata, references: list[OwnerReference]) -> None:
        """Removes exactly these references."""

        def edit(current: Object) -> Object:
            now = metadata(current)
            owners = now.get("ownerReferences") or ()
            remaining = [each for each in owners if self._reference_reader.read(entry.key, each) not in references]
            return {**current, "metadata": {**now, "ownerReferences": remaining}}

        await self._modify(entry.key, meta.uid, edit)

    async def _remove_gc_finalizer(self, key: Key, meta: PartialMetadata) -> float | None:
        """Removes the finalizer of an owner that no longer waits for dependents, or returns the requeue delay."""
        if meta.orphans_dependents:
            finalizer, minimum = ORPHAN_FINALIZER, MIN_SECONDS
            is_blocked = any(self._existing_dependents(key, meta.uid))
        elif meta.waits_for_dependents:
            finalizer, minimum = FOREGROUND_FINALIZER, MIN_FOREGROUND_SECONDS
            is_blocked = self._is_blocked(key, meta.uid)
        else:
            return None
        if is_blocked:
            return REQUEUE_SECONDS
        if (delay := self._remaining_delay(key, minimum)) is not None:
            return delay

        def edit(current: Object) -> Object:
            return remove_finalizer(current, finalizer)

        await self._modify(key, meta.uid, edit)
        return None

    def _is_blocked(self, key: Key, uid: str) -> bool:
        """Whether an owner in foreground deletion has to wait for a blocking dependent.

        A cycle of owners that wait only for each other must be broken. So an owner need not wait if everything that it
        waits for, directly or not, is itself in foreground deletion with blocking dependents, and leads back to it.
        """
        visited: set[Key] = set()
        pending = list(self._existing_dependents(key, uid, blocking=True))
        if not pending:
            return False
        while pending:
            current = pending.pop()
            entry = self._registry.view.get(current)
            if current in visited or entry is None:
                continue
            meta = partial_metadata(entry)
            blocking_dependents = list(self._existing_dependents(current, meta.uid, blocking=True))
            if not meta.waits_for_dependents or not blocking_dependents:
                return True
            visited.add(current)
            pending.extend(blocking_dependents)
        return key not in visited

    def _existing_dependents(self, key: Key, uid: str, *, blocking: bool = False) -> Iterator[Key]:
        """The index may be stale, so dependents that no longer exist are skipped."""
        found = self._owner_index.dependents_of(key, uid, blocking=blocking)
        return (each for each in found if self._registry.view.get(each) is not None)

    async def _modify(self, key: Key, uid: str, edit: Callable[[Object], Object]) -> None:
        """Updates this very object, not a new one of the same name."""

        def checked_edit(current: Object) -> Object:
            if metadata(current)["uid"] != uid:
                raise NotFound.of(key[1], key[0], key[3])
            return edit(current)

        options = server_write_options()
        await self._registry.resource(key[0], key[1]).modify(key[2], key[3], checked_edit, options)


async def warn_cross_namespace_owner(registry: Registry, reader: OwnerReferenceReader, entry: Entry) -> None:
    """Records a warning Event for each reference whose owner exists in another namespace only."""
    namespace = entry.key[2]
    for reference in partial_metadata(entry).ownerReferences or ():
        kind = reader.owner_kind(reference)
        if kind is None or not kind.namespaced or _owner_exists_in(registry, kind, namespace, reference):
            continue
        namespaces = (entry_of_namespace.key[3] for entry_of_namespace in registry.view.entries("", "namespaces"))
        if any(_owner_exists_in(registry, kind, other, reference) for other in namespaces):
            message = f'ownerRef {_format_reference(reference, namespace)} does not exist in namespace "{namespace}"'
            # The namespace may be terminating, and then no Event can be created there any more.
            with suppress(ApiError):
                await record_event(registry, decode(entry), INVALID_NAMESPACE_REASON, message, type="Warning")


def _owner_exists_in(registry: Registry, kind: Kind, namespace: str, reference: Object) -> bool:
    found = registry.view.get(kind.key(namespace, reference["name"]))
    return found is not None and partial_metadata(found).uid == reference["uid"]


def _format_reference(reference: Object, namespace: str) -> str:
    api_version, kind, name, uid = (reference[part] for part in ("apiVersion", "kind", "name", "uid"))
    return f"[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]"
