"""registry/resource.py: server-side apply creates, updates, checks versions, retries races and writes subresources."""

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


def apply_options(manager: str = "a", **options: Any) -> WriteOptions:
    return WriteOptions(ADA, manager, is_patch=True, is_apply=True, **options)


async def apply(
    api: RegistryFixture, kind: str, name: str, options: WriteOptions | None = None, **fields: Any
) -> tuple[Object, bool]:
    """Applies the fields; returns the object and whether it was created."""
    resource = api.resource(kind)
    body = api.build_object(kind, name, **fields)
    namespace = body["metadata"].get("namespace", "")
    body_bytes, created = await resource.apply(body, namespace, name, options or apply_options())
    return orjson.loads(body_bytes), created


def owned_paths(obj: Object) -> dict[str, list[str]]:
    return {
        entry["manager"]: sorted("/".join(path) for path in iter_paths(entry["fieldsV1"]))
        for entry in obj["metadata"].get("managedFields", [])
    }


async def test_apply_creates_a_missing_object_and_updates_an_existing_one(api: RegistryFixture) -> None:
    applied, created = await apply(api, "Gadget", "a", spec={"size": 1})
    assert created
    assert applied == api.get("Gadget", "a")
    assert (applied["metadata"]["generation"], applied["spec"]) == (1, {"size": 1, "mode": "plain"})
    changed, created = await apply(api, "Gadget", "a", spec={"size": 2})
    assert not created
    assert (changed["metadata"]["generation"], changed["spec"]["size"]) == (2, 2)
    assert owned_paths(changed) == {"a": ["f:spec/f:size"]}


async def test_fields_set_by_the_server_have_no_manager(api: RegistryFixture) -> None:
    applied, _ = await apply(api, "Namespace", "n", metadata={"labels": {"x": "1"}})
    assert applied["spec"]["finalizers"] == ["kubernetes"]
    assert owned_paths(applied) == {"a": ["f:metadata/f:labels/f:x"]}


async def test_applying_the_same_again_keeps_the_resource_version(api: RegistryFixture) -> None:
    applied, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    await asyncio.sleep(3600)
    assert await apply(api, "Gadget", "a", spec={"size": 1}) == (applied, False)
    assert await apply(api, "Gadget", "a", apply_options(force=True), spec={"size": 1}) == (applied, False)


async def test_string_data_of_a_secret_is_no_change_the_second_time(api: RegistryFixture) -> None:
    applied, _ = await apply(api, "Secret", "s", stringData={"k": "v"})
    assert applied["data"] == {"k": "dg=="}
    await asyncio.sleep(3600)
    assert await apply(api, "Secret", "s", stringData={"k": "v"}) == (applied, False)


