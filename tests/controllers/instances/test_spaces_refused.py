"""Spaces whose template a cluster does not take, whose namespace does not go, and the Events about both."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.instances.spaces import SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.controllers.runtime.backoff import MAX_DELAY_SECONDS
from fairlead.core.objects import Object, get_path
from tests.fake_cluster.kube import Kube
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.kstatus import kstatus
from tests.harness.registry import RegistryFixture
from tests.harness.remote import (
    INSTANCE_CONFIG,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
    set_online,
)

SPACE = "SpaceInstance"
PLACE = "/api/v1/namespaces/demo-one"
AT = f"{PLACE}/configmaps/greeting"
UNDECLARED = (
    "failed to create typed patch object (demo-one/greeting; /v1, Kind=ConfigMap): .foo: field not declared in schema"
)
HELD = [
    {"type": "NamespaceDeletionContentFailure", "status": "False", "message": "All content successfully deleted"},
    {
        "type": "NamespaceContentRemaining",
        "status": "True",
        "message": "Some resources are remaining: configmaps. has 1 resource instances",
    },
    {
        "type": "NamespaceFinalizersRemaining",
        "status": "True",
        "message": "Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances",
    },
]


@pytest.fixture
async def working(api: RegistryFixture, reach: FakeAccess) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        SpaceController(api.registry, INSTANCE_CONFIG, reach),
    ):
        await create_cluster(api)
        yield api


def config_map(**fields: Any) -> str:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\n"
    return text + "".join(f"{name}: {value}\n" for name, value in fields.items())


async def space(api: RegistryFixture, objects: str = "") -> None:
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "template": {"objects": objects}}
    await api.create(SPACE, "one", spec=spec)


def events(api: RegistryFixture) -> list[tuple[str, str]]:
    """Types and reasons."""
    seen = [api.see("Event", name) or {} for name in api.names("Event")]
    return sorted((each["type"], each["reason"]) for each in seen)


def tries(kube: Kube) -> int:
    return len([path for method, path in kube.log if method == "PATCH" and path == AT])


async def test_a_template_that_the_cluster_does_not_take_is_a_failure_that_says_why(
    working: RegistryFixture, kube: Kube
) -> None:
    kube.answers[AT] = (500, "", UNDECLARED)
    await space(working, config_map(foo=1))
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "Invalid"))
    assert 'refused to apply ConfigMap "greeting"' in condition_message(working, SPACE, "SpaceSynced")
    assert ".foo: field not declared in schema" in condition_message(working, SPACE, "SpaceSynced")
    seen = working.see(SPACE, "one") or {}
    assert (get_path(seen, "status.phase"), kstatus(seen)) == ("Failed", "Failed")
    assert condition_status(working, SPACE, "Stalled") == ("True", "Invalid")
    await eventually(lambda: ("Warning", "Invalid") in events(working))


async def test_what_is_refused_is_tried_less_and_less_often_until_the_template_changes(
    working: RegistryFixture, kube: Kube
) -> None:
    kube.answers[AT] = (500, "", UNDECLARED)
    await space(working, config_map(foo=1))
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "Invalid"))
    await asyncio.sleep(3600)
    before = tries(kube)
    assert before <= 2 * 3600 / MAX_DELAY_SECONDS
    await asyncio.sleep(1)
    del kube.answers[AT]
    change = {"objects": config_map(data="{hello: world}")}
    await working.patch(SPACE, "one", lambda each: each["spec"].update(template=change))
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("True", "Usable"), 3)


async def test_a_cluster_that_comes_back_is_not_kept_waiting(working: RegistryFixture, kube: Kube) -> None:
    kube.answers[AT] = (503, "", "the server is currently unable to handle the request")
    await space(working, config_map())
    await asyncio.sleep(3600)
    assert condition_status(working, SPACE, "SpaceSynced") == ("False", "ClusterFailing")
    await set_online(working, False)
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("False", "ClusterOffline"))
    del kube.answers[AT]
    await set_online(working, True)
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("True", "Usable"), 3)


async def test_metadata_that_a_server_has_set_is_left_out(working: RegistryFixture, kube: Kube) -> None:
    text = config_map().replace(
        "{name: greeting}", "{name: greeting, uid: '5', resourceVersion: '7', managedFields: []}"
    )
    await space(working, text)
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("True", "Usable"))
    assert not {"managedFields", "uid", "resourceVersion"} & kube.objects[AT]["applied"]["metadata"].keys()


async def test_a_namespace_that_does_not_go_says_what_holds_it(working: RegistryFixture, kube: Kube) -> None:
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("True", "Usable"))
    kube.slow_to_go, kube.holdup = True, HELD
    await working.delete(SPACE, "one")
    await eventually(
        lambda: condition_status(working, SPACE, "SpaceReady") == ("False", "NamespaceFinalizersRemaining")
    )
    assert "example.com/held in 1 resource instances" in condition_message(working, SPACE, "SpaceReady")
    assert "configmaps. has 1 resource instances" in get_path(working.see(SPACE, "one"), "status.message")
    await eventually(lambda: ("Warning", "NamespaceFinalizersRemaining") in events(working))
    kube.finish()
    await eventually(lambda: working.see(SPACE, "one") is None)


@pytest.mark.parametrize(
    "conditions",
    [[], "x", [None], [{"type": "NamespaceContentRemaining", "status": "True", "message": ["\x1b" * 5000]}]],
)
async def test_whatever_a_namespace_says_is_bounded(working: RegistryFixture, kube: Kube, conditions: Any) -> None:
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("True", "Usable"))
    kube.slow_to_go, kube.holdup = True, conditions
    await working.delete(SPACE, "one")
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady") == ("False", "Deleting"))
    await asyncio.sleep(5)
    assert condition_message(working, SPACE, "SpaceReady").isprintable()
    assert len(condition_message(working, SPACE, "SpaceReady")) < 1000


async def test_events_about_failures_are_warnings(working: RegistryFixture, reach: FakeAccess) -> None:
    theirs: Object = {"labels": {"team": "ops"}}
    reach.kube.put(PLACE, metadata=theirs)
    await space(working)
    await eventually(lambda: ("Warning", "NamespaceConflict") in events(working))
    del reach.kube.objects[PLACE]
    await eventually(lambda: ("Normal", "Usable") in events(working), 2 * MAX_DELAY_SECONDS)
    assert {type for type, _ in events(working)} == {"Warning", "Normal"}
