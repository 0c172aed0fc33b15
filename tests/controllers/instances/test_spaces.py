"""Tests of `fairlead.controllers.instances.spaces`: spaces are created, repaired and deleted in connected clusters."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.instances.instance_reconciler import DELETION_POLL_SECONDS, InstanceReconciler
from fairlead.controllers.instances.spaces import RESYNC_SECONDS
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.domain.typed_objects import SpaceInstance
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.errors import Unreachable
from tests.fake_cluster.kube import FakeKube
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import (
    INSTANCE_CONFIG,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
    get_labels,
    set_online,
)

SPACE = "SpaceInstance"
NAMESPACE_PATH = "/api/v1/namespaces/demo-one"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/demo-one/rolebindings"
TIER, NOTE = "tenant.service.sh/tier", "tenant.service.sh/note"
CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting}
data: {hello: world}
"""


@pytest.fixture
async def server(api: RegistryFixture, access: FakeAccess) -> AsyncIterator[RegistryFixture]:
    controllers = (
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        build_space_controller(api, access),
    )
    async with running_controllers(api, *controllers):
        yield api


async def create_space(api: RegistryFixture, name: str = "one", **spec: Any) -> Object:
    ref = spec.pop("clusterRef", {"cluster": "c"})
    spec = {"owner": {"user": "ada"}, "clusterRef": ref, **spec}
    return await api.create(SPACE, name, spec=spec)


async def wait_until_ready(api: RegistryFixture) -> None:
    await eventually(lambda: condition_status(api, SPACE, "SpaceReady") == ("True", "Active"))


