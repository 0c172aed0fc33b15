"""The garbage collector's index of owners and dependents, and the metadata that it needs of an object.

Pure: nothing here reads the view or writes. An owner is found by its key, which is computed from the reference and the
namespace of the dependent, and is identified by its uid. So only objects with owners are decoded for the index.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.core.objects import Object
from fairlead.registry.deletion import FOREGROUND, ORPHAN
from fairlead.registry.kind import Kind
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

_OWNED = b'"ownerReferences":['
_MARKED = b'"deletionTimestamp":"'


class Meta(msgspec.Struct):
    """The relevant metadata of an object. The rest of the JSON is skipped, not decoded."""

    uid: str
    resourceVersion: str
    deletionTimestamp: str | None = None
    finalizers: list[str] | None = None
    ownerReferences: list[dict[str, Any]] | None = None

    @property
    def ending(self) -> bool:
        return self.deletionTimestamp is not None

    def has(self, finalizer: str) -> bool:
        return finalizer in (self.finalizers or ())

    @property
    def orphaning(self) -> bool:
        """Is deleted with Orphan. If both finalizers are set, this one wins, since it deletes less."""
        return self.ending and self.has(ORPHAN)

    @property
    def waiting(self) -> bool:
        """Is in foreground deletion."""
        return self.ending and self.has(FOREGROUND) and not self.has(ORPHAN)


class _Object(msgspec.Struct):
    metadata: Meta


_decode = msgspec.json.Decoder(_Object).decode


def meta_of(entry: Entry) -> Meta:
    return _decode(entry.body).metadata


def lingers(entry: Entry | None) -> bool:
    """Whether it is being deleted with Orphan or Foreground. Decoded only if it has a deletionTimestamp."""
    if entry is None or _MARKED not in entry.body:
        return False
    meta = meta_of(entry)
    return meta.orphaning or meta.waiting


@dataclass(frozen=True, slots=True)
class Reference:
    """A dependent's reference to an owner. `owner` is None if it cannot be an object that is served here."""

    owner: Key | None
    uid: str
    blocking: bool


class References:
    """Resolves owner references to keys, for the served kinds."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: Mapping[tuple[str, str], Kind] = {(kind.api_version, kind.name): kind for kind in kinds}

    def of(self, entry: Entry | None) -> tuple[Reference, ...]:
        """All owner references of an object, in order."""
        if entry is None or _OWNED not in entry.body:
            return ()
        return tuple(self.read(entry.key, each) for each in meta_of(entry).ownerReferences or ())

    def kind(self, reference: Object) -> Kind | None:
        return self._kinds.get((reference["apiVersion"], reference["kind"]))

    def read(self, dependant: Key, reference: Object) -> Reference:
        """A namespaced owner is in the namespace of the dependent; a cluster-scoped dependent cannot have one."""
        kind, namespace = self.kind(reference), dependant[2]
        owner = None
        if kind is not None and (namespace or not kind.namespaced):
            owner = kind.key(namespace if kind.namespaced else "", reference["name"])
        return Reference(owner, reference["uid"], bool(reference.get("blockOwnerDeletion")))


class Owners:
    """The references of all dependents, and the dependents of each owner."""

    def __init__(self) -> None:
        self._references: dict[Key, tuple[Reference, ...]] = {}
        self._dependants: dict[Key, dict[Key, None]] = {}

    def references(self, dependant: Key) -> tuple[Reference, ...]:
        return self._references.get(dependant, ())

    def put(self, dependant: Key, references: tuple[Reference, ...]) -> None:
        """Replaces the references of a dependent; pass none if it was deleted."""
        for reference in self._references.pop(dependant, ()):
            self._part(reference.owner, dependant)
        if references:
            self._references[dependant] = references
        for reference in references:
            if reference.owner is not None:
                self._dependants.setdefault(reference.owner, {})[dependant] = None

    def _part(self, owner: Key | None, dependant: Key) -> None:
        if owner is None:
            return
        dependents = self._dependants.get(owner, {})
        dependents.pop(dependant, None)
        if not dependents:
            self._dependants.pop(owner, None)

    def dependants(self, owner: Key) -> list[Key]:
        """The dependents of any object that has or had this key."""
        return list(self._dependants.get(owner, ()))

    def dependants_of(self, owner: Key, uid: str, *, blocking: bool = False) -> Iterator[Key]:
        """The dependents of exactly this owner; with `blocking`, only those with blockOwnerDeletion."""
        for dependent in self._dependants.get(owner, ()):
            for each in self._references[dependent]:
                if each.owner == owner and each.uid == uid and (each.blocking or not blocking):
                    yield dependent
                    break
