"""Deletion through the registry: immediate without finalizers, in two steps with them, and subject to preconditions."""

import asyncio
from typing import Any

import orjson
import pytest

from fairlead.core.errors import Conflict, Invalid
from fairlead.core.objects import Object
from fairlead.kinds.core.namespace import NAMESPACE
from fairlead.registry.write_options import DeleteOptions
from fairlead.registry.write_rules import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    check_preconditions,
    has_finalizers,
    is_deletion_complete,
    mark_deleted,
)
from tests.harness.registry import GADGET, RegistryFixture

NOW = "2026-01-02T03:04:05Z"


def build_gadget(**meta: Any) -> Object:
    return {"metadata": {"name": "a", "uid": "1", "resourceVersion": "7", "generation": 1, **meta}, "spec": {}}


def finalizers_of(obj: Object | None) -> list[str] | None:
    return None if obj is None else obj["metadata"].get("finalizers")


POLICIES: list[tuple[list[str], str, list[str] | None]] = [
    ([], "", None),
    ([], "Background", None),
    ([], "Foreground", [FOREGROUND_FINALIZER]),
    ([], "Orphan", [ORPHAN_FINALIZER]),
    (["x.io/a"], "", ["x.io/a"]),
    (["x.io/a"], "Background", ["x.io/a"]),
    (["x.io/a"], "Foreground", ["x.io/a", FOREGROUND_FINALIZER]),
    ([FOREGROUND_FINALIZER], "", [FOREGROUND_FINALIZER]),
    ([FOREGROUND_FINALIZER], "Foreground", [FOREGROUND_FINALIZER]),
    ([FOREGROUND_FINALIZER], "Background", None),
    ([FOREGROUND_FINALIZER], "Orphan", [ORPHAN_FINALIZER]),
    ([ORPHAN_FINALIZER, "x.io/a"], "Foreground", ["x.io/a", FOREGROUND_FINALIZER]),
]


@pytest.mark.parametrize(("before", "policy", "after"), POLICIES)
def test_the_propagation_policy_decides_which_finalizers_are_added(
    before: list[str], policy: str, after: list[str] | None
) -> None:
    old = build_gadget(finalizers=before)
    assert finalizers_of(mark_deleted(old, GADGET, DeleteOptions(propagation=policy), NOW)) == after
    assert finalizers_of(old) == before, "the stored object is not modified"


def test_deleting_an_object_with_finalizers_again_changes_nothing() -> None:
    first = mark_deleted(build_gadget(finalizers=["x.io/a"]), GADGET, DeleteOptions(), NOW)
    assert first is not None
    assert {
        name: first["metadata"][name] for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation")
    } == {
        "deletionTimestamp": NOW,
        "deletionGracePeriodSeconds": 0,
        "generation": 2,
    }
    assert mark_deleted(first, GADGET, DeleteOptions(), "2030-01-01T00:00:00Z") == first


def test_deletion_is_complete_when_the_object_is_marked_and_has_no_finalizers() -> None:
    assert not is_deletion_complete(build_gadget(), GADGET)
    assert not is_deletion_complete(build_gadget(deletionTimestamp=NOW, finalizers=["x.io/a"]), GADGET)
    assert is_deletion_complete(build_gadget(deletionTimestamp=NOW, finalizers=[]), GADGET)
    assert is_deletion_complete(build_gadget(deletionTimestamp=NOW), GADGET)


def test_a_kind_can_declare_additional_finalizer_fields() -> None:
    assert has_finalizers({"metadata": {}, "spec": {"finalizers": ["kubernetes"]}}, NAMESPACE)
    assert has_finalizers({"metadata": {"finalizers": ["x.io/a"]}, "spec": {"finalizers": []}}, NAMESPACE)
    assert not has_finalizers({"metadata": {}, "spec": {"finalizers": []}}, NAMESPACE)
    assert not has_finalizers({"metadata": {}}, NAMESPACE)


@pytest.mark.parametrize("deleting", [DeleteOptions(), DeleteOptions(uid="1"), DeleteOptions("1", "7")])
def test_preconditions_that_match_allow_the_delete(deleting: DeleteOptions) -> None:
    check_preconditions(build_gadget(), GADGET, deleting)


