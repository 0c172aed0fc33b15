"""Who depends on whom: the garbage collector's index, and the little it has to know of an object's metadata.

Pure: nothing here asks the view or writes. Owners are found by key, made from what a reference says and from where the
dependant lives, and recognised by uid. So nothing is decoded to be indexed but the objects that have owners.
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
    """What counts of an object's metadata; the rest of the JSON is skipped, not built."""

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
        """Goes, and lets its dependants stay. Should both finalizers be there, this one does less harm."""
        return self.ending and self.has(ORPHAN)

    @property
    def waiting(self) -> bool:
        """Goes after its dependants."""
        return self.ending and self.has(FOREGROUND) and not self.has(ORPHAN)


class _Object(msgspec.Struct):
    metadata: Meta


_decode = msgspec.json.Decoder(_Object).decode


def meta_of(entry: Entry) -> Meta:
    return _decode(entry.body).metadata


def lingers(entry: Entry | None) -> bool:
    """Whether it is being deleted, but stays for its dependants' sake. Decoded only if it looks like it."""
    if entry is None or _MARKED not in entry.body:
        return False
    meta = meta_of(entry)
    return meta.orphaning or meta.waiting


@dataclass(frozen=True, slots=True)
class Reference:
    """A dependant's reference to an owner. `owner` is None where no object that is served can be meant."""

    owner: Key | None
    uid: str
    blocking: bool


class References:
    """Reads references, for the kinds that are served by apiVersion and kind."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: Mapping[tuple[str, str], Kind] = {(kind.api_version, kind.name): kind for kind in kinds}

    def of(self, entry: Entry | None) -> tuple[Reference, ...]:
        """All references of an object, in order."""
        if entry is None or _OWNED not in entry.body:
            return ()
        return tuple(self.read(entry.key, each) for each in meta_of(entry).ownerReferences or ())

    def kind(self, reference: Object) -> Kind | None:
        return self._kinds.get((reference["apiVersion"], reference["kind"]))

    def read(self, dependant: Key, reference: Object) -> Reference:
        """An owner with a namespace is looked for in the dependant's own; a dependant without one cannot have such."""
        kind, namespace = self.kind(reference), dependant[2]
        owner = None
        if kind is not None and (namespace or not kind.namespaced):
            owner = kind.key(namespace if kind.namespaced else "", reference["name"])
        return Reference(owner, reference["uid"], bool(reference.get("blockOwnerDeletion")))


class Owners:
    """The references of all dependants, and all dependants of an owner."""

    def __init__(self) -> None:
        self._references: dict[Key, tuple[Reference, ...]] = {}
        self._dependants: dict[Key, dict[Key, None]] = {}

    def references(self, dependant: Key) -> tuple[Reference, ...]:
        return self._references.get(dependant, ())

    def put(self, dependant: Key, references: tuple[Reference, ...]) -> None:
        """Takes in what a dependant's references are now; none at all where it is gone."""
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
        left = self._dependants.get(owner, {})
        left.pop(dependant, None)
        if not left:
            self._dependants.pop(owner, None)

    def dependants(self, owner: Key) -> list[Key]:
        """Who refers to whatever has this key, or had it."""
        return list(self._dependants.get(owner, ()))

    def dependants_of(self, owner: Key, uid: str, *, blocking: bool = False) -> Iterator[Key]:
        """Who refers to this very owner; only those that it has to wait for, if `blocking`."""
        for dependant in self._dependants.get(owner, ()):
            for each in self._references[dependant]:
                if each.owner == owner and each.uid == uid and (each.blocking or not blocking):
                    yield dependant
                    break
