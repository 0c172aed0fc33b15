"""registry/resource.py: what create, update, patch and status writes set, keep, reject and ignore."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from fairlead.core.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound, Unavailable
from fairlead.core.objects import Object
from fairlead.registry import object_metadata as meta_module
from fairlead.storage import contract
from tests.harness.registry import RegistryFixture, write_options


def version_of(obj: Object | None) -> str:
    assert obj is not None
    version: str = obj["metadata"]["resourceVersion"]
    return version


def fields_of(caught: pytest.ExceptionInfo[Invalid]) -> list[str]:
    return [problem.field for problem in caught.value.details.problems]


async def test_the_created_object_is_returned_as_it_is_served(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"size": 1}, metadata={"labels": {"x": "y"}})
    assert created == api.get("Gadget", "a")
    assert created["spec"] == {"size": 1, "mode": "plain"}
    assert created["metadata"]["generation"] == 1
    assert created["metadata"]["labels"] == {"x": "y"}
    assert version_of(created) == str(api.view.revision)
    assert (await api.resource("Gadget").get("", "a")).revision == api.view.revision


async def test_every_verb_on_a_missing_object_gives_not_found(api: RegistryFixture) -> None:
    for attempt in (
        api.resource("Gadget").get("", "none"),
        api.patch("Gadget", "none", lambda obj: None),
        api.delete("Gadget", "none"),
    ):
        with pytest.raises(NotFound, match=r'gadgets\.management\.service\.sh "none" not found'):
            await attempt


async def test_creating_an_existing_name_fails_and_keeps_the_object(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"size": 1})
    with pytest.raises(AlreadyExists, match=r'gadgets\.management\.service\.sh "a" already exists'):
        await api.create("Gadget", "a", spec={"size": 2})
    assert api.get("Gadget", "a") == created


async def test_a_create_with_a_resource_version_is_a_bad_request(api: RegistryFixture) -> None:
    with pytest.raises(BadRequest, match="resourceVersion should not be set"):
        await api.create("Gadget", "a", metadata={"resourceVersion": "5"})
    await api.create("Gadget", "a", metadata={"resourceVersion": ""})


async def test_a_dry_run_rejects_the_version_that_a_create_rejects(api: RegistryFixture) -> None:
    body = api.build_object("Gadget", "a", metadata={"resourceVersion": "5"})
    with pytest.raises(BadRequest, match="resourceVersion should not be set"):
        await api.resource("Gadget").create(body, "", write_options(dry_run=True))


async def test_all_problems_of_a_new_object_are_reported_together(api: RegistryFixture) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create("Gadget", "A", spec={"size": -1}, metadata={"labels": {"-": ""}})
    assert fields_of(caught) == ["metadata.name", "metadata.labels", "spec.size"]
    with pytest.raises(Invalid) as caught:
        await api.create("Gadget", "A", spec={"size": "x", "on": 1})
    assert fields_of(caught) == ["spec.size", "spec.on", "metadata.name"]
    assert api.list_names("Gadget") == []


async def test_generated_names_are_retried_until_one_is_free(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["job-a", "job-a", "job-b", "job-c"])
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: next(names))
    first = await api.create("Gadget", metadata={"generateName": "job-"})
    second = await api.create("Gadget", metadata={"generateName": "job-"})
    assert [each["metadata"]["name"] for each in (first, second)] == ["job-a", "job-b"]
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert second["metadata"]["generateName"] == "job-"


async def test_a_create_fails_if_no_generated_name_is_free(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: "job-a")
    await api.create("Gadget", metadata={"generateName": "job-"})
    with pytest.raises(AlreadyExists):
        await api.create("Gadget", metadata={"generateName": "job-"})


async def test_a_given_name_takes_precedence_over_generate_name(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", metadata={"generateName": "job-"})
    with pytest.raises(AlreadyExists):
        await api.create("Gadget", "a", metadata={"generateName": "job-"})
    assert api.list_names("Gadget") == ["a"]


async def test_an_update_changes_the_resource_version_and_a_new_spec_the_generation(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"size": 1})
    await asyncio.sleep(100)
    resized = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    labeled = await api.patch("Gadget", "a", lambda obj: obj["metadata"].update(labels={"x": "y"}))
    assert int(version_of(created)) < int(version_of(resized)) < int(version_of(labeled))
    assert [each["metadata"]["generation"] for each in (created, resized, labeled)] == [1, 2, 2]
    for name in ("uid", "creationTimestamp"):
        assert labeled["metadata"][name] == created["metadata"][name]


async def test_an_update_that_changes_nothing_writes_nothing(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"size": 1}, metadata={"labels": {"x": "y"}})
    await asyncio.sleep(100)
    revision = api.view.revision
    assert await api.replace("Gadget", created) == created
    again = api.build_object(
        "Gadget", "a", spec={"size": 1}, metadata={"labels": {"x": "y"}, "resourceVersion": version_of(created)}
    )
    assert await api.replace("Gadget", again) == created
    assert await api.patch("Gadget", "a", lambda obj: obj["metadata"].update(finalizers=[])) == created
    assert await api.store.revision() == revision


async def test_true_and_1_are_different_values(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"free": {"x": 1}, "any": False})
    changed = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(free={"x": True}))
    assert version_of(changed) != version_of(created)
    assert changed["spec"]["free"]["x"] is True
    again = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(any=0))
    assert again["spec"]["any"] == 0
    assert again["spec"]["any"] is not False
    assert [each["metadata"]["generation"] for each in (changed, again)] == [2, 3]


async def test_an_update_with_a_stale_version_gets_a_conflict(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"size": 1})
    await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    with pytest.raises(Conflict, match="the object has been modified; please apply your changes to the latest version"):
        await api.replace("Gadget", {**created, "spec": {"size": 3}})
    for kind, name in (("Gadget", "a"), ("Namespace", "demo")):
        with pytest.raises(Conflict):
            await api.patch(kind, name, lambda obj: obj["metadata"].update(resourceVersion="no version"))
    seen = api.get("Gadget", "a")
    assert seen is not None
    assert seen["spec"]["size"] == 2


async def test_an_update_without_a_version_is_accepted_only_by_kinds_that_allow_it(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 1})
    with pytest.raises(Invalid) as caught:
        await api.replace("Gadget", api.build_object("Gadget", "a", spec={"size": 2}))
    assert fields_of(caught) == ["metadata.resourceVersion"]
    await api.create("ConfigMap", "c", data={"a": "1"})
    changed = await api.replace("ConfigMap", api.build_object("ConfigMap", "c", data={"a": "2"}))
    assert changed["data"] == {"a": "2"}


async def test_an_update_with_another_uid_is_rejected(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"size": 1})
    other = {**created, "metadata": {**created["metadata"], "uid": "another"}}
    with pytest.raises(Conflict, match="UID in precondition: another"):
        await api.replace("Gadget", other)
    with pytest.raises(Invalid) as caught:
        await api.replace("Gadget", other, write_options(is_patch=True))
    assert fields_of(caught) == ["metadata.uid"]


def recolor(color: str | None, obj: Object) -> None:
    obj["spec"]["color"] = color


async def test_an_immutable_field_can_be_set_once(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={})
    await api.patch("Gadget", "a", lambda obj: obj["spec"].update(color="red"))
    for color in ("blue", "", None):
        with pytest.raises(Invalid) as caught:
            await api.patch("Gadget", "a", partial(recolor, color))
        assert fields_of(caught) == ["spec.color"]


async def test_a_write_of_the_object_does_not_change_the_status(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"size": 1}, status={"phase": "Ready"})
    assert not created.get("status")
    updated = await api.patch(
        "Gadget", "a", lambda obj: obj.update(status={"phase": "Real"}), write_options(subresource="status")
    )
    for edit in (
        lambda obj: obj.update(status={"phase": "Faked"}),
        lambda obj: obj.update(status={}),
        lambda obj: obj.pop("status"),
    ):
        assert await api.patch("Gadget", "a", edit) == updated


async def test_a_write_of_the_status_changes_nothing_else(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"size": 1}, metadata={"labels": {"x": "y"}})

    def edit_everything(obj: Object) -> None:
        obj["status"] = {"phase": "Ready"}
        obj["spec"] = {"size": 9}
        obj["metadata"].update(labels={"x": "z"}, finalizers=["x.io/a"], annotations={"n": "m"})

    updated = await api.patch("Gadget", "a", edit_everything, write_options(subresource="status"))
    assert updated["status"] == {"phase": "Ready"}
    assert updated["spec"] == created["spec"]
    immutable = {
        name: value for name, value in updated["metadata"].items() if name not in ("resourceVersion", "managedFields")
    }
    assert immutable == {name: value for name, value in created["metadata"].items() if name in immutable}
    assert updated["metadata"]["generation"] == 1


async def test_a_patch_keeps_an_empty_status_that_a_put_may_omit(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", status={})
    assert created["status"] == {}
    assert await api.patch("Gadget", "a", lambda obj: obj.pop("status"), write_options(is_patch=True)) == created
    assert "status" not in await api.replace("Gadget", {k: v for k, v in created.items() if k != "status"})


async def test_the_status_can_be_removed_through_the_subresource(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    status = write_options(subresource="status")
    await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "Ready"}), status)
    cleared = await api.patch("Gadget", "a", lambda obj: obj.pop("status"), status)
    assert not cleared.get("status")


async def test_an_invalid_status_is_rejected(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 1})
    with pytest.raises(Invalid) as caught:
        await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": 5}), write_options(subresource="status"))
    assert fields_of(caught) == ["status.phase"]


async def test_an_invalid_spec_in_a_status_write_is_ignored(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 1})
    status = write_options(subresource="status")
    updated = await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "ok"}, spec={"size": "x"}), status)
    assert (updated["status"], updated["spec"]["size"]) == ({"phase": "ok"}, 1)


def rename(name: str, namespace: str, obj: Object) -> None:
    obj["metadata"].update(name=name, namespace=namespace)


async def test_a_name_or_namespace_cannot_be_changed(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "c")
    for name, namespace in (("d", "demo"), ("", "demo"), ("c", "default")):
        with pytest.raises(BadRequest):
            await api.patch("ConfigMap", "c", partial(rename, name, namespace))


async def test_an_invalid_result_of_a_patch_is_422_and_not_400(api: RegistryFixture) -> None:
    created = await api.create("ConfigMap", "c")
    for result in (
        {"data": 5},
        {"kind": "Secret"},
        {"apiVersion": "v2"},
        {"metadata": {**created["metadata"], "labels": 5}},
    ):
        with pytest.raises(Invalid):
            await api.replace("ConfigMap", {**created, **result}, write_options(is_patch=True))


async def test_another_name_in_a_patch_precedes_a_missing_api_version(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a")
    unversioned = {name: value for name, value in created.items() if name != "apiVersion"}
    with pytest.raises(Invalid, match="apiVersion"):
        await api.replace("Gadget", unversioned, write_options(is_patch=True))
    for name in ("", "b"):
        renamed = {**unversioned, "metadata": {**created["metadata"], "name": name}}

        def rename_unversioned(old: Object, renamed: Object = renamed) -> Object:
            return renamed

        with pytest.raises(BadRequest, match="name of the object"):
            await api.resource("Gadget").modify("", "a", rename_unversioned, write_options(is_patch=True))


async def test_a_write_records_its_manager_in_managed_fields(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 1})
    await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "x"}), write_options(subresource="status"))
    changed = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    entries = changed["metadata"]["managedFields"]
    assert {(each["manager"], each["operation"], each.get("subresource")) for each in entries} == {
        ("tests", "Update", None),
        ("tests", "Update", "status"),
    }


ENTRY: Object = {
    "manager": "x",
    "operation": "Update",
    "apiVersion": "management.service.sh/v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:spec": {"f:size": {}}},
}


@pytest.mark.parametrize("name", ["x" * 129, "line\nbreak"])
async def test_an_invalid_manager_name_in_managed_fields_is_rejected(api: RegistryFixture, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create("Gadget", "a", metadata={"managedFields": [{**ENTRY, "manager": name}]})
    assert fields_of(caught) == ["metadata.managedFields[0].manager"]


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2016-12-31T23:59:60Z"])
async def test_an_odd_time_in_managed_fields_is_rejected_or_ignored(api: RegistryFixture, time: str) -> None:
    with suppress(BadRequest):
        await api.create("Gadget", "a", spec={"size": 1}, metadata={"managedFields": [{**ENTRY, "time": time}]})


async def test_a_store_that_is_unavailable_gives_unavailable(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.create("Gadget", "a")

    async def fail_commit(*_: Any) -> int:
        raise contract.StoreUnavailable("the disk is full; make room")

    monkeypatch.setattr(api.store, "commit", fail_commit)
    for attempt in (
        api.create("Gadget", "b"),
        api.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 5})),
        api.delete("Gadget", "a"),
    ):
        with pytest.raises(Unavailable, match="the disk is full; make room") as caught:
            await attempt
        assert caught.value.details.retry_after > 0
    monkeypatch.undo()
    assert api.list_names("Gadget") == ["a"]


async def test_warnings_of_a_kind_reach_the_client(api: RegistryFixture) -> None:
    writing = write_options()
    created = await api.submit("Gadget", api.build_object("Gadget", "a", spec={"size": 101}), writing)
    assert writing.warnings == ["spec.size is large"]
    writing = write_options()
    await api.replace("Gadget", created, writing)
    assert writing.warnings == ["spec.size is large"], "also without a change"


async def test_a_status_that_is_dropped_is_not_validated(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={}, status={"phase": 5})
    assert not created.get("status")
    await api.patch("Gadget", "a", lambda gadget: gadget.update(status={"size": "x"}))
    with pytest.raises(Invalid):
        await api.patch(
            "Gadget", "a", lambda gadget: gadget.update(status={"size": "x"}), write_options(subresource="status")
        )


@pytest.mark.parametrize(("sent", "stored"), [({}, {}), ({"phase": "x"}, None), ({"bogus": 1}, None), (None, None)])
async def test_a_new_object_has_the_status_that_was_sent_only_if_it_is_empty(
    api: RegistryFixture, sent: Object | None, stored: Object | None
) -> None:
    created = await api.create("Gadget", "a", status=sent)
    assert created.get("status") == stored
