"""Tests of `fairlead.controllers.core.garbage_collector`: an owner in another namespace is reported in an Event."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.core.garbage_collector import GarbageCollector
from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from tests.controllers.core.owners import create_dependent, owner_names, owner_reference
from tests.harness.controllers import running_controllers
from tests.harness.registry import RegistryFixture


@pytest.fixture(autouse=True)
async def collector(api: RegistryFixture) -> AsyncIterator[None]:
    async with running_controllers(api, GarbageCollector(api.registry)):
        yield


def list_events(api: RegistryFixture) -> list[Object]:
    return [decode(entry) for entry in api.view.entries("", "events")]


async def test_an_owner_in_another_namespace_is_a_warning_about_the_dependent(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    dependent = await create_dependent(api, "a", parent, namespace="default")
    await asyncio.sleep(1)
    (event,) = list_events(api)
    assert (event["type"], event["reason"]) == ("Warning", "OwnerRefInvalidNamespace")
    involved = event["involvedObject"]
    assert (involved["kind"], involved["namespace"], involved["name"]) == ("ConfigMap", "default", "a")
    assert involved["uid"] == dependent["metadata"]["uid"]
    uid = parent["metadata"]["uid"]
    reference = f"[v1/ConfigMap, namespace: default, name: parent, uid: {uid}]"
    assert event["message"] == f'ownerRef {reference} does not exist in namespace "default"'


async def test_a_cluster_scoped_dependent_is_reported_once_and_kept(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent, kind="Gadget")
    await asyncio.sleep(1)
    await api.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 1}))
    await asyncio.sleep(1)
    assert [event["involvedObject"]["name"] for event in list_events(api)] == ["a"]
    assert owner_names(api, "a", "Gadget") == ["parent"]


async def test_an_owner_that_does_not_exist_anywhere_is_not_reported(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await api.create("ConfigMap", "parent", "default")
    missing = {**owner_reference(parent), "uid": "gone"}
    await api.create("ConfigMap", "a", "default", metadata={"ownerReferences": [missing]})
    await create_dependent(api, "b", parent)
    await api.delete("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert list_events(api) == []


async def test_the_collector_continues_if_the_event_cannot_be_recorded(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent, namespace="default", finalizers=["x.io/hold"])
    await api.delete("Namespace", "default")
    await asyncio.sleep(0.02)
    entry = api.resource("ConfigMap").get_cached("default", "a")
    assert entry is not None
    assert "deletionTimestamp" in decode(entry)["metadata"]
