"""What lies around a space and decides about it: which cluster it is in, and what may be done there."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.instances.spaces import SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.errors import Unreachable
from tests.fake_cluster.kube import Kube
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
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
PLACE = "/api/v1/namespaces/demo-one"


@pytest.fixture
async def working(api: RegistryFixture, reach: FakeAccess) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        SpaceController(api.registry, INSTANCE_CONFIG, reach),
    ):
        await create_cluster(api)
        yield api


async def space(api: RegistryFixture, **ref: str) -> None:
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c", **ref}}
    await api.create(SPACE, "one", spec=spec)


async def report(api: RegistryFixture, **status: object) -> None:
    """What the controller of clusters says of the cluster."""
    known: Object = {"online": True, "phase": "Initialized", **status}
    await api.patch("Cluster", "c", lambda each: each.update(status=known), server_write_options("status"))


async def test_where_nobody_can_be_impersonated_spaces_are_kept_but_not_ready(
    working: RegistryFixture, kube: Kube
) -> None:
    reason = "ImpersonationForbidden"
    await report(working, reason=reason, conditions=[{"type": "Ready", "status": "False", "reason": reason}])
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady") == ("True", "Active"))
    assert condition_status(working, SPACE, "Ready") == ("False", reason)
    assert PLACE in kube.objects
    await set_online(working, True)
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("True", "Usable"))


async def test_another_cluster_behind_the_same_name_gets_the_namespace_at_once(
    working: RegistryFixture, kube: Kube
) -> None:
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("True", "Usable"))
    await asyncio.sleep(5)
    kube.objects.clear()  # the stored kubeconfig leads to another cluster now
    await report(working, clusterUID="another")
    await eventually(lambda: PLACE in kube.objects, 3)


async def test_a_space_in_a_virtual_cluster_says_that_it_is_not_made(working: RegistryFixture, kube: Kube) -> None:
    await space(working, virtualCluster="theirs")
    await eventually(lambda: condition_status(working, SPACE, "Stalled") == ("True", "SpaceInVirtualCluster"))
    assert "without spec.clusterRef.virtualCluster" in condition_message(working, SPACE, "Ready")
    assert kube.log == []


async def test_a_cluster_that_has_failed_keeps_its_spaces_from_being_ready(
    working: RegistryFixture, kube: Kube
) -> None:
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("True", "Usable"))
    await report(working, phase="Failed")
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("False", "ClusterFailed"))
    assert PLACE in kube.objects


async def test_a_deletion_that_waits_for_a_lost_cluster_says_how_to_give_it_up(
    working: RegistryFixture, reach: FakeAccess
) -> None:
    await space(working)
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("True", "Usable"))
    reach.down = Unreachable("nobody answers")
    await set_online(working, False)
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("False", "ClusterOffline"))
    await working.delete(SPACE, "one")
    await eventually(lambda: condition_status(working, SPACE, "Ready") == ("False", "Unreachable"))
    assert "service.sh/abandon=true" in get_path(working.see(SPACE, "one"), "status.message")
    reach.down = None
    await set_online(working, True)
    await eventually(lambda: working.see(SPACE, "one") is None)


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": None},
        {"metadata": {"labels": None, "annotations": {}}, "objects": "", "charts": []},
        {"unknown": {"x": 1}, "charts": [{"name": "c", "unknown": True, "password": ""}], "apps": None},
        {"instanceTemplate": {"metadata": {"labels": {"a": "{{ parameters.x }}"}}}},
    ],
)
async def test_what_is_stored_otherwise_than_it_was_rendered_is_not_written_for_ever(
    api: RegistryFixture, template: Object
) -> None:
    """The schema prunes what it does not know, also of a status."""
    await api.create("Project", PROJECT, spec={})
    held = {"finalizers": ["service.sh/space"]}
    await api.create(SPACE, "one", spec={"template": template, "parameters": "x: a"}, metadata=held)
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await eventually(lambda: condition_status(api, SPACE, "TemplateResolved") == ("True", "Resolved"))
        await asyncio.sleep(1)
        revision = await api.store.revision()
        await api.patch(SPACE, "one", lambda each: each["spec"].update(displayName="x"))
        await asyncio.sleep(60)
        assert await api.store.revision() <= revision + 3
