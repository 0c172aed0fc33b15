"""Applying through the registry: creating, conditions, races, subresources, and what a write without effect leaves."""

import asyncio
from typing import Any

import orjson
import pytest

from fairlead.core.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.patching.field_set import iter_paths
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture


def applying(manager: str = "a", **options: Any) -> WriteOptions:
    return WriteOptions(ADA, manager, is_patch=True, is_apply=True, **options)


async def apply(
    api: RegistryFixture, kind: str, name: str, by: WriteOptions | None = None, **fields: Any
) -> tuple[Object, bool]:
    """The object after these fields of it were applied, and whether it was created."""
    resource = api.of(kind)
    body = api.body(kind, name, **fields)
    namespace = body["metadata"].get("namespace", "")
    answer, created = await resource.apply(body, namespace, name, by or applying())
    return orjson.loads(answer), created


def owners(obj: Object) -> dict[str, list[str]]:
    return {
        entry["manager"]: sorted("/".join(path) for path in iter_paths(entry["fieldsV1"]))
        for entry in obj["metadata"].get("managedFields", [])
    }


async def test_applying_creates_what_is_not_there_and_changes_what_is(api: RegistryFixture) -> None:
    made, created = await apply(api, "Gadget", "a", spec={"size": 1})
    assert created
    assert made == api.see("Gadget", "a")
    assert (made["metadata"]["generation"], made["spec"]) == (1, {"size": 1, "mode": "plain"})
    changed, created = await apply(api, "Gadget", "a", spec={"size": 2})
    assert not created
    assert (changed["metadata"]["generation"], changed["spec"]["size"]) == (2, 2)
    assert owners(changed) == {"a": ["f:spec/f:size"]}


async def test_what_the_server_fills_in_belongs_to_nobody(api: RegistryFixture) -> None:
    made, _ = await apply(api, "Namespace", "n", metadata={"labels": {"x": "1"}})
    assert made["spec"]["finalizers"] == ["kubernetes"]
    assert owners(made) == {"a": ["f:metadata/f:labels/f:x"]}


async def test_applying_the_same_later_keeps_the_version(api: RegistryFixture) -> None:
    made, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    await asyncio.sleep(3600)
    assert await apply(api, "Gadget", "a", spec={"size": 1}) == (made, False)
    assert await apply(api, "Gadget", "a", applying(force=True), spec={"size": 1}) == (made, False)


async def test_text_that_is_folded_into_a_secret_is_no_change_the_second_time(api: RegistryFixture) -> None:
    made, _ = await apply(api, "Secret", "s", stringData={"k": "v"})
    assert made["data"] == {"k": "dg=="}
    await asyncio.sleep(3600)
    assert await apply(api, "Secret", "s", stringData={"k": "v"}) == (made, False)