async def test_a_space_gets_its_namespace(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    created = await create_space(server)
    await wait_until_ready(server)
    assert get_labels(kube.objects[NAMESPACE_PATH]) == {
        "pod-security.kubernetes.io/enforce": "baseline",
        "service.sh/managed": "fairlead",
        "service.sh/project": "demo",
        "service.sh/space": "one",
        "service.sh/uid": created["metadata"]["uid"],
    }
    await eventually(lambda: get_path(server.get(SPACE, "one"), "status.phase") == "Ready")
    space = server.get(SPACE, "one")
    assert get_path(space, "spec.clusterRef") == {"cluster": "c", "namespace": "demo-one"}
    assert get_path(space, "metadata.finalizers") == ["service.sh/space"]
    assert get_path(space, "status.online") is True


async def test_the_owner_gets_the_role_admin_in_the_namespace(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    await create_space(server)
    await wait_until_ready(server)
    binding = kube.objects[f"{BINDINGS}/service.sh:admin"]
    assert binding["roleRef"]["name"] == "admin"
    assert {(subject["kind"], subject["name"]) for subject in binding["subjects"]} == {
        ("User", "fairlead:ada"),
        ("Group", "fairlead:service:user:ada"),
    }


async def test_nothing_is_created_without_a_connected_cluster(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    await server.create("Cluster", "unconnected", spec={})
    await create_space(server, clusterRef={"cluster": "unconnected"})
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("False", "ClusterNotConnected"))
    await asyncio.sleep(2 * RESYNC_SECONDS)
    space = server.get(SPACE, "one")
    assert get_path(space, "status.phase") == "Pending"
    assert "finalizers" not in (space or {})["metadata"]
    assert get_path(space, "spec.clusterRef") == {"cluster": "unconnected"}
    assert condition_status(server, SPACE, "SpaceSynced") == (None, None)
    assert kube.request_log == []


async def test_a_cluster_that_is_connected_later_gets_its_spaces(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    await server.delete("Cluster", "c")
    await create_space(server)
    await server.create("Cluster", "c", spec={})
    await asyncio.sleep(RESYNC_SECONDS)
    assert kube.objects == {}
    await server.patch("Cluster", "c", lambda obj: obj["spec"].update(config={"secretName": "kubeconfig"}))
    await eventually(lambda: condition_status(server, SPACE, "Ready") == ("False", "ClusterNotProbed"))
    assert kube.request_log == []
    await set_online(server, True)
    await wait_until_ready(server)


async def test_a_namespace_of_others_is_never_adopted(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    foreign_namespace = kube.add_object("/api/v1/namespaces/kube-system", metadata={"labels": {"team": "ops"}})
    await create_space(server, clusterRef={"cluster": "c", "namespace": "kube-system"})
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "NamespaceConflict"))
    assert "delete it there" in condition_message(server, SPACE, "SpaceSynced")
    await eventually(lambda: get_path(server.get(SPACE, "one"), "status.phase") == "Failed")
    await server.delete(SPACE, "one")
    await eventually(lambda: server.get(SPACE, "one") is None)
    assert kube.objects == {"/api/v1/namespaces/kube-system": foreign_namespace}
    assert get_labels(foreign_namespace) == {"team": "ops"}
    assert {method for method, _ in kube.request_log} == {"GET"}


async def test_two_spaces_do_not_share_a_namespace(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    first = await create_space(server)
    await wait_until_ready(server)
    await create_space(server, "two", clusterRef={"cluster": "c", "namespace": "demo-one"})
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced", "two") == ("False", "NamespaceConflict"))
    await server.delete(SPACE, "two")
    await eventually(lambda: server.get(SPACE, "two") is None)
    assert get_labels(kube.objects[NAMESPACE_PATH])["service.sh/uid"] == first["metadata"]["uid"]


async def test_drift_without_a_watch_is_repaired_at_the_next_resync(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    access.sender.error = Unreachable("watches are not available")
    await create_cluster(server)
    await create_space(server, template={"metadata": {"labels": {TIER: "gold"}}, "objects": CONFIG_MAP})
    await wait_until_ready(server)
    kube.objects[NAMESPACE_PATH]["metadata"]["labels"].update({TIER: "lead", "mine": "stays"})
    kube.objects[f"{BINDINGS}/service.sh:admin"]["subjects"] = []
    kube.add_object(f"{BINDINGS}/service.sh:gone", metadata={"labels": {"service.sh/managed": "fairlead"}})
    kube.add_object(f"{BINDINGS}/own", metadata={"labels": {}})
    del kube.objects[f"{NAMESPACE_PATH}/configmaps/greeting"]
    await eventually(lambda: kube.objects[NAMESPACE_PATH]["metadata"]["labels"][TIER] == "gold", 2 * RESYNC_SECONDS)
    await eventually(lambda: f"{NAMESPACE_PATH}/configmaps/greeting" in kube.objects)
    assert kube.objects[NAMESPACE_PATH]["metadata"]["labels"]["mine"] == "stays"
    assert kube.objects[f"{BINDINGS}/service.sh:admin"]["subjects"] != []
    assert f"{BINDINGS}/service.sh:gone" not in kube.objects
    assert f"{BINDINGS}/own" in kube.objects


async def test_a_deleted_namespace_is_created_again(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    await create_space(server)
    await wait_until_ready(server)
    kube.delays_deletion = True
    kube.handle_request("DELETE", NAMESPACE_PATH)
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "NamespaceTerminating"))
    kube.finish_deletions()
    await wait_until_ready(server)
    assert NAMESPACE_PATH in kube.objects


async def test_a_template_can_set_labels_except_those_of_the_server(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    reserved_labels = {"service.sh/uid": "another", "service.sh/project": "other"}
    template = {
        "metadata": {"labels": {TIER: "gold", **reserved_labels}, "annotations": {NOTE: "n", **reserved_labels}}
    }
    created = await create_space(server, template=template)
    await wait_until_ready(server)
    metadata = kube.objects[NAMESPACE_PATH]["metadata"]
    assert (metadata["labels"][TIER], metadata["annotations"]) == ("gold", {NOTE: "n"})
    assert metadata["labels"]["service.sh/uid"] == created["metadata"]["uid"]
    assert metadata["labels"]["service.sh/project"] == "demo"


async def test_objects_are_created_and_deleted_with_the_template(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    await create_space(server, template={"objects": CONFIG_MAP})
    await wait_until_ready(server)
    path = f"{NAMESPACE_PATH}/configmaps/greeting"
    assert kube.objects[path]["data"] == {"hello": "world"}
    other = CONFIG_MAP.replace("greeting", "other")
    await server.patch(SPACE, "one", lambda obj: obj["spec"].update(template={"objects": f"---\n{other}"}))
    await eventually(lambda: f"{NAMESPACE_PATH}/configmaps/other" in kube.objects)
    await eventually(lambda: path not in kube.objects)


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ("{", "document 1 is invalid"),
        ("kind: ConfigMap", "no valid apiVersion, kind and metadata.name"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: ../../x}}", "no valid apiVersion, kind and metadata.name"),
        ("{apiVersion: v1, kind: Gizmo, metadata: {name: x}}", "does not serve Gizmo of v1"),
        ("{apiVersion: v1, kind: Namespace, metadata: {name: x}}", "is cluster-scoped"),
        (
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: x}}",
            "is cluster-scoped",
        ),
        (
            "{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: kube-system}}",
            "is not in the namespace of the space",
        ),
        (
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: 'service.sh:admin'}}",
            "reserved for the server",
        ),
    ],
)
async def test_a_template_cannot_create_objects_outside_the_namespace(
    server: RegistryFixture, kube: FakeKube, objects: str, expected: str
) -> None:
    await create_cluster(server)
    await create_space(server, template={"objects": objects})
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "InvalidTemplateObjects"))
    assert expected in condition_message(server, SPACE, "SpaceSynced")
    assert not [path for path in kube.objects if not path.startswith((NAMESPACE_PATH, BINDINGS))]
    await eventually(lambda: get_path(server.get(SPACE, "one"), "status.phase") == "Failed")


