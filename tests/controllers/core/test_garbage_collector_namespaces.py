"""Whoever names an owner in another namespace is told so."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.core.garbage_collector import GarbageCollector
from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from tests.controllers.core.owners import child, owner, owners
from tests.harness.controllers import at_work
from tests.harness.registry import World


@pytest.fixture(autouse=True)
async def collector(world: World) -> AsyncIterator[None]:
    async with at_work(world, GarbageCollector(world.registry)):
        yield


def events(world: World) -> list[Object]:
    return [decode(entry) for entry in world.view.entries("", "events")]


async def test_an_owner_elsewhere_is_a_warning_about_the_dependant(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    lost = await child(world, "a", parent, namespace="default")
    await asyncio.sleep(1)
    (event,) = events(world)
    assert (event["type"], event["reason"]) == ("Warning", "OwnerRefInvalidNamespace")
    about = event["involvedObject"]
    assert (about["kind"], about["namespace"], about["name"]) == ("ConfigMap", "default", "a")
    assert about["uid"] == lost["metadata"]["uid"]
    uid = parent["metadata"]["uid"]
    named = f"[v1/ConfigMap, namespace: default, name: parent, uid: {uid}]"
    assert event["message"] == f'ownerRef {named} does not exist in namespace "default"'


async def test_what_has_no_namespace_is_told_once_and_stays(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent, kind="Gadget")
    await asyncio.sleep(1)
    await world.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 1}))
    await asyncio.sleep(1)
    assert [event["involvedObject"]["name"] for event in events(world)] == ["a"]
    assert owners(world, "a", "Gadget") == ["parent"]


async def test_an_owner_that_is_nowhere_is_no_news(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await world.create("ConfigMap", "parent", "default")
    gone = {**owner(parent), "uid": "gone"}
    await world.create("ConfigMap", "a", "default", metadata={"ownerReferences": [gone]})
    await child(world, "b", parent)
    await world.delete("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert events(world) == []


async def test_where_nothing_can_be_recorded_the_work_goes_on(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent, namespace="default", finalizers=["x.io/hold"])
    await world.delete("Namespace", "default")
    await asyncio.sleep(0.01)
    entry = world.of("ConfigMap").get_cached("default", "a")
    assert entry is not None
    assert "deletionTimestamp" in decode(entry)["metadata"]
