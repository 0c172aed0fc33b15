"""The garbage collector: deletes what has lost its owners, and does what Foreground and Orphan ask for.

A dependant names its owners in `metadata.ownerReferences`. Each object is judged by itself, by what is true now:

- an owner that is there keeps it; references to owners that are not, or that wait for it to go, are then removed
- without such an owner it is deleted, on condition that nobody has changed it since it was judged
- an owner that is deleted with Orphan loses its dependants, then its finalizer
- one that is deleted with Foreground loses its finalizer when no dependant blocks it any more

An owner whose kind is not served might be anything, so its dependants are left alone.
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

# DOC-MERGED controllers/misplaced
# Says so when an object names an owner in another namespace: it looks owned, and yet it is garbage.
#
# Called by the garbage collector when an object's references are new to it. What comes of it is an Event.


REASON = "OwnerRefInvalidNamespace"


async def report_misplaced(registry: Registry, references: References, entry: Entry) -> None:
    """Records a warning for each reference whose owner lives elsewhere."""
    namespace = entry.key[2]
    for each in meta_of(entry).ownerReferences or ():
        kind = references.kind(each)
        if kind is None or not kind.namespaced or _lives_in(registry, kind, namespace, each):
            continue
        namespaces = (place.key[3] for place in registry.view.entries("", "namespaces"))
        if any(_lives_in(registry, kind, other, each) for other in namespaces):
            message = f'ownerRef {_shown(each, namespace)} does not exist in namespace "{namespace}"'
            # The namespace may be about to end, and then nothing can be recorded there any more.
            with suppress(ApiError):
                await record(registry, decode(entry), REASON, message, type="Warning")


def _lives_in(registry: Registry, kind: Kind, namespace: str, reference: Object) -> bool:
    found = registry.view.get(kind.key(namespace, reference["name"]))
    return found is not None and meta_of(found).uid == reference["uid"]


def _shown(reference: Object, namespace: str) -> str:
    api_version, kind, name, uid = (reference[part] for part in ("apiVersion", "kind", "name", "uid"))
    return f"[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]"


UNWATCHED: Final = frozenset({("", "events")})
"""Events come in masses, own nothing and go by themselves."""
SETTLE_SECONDS = 0.3
"""How long an owner keeps its finalizer at least, so that dependants whose creation was under way are seen, too."""
LOOK_AGAIN = 10.0
"""When to look again at an owner that waits, should the news that it waits for have been missed."""


class Standing(Enum):
    """What an owner means for its dependant."""

    SOLID = "keeps it"
    ABSENT = "is gone"
    WAITING = "goes after it"
    ORPHANING = "goes without it"
    UNKNOWN = "cannot be told"


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
        """The object if it has owners; owners that may have waited for it; dependants if it goes."""
        before, after = self._owners.references(key), self._references.of(entry)
        found = [key] if after else []
        if before != after:
            self._owners.put(key, after)
            self._new.update(found)
            owners = (each.owner for each in before if each.owner is not None)
            found.extend(owner for owner in owners if lingers(self._registry.view.get(owner)))
        if entry is None:
            self._new.discard(key)
            self._ending_since.pop(key, None)
            found.extend(self._owners.dependants(key))
        elif lingers(entry):
            found.append(key)
            found.extend(self._owners.dependants(key))
        return found

    async def reconcile(self, key: Key) -> float | None:
        resource = self._registry.resource(key[0], key[1])
        # NotFound: it is gone. Conflict: it was changed meanwhile, and so will be looked at again. Forbidden: a rule
        # keeps it, such as the namespace of a project, whatever its references say.
        with suppress(NotFound, Conflict, Forbidden):
            entry = await resource.get(key[2], key[3])
            if key in self._new:
                self._new.discard(key)
                await report_misplaced(self._registry, self._references, entry)
            return await self._judge(entry)
        return None

    async def _judge(self, entry: Entry) -> float | None:
        meta = meta_of(entry)
        standings = {each: self._standing(each) for each in self._references.of(entry)}
        found = set(standings.values())
        if Standing.ORPHANING in found:
            await self._leave(entry, meta, [each for each in standings if standings[each] is Standing.ORPHANING])
        elif meta.ending:
            return await self._release(entry.key, meta)
        elif found and Standing.UNKNOWN not in found:
            lost = [each for each in standings if standings[each] is not Standing.SOLID]
            if len(lost) == len(standings):
                await self._delete(entry.key, meta, found)
            elif lost:
                await self._leave(entry, meta, lost)
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
        """Deletes garbage. Whoever's owner waits for it makes its own dependants go first, too."""
        if Standing.WAITING in found and any(self._dependants(key, meta.uid)):
            policy = "Foreground"
        elif meta.has(ORPHAN):
            policy = "Orphan"
        else:
            policy = "Foreground" if meta.has(FOREGROUND) else "Background"
        deleting = Deleting(meta.uid, meta.resourceVersion, policy)
        await self._registry.resource(key[0], key[1]).delete(key[2], key[3], deleting, by_the_server())

    async def _leave(self, entry: Entry, meta: Meta, lost: list[Reference]) -> None:
        """Removes references, and no others."""

        def left(current: Object) -> Object:
            now = metadata(current)
            owners = now.get("ownerReferences") or ()
            kept = [each for each in owners if self._references.read(entry.key, each) not in lost]
            return {**current, "metadata": {**now, "ownerReferences": kept}}

        await self._modify(entry.key, meta.uid, left)

    async def _release(self, key: Key, meta: Meta) -> float | None:
        """Takes the finalizer off an owner that is done with its dependants; otherwise says when to look again."""
        if meta.orphaning:
            finalizer, held = ORPHAN, any(self._dependants(key, meta.uid))
        elif meta.waiting:
            finalizer, held = FOREGROUND, self._blocked(key, meta.uid)
        else:
            return None
        now = self._registry.clock.monotonic()
        settled = self._ending_since.setdefault(key, now) + SETTLE_SECONDS
        if held:
            return LOOK_AGAIN
        if now < settled:
            return settled - now

        def released(current: Object) -> Object:
            return remove_finalizer(current, finalizer)

        await self._modify(key, meta.uid, released)
        return None

    def _blocked(self, key: Key, uid: str) -> bool:
        """Whether an owner in foreground deletion has to wait.

        It has, for every dependant that blocks it. But where owners wait for each other in a circle, and for nobody
        outside of it, one has to go first: whoever finds all that it waits for, however indirectly, waiting for others
        again and finally for itself.
        """
        reached: set[Key] = set()
        ahead = list(self._dependants(key, uid, blocking=True))
        if not ahead:
            return False
        while ahead:
            at = ahead.pop()
            entry = self._registry.view.get(at)
            if at in reached or entry is None:
                continue
            meta = meta_of(entry)
            below = list(self._dependants(at, meta.uid, blocking=True))
            if not meta.waiting or not below:
                return True
            reached.add(at)
            ahead.extend(below)
        return key not in reached

    def _dependants(self, key: Key, uid: str, *, blocking: bool = False) -> Iterator[Key]:
        """The index may be behind: those count that are still there."""
        found = self._owners.dependants_of(key, uid, blocking=blocking)
        return (each for each in found if self._registry.view.get(each) is not None)

    async def _modify(self, key: Key, uid: str, edit: Callable[[Object], Object]) -> None:
        """Writes to this very object, not to another one that has taken its name meanwhile."""

        def checked(current: Object) -> Object:
            if metadata(current)["uid"] != uid:
                raise NotFound.of(key[1], key[0], key[3])
            return edit(current)

        writing = by_the_server()
        await self._registry.resource(key[0], key[1]).modify(key[2], key[3], checked, writing)
