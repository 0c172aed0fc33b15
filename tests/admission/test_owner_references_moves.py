"""Who comes to depend on a virtual cluster changes its revision, so that no move leaves anybody behind."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fairlead.admission.owners_and_finalizers import touch_movable_owner
from fairlead.core.objects import Object, metadata
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.namespace_move import MoveRequest, move
from tests.harness.registry import NAMESPACE, RegistryFixture, as_ada, open_registry

INSTANCE = "VirtualClusterInstance"


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(touch_movable_owner(MANAGEMENT_GROUP),)) as made:
        yield made


def owner(obj: Object) -> Object:
    meta = metadata(obj)
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"]}


async def instance(api: RegistryFixture) -> Object:
    return await api.create(INSTANCE, "v", spec={"template": {}})


async def owned(api: RegistryFixture, name: str, *owners: Object) -> Object:
    return await api.create("ConfigMap", name, metadata={"ownerReferences": [owner(each) for each in owners]})


def version(api: RegistryFixture, kind: str, name: str) -> str:
    found = api.see(kind, name)
    assert found is not None
    return str(metadata(found)["resourceVersion"])


def without_version(obj: Object | None) -> Object:
    assert obj is not None
    return {**obj, "metadata": {**metadata(obj), "resourceVersion": ""}}


async def test_a_new_dependant_gives_the_instance_its_own_revision_and_nothing_else(api: RegistryFixture) -> None:
    made = await instance(api)
    dependant = await owned(api, "c", made)
    assert version(api, INSTANCE, "v") == metadata(dependant)["resourceVersion"]
    assert without_version(api.see(INSTANCE, "v")) == without_version(made)


async def test_so_does_an_object_that_is_attached_later_and_only_then(api: RegistryFixture) -> None:
    made = await instance(api)
    await api.create("ConfigMap", "c")
    await api.patch("ConfigMap", "c", lambda obj: metadata(obj).update(ownerReferences=[owner(made)]))
    attached = version(api, INSTANCE, "v")
    assert attached == version(api, "ConfigMap", "c") != metadata(made)["resourceVersion"]
    await api.patch("ConfigMap", "c", lambda obj: obj.update(data={"k": "v"}))
    assert version(api, INSTANCE, "v") == attached


async def test_a_dependant_of_a_dependant_touches_the_one_that_it_hangs_on(api: RegistryFixture) -> None:
    made = await instance(api)
    between = await owned(api, "b", made)
    last = await owned(api, "c", between)
    assert version(api, INSTANCE, "v") == metadata(between)["resourceVersion"]
    assert version(api, "ConfigMap", "b") == metadata(last)["resourceVersion"]


async def test_other_owners_are_left_alone(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await owned(api, "b", first)
    assert version(api, "ConfigMap", "a") == metadata(first)["resourceVersion"]


@pytest.mark.parametrize("wrong", [{"uid": "another"}, {"name": "z"}, {"kind": "Nothing"}, {"apiVersion": "v1"}])
async def test_a_reference_to_somebody_else_touches_nobody(api: RegistryFixture, wrong: dict[str, Any]) -> None:
    made = await instance(api)
    await api.create("ConfigMap", "c", metadata={"ownerReferences": [{**owner(made), **wrong}]})
    assert version(api, INSTANCE, "v") == metadata(made)["resourceVersion"]


async def test_owners_in_a_circle_are_no_trouble(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    second = await owned(api, "b", first)
    await api.patch("ConfigMap", "a", lambda obj: metadata(obj).update(ownerReferences=[owner(second), owner(first)]))
    await owned(api, "c", first)


async def create(api: RegistryFixture, made: Object) -> None:
    await owned(api, "late", made)


async def attach(api: RegistryFixture, made: Object) -> None:
    await api.patch("ConfigMap", "late", lambda obj: metadata(obj).update(ownerReferences=[owner(made)]))


@pytest.mark.parametrize("comes", [create, attach])
async def test_who_is_attached_between_the_look_and_the_commit_moves_along(
    api: RegistryFixture, comes: Callable[[RegistryFixture, Object], Awaitable[None]]
) -> None:
    made = await instance(api)
    if comes is attach:
        await api.create("ConfigMap", "late")

    async def in_between() -> None:
        api.store.before.clear()
        await comes(api, made)

    api.store.before.append(in_between)
    what = MoveRequest(api.of(INSTANCE), "v", NAMESPACE, "default", (), lambda parts: None)
    moved = await move(api.registry, what, as_ada())
    assert moved.dependents == 1
    assert api.see("ConfigMap", "late") is None
    assert api.of("ConfigMap").get_cached("default", "late") is not None
