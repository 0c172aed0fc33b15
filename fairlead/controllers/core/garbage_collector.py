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

from fairlead.controllers.core.owner_index import Meta, Owners, Reference, References, lingers, meta_of
from fairlead.core.errors import ApiError, Conflict, Forbidden, NotFound
from fairlead.core.objects import Object, metadata, remove_finalizer
from fairlead.registry.codec import decode
from fairlead.registry.deletion import FOREGROUND, ORPHAN
from fairlead.registry.events import record
from fairlead.registry.kind import Kind
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import Deleting, by_the_server
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

REASON = "OwnerRefInvalidNamespace"
UNWATCHED: Final = frozenset({("", "events")})
"""Events are numerous, own nothing and expire by themselves."""
SETTLE_SECONDS = 0.3
"""How long an owner keeps its finalizer at least, so that dependents that are just being created are found."""
LOOK_AGAIN = 10.0
"""Requeue delay of an owner that waits for dependents, in case the triggering change was missed."""


class Standing(Enum):
    """The state of an owner, as far as it matters to a dependent."""

    SOLID = "exists"
    ABSENT = "does not exist"
    WAITING = "is in foreground deletion"
    ORPHANING = "orphans its dependents"
    UNKNOWN = "is of a kind that is not served"


class Garbage:
    name, workers = "garbage", 16

    def __init__(self, registry: Registry) -> None:
        deletable = dict.fromkeys(kind.place for kind in registry.catalog.kinds if "delete" in kind.verbs)
        self.watches = tuple(each for each in deletable if each not in UNWATCHED)
        self._registry = registry
        self._references = References(registry.catalog.kinds)
        self._owners = Owners()
        self._new: set[Key] = set()
        self._ending_since: dict[Key, float] = {}

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The object if it has owners; former owners that may wait for it; its dependents if it is being deleted."""
        before, after = self._owners.references(key), self._references.of(entry)
        keys = [key] if after else []
        if before != after:
            self._owners.put(key, after)
            self._new.update(keys)
            owners = (each.owner for each in before if each.owner is not None)
            keys.extend(owner for owner in owners if lingers(self._registry.view.get(owner)))
        if entry is None:
            self._new.discard(key)
            self._ending_since.pop(key, None)
            keys.extend(self._owners.dependants(key))
        elif lingers(entry):
            keys.append(key)
            keys.extend(self._owners.dependants(key))
        return keys

    async def reconcile(self, key: Key) -> float | None:
        resource = self._registry.resource(key[0], key[1])
        # NotFound: already deleted. Conflict: changed meanwhile, and so queued again. Forbidden: an admission rule
        # protects it, such as the namespace of a project, whatever its references say.
        with suppress(NotFound, Conflict, Forbidden):
            entry = await resource.get(key[2], key[3])
            if key in self._new:
                self._new.discard(key)
                await report_misplaced(self._registry, self._references, entry)
            return await self._judge(entry)
        return None

    async def _judge(self, entry: Entry) -> float | None:
        meta = meta_of(entry)
        states = {each: self._standing(each) for each in self._references.of(entry)}
        distinct = set(states.values())
        if Standing.ORPHANING in distinct:
            await self._leave(entry, meta, [each for each in states if states[each] is Standing.ORPHANING])
        elif meta.ending:
            return await self._release(entry.key, meta)
        elif distinct and Standing.UNKNOWN not in distinct:
            dangling = [each for each in states if states[each] is not Standing.SOLID]
            if len(dangling) == len(states):
                await self._delete(entry.key, meta, distinct)
            elif dangling:
                await self._leave(entry, meta, dangling)
        return None

    def _standing(self, reference: Reference) -> Standing:
        if reference.owner is None:
            return Standing.UNKNOWN
        entry = self._registry.view.get(reference.owner)
        meta = meta_of(entry) if entry is not None else None
        if meta is None or meta.uid != reference.uid:
            return Standing.ABSENT
        if meta.orphaning:
            return Standing.ORPHANING
        return Standing.WAITING if meta.waiting else Standing.SOLID

    async def _delete(self, key: Key, meta: Meta, found: set[Standing]) -> None:
        """Deletes an object without owners. If an owner is in foreground deletion, so is this one."""
        if Standing.WAITING in found and any(self._dependants(key, meta.uid)):
            policy = "Foreground"
        elif meta.has(ORPHAN):
            policy = "Orphan"
        else:
            policy = "Foreground" if meta.has(FOREGROUND) else "Background"
        options = Deleting(meta.uid, meta.resourceVersion, policy)
        await self._registry.resource(key[0], key[1]).delete(key[2], key[3], options, by_the_server())

    async def _leave(self, entry: Entry, meta: Meta, lost: list[Reference]) -> None:
        """Removes exactly these references."""

        def edit(current: Object) -> Object:
            now = metadata(current)
            owners = now.get("ownerReferences") or ()
            remaining = [each for each in owners if self._references.read(entry.key, each) not in lost]
            return {**current, "metadata": {**now, "ownerReferences": remaining}}

        await self._modify(entry.key, meta.uid, edit)

    async def _release(self, key: Key, meta: Meta) -> float | None:
        """Removes the finalizer of an owner that no longer waits for dependents, or returns the requeue delay."""
        if meta.orphaning:
            finalizer, is_blocked = ORPHAN, any(self._dependants(key, meta.uid))
        elif meta.waiting:
            finalizer, is_blocked = FOREGROUND, self._blocked(key, meta.uid)
        else:
            return None
        now = self._registry.clock.monotonic()
        earliest = self._ending_since.setdefault(key, now) + SETTLE_SECONDS
        if is_blocked:
            return LOOK_AGAIN
        if now < earliest:
            return earliest - now

        def edit(current: Object) -> Object:
            return remove_finalizer(current, finalizer)

        await self._modify(key, meta.uid, edit)
        return None

    def _blocked(self, key: Key, uid: str) -> bool:
        """Whether an owner in foreground deletion has to wait for a blocking dependent.

        A cycle of owners that wait only for each other must be broken. So an owner need not wait if everything that it
        waits for, directly or not, is itself in foreground deletion with blocking dependents, and leads back to it.
        """
        visited: set[Key] = set()
        pending = list(self._dependants(key, uid, blocking=True))
        if not pending:
            return False
        while pending:
            current = pending.pop()
            entry = self._registry.view.get(current)
            if current in visited or entry is None:
                continue
            meta = meta_of(entry)
            blocking_dependents = list(self._dependants(current, meta.uid, blocking=True))
            if not meta.waiting or not blocking_dependents:
                return True
            visited.add(current)
            pending.extend(blocking_dependents)
        return key not in visited

    def _dependants(self, key: Key, uid: str, *, blocking: bool = False) -> Iterator[Key]:
        """The index may be stale, so dependents that no longer exist are skipped."""
        found = self._owners.dependants_of(key, uid, blocking=blocking)
        return (each for each in found if self._registry.view.get(each) is not None)

    async def _modify(self, key: Key, uid: str, edit: Callable[[Object], Object]) -> None:
        """Updates this very object, not a new one of the same name."""

        def checked_edit(current: Object) -> Object:
            if metadata(current)["uid"] != uid:
                raise NotFound.of(key[1], key[0], key[3])
            return edit(current)

        options = by_the_server()
        await self._registry.resource(key[0], key[1]).modify(key[2], key[3], checked_edit, options)


async def report_misplaced(registry: Registry, references: References, entry: Entry) -> None:
    """Records a warning Event for each reference whose owner exists in another namespace only."""
    namespace = entry.key[2]
    for reference in meta_of(entry).ownerReferences or ():
        kind = references.kind(reference)
        if kind is None or not kind.namespaced or _lives_in(registry, kind, namespace, reference):
            continue
        namespaces = (entry_of_namespace.key[3] for entry_of_namespace in registry.view.entries("", "namespaces"))
        if any(_lives_in(registry, kind, other, reference) for other in namespaces):
            message = f'ownerRef {_shown(reference, namespace)} does not exist in namespace "{namespace}"'
            # The namespace may be terminating, and then no Event can be created there any more.
            with suppress(ApiError):
                await record(registry, decode(entry), REASON, message, type="Warning")


def _lives_in(registry: Registry, kind: Kind, namespace: str, reference: Object) -> bool:
    found = registry.view.get(kind.key(namespace, reference["name"]))
    return found is not None and meta_of(found).uid == reference["uid"]


def _shown(reference: Object, namespace: str) -> str:
    api_version, kind, name, uid = (reference[part] for part in ("apiVersion", "kind", "name", "uid"))
    return f"[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]"
