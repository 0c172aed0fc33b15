"""Who comes to depend on a virtual cluster changes its revision, so that no move leaves anybody behind."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fairlead.admission.owners_and_finalizers import touch_movable_owner
from fairlead.core.objects import Object, metadata
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.namespace_move import MoveRequest, move
from tests.harness.registry import NAMESPACE, World, as_ada, new_world

INSTANCE = "VirtualClusterInstance"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world(rules=(touch_movable_owner(MANAGEMENT_GROUP),)) as made:
        yield made


def owner(obj: Object) -> Object:
    meta = metadata(obj)
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"]}


async def instance(world: World) -> Object:
    return await world.create(INSTANCE, "v", spec={"template": {}})


async def owned(world: World, name: str, *owners: Object) -> Object:
    return await world.create("ConfigMap", name, metadata={"ownerReferences": [owner(each) for each in owners]})


def version(world: World, kind: str, name: str) -> str:
    found = world.see(kind, name)
    assert found is not None
    return str(metadata(found)["resourceVersion"])


def without_version(obj: Object | None) -> Object:
    assert obj is not None
    return {**obj, "metadata": {**metadata(obj), "resourceVersion": ""}}


async def test_a_new_dependant_gives_the_instance_its_own_revision_and_nothing_else(world: World) -> None:
    made = await instance(world)
    dependant = await owned(world, "c", made)
    assert version(world, INSTANCE, "v") == metadata(dependant)["resourceVersion"]
    assert without_version(world.see(INSTANCE, "v")) == without_version(made)


async def test_so_does_an_object_that_is_attached_later_and_only_then(world: World) -> None:
    made = await instance(world)
    await world.create("ConfigMap", "c")
    await world.patch("ConfigMap", "c", lambda obj: metadata(obj).update(ownerReferences=[owner(made)]))
    attached = version(world, INSTANCE, "v")
    assert attached == version(world, "ConfigMap", "c") != metadata(made)["resourceVersion"]
    await world.patch("ConfigMap", "c", lambda obj: obj.update(data={"k": "v"}))
    assert version(world, INSTANCE, "v") == attached


async def test_a_dependant_of_a_dependant_touches_the_one_that_it_hangs_on(world: World) -> None:
    made = await instance(world)
    between = await owned(world, "b", made)
    last = await owned(world, "c", between)
    assert version(world, INSTANCE, "v") == metadata(between)["resourceVersion"]
    assert version(world, "ConfigMap", "b") == metadata(last)["resourceVersion"]


async def test_other_owners_are_left_alone(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    await owned(world, "b", first)
    assert version(world, "ConfigMap", "a") == metadata(first)["resourceVersion"]


@pytest.mark.parametrize("wrong", [{"uid": "another"}, {"name": "z"}, {"kind": "Nothing"}, {"apiVersion": "v1"}])
async def test_a_reference_to_somebody_else_touches_nobody(world: World, wrong: dict[str, Any]) -> None:
    made = await instance(world)
    await world.create("ConfigMap", "c", metadata={"ownerReferences": [{**owner(made), **wrong}]})
    assert version(world, INSTANCE, "v") == metadata(made)["resourceVersion"]


async def test_owners_in_a_circle_are_no_trouble(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    second = await owned(world, "b", first)
    await world.patch("ConfigMap", "a", lambda obj: metadata(obj).update(ownerReferences=[owner(second), owner(first)]))
    await owned(world, "c", first)


async def create(world: World, made: Object) -> None:
    await owned(world, "late", made)


async def attach(world: World, made: Object) -> None:
    await world.patch("ConfigMap", "late", lambda obj: metadata(obj).update(ownerReferences=[owner(made)]))


@pytest.mark.parametrize("comes", [create, attach])
async def test_who_is_attached_between_the_look_and_the_commit_moves_along(
    world: World, comes: Callable[[World, Object], Awaitable[None]]
) -> None:
    made = await instance(world)
    if comes is attach:
        await world.create("ConfigMap", "late")

    async def in_between() -> None:
        world.store.before.clear()
        await comes(world, made)

    world.store.before.append(in_between)
    what = MoveRequest(world.of(INSTANCE), "v", NAMESPACE, "default", (), lambda parts: None)
    moved = await move(world.registry, what, as_ada())
    assert moved.dependents == 1
    assert world.see("ConfigMap", "late") is None
    assert world.of("ConfigMap").get_cached("default", "late") is not None
