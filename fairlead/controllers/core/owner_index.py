"""The garbage collector's index of owners and dependents, and the metadata that it needs of an object.

Pure: nothing here reads the view or writes. An owner is found by its key, which is computed from the reference and the
namespace of the dependent, and is identified by its uid. So only objects with owners are decoded for the index.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.core.objects import Object
from fairlead.registry.kind import Kind
from fairlead.registry.write_rules import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

_OWNER_REFERENCES_MARKER = b'"ownerReferences":['
_DELETION_TIMESTAMP_MARKER = b'"deletionTimestamp":"'


class PartialMetadata(msgspec.Struct):
    """The relevant metadata of an object. The rest of the JSON is skipped, not decoded."""

    uid: str
    resourceVersion: str
    deletionTimestamp: str | None = None
    finalizers: list[str] | None = None
    ownerReferences: list[dict[str, Any]] | None = None

    @property
    def is_deleting(self) -> bool:
        return self.deletionTimestamp is not None

    def has_finalizer(self, finalizer: str) -> bool:
        return finalizer in (self.finalizers or ())

    @property
    def orphans_dependents(self) -> bool:
        """Is deleted with Orphan. If both finalizers are set, this one wins, since it deletes less."""
        return self.is_deleting and self.has_finalizer(ORPHAN_FINALIZER)

    @property
    def waits_for_dependents(self) -> bool:
        """Is in foreground deletion."""
        return (
            self.is_deleting and self.has_finalizer(FOREGROUND_FINALIZER) and not self.has_finalizer(ORPHAN_FINALIZER)
        )


class _Object(msgspec.Struct):
    metadata: PartialMetadata


_decode_object = msgspec.json.Decoder(_Object).decode


def partial_metadata(entry: Entry) -> PartialMetadata:
    return _decode_object(entry.body).metadata


def is_awaiting_gc(entry: Entry | None) -> bool:
    """Whether it is being deleted with Orphan or Foreground. Decoded only if it has a deletionTimestamp."""
    if entry is None or _DELETION_TIMESTAMP_MARKER not in entry.body:
        return False
    meta = partial_metadata(entry)
    return meta.orphans_dependents or meta.waits_for_dependents


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """A dependent's reference to an owner. `owner` is None if it cannot be an object that is served here."""

    owner: Key | None
    uid: str
    blocks_deletion: bool


class OwnerReferenceReader:
    """Resolves owner references to keys, for the served kinds."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: Mapping[tuple[str, str], Kind] = {(kind.api_version, kind.name): kind for kind in kinds}

    def read_all(self, entry: Entry | None) -> tuple[OwnerReference, ...]:
        """All owner references of an object, in order."""
        if entry is None or _OWNER_REFERENCES_MARKER not in entry.body:
            return ()
        return tuple(self.read(entry.key, each) for each in partial_metadata(entry).ownerReferences or ())

    def owner_kind(self, reference: Object) -> Kind | None:
        return self._kinds.get((reference["apiVersion"], reference["kind"]))

    def read(self, dependent: Key, reference: Object) -> OwnerReference:
        """A namespaced owner is in the namespace of the dependent; a cluster-scoped dependent cannot have one."""
        kind, namespace = self.owner_kind(reference), dependent[2]
        owner = None
        if kind is not None and (namespace or not kind.namespaced):
            owner = kind.key(namespace if kind.namespaced else "", reference["name"])
        return OwnerReference(owner, reference["uid"], bool(reference.get("blockOwnerDeletion")))


class OwnerIndex:
    """The references of all dependents, and the dependents of each owner."""

    def __init__(self) -> None:
        self._references: dict[Key, tuple[OwnerReference, ...]] = {}
        self._dependents: dict[Key, dict[Key, None]] = {}

    def references(self, dependent: Key) -> tuple[OwnerReference, ...]:
        return self._references.get(dependent, ())

    def set_references(self, dependent: Key, references: tuple[OwnerReference, ...]) -> None:
        """Replaces the references of a dependent; pass none if it was deleted."""
        for reference in self._references.pop(dependent, ()):
            self._unlink(reference.owner, dependent)
        if references:
            self._references[dependent] = references
        for reference in references:
            if reference.owner is not None:
                self._dependents.setdefault(reference.owner, {})[dependent] = None

    def _unlink(self, owner: Key | None, dependent: Key) -> None:
        if owner is None:
            return
        dependents = self._dependents.get(owner, {})
        dependents.pop(dependent, None)
        if not dependents:
            self._dependents.pop(owner, None)

    def dependents_of_key(self, owner: Key) -> list[Key]:
        """The dependents of any object that has or had this key."""
        return list(self._dependents.get(owner, ()))

    def dependents_of(self, owner: Key, uid: str, *, blocking: bool = False) -> Iterator[Key]:
        """The dependents of exactly this owner; with `blocking`, only those with blockOwnerDeletion."""
        for dependent in self._dependents.get(owner, ()):
            for each in self._references[dependent]:
                if each.owner == owner and each.uid == uid and (each.blocks_deletion or not blocking):
                    yield dependent
                    break
