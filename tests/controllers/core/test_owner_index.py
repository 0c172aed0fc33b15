"""Tests of `fairlead.controllers.core.owner_index`: the garbage collector's index of dependents and owners."""

from typing import Any

import orjson
import pytest

from fairlead.controllers.core.owner_index import (
    OwnerIndex,
    OwnerReference,
    OwnerReferenceReader,
    is_awaiting_gc,
    partial_metadata,
)
from fairlead.kinds import KINDS
from fairlead.registry.kind import Catalog
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

CHILD: Key = ("", "configmaps", "demo", "child")
PARENT: Key = ("", "configmaps", "demo", "parent")
REFERENCE_READER = OwnerReferenceReader(Catalog(KINDS).kinds)


def build_entry(key: Key = CHILD, **meta: Any) -> Entry:
    body = orjson.dumps({"metadata": {"resourceVersion": "7", "uid": "u", **meta}})
    return Entry(key, 7, body, {}, {})


def reference_to_parent(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": "p", **changes}


def test_an_entry_without_owners_and_deletion_is_not_decoded() -> None:
    opaque = Entry(CHILD, 7, b'no JSON, but "text" and \\"ownerReferences\\":[', {}, {})
    assert REFERENCE_READER.read_all(opaque) == ()
    assert not is_awaiting_gc(opaque)
    assert REFERENCE_READER.read_all(None) == ()


def test_only_the_references_of_the_object_itself_count() -> None:
    inner = Entry(CHILD, 7, b'{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"ownerReferences":[{}]}}', {}, {})
    assert REFERENCE_READER.read_all(inner) == ()


def test_an_owner_is_in_the_namespace_of_its_dependent() -> None:
    references = REFERENCE_READER.read_all(
        build_entry(ownerReferences=[reference_to_parent(), reference_to_parent(uid="q", blockOwnerDeletion=True)])
    )
    assert references == (OwnerReference(PARENT, "p", False), OwnerReference(PARENT, "q", True))


def test_a_cluster_scoped_owner_is_found_from_any_namespace() -> None:
    project = reference_to_parent(apiVersion="management.service.sh/v1", kind="Project")
    key = ("management.service.sh", "projects", "", "parent")
    assert REFERENCE_READER.read(CHILD, project).owner == key
    assert REFERENCE_READER.read(("management.service.sh", "apps", "", "a"), project).owner == key


@pytest.mark.parametrize(
    ("dependent", "reference"),
    [
        (CHILD, reference_to_parent(kind="Nothing")),
        (CHILD, reference_to_parent(apiVersion="v2")),
        (CHILD, reference_to_parent(apiVersion="x.io/v1")),
        (("", "namespaces", "", "n"), reference_to_parent()),
    ],
)
def test_a_reference_that_cannot_match_an_object_has_no_owner(dependent: Key, reference: dict[str, Any]) -> None:
    assert REFERENCE_READER.read(dependent, reference).owner is None


@pytest.mark.parametrize(
    ("finalizers", "has_deletion_timestamp", "waits", "orphans"),
    [
        (["foregroundDeletion"], True, True, False),
        (["x.io/a", "orphan"], True, False, True),
        (["foregroundDeletion", "orphan"], True, False, True),
        (["foregroundDeletion"], False, False, False),
        (["orphan"], False, False, False),
        (["x.io/a"], True, False, False),
        (None, True, False, False),
    ],
)
def test_only_an_object_that_is_being_deleted_waits_for_its_dependents(
    finalizers: list[str] | None, has_deletion_timestamp: bool, waits: bool, orphans: bool
) -> None:
    timestamp = "2026-01-01T00:00:00Z" if has_deletion_timestamp else None
    entry = build_entry(finalizers=finalizers, deletionTimestamp=timestamp)
    assert (partial_metadata(entry).waits_for_dependents, partial_metadata(entry).orphans_dependents) == (
        waits,
        orphans,
    )
    assert is_awaiting_gc(entry) is (waits or orphans)


def test_dependents_are_found_by_owner_and_removed_with_their_references() -> None:
    index = OwnerIndex()
    index.set_references(CHILD, (OwnerReference(PARENT, "p", False), OwnerReference(None, "x", True)))
    assert index.dependents_of_key(PARENT) == [CHILD]
    index.set_references(CHILD, (OwnerReference(("", "secrets", "demo", "s"), "s", False),))
    assert index.dependents_of_key(PARENT) == []
    assert index.dependents_of_key(("", "secrets", "demo", "s")) == [CHILD]
    index.set_references(CHILD, ())
    assert index.references(CHILD) == ()
    assert vars(index) == vars(OwnerIndex()), "nothing of removed objects remains"


def test_dependents_of_an_owner_are_distinguished_from_those_of_its_predecessor() -> None:
    index = OwnerIndex()
    other: Key = ("", "configmaps", "demo", "other")
    index.set_references(CHILD, (OwnerReference(PARENT, "old", True),))
    index.set_references(other, (OwnerReference(PARENT, "new", False),))
    assert (
        list(index.dependents_of(PARENT, "old")) == list(index.dependents_of(PARENT, "old", blocking=True)) == [CHILD]
    )
    assert list(index.dependents_of(PARENT, "new")) == [other]
    assert list(index.dependents_of(PARENT, "new", blocking=True)) == []
    assert sorted(index.dependents_of_key(PARENT)) == [CHILD, other]


def test_an_object_with_two_references_to_an_owner_depends_on_it_once() -> None:
    index = OwnerIndex()
    index.set_references(CHILD, (OwnerReference(PARENT, "p", False), OwnerReference(PARENT, "p", True)))
    assert list(index.dependents_of(PARENT, "p")) == list(index.dependents_of(PARENT, "p", blocking=True)) == [CHILD]
    index.set_references(CHILD, ())
    assert index.dependents_of_key(PARENT) == []