async def test_a_rejected_object_does_not_block_others(server: RegistryFixture, kube: FakeKube) -> None:
    """Neither from being created nor from being deleted when the template no longer has it."""
    await create_cluster(server)
    kube.failing_paths["/configmaps/rejected"] = 422
    first, rejected, other = (CONFIG_MAP.replace("greeting", name) for name in ("one", "rejected", "other"))
    await create_space(server, template={"objects": "---".join((first, rejected, other))})
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "Refused"))
    assert "refused by the test" in condition_message(server, SPACE, "SpaceSynced")
    await eventually(lambda: get_path(server.get(SPACE, "one"), "status.phase") == "Failed")
    assert {f"{NAMESPACE_PATH}/configmaps/one", f"{NAMESPACE_PATH}/configmaps/other"} <= kube.objects.keys()
    kube.failing_paths.clear()
    await server.patch(SPACE, "one", lambda obj: obj["spec"].update(template={"objects": first}))
    await wait_until_ready(server)
    await eventually(lambda: f"{NAMESPACE_PATH}/configmaps/other" not in kube.objects)
    assert f"{NAMESPACE_PATH}/configmaps/one" in kube.objects


async def test_a_deleted_space_waits_until_its_namespace_is_deleted(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    await create_space(server)
    await wait_until_ready(server)
    kube.delays_deletion = True
    await server.delete(SPACE, "one")
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("False", "Deleting"))
    await asyncio.sleep(RESYNC_SECONDS)
    assert server.get(SPACE, "one") is not None
    assert [entry for entry in kube.request_log if entry == ("DELETE", NAMESPACE_PATH)] == [("DELETE", NAMESPACE_PATH)]
    kube.finish_deletions()
    await eventually(lambda: server.get(SPACE, "one") is None)
    assert kube.objects == {}


async def test_an_unreachable_cluster_is_reported_and_recovers(server: RegistryFixture, access: FakeAccess) -> None:
    await create_cluster(server)
    access.down = Unreachable("no response")
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "Unreachable"))
    await eventually(lambda: get_path(server.get(SPACE, "one"), "status.phase") == "Pending")
    access.down = None
    await wait_until_ready(server)
    await eventually(lambda: get_path(server.get(SPACE, "one"), "status.phase") == "Ready")


async def test_only_a_space_with_a_namespace_has_an_unknown_readiness(
    server: RegistryFixture, access: FakeAccess
) -> None:
    """The agent of a cluster gives users access to a space whose SpaceReady is True or Unknown."""
    await create_cluster(server)
    access.down = Unreachable("no response")
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "Unreachable"))
    assert condition_status(server, SPACE, "SpaceReady") == (None, None)
    access.down = None
    await wait_until_ready(server)
    access.down = Unreachable("no response")
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("Unknown", "Unreachable"))
    access.down = None
    get_labels(access.kube.objects[NAMESPACE_PATH])["service.sh/uid"] = "another"
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("False", "NamespaceConflict"))


