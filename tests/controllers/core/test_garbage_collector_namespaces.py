"""Whoever names an owner in another namespace is told so."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.core.garbage_collector import GarbageCollector
from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from tests.controllers.core.owners import child, owner, owners
from tests.harness.controllers import running_controllers
from tests.harness.registry import RegistryFixture


@pytest.fixture(autouse=True)
async def collector(api: RegistryFixture) -> AsyncIterator[None]:
    async with running_controllers(api, GarbageCollector(api.registry)):
        yield


def events(api: RegistryFixture) -> list[Object]:
    return [decode(entry) for entry in api.view.entries("", "events")]


async def test_an_owner_elsewhere_is_a_warning_about_the_dependant(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    lost = await child(api, "a", parent, namespace="default")
    await asyncio.sleep(1)
    (event,) = events(api)
    assert (event["type"], event["reason"]) == ("Warning", "OwnerRefInvalidNamespace")
    about = event["involvedObject"]
    assert (about["kind"], about["namespace"], about["name"]) == ("ConfigMap", "default", "a")
    assert about["uid"] == lost["metadata"]["uid"]
    uid = parent["metadata"]["uid"]
    named = f"[v1/ConfigMap, namespace: default, name: parent, uid: {uid}]"
    assert event["message"] == f'ownerRef {named} does not exist in namespace "default"'


async def test_what_has_no_namespace_is_told_once_and_stays(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent, kind="Gadget")
    await asyncio.sleep(1)
    await api.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 1}))
    await asyncio.sleep(1)
    assert [event["involvedObject"]["name"] for event in events(api)] == ["a"]
    assert owners(api, "a", "Gadget") == ["parent"]


async def test_an_owner_that_is_nowhere_is_no_news(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await api.create("ConfigMap", "parent", "default")
    gone = {**owner(parent), "uid": "gone"}
    await api.create("ConfigMap", "a", "default", metadata={"ownerReferences": [gone]})
    await child(api, "b", parent)
    await api.delete("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert events(api) == []


async def test_where_nothing_can_be_recorded_the_work_goes_on(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent, namespace="default", finalizers=["x.io/hold"])
    await api.delete("Namespace", "default")
    await asyncio.sleep(0.01)
    entry = api.of("ConfigMap").get_cached("default", "a")
    assert entry is not None
    assert "deletionTimestamp" in decode(entry)["metadata"]
