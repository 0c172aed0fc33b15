"""The collector's index: who depends on whom, and what it takes to know."""

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
REFERENCES = OwnerReferenceReader(Catalog(KINDS).kinds)


def entry(key: Key = CHILD, **meta: Any) -> Entry:
    body = orjson.dumps({"metadata": {"resourceVersion": "7", "uid": "u", **meta}})
    return Entry(key, 7, body, {}, {})


def to_parent(**changed: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": "p", **changed}


def test_what_has_no_owners_and_does_not_end_is_not_even_decoded() -> None:
    opaque = Entry(CHILD, 7, b'no JSON, but "text" and \\"ownerReferences\\":[', {}, {})
    assert REFERENCES.read_all(opaque) == ()
    assert not is_awaiting_gc(opaque)
    assert REFERENCES.read_all(None) == ()


def test_only_the_references_of_the_object_itself_count() -> None:
    inner = Entry(CHILD, 7, b'{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"ownerReferences":[{}]}}', {}, {})
    assert REFERENCES.read_all(inner) == ()


def test_an_owner_is_looked_for_where_the_dependant_lives() -> None:
    found = REFERENCES.read_all(entry(ownerReferences=[to_parent(), to_parent(uid="q", blockOwnerDeletion=True)]))
    assert found == (OwnerReference(PARENT, "p", False), OwnerReference(PARENT, "q", True))


def test_an_owner_without_namespace_is_found_from_everywhere() -> None:
    project = to_parent(apiVersion="management.service.sh/v1", kind="Project")
    key = ("management.service.sh", "projects", "", "parent")
    assert REFERENCES.read(CHILD, project).owner == key
    assert REFERENCES.read(("management.service.sh", "apps", "", "a"), project).owner == key


@pytest.mark.parametrize(
    ("dependant", "reference"),
    [
        (CHILD, to_parent(kind="Nothing")),
        (CHILD, to_parent(apiVersion="v2")),
        (CHILD, to_parent(apiVersion="x.io/v1")),
        (("", "namespaces", "", "n"), to_parent()),
    ],
)
def test_where_no_object_can_be_meant_there_is_no_owner(dependant: Key, reference: dict[str, Any]) -> None:
    assert REFERENCES.read(dependant, reference).owner is None


@pytest.mark.parametrize(
    ("finalizers", "marked", "waiting", "orphaning"),
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
def test_only_what_is_being_deleted_waits_for_its_dependants(
    finalizers: list[str] | None, marked: bool, waiting: bool, orphaning: bool
) -> None:
    timestamp = "2026-01-01T00:00:00Z" if marked else None
    seen = entry(finalizers=finalizers, deletionTimestamp=timestamp)
    assert (partial_metadata(seen).waits_for_dependents, partial_metadata(seen).orphans_dependents) == (
        waiting,
        orphaning,
    )
    assert is_awaiting_gc(seen) is (waiting or orphaning)


def test_dependants_are_found_by_owner_and_forgotten_when_their_references_go() -> None:
    owners = OwnerIndex()
    owners.set_references(CHILD, (OwnerReference(PARENT, "p", False), OwnerReference(None, "x", True)))
    assert owners.dependents_of_key(PARENT) == [CHILD]
    owners.set_references(CHILD, (OwnerReference(("", "secrets", "demo", "s"), "s", False),))
    assert owners.dependents_of_key(PARENT) == []
    assert owners.dependents_of_key(("", "secrets", "demo", "s")) == [CHILD]
    owners.set_references(CHILD, ())
    assert owners.references(CHILD) == ()
    assert vars(owners) == vars(OwnerIndex()), "nothing is kept of what is gone"


def test_dependants_of_one_owner_are_told_from_those_of_its_predecessor() -> None:
    owners = OwnerIndex()
    other: Key = ("", "configmaps", "demo", "other")
    owners.set_references(CHILD, (OwnerReference(PARENT, "old", True),))
    owners.set_references(other, (OwnerReference(PARENT, "new", False),))
    assert (
        list(owners.dependents_of(PARENT, "old")) == list(owners.dependents_of(PARENT, "old", blocking=True)) == [CHILD]
    )
    assert list(owners.dependents_of(PARENT, "new")) == [other]
    assert list(owners.dependents_of(PARENT, "new", blocking=True)) == []
    assert sorted(owners.dependents_of_key(PARENT)) == [CHILD, other]


def test_whoever_names_an_owner_twice_depends_on_it_once() -> None:
    owners = OwnerIndex()
    owners.set_references(CHILD, (OwnerReference(PARENT, "p", False), OwnerReference(PARENT, "p", True)))
    assert list(owners.dependents_of(PARENT, "p")) == list(owners.dependents_of(PARENT, "p", blocking=True)) == [CHILD]
    owners.set_references(CHILD, ())
    assert owners.dependents_of_key(PARENT) == []