@pytest.mark.parametrize(
    ("deleting", "message"),
    [
        (DeleteOptions(uid="2"), r"the UID in the precondition \(2\) does not match the UID in record \(1\)"),
        (DeleteOptions("1", "8"), r"the ResourceVersion in the precondition \(8\) does not match"),
        (DeleteOptions(None, "07"), r"the ResourceVersion in the precondition \(07\) does not match"),
        (DeleteOptions(uid=""), r"the UID in the precondition \(\) does not match"),
        (DeleteOptions(resource_version=""), r"the ResourceVersion in the precondition \(\) does not match"),
    ],
)
def test_preconditions_that_do_not_match_reject_the_delete(deleting: DeleteOptions, message: str) -> None:
    with pytest.raises(Conflict, match=message):
        check_preconditions(build_gadget(), GADGET, deleting)


async def test_an_object_without_finalizers_is_deleted_at_once_and_returned(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"size": 1})
    deleted = await api.delete("Gadget", "a")
    assert (deleted.is_removed, deleted.name, deleted.uid) == (True, "a", created["metadata"]["uid"])
    assert api.get("Gadget", "a") is None
    again = await api.create("Gadget", "a")
    assert again["metadata"]["uid"] != created["metadata"]["uid"]


async def test_an_object_with_finalizers_is_removed_with_the_last_finalizer(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", metadata={"finalizers": ["x.io/a", "x.io/b"]})
    await asyncio.sleep(10)
    deleted = await api.delete("Gadget", "a")
    first = api.get("Gadget", "a")
    assert first is not None
    assert not deleted.is_removed
    assert orjson.loads(deleted.body) == first
    await asyncio.sleep(10)
    again = await api.delete("Gadget", "a")
    assert (again.is_removed, api.get("Gadget", "a")) == (False, first)
    left = await api.patch("Gadget", "a", lambda obj: obj["metadata"]["finalizers"].remove("x.io/a"))
    assert left["metadata"]["deletionTimestamp"] == first["metadata"]["deletionTimestamp"]
    assert left["metadata"]["generation"] == 2
    last = await api.patch("Gadget", "a", lambda obj: obj["metadata"].update(finalizers=[]))
    assert "finalizers" not in last["metadata"]
    assert api.get("Gadget", "a") is None


async def test_an_object_being_deleted_can_be_updated_but_not_undeleted(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 1}, metadata={"finalizers": ["x.io/a"]})
    await api.delete("Gadget", "a")
    changed = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    assert (changed["spec"]["size"], changed["metadata"]["generation"]) == (2, 3)

    def undelete(obj: Object) -> None:
        obj["metadata"].pop("deletionTimestamp")
        obj["metadata"].pop("deletionGracePeriodSeconds")

    assert await api.patch("Gadget", "a", undelete) == changed
    with pytest.raises(Invalid, match="no new finalizers can be added"):
        await api.patch("Gadget", "a", lambda obj: obj["metadata"]["finalizers"].append("x.io/b"))


async def test_removing_finalizers_from_an_object_not_being_deleted_keeps_it(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", metadata={"finalizers": ["x.io/a"]})
    await api.patch("Gadget", "a", lambda obj: obj["metadata"].update(finalizers=[]))
    assert api.list_names("Gadget") == ["a"]


async def test_a_background_delete_after_a_foreground_one_removes_the_finalizer(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    assert not (await api.delete("Gadget", "a", DeleteOptions(propagation="Foreground"))).is_removed
    assert (await api.delete("Gadget", "a", DeleteOptions(propagation="Background"))).is_removed


async def test_a_namespace_being_deleted_has_the_phase_terminating(api: RegistryFixture) -> None:
    deleted = await api.delete("Namespace", "demo")
    stored = api.get("Namespace", "demo")
    assert stored is not None
    assert not deleted.is_removed
    assert stored["status"]["phase"] == "Terminating"
    assert "deletionGracePeriodSeconds" not in stored["metadata"]
