"""What each write does to an object, whatever its kind: what is set, kept, counted, refused and left alone."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from fairlead.core.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound, Unavailable
from fairlead.core.objects import Object
from fairlead.registry import object_metadata as meta_module
from fairlead.storage import contract
from tests.harness.registry import RegistryFixture, as_ada


def version(obj: Object | None) -> str:
    assert obj is not None
    text: str = obj["metadata"]["resourceVersion"]
    return text


def fields_of(caught: pytest.ExceptionInfo[Invalid]) -> list[str]:
    return [problem.field for problem in caught.value.details.problems]


async def test_what_is_created_is_answered_and_served_alike(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={"size": 1}, metadata={"labels": {"x": "y"}})
    assert made == api.see("Gadget", "a")
    assert made["spec"] == {"size": 1, "mode": "plain"}
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["labels"] == {"x": "y"}
    assert version(made) == str(api.view.revision)
    assert (await api.of("Gadget").get("", "a")).revision == api.view.revision


async def test_what_is_not_there_is_not_found_by_any_verb(api: RegistryFixture) -> None:
    for attempt in (
        api.of("Gadget").get("", "none"),
        api.patch("Gadget", "none", lambda obj: None),
        api.delete("Gadget", "none"),
    ):
        with pytest.raises(NotFound, match=r'gadgets\.management\.service\.sh "none" not found'):
            await attempt


async def test_a_taken_name_is_refused_and_the_object_behind_it_left_alone(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={"size": 1})
    with pytest.raises(AlreadyExists, match=r'gadgets\.management\.service\.sh "a" already exists'):
        await api.create("Gadget", "a", spec={"size": 2})
    assert api.see("Gadget", "a") == made


async def test_a_new_object_has_no_version_yet(api: RegistryFixture) -> None:
    with pytest.raises(BadRequest, match="resourceVersion should not be set"):
        await api.create("Gadget", "a", metadata={"resourceVersion": "5"})
    await api.create("Gadget", "a", metadata={"resourceVersion": ""})


async def test_all_problems_of_a_new_object_are_told_at_once(api: RegistryFixture) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create("Gadget", "A", spec={"size": -1}, metadata={"labels": {"-": ""}})
    assert fields_of(caught) == ["metadata.name", "metadata.labels", "spec.size"]
    with pytest.raises(Invalid) as caught:
        await api.create("Gadget", "A", spec={"size": "x", "on": 1})
    assert fields_of(caught) == ["spec.size", "spec.on", "metadata.name"]
    assert api.names("Gadget") == []


async def test_a_name_can_be_left_to_the_server_and_then_is_drawn_until_it_is_free(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["job-a", "job-a", "job-b", "job-c"])
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: next(drawn))
    first = await api.create("Gadget", metadata={"generateName": "job-"})
    second = await api.create("Gadget", metadata={"generateName": "job-"})
    assert [each["metadata"]["name"] for each in (first, second)] == ["job-a", "job-b"]
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert second["metadata"]["generateName"] == "job-"


async def test_when_no_free_name_can_be_drawn_the_caller_is_told(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: "job-a")
    await api.create("Gadget", metadata={"generateName": "job-"})
    with pytest.raises(AlreadyExists):
        await api.create("Gadget", metadata={"generateName": "job-"})


async def test_a_given_name_is_never_replaced_by_a_drawn_one(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", metadata={"generateName": "job-"})
    with pytest.raises(AlreadyExists):
        await api.create("Gadget", "a", metadata={"generateName": "job-"})
    assert api.names("Gadget") == ["a"]


async def test_an_update_changes_the_version_and_a_new_wish_the_generation(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={"size": 1})
    await asyncio.sleep(100)
    wished = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    labelled = await api.patch("Gadget", "a", lambda obj: obj["metadata"].update(labels={"x": "y"}))
    assert int(version(made)) < int(version(wished)) < int(version(labelled))
    assert [each["metadata"]["generation"] for each in (made, wished, labelled)] == [1, 2, 2]
    for name in ("uid", "creationTimestamp"):
        assert labelled["metadata"][name] == made["metadata"][name]


async def test_an_update_that_changes_nothing_writes_nothing(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={"size": 1}, metadata={"labels": {"x": "y"}})
    await asyncio.sleep(100)
    revision = api.view.revision
    assert await api.put("Gadget", made) == made
    again = api.body("Gadget", "a", spec={"size": 1}, metadata={"labels": {"x": "y"}, "resourceVersion": version(made)})
    assert await api.put("Gadget", again) == made
    assert await api.patch("Gadget", "a", lambda obj: obj["metadata"].update(finalizers=[])) == made
    assert await api.store.revision() == revision


async def test_true_is_not_one_and_one_is_not_true(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={"free": {"x": 1}, "any": False})
    changed = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(free={"x": True}))
    assert version(changed) != version(made)
    assert changed["spec"]["free"]["x"] is True
    again = await api.patch("Gadget", "a", lambda obj: obj["spec"].update(any=0))
    assert again["spec"]["any"] == 0
    assert again["spec"]["any"] is not False
    assert [each["metadata"]["generation"] for each in (changed, again)] == [2, 3]


async def test_an_update_with_a_stale_version_is_refused(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={"size": 1})
    await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=2))
    with pytest.raises(Conflict, match="the object has been modified; please apply your changes to the latest version"):
        await api.put("Gadget", {**made, "spec": {"size": 3}})
    for kind, name in (("Gadget", "a"), ("Namespace", "demo")):
        with pytest.raises(Conflict):
            await api.patch(kind, name, lambda obj: obj["metadata"].update(resourceVersion="no version"))
    seen = api.see("Gadget", "a")
    assert seen is not None
    assert seen["spec"]["size"] == 2


async def test_an_update_without_a_version_is_only_taken_by_kinds_that_say_so(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 1})
    with pytest.raises(Invalid) as caught:
        await api.put("Gadget", api.body("Gadget", "a", spec={"size": 2}))
    assert fields_of(caught) == ["metadata.resourceVersion"]
    await api.create("ConfigMap", "c", data={"a": "1"})
    changed = await api.put("ConfigMap", api.body("ConfigMap", "c", data={"a": "2"}))
    assert changed["data"] == {"a": "2"}


async def test_an_update_for_another_uid_is_refused(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={"size": 1})
    other = {**made, "metadata": {**made["metadata"], "uid": "another"}}
    with pytest.raises(Conflict, match="UID in precondition: another"):
        await api.put("Gadget", other)
    with pytest.raises(Invalid) as caught:
        await api.put("Gadget", other, as_ada(is_patch=True))
    assert fields_of(caught) == ["metadata.uid"]


def recolor(color: str | None, obj: Object) -> None:
    obj["spec"]["color"] = color


async def test_an_immutable_field_can_be_set_once_and_then_stays(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={})
    await api.patch("Gadget", "a", lambda obj: obj["spec"].update(color="red"))
    for color in ("blue", "", None):
        with pytest.raises(Invalid) as caught:
            await api.patch("Gadget", "a", partial(recolor, color))
        assert fields_of(caught) == ["spec.color"]


async def test_whoever_writes_the_object_cannot_write_its_status(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={"size": 1}, status={"phase": "Ready"})
    assert not made.get("status")
    told = await api.patch(
        "Gadget", "a", lambda obj: obj.update(status={"phase": "Real"}), as_ada(subresource="status")
    )
    for edit in (
        lambda obj: obj.update(status={"phase": "Faked"}),
        lambda obj: obj.update(status={}),
        lambda obj: obj.pop("status"),
    ):
        assert await api.patch("Gadget", "a", edit) == told


async def test_whoever_writes_the_status_cannot_write_anything_else(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={"size": 1}, metadata={"labels": {"x": "y"}})

    def everything(obj: Object) -> None:
        obj["status"] = {"phase": "Ready"}
        obj["spec"] = {"size": 9}
        obj["metadata"].update(labels={"x": "z"}, finalizers=["x.io/a"], annotations={"n": "m"})

    told = await api.patch("Gadget", "a", everything, as_ada(subresource="status"))
    assert told["status"] == {"phase": "Ready"}
    assert told["spec"] == made["spec"]
    kept = {name: value for name, value in told["metadata"].items() if name not in ("resourceVersion", "managedFields")}
    assert kept == {name: value for name, value in made["metadata"].items() if name in kept}
    assert told["metadata"]["generation"] == 1


async def test_a_status_can_be_taken_away_by_whoever_writes_it(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    status = as_ada(subresource="status")
    await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "Ready"}), status)
    cleared = await api.patch("Gadget", "a", lambda obj: obj.pop("status"), status)
    assert not cleared.get("status")


async def test_a_wrong_status_is_refused(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 1})
    with pytest.raises(Invalid) as caught:
        await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": 5}), as_ada(subresource="status"))
    assert fields_of(caught) == ["status.phase"]


async def test_a_wrong_spec_beside_a_status_does_not_matter_as_it_is_not_taken(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 1})
    status = as_ada(subresource="status")
    told = await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "ok"}, spec={"size": "x"}), status)
    assert (told["status"], told["spec"]["size"]) == ({"phase": "ok"}, 1)


def move(name: str, namespace: str, obj: Object) -> None:
    obj["metadata"].update(name=name, namespace=namespace)


async def test_a_name_or_namespace_cannot_be_changed(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "c")
    for name, namespace in (("d", "demo"), ("", "demo"), ("c", "default")):
        with pytest.raises(BadRequest):
            await api.patch("ConfigMap", "c", partial(move, name, namespace))


async def test_what_is_wrong_with_the_result_of_a_patch_is_unprocessable_and_not_bad(api: RegistryFixture) -> None:
    made = await api.create("ConfigMap", "c")
    for result in (
        {"data": 5},
        {"kind": "Secret"},
        {"apiVersion": "v2"},
        {"metadata": {**made["metadata"], "labels": 5}},
    ):
        with pytest.raises(Invalid):
            await api.put("ConfigMap", {**made, **result}, as_ada(is_patch=True))


async def test_a_write_says_who_manages_what(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 1})
    await api.patch("Gadget", "a", lambda obj: obj.update(status={"phase": "x"}), as_ada(subresource="status"))
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
async def test_a_managers_name_that_cannot_be_kept_is_refused(api: RegistryFixture, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create("Gadget", "a", metadata={"managedFields": [{**ENTRY, "manager": name}]})
    assert fields_of(caught) == ["metadata.managedFields[0].manager"]


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2016-12-31T23:59:60Z"])
async def test_a_managers_odd_time_is_refused_or_passed_over(api: RegistryFixture, time: str) -> None:
    with suppress(BadRequest):
        await api.create("Gadget", "a", spec={"size": 1}, metadata={"managedFields": [{**ENTRY, "time": time}]})


async def test_what_the_store_cannot_do_now_is_answered_as_unavailable(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.create("Gadget", "a")

    async def refuse(*_: Any) -> int:
        raise contract.StoreUnavailable("the disk is full; make room")

    monkeypatch.setattr(api.store, "commit", refuse)
    for attempt in (
        api.create("Gadget", "b"),
        api.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 5})),
        api.delete("Gadget", "a"),
    ):
        with pytest.raises(Unavailable, match="the disk is full; make room") as caught:
            await attempt
        assert caught.value.details.retry_after > 0
    monkeypatch.undo()
    assert api.names("Gadget") == ["a"]


async def test_warnings_of_a_kind_reach_the_writer(api: RegistryFixture) -> None:
    writing = as_ada()
    made = await api.submit("Gadget", api.body("Gadget", "a", spec={"size": 101}), writing)
    assert writing.warnings == ["spec.size is large"]
    writing = as_ada()
    await api.put("Gadget", made, writing)
    assert writing.warnings == ["spec.size is large"], "also when there was nothing to write"


async def test_a_status_that_is_not_taken_is_not_looked_at_either(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={}, status={"phase": 5})
    assert not made.get("status")
    await api.patch("Gadget", "a", lambda gadget: gadget.update(status={"size": "x"}))
    with pytest.raises(Invalid):
        await api.patch("Gadget", "a", lambda gadget: gadget.update(status={"size": "x"}), as_ada(subresource="status"))