async def test_deletion_waits_for_an_offline_cluster_until_it_is_abandoned(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_cluster(server)
    await create_space(server)
    await wait_until_ready(server)
    access.down = Unreachable("no response")
    await server.delete(SPACE, "one")
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "Unreachable"))
    assert "service.sh/abandon=true" in condition_message(server, SPACE, "SpaceSynced")
    await asyncio.sleep(10 * RESYNC_SECONDS)
    assert server.get(SPACE, "one") is not None
    await server.patch(SPACE, "one", lambda obj: obj["metadata"].update(annotations={"service.sh/abandon": "true"}))
    await eventually(lambda: server.get(SPACE, "one") is None)
    assert NAMESPACE_PATH in access.kube.objects


async def test_deletion_does_not_wait_for_a_deleted_cluster(server: RegistryFixture, access: FakeAccess) -> None:
    await create_cluster(server)
    await create_space(server)
    await wait_until_ready(server)
    access.down = Unreachable("no response")
    await server.delete(SPACE, "one")
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "Unreachable"))
    await server.delete("Cluster", "c")
    await eventually(lambda: server.get(SPACE, "one") is None)


async def test_a_credential_without_permissions_is_reported_without_the_message_of_the_cluster(
    server: RegistryFixture, kube: FakeKube
) -> None:
    await create_cluster(server)
    kube.failing_paths["/namespaces"] = 403
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "Forbidden"))
    assert "grant that permission" in condition_message(server, SPACE, "SpaceSynced")
    assert "refused by the test" not in condition_message(server, SPACE, "SpaceSynced")


async def test_an_unusable_cluster_gets_no_new_spaces(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    await server.patch("Cluster", "c", lambda obj: obj["spec"].update(unusable=True))
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "ClusterUnusable"))
    assert kube.request_log == []
    await server.patch("Cluster", "c", lambda obj: obj["spec"].update(unusable=False))
    await wait_until_ready(server)


async def test_the_namespace_is_named_by_the_pattern_of_the_project(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server, namespacePattern={"space": "team-{{ project }}-{{name}}-x"})
    await create_space(server)
    await wait_until_ready(server)
    assert "/api/v1/namespaces/team-demo-one-x" in kube.objects


@pytest.mark.parametrize("pattern", ["{{ unknown }}", "UPPER", "-{{ name }}"])
async def test_an_invalid_namespace_pattern_is_reported(server: RegistryFixture, pattern: str) -> None:
    await create_cluster(server, namespacePattern={"space": pattern})
    await create_space(server)
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "InvalidNamespacePattern"))


async def test_probes_of_a_cluster_do_not_trigger_its_spaces(server: RegistryFixture, kube: FakeKube) -> None:
    await create_cluster(server)
    await create_space(server)
    await wait_until_ready(server)
    await asyncio.sleep(5)
    before = len(kube.request_log)

    def set_probe_time(cluster: Object) -> None:
        cluster.setdefault("status", {})["lastProbeTime"] = "2026-01-01T00:00:00Z"

    await server.patch("Cluster", "c", set_probe_time, server_write_options("status"))
    await asyncio.sleep(5)
    assert get_path(server.get("Cluster", "c"), "status.lastProbeTime")
    assert len(kube.request_log) == before


async def test_nothing_is_applied_from_an_outdated_resolution(
    api: RegistryFixture, access: FakeAccess, kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_cluster(api)
    await create_space(api, template={"objects": CONFIG_MAP})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await eventually(lambda: get_path(api.get(SPACE, "one"), "status.space"))
    controller = build_space_controller(api, access)
    outdated_space = SpaceInstance(api.get(SPACE, "one") or {})
    await api.patch(SPACE, "one", lambda obj: obj["spec"].update(template={}))
    monkeypatch.setattr(InstanceReconciler, "find", lambda self, key: outdated_space)
    assert await controller.reconcile((GROUP, "spaceinstances", "demo", "one")) == DELETION_POLL_SECONDS
    assert kube.request_log == []
