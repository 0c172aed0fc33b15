"""Tests of hostile virtual clusters: charts, races, slow servers, and invalid responses."""

import asyncio
from typing import Any

import pytest

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.instances.instance_reconciler import DELETION_POLL_SECONDS, InstanceReconciler
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.controllers.instances.virtual_clusters import conditions_from_probe
from fairlead.core.errors import BadRequest, Invalid
from fairlead.core.objects import Object, get_path
from fairlead.domain.typed_objects import VirtualClusterInstance
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.upstream.access import ClusterEndpoint
from tests.controllers.instances.helm_fixture import (
    CHART,
    RELEASE,
    VC,
    FakeHelm,
    access,
    create_virtual_cluster,
    helm,
    server,
    wait_until_ready,
)
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_virtual_cluster_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, TRUSTED, FakeAccess, condition_status, create_cluster

__all__ = ["access", "helm", "server"]


async def test_the_chart_of_an_inline_template_must_come_from_a_listed_repository(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    foreign_template = {"helmRelease": {"chart": {**CHART, "repo": "https://elsewhere.example"}}}
    await create_virtual_cluster(server, template=foreign_template)
    await eventually(
        lambda: condition_status(server, VC, "VirtualClusterDeployed") == ("False", "RepositoryNotAllowed")
    )
    assert helm.installed == []


async def test_a_chart_is_not_deployed_from_an_outdated_resolution(
    api: RegistryFixture, access: FakeAccess, helm: FakeHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_cluster(api)
    await api.create("VirtualClusterTemplate", "t", metadata=TRUSTED, spec={"template": {}})
    await create_virtual_cluster(api, template=RELEASE)
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await eventually(lambda: get_path(api.get(VC, "one"), "status.virtualCluster"))
    controller = build_virtual_cluster_controller(api, access, helm)
    key = GROUP, "virtualclusterinstances", "demo", "one"
    outdated_instance = VirtualClusterInstance(api.get(VC, "one") or {})
    change = {"templateRef": {"name": "t"}, "template": None}
    await api.patch(VC, "one", lambda obj: obj["spec"].update(change))
    monkeypatch.setattr(InstanceReconciler, "find", lambda self, key: outdated_instance)
    assert await controller.reconcile(key) == DELETION_POLL_SECONDS
    assert get_path(api.get(VC, "one"), "spec.clusterRef.namespace") == "demo-v-one"
    assert (helm.installed, access.kube.request_log) == ([], [])


async def test_a_release_is_uninstalled_with_the_confinement_of_its_installation(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await create_virtual_cluster(server, template=RELEASE)
    await wait_until_ready(server, access)
    with pytest.raises(Invalid, match="delete it and create a new one"):
        change = {"templateRef": {"name": "t"}, "template": None}
        await server.patch(VC, "one", lambda obj: obj["spec"].update(change))
    await server.delete(VC, "one")
    await eventually(lambda: server.get(VC, "one") is None)
    assert [release.impersonate_user for release in helm.uninstalled] == [helm.installed[0].impersonate_user]


async def test_a_virtual_cluster_that_does_not_respond_is_probed_with_backoff(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await server.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await eventually(lambda: condition_status(server, VC, "VirtualClusterOnline") == ("False", "Unreachable"))
    await asyncio.sleep(1000)
    assert access.version_requests < 20
    await wait_until_ready(server, access)


async def test_the_connections_of_a_deleted_virtual_cluster_are_closed(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await server.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await wait_until_ready(server, access)
    assert access.closed == set()
    await server.delete(VC, "one")
    await eventually(lambda: ("demo", "one") in access.closed)


async def test_an_invalid_request_becomes_a_condition(server: RegistryFixture, access: FakeAccess) -> None:
    async def raise_bad_request(namespace: str, name: str, *, is_new_connection: bool) -> Object:
        raise BadRequest("the path has a `.` step")

    access.virtual_cluster_version = raise_bad_request  # type: ignore[method-assign]
    await server.create(VC, "one", spec={"config": {"secretName": "theirs"}})
    await eventually(lambda: condition_status(server, VC, "VirtualClusterOnline")[0] == "False")


@pytest.mark.parametrize("version", ["A" * 5_000, "v1\n", ["x"], {"a": "b"}, None, 7, "<b>"])
def test_only_a_valid_version_is_reported(version: Any) -> None:
    _, ready = conditions_from_probe({"gitVersion": version})
    assert ready["message"] == "it runs Kubernetes of an unknown version"
    assert conditions_from_probe({"gitVersion": "v1.34.1+k3s1"})[1]["message"] == "it runs Kubernetes v1.34.1+k3s1"


async def test_a_project_with_slow_charts_leaves_slots_for_others(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await server.create("VirtualClusterTemplate", "t", metadata=TRUSTED, spec={"template": RELEASE})
    can_finish = asyncio.Event()
    started: list[str] = []

    async def install_slowly(release: Release, endpoint: ClusterEndpoint, *, forces_conflicts: bool = False) -> None:
        started.append(release.name)
        await can_finish.wait()

    helm.install = install_slowly  # type: ignore[method-assign]
    for name in ("one", "two", "three"):
        spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "t"}}
        await server.create(VC, name, spec=spec)

    def count_waiting() -> int:
        deployed = [condition_status(server, VC, "VirtualClusterDeployed", name) for name in ("one", "two", "three")]
        return deployed.count(("False", "WaitingForHelmSlot"))

    await eventually(lambda: count_waiting() == 1)
    assert len(started) == 2
    can_finish.set()
    await eventually(lambda: len(started) == 3)
