"""Events about our own transitions: where they are kept, and what they say."""

import pytest

from fairlead.core.errors import NotFound
from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from fairlead.registry.events import record_event
from tests.harness.registry import RegistryFixture


def events(api: RegistryFixture) -> list[Object]:
    return [decode(entry) for entry in api.view.entries("", "events")]


async def test_an_event_about_a_namespaced_object_is_kept_beside_it(api: RegistryFixture) -> None:
    about = await api.create("ConfigMap", "c")
    await record_event(api.registry, about, "Changed", "it changed", type="Warning")
    (event,) = events(api)
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
        "uid": about["metadata"]["uid"],
        "resourceVersion": about["metadata"]["resourceVersion"],
    }


async def test_an_event_about_an_object_without_namespace_is_kept_in_default(api: RegistryFixture) -> None:
    about = await api.create("Gadget", "g")
    await record_event(api.registry, about, "Made", "it was made")
    (event,) = events(api)
    assert (event["metadata"]["namespace"], event["type"]) == ("default", "Normal")
    assert not event["involvedObject"]["namespace"]


async def test_two_events_about_the_same_are_two(api: RegistryFixture) -> None:
    about = await api.create("Gadget", "g")
    for _ in range(2):
        await record_event(api.registry, about, "Made", "it was made")
    assert len(events(api)) == 2


@pytest.mark.parametrize("name", ["g" * 253, "g" * 240])
async def test_an_event_can_be_about_an_object_with_the_longest_name_there_is(api: RegistryFixture, name: str) -> None:
    about = await api.create("Gadget", name)
    await record_event(api.registry, about, "Made", "it was made")
    (event,) = events(api)
    assert event["involvedObject"]["name"] == name


async def test_where_there_is_no_place_for_an_event_the_recorder_is_told(api: RegistryFixture) -> None:
    about = await api.create("ConfigMap", "c")
    about["metadata"]["namespace"] = "gone"
    with pytest.raises(NotFound):
        await record_event(api.registry, about, "Changed", "it changed")
