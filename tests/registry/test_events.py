"""registry/conditions.py: records Kubernetes events about the server's own actions."""

import pytest

from fairlead.core.errors import NotFound
from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from fairlead.registry.conditions import record_event
from tests.harness.registry import RegistryFixture


def list_events(api: RegistryFixture) -> list[Object]:
    return [decode(entry) for entry in api.view.entries("", "events")]


async def test_an_event_about_a_namespaced_object_is_created_in_its_namespace(api: RegistryFixture) -> None:
    involved = await api.create("ConfigMap", "c")
    await record_event(api.registry, involved, "Changed", "it changed", type="Warning")
    (event,) = list_events(api)
    assert event["metadata"]["namespace"] == "demo"
    assert event["metadata"]["name"].startswith("c.")
    assert (event["reason"], event["message"], event["type"], event["count"]) == ("Changed", "it changed", "Warning", 1)
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-02T03:04:05Z"
    assert event["source"] == {"component": "fairlead"}
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "c",
        "namespace": "demo",
        "uid": involved["metadata"]["uid"],
        "resourceVersion": involved["metadata"]["resourceVersion"],
    }


async def test_an_event_about_a_cluster_scoped_object_is_created_in_default(api: RegistryFixture) -> None:
    involved = await api.create("Gadget", "g")
    await record_event(api.registry, involved, "Created", "it was created")
    (event,) = list_events(api)
    assert (event["metadata"]["namespace"], event["type"]) == ("default", "Normal")
    assert not event["involvedObject"]["namespace"]


async def test_repeating_an_event_creates_a_second_one(api: RegistryFixture) -> None:
    involved = await api.create("Gadget", "g")
    for _ in range(2):
        await record_event(api.registry, involved, "Created", "it was created")
    assert len(list_events(api)) == 2


@pytest.mark.parametrize("name", ["g" * 253, "g" * 240])
async def test_an_event_can_refer_to_an_object_with_the_longest_allowed_name(api: RegistryFixture, name: str) -> None:
    involved = await api.create("Gadget", name)
    await record_event(api.registry, involved, "Created", "it was created")
    (event,) = list_events(api)
    assert event["involvedObject"]["name"] == name


async def test_recording_an_event_in_a_missing_namespace_raises_not_found(api: RegistryFixture) -> None:
    involved = await api.create("ConfigMap", "c")
    involved["metadata"]["namespace"] = "gone"
    with pytest.raises(NotFound):
        await record_event(api.registry, involved, "Changed", "it changed")
