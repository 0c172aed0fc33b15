"""A new dependent of a movable instance changes the instance's revision, so that a move leaves none behind."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fairlead.admission.owners_and_finalizers import touch_movable_owner
from fairlead.core.objects import Object, metadata
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.namespace_move import MoveRequest, move
from tests.harness.registry import NAMESPACE, RegistryFixture, open_registry, write_options

INSTANCE = "VirtualClusterInstance"


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(touch_movable_owner(MANAGEMENT_GROUP),)) as fixture:
        yield fixture


def owner_reference(obj: Object) -> Object:
    meta = metadata(obj)
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"]}


async def create_instance(api: RegistryFixture) -> Object:
    return await api.create(INSTANCE, "v", spec={"template": {}})


async def create_dependent(api: RegistryFixture, name: str, *owners: Object) -> Object:
    return await api.create("ConfigMap", name, metadata={"ownerReferences": [owner_reference(each) for each in owners]})


def resource_version(api: RegistryFixture, kind: str, name: str) -> str:
    found = api.get(kind, name)
    assert found is not None
    return str(metadata(found)["resourceVersion"])


def without_resource_version(obj: Object | None) -> Object:
    assert obj is not None
    return {**obj, "metadata": {**metadata(obj), "resourceVersion": ""}}


async def test_a_new_dependent_changes_only_the_revision_of_the_instance(api: RegistryFixture) -> None:
    instance = await create_instance(api)
    dependent = await create_dependent(api, "c", instance)
    assert resource_version(api, INSTANCE, "v") == metadata(dependent)["resourceVersion"]
    assert without_resource_version(api.get(INSTANCE, "v")) == without_resource_version(instance)


async def test_attaching_an_object_later_changes_the_revision_once(api: RegistryFixture) -> None:
    instance = await create_instance(api)
    await api.create("ConfigMap", "c")
    await api.patch("ConfigMap", "c", lambda obj: metadata(obj).update(ownerReferences=[owner_reference(instance)]))
    attached = resource_version(api, INSTANCE, "v")
    assert attached == resource_version(api, "ConfigMap", "c") != metadata(instance)["resourceVersion"]
    await api.patch("ConfigMap", "c", lambda obj: obj.update(data={"k": "v"}))
    assert resource_version(api, INSTANCE, "v") == attached


async def test_a_dependent_of_a_dependent_touches_its_direct_owner(api: RegistryFixture) -> None:
    instance = await create_instance(api)
    between = await create_dependent(api, "b", instance)
    last = await create_dependent(api, "c", between)
    assert resource_version(api, INSTANCE, "v") == metadata(between)["resourceVersion"]
    assert resource_version(api, "ConfigMap", "b") == metadata(last)["resourceVersion"]


async def test_other_owners_are_not_touched(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await create_dependent(api, "b", first)
    assert resource_version(api, "ConfigMap", "a") == metadata(first)["resourceVersion"]


@pytest.mark.parametrize("changes", [{"uid": "another"}, {"name": "z"}, {"kind": "Nothing"}, {"apiVersion": "v1"}])
async def test_a_reference_that_does_not_match_touches_nothing(api: RegistryFixture, changes: dict[str, Any]) -> None:
    instance = await create_instance(api)
    await api.create("ConfigMap", "c", metadata={"ownerReferences": [{**owner_reference(instance), **changes}]})
    assert resource_version(api, INSTANCE, "v") == metadata(instance)["resourceVersion"]


async def test_circular_owners_are_accepted(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    second = await create_dependent(api, "b", first)
    await api.patch(
        "ConfigMap",
        "a",
        lambda obj: metadata(obj).update(ownerReferences=[owner_reference(second), owner_reference(first)]),
    )
    await create_dependent(api, "c", first)


async def create_late(api: RegistryFixture, instance: Object) -> None:
    await create_dependent(api, "late", instance)


async def attach_late(api: RegistryFixture, instance: Object) -> None:
    await api.patch("ConfigMap", "late", lambda obj: metadata(obj).update(ownerReferences=[owner_reference(instance)]))


@pytest.mark.parametrize("add_dependent", [create_late, attach_late])
async def test_a_dependent_added_before_the_commit_moves_along(
    api: RegistryFixture, add_dependent: Callable[[RegistryFixture, Object], Awaitable[None]]
) -> None:
    instance = await create_instance(api)
    if add_dependent is attach_late:
        await api.create("ConfigMap", "late")

    async def add_before_commit() -> None:
        api.store.before.clear()
        await add_dependent(api, instance)

    api.store.before.append(add_before_commit)
    move_request = MoveRequest(api.resource(INSTANCE), "v", NAMESPACE, "default", (), lambda parts: None)
    moved = await move(api.registry, move_request, write_options())
    assert len(moved.others) == 1
    assert api.get("ConfigMap", "late") is None
    assert api.resource("ConfigMap").get_cached("default", "late") is not None