async def test_labels_alone_do_not_raise_the_generation(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", spec={"size": 1})
    changed, _ = await apply(api, "Gadget", "a", metadata={"labels": {"x": "1"}}, spec={"size": 1})
    assert changed["metadata"]["generation"] == 1


async def test_a_default_comes_back_where_a_value_is_given_up(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", spec={"mode": "loud"})
    changed, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    assert changed["spec"] == {"size": 1, "mode": "plain"}


async def test_a_conflict_changes_nothing_and_force_does(api: RegistryFixture) -> None:
    made, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    with pytest.raises(Conflict, match=r'conflict with "a": \.spec\.size'):
        await apply(api, "Gadget", "a", applying("b"), spec={"size": 2})
    assert api.see("Gadget", "a") == made
    changed, _ = await apply(api, "Gadget", "a", applying("b", force=True), spec={"size": 2})
    assert owners(changed) == {"b": ["f:spec/f:size"]}


async def test_a_dry_run_creates_and_changes_nothing(api: RegistryFixture) -> None:
    made, created = await apply(api, "Gadget", "a", applying(dry_run=True), spec={"size": 1})
    assert created
    assert "resourceVersion" not in made["metadata"]
    assert api.see("Gadget", "a") is None
    made, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    changed, _ = await apply(api, "Gadget", "a", applying(dry_run=True), spec={"size": 2})
    assert changed["spec"]["size"] == 2
    assert api.see("Gadget", "a") == made


async def test_a_version_or_uid_that_does_not_fit_is_refused(api: RegistryFixture) -> None:
    made, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    stale, uid = made["metadata"]["resourceVersion"], made["metadata"]["uid"]
    await apply(api, "Gadget", "a", metadata={"resourceVersion": stale, "uid": uid}, spec={"size": 2})
    with pytest.raises(Conflict, match="the object has been modified"):
        await apply(api, "Gadget", "a", metadata={"resourceVersion": stale}, spec={"size": 3})
    with pytest.raises(Invalid, match=r"metadata\.uid"):
        await apply(api, "Gadget", "a", metadata={"uid": "other"}, spec={"size": 3})
    with pytest.raises(Conflict, match="no existing object was found"):
        await apply(api, "Gadget", "b", metadata={"uid": uid})


async def test_the_name_and_the_namespace_must_be_those_of_the_url(api: RegistryFixture) -> None:
    gadgets, maps = api.of("Gadget"), api.of("ConfigMap")
    with pytest.raises(BadRequest, match=r"\(b\) does not match the name on the URL \(a\)"):
        await gadgets.apply(api.body("Gadget", "b"), "", "a", applying())
    with pytest.raises(BadRequest, match="name must be provided"):
        await gadgets.apply(api.body("Gadget"), "", "a", applying())
    with pytest.raises(BadRequest, match="does not match the namespace"):
        await maps.apply(api.body("ConfigMap", "c", "default"), NAMESPACE, "c", applying())


async def test_what_is_there_needs_no_name_in_the_configuration(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", spec={"size": 1})
    body = api.body("Gadget", spec={"size": 2})
    changed, created = await api.of("Gadget").apply(body, "", "a", applying())
    assert (orjson.loads(changed)["spec"]["size"], created) == (2, False)


async def test_nothing_is_created_where_there_is_no_namespace_or_one_that_ends(api: RegistryFixture) -> None:
    with pytest.raises(NotFound, match='namespaces "none" not found'):
        await api.of("ConfigMap").apply(api.body("ConfigMap", "c", "none"), "none", "c", applying())
    await apply(api, "ConfigMap", "held", data={"k": "1"})
    await api.delete("Namespace", NAMESPACE)
    with pytest.raises(Forbidden, match="because it is being terminated"):
        await apply(api, "ConfigMap", "c")
    changed, _ = await apply(api, "ConfigMap", "held", data={"k": "2"})
    assert changed["data"] == {"k": "2"}


async def test_what_the_kind_refuses_is_not_applied(api: RegistryFixture) -> None:
    with pytest.raises(Invalid, match="must not be negative"):
        await apply(api, "Gadget", "a", spec={"size": -1})
    made, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    for spec in ({"size": -1}, {"size": 1.5}):
        with pytest.raises(Invalid):
            await apply(api, "Gadget", "a", spec=spec)
    assert api.see("Gadget", "a") == made


async def test_the_status_is_applied_through_its_subresource(api: RegistryFixture) -> None:
    status = applying("controller", subresource="status")
    with pytest.raises(NotFound):
        await apply(api, "Gadget", "a", status, status={"phase": "Ready"})
    made, _ = await apply(api, "Gadget", "a", spec={"size": 1}, status={"phase": "Mine"})
    assert made["status"] == {}
    labels = {"labels": {"x": "1"}}
    told, _ = await apply(api, "Gadget", "a", status, metadata=labels, spec={"size": 5}, status={"phase": "Ready"})
    assert (told["spec"]["size"], told["status"]) == (1, {"phase": "Ready"})
    assert (told["metadata"]["generation"], "labels" in told["metadata"]) == (1, False)
    assert owners(told) == {"a": ["f:spec/f:size"], "controller": ["f:status/f:phase"]}
    told, _ = await apply(api, "Gadget", "a", status, status={"size": 1})
    assert told["status"] == {"size": 1}


async def test_who_lost_a_race_to_a_change_applies_to_what_is_there_now(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", spec={"size": 1})
    api.store.before = [lambda: apply(api, "Gadget", "a", applying("b"), spec={"on": True})]
    changed, _ = await apply(api, "Gadget", "a", spec={"size": 2})
    assert changed["spec"] == {"size": 2, "on": True, "mode": "plain"}
    assert owners(changed) == {"a": ["f:spec/f:size"], "b": ["f:spec/f:on"]}


async def test_who_lost_a_race_to_a_conflicting_change_is_told(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", spec={"size": 1})
    api.store.before = [lambda: apply(api, "Gadget", "a", applying("b", force=True), spec={"size": 7})]
    with pytest.raises(Conflict, match='conflict with "b"'):
        await apply(api, "Gadget", "a", spec={"size": 2})


async def test_two_who_create_the_same_end_up_sharing_it(api: RegistryFixture) -> None:
    api.store.before = [lambda: apply(api, "Gadget", "a", applying("b"), spec={"on": True})]
    changed, created = await apply(api, "Gadget", "a", spec={"size": 2})
    assert not created
    assert owners(changed) == {"a": ["f:spec/f:size"], "b": ["f:spec/f:on"]}


async def test_what_was_deleted_meanwhile_is_created_again(api: RegistryFixture) -> None:
    made, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    api.store.before = [lambda: api.delete("Gadget", "a", DeleteOptions())]
    again, created = await apply(api, "Gadget", "a", spec={"size": 2})
    assert created
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


async def test_a_companion_that_is_there_already_is_no_reason_to_try_again(api: RegistryFixture) -> None:
    taken = api.body("Namespace", f"{NAMESPACE_PREFIX}p")
    await api.submit("Namespace", taken, WriteOptions(CONTROLLER_USER))
    with pytest.raises(AlreadyExists, match=f"{NAMESPACE_PREFIX}p"):
        await apply(api, "Project", "p")
    assert api.see("Project", "p") is None


async def test_keys_that_occur_twice_are_warned_of_or_refused(api: RegistryFixture) -> None:
    body = api.body("Gadget", "a", spec={"size": 1})
    told = applying()
    await api.of("Gadget").apply(body, "", "a", told, ["spec.size"])
    assert told.warnings == ['duplicate field "spec.size"']
    with pytest.raises(BadRequest, match=r'strict decoding error: duplicate field "spec\.size"'):
        await api.of("Gadget").apply(body, "", "a", applying(field_validation="Strict"), ["spec.size"])


async def test_an_object_that_waits_for_its_finalizer_goes_when_that_is_given_up(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", metadata={"finalizers": ["x.io/a"]})
    await api.delete("Gadget", "a")
    assert api.see("Gadget", "a") is not None
    await apply(api, "Gadget", "a")
    assert api.see("Gadget", "a") is None
