"""Virtual clusters of people who mean no good: charts, races, tarpits, and answers that no Kubernetes gives."""

import asyncio
from typing import Any

import pytest

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.instances.remote_instance import DELETION_POLL_SECONDS, RemoteInstanceStore
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.controllers.instances.vcluster_release import conditions_from_probe
from fairlead.controllers.instances.virtual_clusters import VirtualClusterController
from fairlead.core.errors import BadRequest, Invalid
from fairlead.core.objects import Object, get_path
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.upstream.access import ClusterEndpoint
from tests.controllers.instances.helm_fixture import (
    CHART,
    RELEASE,
    VC,
    FakeHelm,
    helm,
    reach,
    ready,
    virtual_cluster,
    working,
)
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, TRUSTED, FakeAccess, condition_status, create_cluster

__all__ = ["helm", "reach", "working"]


async def test_a_chart_in_place_comes_from_a_listed_repository_only(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    evil = {"helmRelease": {"chart": {**CHART, "repo": "https://elsewhere.example"}}}
    await virtual_cluster(working, template=evil)
    await eventually(
        lambda: condition_status(working, VC, "VirtualClusterDeployed") == ("False", "RepositoryNotAllowed")
    )
    assert helm.installed == []


async def test_a_chart_is_not_deployed_from_what_was_resolved_before_a_change(
    api: RegistryFixture, reach: FakeAccess, helm: FakeHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_cluster(api)
    await api.create("VirtualClusterTemplate", "t", metadata=TRUSTED, spec={"template": {}})
    await virtual_cluster(api, template=RELEASE)
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await eventually(lambda: get_path(api.see(VC, "one"), "status.virtualCluster"))
    controller = VirtualClusterController(api.registry, INSTANCE_CONFIG, reach, helm, ("https://charts.example",))
    key = GROUP, "virtualclusterinstances", "demo", "one"
    outdated = api.see(VC, "one")
    change = {"templateRef": {"name": "t"}, "template": None}
    await api.patch(VC, "one", lambda each: each["spec"].update(change))
    monkeypatch.setattr(RemoteInstanceStore, "get_managed", lambda self, key: outdated)
    assert await controller.reconcile(key) == DELETION_POLL_SECONDS
    assert get_path(api.see(VC, "one"), "spec.clusterRef.namespace") == "demo-v-one"
    assert (helm.installed, reach.kube.log) == ([], [])


async def test_what_is_removed_is_confined_as_what_was_installed(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    await virtual_cluster(working, template=RELEASE)
    await ready(working, reach)
    with pytest.raises(Invalid, match="delete it and create a new one"):
        change = {"templateRef": {"name": "t"}, "template": None}
        await working.patch(VC, "one", lambda each: each["spec"].update(change))
    await working.delete(VC, "one")
    await eventually(lambda: working.see(VC, "one") is None)
    assert [each.impersonate_user for each in helm.removed] == [helm.installed[0].impersonate_user]


async def test_one_that_does_not_answer_is_asked_less_and_less(working: RegistryFixture, reach: FakeAccess) -> None:
    await working.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await eventually(lambda: condition_status(working, VC, "VirtualClusterOnline") == ("False", "Unreachable"))
    await asyncio.sleep(1000)
    assert reach.looks < 20
    await ready(working, reach)


async def test_the_connections_of_a_deleted_one_are_ended(working: RegistryFixture, reach: FakeAccess) -> None:
    await working.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await ready(working, reach)
    assert reach.forgotten == set()
    await working.delete(VC, "one")
    await eventually(lambda: ("demo", "one") in reach.forgotten)


async def test_a_request_that_cannot_be_made_becomes_a_condition(working: RegistryFixture, reach: FakeAccess) -> None:
    async def version(namespace: str, name: str) -> Object:
        raise BadRequest("the path has a `.` step")

    reach.virtual_cluster_version = version  # type: ignore[method-assign]
    await working.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await eventually(lambda: condition_status(working, VC, "VirtualClusterOnline")[0] == "False")


@pytest.mark.parametrize("version", ["A" * 5_000, "v1\n", ["x"], {"a": "b"}, None, 7, "<b>"])
def test_a_version_is_told_only_if_it_looks_like_one(version: Any) -> None:
    _, ready = conditions_from_probe({"gitVersion": version})
    assert ready["message"] == "it runs Kubernetes of an unknown version"
    assert conditions_from_probe({"gitVersion": "v1.34.1+k3s1"})[1]["message"] == "it runs Kubernetes v1.34.1+k3s1"


async def test_a_project_with_slow_charts_leaves_turns_for_others(
    working: RegistryFixture, reach: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(working)
    await working.create("VirtualClusterTemplate", "t", metadata=TRUSTED, spec={"template": RELEASE})
    going = asyncio.Event()
    begun: list[str] = []

    async def slow(release: Release, access: ClusterEndpoint) -> None:
        begun.append(release.name)
        await going.wait()

    helm.install = slow  # type: ignore[method-assign]
    for each in ("one", "two", "three"):
        spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "t"}}
        await working.create(VC, each, spec=spec)

    def waiting() -> int:
        deployed = [condition_status(working, VC, "VirtualClusterDeployed", name) for name in ("one", "two", "three")]
        return deployed.count(("False", "WaitingForHelmSlot"))

    await eventually(lambda: waiting() == 1)
    assert len(begun) == 2
    going.set()
    await eventually(lambda: len(begun) == 3)
