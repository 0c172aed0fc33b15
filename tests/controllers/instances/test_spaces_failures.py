"""Tests of failures in `fairlead.controllers.instances.spaces`: rejected objects and stuck namespaces."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.instances.instance_reconciler import RETRY
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from tests.fake_cluster.kube import FakeKube
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller
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
NAMESPACE_PATH = "/api/v1/namespaces/demo-one"
CONFIG_MAP_PATH = f"{NAMESPACE_PATH}/configmaps/greeting"
FIELD_NOT_DECLARED = (
    "failed to create typed patch object (demo-one/greeting; /v1, Kind=ConfigMap): .foo: field not declared in schema"
)
REMAINING_CONTENT = [
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
async def server(api: RegistryFixture, access: FakeAccess) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        build_space_controller(api, access),
    ):
        await create_cluster(api)
        yield api


def build_config_map(**fields: Any) -> str:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\n"
    return text + "".join(f"{name}: {value}\n" for name, value in fields.items())


async def create_space(api: RegistryFixture, objects: str = "") -> None:
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "template": {"objects": objects}}
    await api.create(SPACE, "one", spec=spec)


def list_events(api: RegistryFixture) -> list[tuple[str, str]]:
    """Types and reasons."""
    events = [api.get("Event", name) or {} for name in api.list_names("Event")]
    return sorted((event["type"], event["reason"]) for event in events)


def count_apply_requests(kube: FakeKube) -> int:
    return len([path for method, path in kube.request_log if method == "PATCH" and path == CONFIG_MAP_PATH])


async def test_a_rejected_template_is_a_failure_with_the_message_of_the_cluster(
    server: RegistryFixture, kube: FakeKube
) -> None:
    kube.apply_failures[CONFIG_MAP_PATH] = (500, "", FIELD_NOT_DECLARED)
    await create_space(server, build_config_map(foo=1))
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "Invalid"))
    assert 'refused to apply ConfigMap "greeting"' in condition_message(server, SPACE, "SpaceSynced")
    assert ".foo: field not declared in schema" in condition_message(server, SPACE, "SpaceSynced")
    space = server.get(SPACE, "one") or {}
    assert (get_path(space, "status.phase"), kstatus(space)) == ("Failed", "Failed")
    assert condition_status(server, SPACE, "Stalled") == ("True", "Invalid")
    await eventually(lambda: ("Warning", "Invalid") in list_events(server))


async def test_a_rejected_template_is_retried_with_backoff_until_it_changes(
    server: RegistryFixture, kube: FakeKube
) -> None:
    kube.apply_failures[CONFIG_MAP_PATH] = (500, "", FIELD_NOT_DECLARED)
    await create_space(server, build_config_map(foo=1))
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "Invalid"))
    await asyncio.sleep(3600)
    before = count_apply_requests(kube)
    assert before <= 2 * 3600 / RETRY.max_seconds
    await asyncio.sleep(1)
    del kube.apply_failures[CONFIG_MAP_PATH]
    change = {"objects": build_config_map(data="{hello: world}")}
    await server.patch(SPACE, "one", lambda obj: obj["spec"].update(template=change))
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("True", "Usable"), 3)


async def test_the_return_of_a_cluster_ends_the_backoff(server: RegistryFixture, kube: FakeKube) -> None:
    kube.apply_failures[CONFIG_MAP_PATH] = (503, "", "the server is currently unable to handle the request")
    await create_space(server, build_config_map())
    await asyncio.sleep(3600)
    assert condition_status(server, SPACE, "SpaceSynced") == ("False", "ClusterFailing")
    await set_online(server, False)
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("False", "ClusterOffline"))
    del kube.apply_failures[CONFIG_MAP_PATH]
    await set_online(server, True)
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("True", "Usable"), 3)


async def test_metadata_that_an_api_server_sets_is_left_out(server: RegistryFixture, kube: FakeKube) -> None:
    text = build_config_map().replace(
        "{name: greeting}", "{name: greeting, uid: '5', resourceVersion: '7', managedFields: []}"
    )
    await create_space(server, text)
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("True", "Usable"))
    assert not {"managedFields", "uid", "resourceVersion"} & kube.objects[CONFIG_MAP_PATH]["applied"]["metadata"].keys()


async def test_a_namespace_that_is_not_deleted_is_reported_with_its_conditions(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("True", "Usable"))
    kube.delays_deletion, kube.deletion_conditions = True, REMAINING_CONTENT
    await server.delete(SPACE, "one")
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("False", "NamespaceFinalizersRemaining"))
    assert "example.com/held in 1 resource instances" in condition_message(server, SPACE, "SpaceReady")
    assert "configmaps. has 1 resource instances" in get_path(server.get(SPACE, "one"), "status.message")
    await eventually(lambda: ("Warning", "NamespaceFinalizersRemaining") in list_events(server))
    kube.finish_deletions()
    await eventually(lambda: server.get(SPACE, "one") is None)


@pytest.mark.parametrize(
    "conditions",
    [[], "x", [None], [{"type": "NamespaceContentRemaining", "status": "True", "message": ["\x1b" * 5000]}]],
)
async def test_messages_of_a_namespace_are_limited(server: RegistryFixture, kube: FakeKube, conditions: Any) -> None:
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("True", "Usable"))
    kube.delays_deletion, kube.deletion_conditions = True, conditions
    await server.delete(SPACE, "one")
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("False", "Deleting"))
    await asyncio.sleep(5)
    assert condition_message(server, SPACE, "SpaceReady").isprintable()
    assert len(condition_message(server, SPACE, "SpaceReady")) < 1000


async def test_events_about_failures_are_warnings(server: RegistryFixture, access: FakeAccess) -> None:
    metadata: Object = {"labels": {"team": "ops"}}
    access.kube.add_object(NAMESPACE_PATH, metadata=metadata)
    await create_space(server)
    await eventually(lambda: ("Warning", "NamespaceConflict") in list_events(server))
    del access.kube.objects[NAMESPACE_PATH]
    await eventually(lambda: ("Normal", "Usable") in list_events(server), 2 * RETRY.max_seconds)
    assert {type for type, _ in list_events(server)} == {"Warning", "Normal"}