async def test_labels_do_not_change_the_generation(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", spec={"size": 1})
    changed, _ = await apply(api, "Gadget", "a", metadata={"labels": {"x": "1"}}, spec={"size": 1})
    assert changed["metadata"]["generation"] == 1


async def test_a_field_no_longer_applied_gets_its_default(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", spec={"mode": "loud"})
    changed, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    assert changed["spec"] == {"size": 1, "mode": "plain"}


async def test_a_conflict_changes_nothing_unless_forced(api: RegistryFixture) -> None:
    applied, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    with pytest.raises(Conflict, match=r'conflict with "a": \.spec\.size'):
        await apply(api, "Gadget", "a", apply_options("b"), spec={"size": 2})
    assert api.get("Gadget", "a") == applied
    changed, _ = await apply(api, "Gadget", "a", apply_options("b", force=True), spec={"size": 2})
    assert owned_paths(changed) == {"b": ["f:spec/f:size"]}


async def test_a_dry_run_creates_and_changes_nothing(api: RegistryFixture) -> None:
    applied, created = await apply(api, "Gadget", "a", apply_options(dry_run=True), spec={"size": 1})
    assert created
    assert "resourceVersion" not in applied["metadata"]
    assert api.get("Gadget", "a") is None
    applied, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    changed, _ = await apply(api, "Gadget", "a", apply_options(dry_run=True), spec={"size": 2})
    assert changed["spec"]["size"] == 2
    assert api.get("Gadget", "a") == applied


async def test_another_resource_version_or_uid_is_rejected(api: RegistryFixture) -> None:
    applied, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    stale, uid = applied["metadata"]["resourceVersion"], applied["metadata"]["uid"]
    await apply(api, "Gadget", "a", metadata={"resourceVersion": stale, "uid": uid}, spec={"size": 2})
    with pytest.raises(Conflict, match="the object has been modified"):
        await apply(api, "Gadget", "a", metadata={"resourceVersion": stale}, spec={"size": 3})
    with pytest.raises(Invalid, match=r"metadata\.uid"):
        await apply(api, "Gadget", "a", metadata={"uid": "other"}, spec={"size": 3})
    with pytest.raises(Conflict, match="no existing object was found"):
        await apply(api, "Gadget", "b", metadata={"uid": uid})


async def test_name_and_namespace_must_match_the_url(api: RegistryFixture) -> None:
    gadgets, maps = api.resource("Gadget"), api.resource("ConfigMap")
    with pytest.raises(BadRequest, match=r"\(b\) does not match the name on the URL \(a\)"):
        await gadgets.apply(api.build_object("Gadget", "b"), "", "a", apply_options())
    with pytest.raises(BadRequest, match="name must be provided"):
        await gadgets.apply(api.build_object("Gadget"), "", "a", apply_options())
    with pytest.raises(BadRequest, match="does not match the namespace"):
        await maps.apply(api.build_object("ConfigMap", "c", "default"), NAMESPACE, "c", apply_options())


async def test_a_configuration_for_an_existing_object_needs_no_name(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", spec={"size": 1})
    body = api.build_object("Gadget", spec={"size": 2})
    changed, created = await api.resource("Gadget").apply(body, "", "a", apply_options())
    assert (orjson.loads(changed)["spec"]["size"], created) == (2, False)


async def test_nothing_is_created_in_a_missing_or_terminating_namespace(api: RegistryFixture) -> None:
    with pytest.raises(NotFound, match='namespaces "none" not found'):
        await api.resource("ConfigMap").apply(api.build_object("ConfigMap", "c", "none"), "none", "c", apply_options())
    await apply(api, "ConfigMap", "held", data={"k": "1"})
    await api.delete("Namespace", NAMESPACE)
    with pytest.raises(Forbidden, match="because it is being terminated"):
        await apply(api, "ConfigMap", "c")
    changed, _ = await apply(api, "ConfigMap", "held", data={"k": "2"})
    assert changed["data"] == {"k": "2"}


async def test_an_object_that_its_kind_rejects_is_not_applied(api: RegistryFixture) -> None:
    with pytest.raises(Invalid, match="must not be negative"):
        await apply(api, "Gadget", "a", spec={"size": -1})
    applied, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    for spec in ({"size": -1}, {"size": 1.5}):
        with pytest.raises(Invalid):
            await apply(api, "Gadget", "a", spec=spec)
    assert api.get("Gadget", "a") == applied


async def test_the_status_is_applied_through_its_subresource(api: RegistryFixture) -> None:
    status = apply_options("controller", subresource="status")
    with pytest.raises(NotFound):
        await apply(api, "Gadget", "a", status, status={"phase": "Ready"})
    applied, _ = await apply(api, "Gadget", "a", spec={"size": 1}, status={"phase": "Mine"})
    assert "status" not in applied
    labels = {"labels": {"x": "1"}}
    updated, _ = await apply(api, "Gadget", "a", status, metadata=labels, spec={"size": 5}, status={"phase": "Ready"})
    assert (updated["spec"]["size"], updated["status"]) == (1, {"phase": "Ready"})
    assert (updated["metadata"]["generation"], "labels" in updated["metadata"]) == (1, False)
    assert owned_paths(updated) == {
        "a": ["f:spec/f:size"],
        "controller": ["f:metadata/f:labels/f:x", "f:status/f:phase"],
    }
    updated, _ = await apply(api, "Gadget", "a", status, status={"size": 1})
    assert updated["status"] == {"size": 1}


async def test_a_null_status_can_be_applied_where_there_is_none(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    status = apply_options("controller", subresource="status")
    applied, _ = await apply(api, "Gadget", "a", status, status=None)
    assert "status" not in applied
    assert owned_paths(applied)["controller"] == ["f:status"]
    await apply(api, "Gadget", "a", status, status={"phase": "Ready"})
    with pytest.raises(Invalid):
        await apply(api, "Gadget", "a", status, status=None)


async def test_an_apply_that_lost_a_race_is_retried_on_the_new_object(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", spec={"size": 1})
    api.store.before = [lambda: apply(api, "Gadget", "a", apply_options("b"), spec={"on": True})]
    changed, _ = await apply(api, "Gadget", "a", spec={"size": 2})
    assert changed["spec"] == {"size": 2, "on": True, "mode": "plain"}
    assert owned_paths(changed) == {"a": ["f:spec/f:size"], "b": ["f:spec/f:on"]}


async def test_an_apply_that_lost_a_race_to_a_conflicting_change_gets_a_conflict(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", spec={"size": 1})
    api.store.before = [lambda: apply(api, "Gadget", "a", apply_options("b", force=True), spec={"size": 7})]
    with pytest.raises(Conflict, match='conflict with "b"'):
        await apply(api, "Gadget", "a", spec={"size": 2})


async def test_two_concurrent_creates_by_apply_share_the_object(api: RegistryFixture) -> None:
    api.store.before = [lambda: apply(api, "Gadget", "a", apply_options("b"), spec={"on": True})]
    changed, created = await apply(api, "Gadget", "a", spec={"size": 2})
    assert not created
    assert owned_paths(changed) == {"a": ["f:spec/f:size"], "b": ["f:spec/f:on"]}


async def test_an_object_deleted_during_the_apply_is_created_again(api: RegistryFixture) -> None:
    applied, _ = await apply(api, "Gadget", "a", spec={"size": 1})
    api.store.before = [lambda: api.delete("Gadget", "a", DeleteOptions())]
    recreated, created = await apply(api, "Gadget", "a", spec={"size": 2})
    assert created
    assert recreated["metadata"]["uid"] != applied["metadata"]["uid"]


async def test_an_existing_namespace_of_the_project_is_not_retried(api: RegistryFixture) -> None:
    namespace = api.build_object("Namespace", f"{NAMESPACE_PREFIX}p")
    await api.submit("Namespace", namespace, WriteOptions(CONTROLLER_USER))
    with pytest.raises(AlreadyExists, match=f"{NAMESPACE_PREFIX}p"):
        await apply(api, "Project", "p")
    assert api.get("Project", "p") is None


async def test_duplicate_keys_give_a_warning_or_are_rejected(api: RegistryFixture) -> None:
    body = api.build_object("Gadget", "a", spec={"size": 1})
    options = apply_options()
    await api.resource("Gadget").apply(body, "", "a", options, ["spec.size"])
    assert options.warnings == ['duplicate field "spec.size"']
    with pytest.raises(BadRequest, match=r'strict decoding error: duplicate field "spec\.size"'):
        await api.resource("Gadget").apply(body, "", "a", apply_options(field_validation="Strict"), ["spec.size"])


async def test_an_object_being_deleted_is_removed_when_its_finalizer_is_no_longer_applied(api: RegistryFixture) -> None:
    await apply(api, "Gadget", "a", metadata={"finalizers": ["x.io/a"]})
    await api.delete("Gadget", "a")
    assert api.get("Gadget", "a") is not None
    await apply(api, "Gadget", "a")
    assert api.get("Gadget", "a") is None


async def test_null_is_rejected_in_a_custom_resource_and_pruned_from_a_built_in_one(api: RegistryFixture) -> None:
    with pytest.raises(Invalid) as error:
        await apply(api, "Gadget", "a", spec={"size": None})
    assert [problem.field for problem in error.value.details.problems] == ["spec.size"]
    applied, _ = await apply(api, "ConfigMap", "a", data=None, immutable=None)
    assert "data" not in applied and "immutable" not in applied


async def test_giving_up_the_last_field_of_what_is_still_applied_is_rejected(api: RegistryFixture) -> None:
    await apply(api, "App", "a", spec={"displayName": "one"})
    with pytest.raises(Invalid, match="spec in body must be of type object"):
        await apply(api, "App", "a", spec={})


async def test_a_new_object_is_not_applied_with_what_is_no_version(api: RegistryFixture) -> None:
    with pytest.raises(BadRequest, match="invalid resource version"):
        await apply(api, "Gadget", "a", metadata={"resourceVersion": "x"})
    _, created = await apply(api, "Gadget", "a", metadata={"resourceVersion": "7"})
    assert created


@pytest.mark.parametrize("kind", ["Gadget", "ConfigMap"])
async def test_a_null_label_is_stored_as_an_empty_one(api: RegistryFixture, kind: str) -> None:
    applied, _ = await apply(api, kind, "a", metadata={"labels": {"a": None}})
    assert applied["metadata"]["labels"] == {"a": ""}
    assert await api.patch(kind, "a", lambda obj: None) == applied, "the next write changes nothing"
