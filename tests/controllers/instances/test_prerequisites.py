"""Tests of `fairlead.controllers.instances.prerequisites`: the state of the cluster that a space depends on."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.errors import Unreachable
from tests.fake_cluster.kube import FakeKube
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import (
    INSTANCE_CONFIG,
    PROJECT,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
    set_online,
)

SPACE = "SpaceInstance"
NAMESPACE_PATH = "/api/v1/namespaces/demo-one"


@pytest.fixture
async def server(api: RegistryFixture, access: FakeAccess) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        build_space_controller(api, access),
    ):
        await create_cluster(api)
        yield api


async def create_space(api: RegistryFixture, **ref: str) -> None:
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c", **ref}}
    await api.create(SPACE, "one", spec=spec)


async def set_cluster_status(api: RegistryFixture, **status: object) -> None:
    """Writes the status of the cluster, like the controller of clusters."""
    full_status: Object = {"online": True, "phase": "Initialized", **status}
    await api.patch("Cluster", "c", lambda obj: obj.update(status=full_status), server_write_options("status"))


async def test_spaces_are_not_ready_without_permission_to_impersonate(server: RegistryFixture, kube: FakeKube) -> None:
    reason = "ImpersonationForbidden"
    await set_cluster_status(server, reason=reason, conditions=[{"type": "Ready", "status": "False", "reason": reason}])
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("True", "Active"))
    assert condition_status(server, SPACE, "Ready") == ("False", reason)
    assert NAMESPACE_PATH in kube.objects
    await set_online(server, True)
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("True", "Usable"))


async def test_another_cluster_with_the_same_name_gets_the_namespace_at_once(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("True", "Usable"))
    await asyncio.sleep(5)
    kube.objects.clear()  # the stored kubeconfig now refers to another cluster
    await set_cluster_status(server, clusterUID="another")
    await eventually(lambda: NAMESPACE_PATH in kube.objects, 3)


async def test_a_space_in_a_virtual_cluster_is_stalled(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server, virtualCluster="theirs")
    await eventually(lambda: condition_status(server, SPACE, "Stalled") == ("True", "SpaceInVirtualCluster"))
    assert "without spec.clusterRef.virtualCluster" in condition_message(server, SPACE, "Ready")
    assert kube.request_log == []


async def test_spaces_of_a_failed_cluster_are_not_ready(server: RegistryFixture, kube: FakeKube) -> None:
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("True", "Usable"))
    await set_cluster_status(server, phase="Failed")
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("False", "ClusterFailed"))
    assert NAMESPACE_PATH in kube.objects


async def test_a_deletion_that_waits_for_an_offline_cluster_names_the_abandon_annotation(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("True", "Usable"))
    access.down = Unreachable("no response")
    await set_online(server, False)
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("False", "ClusterOffline"))
    await server.delete(SPACE, "one")
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("False", "Unreachable"))
    assert "service.sh/abandon=true" in get_path(server.get(SPACE, "one"), "status.message")
    access.down = None
    await set_online(server, True)
    await eventually(lambda: server.get(SPACE, "one") is None)


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": None},
        {"metadata": {"labels": None, "annotations": {}}, "objects": "", "charts": []},
        {"unknown": {"x": 1}, "charts": [{"name": "c", "unknown": True, "password": ""}], "apps": None},
        {"instanceTemplate": {"metadata": {"labels": {"a": "{{ parameters.x }}"}}}},
    ],
)
async def test_a_rendered_template_that_is_pruned_when_stored_is_not_written_repeatedly(
    api: RegistryFixture, template: Object
) -> None:
    """The schema prunes unknown fields, also in a status."""
    await api.create("Project", PROJECT, spec={})
    metadata = {"finalizers": ["service.sh/space"]}
    await api.create(SPACE, "one", spec={"template": template, "parameters": "x: a"}, metadata=metadata)
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await eventually(lambda: condition_status(api, SPACE, "TemplateResolved") == ("True", "Resolved"))
        await asyncio.sleep(1)
        revision = await api.store.revision()
        await api.patch(SPACE, "one", lambda obj: obj["spec"].update(displayName="x"))
        await asyncio.sleep(60)
        assert await api.store.revision() <= revision + 3
