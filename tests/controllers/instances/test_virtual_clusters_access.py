"""Tests of access to imported virtual clusters: role bindings inside of them, and their removal with the instance."""

import asyncio
from typing import Any

import pytest

from fairlead.core.objects import Object, deep_copy, get_path
from fairlead.registry.codec import decode
from fairlead.upstream.clusters import NotConnected
from fairlead.upstream.errors import Unreachable, UpstreamError
from tests.controllers.instances.helm_fixture import VC, access, helm, server, wait_until_ready
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess, condition_message, condition_status, create_cluster, get_labels

__all__ = ["access", "helm", "server"]

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ADMIN_BINDING = f"{BINDINGS}/service.sh:cluster-admin"
FINALIZER = "service.sh/virtual-cluster-access"


async def create_imported(api: RegistryFixture, access: FakeAccess, **spec: Any) -> Object:
    """Creates an imported virtual cluster, and waits until its owner has a role in it."""
    await create_cluster(api)
    created = await api.create(VC, "one", spec={"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, **spec})
    await wait_until_ready(api, access)
    await eventually(lambda: condition_status(api, VC, "AccessSynced") == ("True", "Synced"))
    return created


def event_messages(api: RegistryFixture, reason: str) -> list[str]:
    events = [decode(entry) for entry in api.view.entries("", "events", "demo")]
    return [event["message"] for event in events if event["reason"] == reason]


async def test_the_bindings_have_the_labels_of_their_instance(server: RegistryFixture, access: FakeAccess) -> None:
    created = await create_imported(server, access)
    assert get_labels(access.virtual.objects[ADMIN_BINDING])["service.sh/uid"] == created["metadata"]["uid"]
    assert get_path(server.get(VC, "one"), "metadata.finalizers") == [FINALIZER]


async def test_deletion_removes_the_bindings_of_the_instance_and_no_others(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_imported(server, access)
    managed_labels = {"service.sh/managed": "fairlead"}
    access.virtual.add_object(f"{BINDINGS}/service.sh:admins", metadata={"labels": managed_labels})
    access.virtual.add_object(
        f"{BINDINGS}/service.sh:edit", metadata={"labels": {**managed_labels, "service.sh/uid": "of-another"}}
    )
    access.virtual.add_object(f"{BINDINGS}/own", metadata={"labels": managed_labels})
    await server.delete(VC, "one")
    await eventually(lambda: server.get(VC, "one") is None)
    remaining = {path.rpartition("/")[2] for path in access.virtual.objects}
    assert remaining == {"service.sh:admins", "service.sh:edit", "own"}
    (message,) = event_messages(server, "AccessRemoved")
    assert "ClusterRoleBindings service.sh:cluster-admin" in message
    assert "service.sh:admins was kept, since the same cluster is also connected as a Cluster" in message
    assert "service.sh:edit was kept, since it belongs to another instance" in message


async def test_bindings_of_another_instance_for_the_same_cluster_are_not_changed(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_imported(server, access)
    foreign_labels = {"service.sh/managed": "fairlead", "service.sh/uid": "of-another"}
    access.virtual.add_object(f"{BINDINGS}/service.sh:edit", metadata={"labels": foreign_labels})
    await asyncio.sleep(100)
    assert f"{BINDINGS}/service.sh:edit" in access.virtual.objects


@pytest.mark.parametrize("binding_labels", [{}, {"service.sh/managed": "fairlead"}])
async def test_the_binding_of_administrators_is_never_replaced(
    server: RegistryFixture, access: FakeAccess, binding_labels: dict[str, str]
) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    path = f"{BINDINGS}/service.sh:admins"
    foreign_binding = deep_copy(access.virtual.add_object(path, metadata={"labels": binding_labels}, roleRef=role))
    await create_cluster(server)
    rules = [{"clusterRole": "admins", "users": ["eve"]}]
    spec = {"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, "extraAccessRules": rules}
    await server.create(VC, "one", spec=spec)
    await wait_until_ready(server, access)
    await eventually(lambda: condition_status(server, VC, "AccessSynced") == ("False", "BindingReserved"))
    assert "rename the ClusterRole" in condition_message(server, VC, "AccessSynced")
    assert access.virtual.objects[path] == foreign_binding


@pytest.mark.parametrize("role", ["view", "cluster-admin"])
async def test_a_binding_of_others_is_not_changed_and_is_reported(
    server: RegistryFixture, access: FakeAccess, role: str
) -> None:
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    foreign_binding = deep_copy(access.virtual.add_object(ADMIN_BINDING, metadata={}, roleRef=role_ref, subjects=[]))
    await create_cluster(server)
    await server.create(VC, "one", spec={"owner": {"user": "eve"}, "config": {"secretName": "theirs"}})
    await wait_until_ready(server, access)
    await eventually(lambda: condition_status(server, VC, "AccessSynced") == ("False", "BindingConflict"))
    assert 'ClusterRoleBinding "service.sh:cluster-admin"' in condition_message(server, VC, "AccessSynced")
    assert access.virtual.objects[ADMIN_BINDING] == foreign_binding
    del access.virtual.objects[ADMIN_BINDING]
    await eventually(lambda: condition_status(server, VC, "AccessSynced") == ("True", "Synced"))


async def test_the_second_instance_for_the_same_cluster_has_an_access_conflict(
    server: RegistryFixture, access: FakeAccess
) -> None:
    created = await create_imported(server, access)
    await server.create(VC, "two", spec={"owner": {"user": "bob"}, "config": {"secretName": "theirs"}})
    await eventually(lambda: condition_status(server, VC, "AccessSynced", "two") == ("False", "AccessConflict"))
    assert "delete one of the two" in condition_message(server, VC, "AccessSynced", "two")
    await asyncio.sleep(100)
    assert condition_status(server, VC, "AccessSynced") == ("True", "Synced")
    assert get_labels(access.virtual.objects[ADMIN_BINDING])["service.sh/uid"] == created["metadata"]["uid"]
    await server.delete(VC, "one")
    await eventually(lambda: condition_status(server, VC, "AccessSynced", "two") == ("True", "Synced"))
    assert "bob" in str(access.virtual.objects[ADMIN_BINDING]["subjects"])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unreachable("no response"), "Unreachable"),
        (NotConnected("SecretNotFound", "there is no secret; create it"), "SecretNotFound"),
    ],
)
async def test_deletion_waits_for_an_unreachable_cluster_and_names_the_abandon_annotation(
    server: RegistryFixture, access: FakeAccess, error: UpstreamError, reason: str
) -> None:
    created = await create_imported(server, access)
    access.virtual_down = error
    await server.delete(VC, "one")
    await eventually(lambda: condition_status(server, VC, "AccessSynced") == ("False", reason))
    assert "service.sh/abandon=true" in condition_message(server, VC, "AccessSynced")
    await eventually(lambda: "service.sh/abandon=true" in str(get_path(server.get(VC, "one"), "status.message")))
    assert get_path(server.get(VC, "one"), "status.reason") == "Deleting"
    await asyncio.sleep(600)
    assert server.get(VC, "one") is not None
    metadata_update = {"annotations": {"service.sh/abandon": "true"}}
    await server.patch(VC, "one", lambda obj: obj["metadata"].update(metadata_update))
    await eventually(lambda: server.get(VC, "one") is None)
    assert ADMIN_BINDING in access.virtual.objects
    (message,) = event_messages(server, "Abandoned")
    assert f"kubectl delete clusterrolebindings -l service.sh/uid={created['metadata']['uid']}" in message


async def test_bindings_are_removed_when_the_virtual_cluster_is_reachable_again(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create_imported(server, access)
    access.virtual_down = Unreachable("no response")
    await server.delete(VC, "one")
    await eventually(lambda: condition_status(server, VC, "AccessSynced") == ("False", "Unreachable"))
    access.virtual_down = None
    await eventually(lambda: server.get(VC, "one") is None)
    assert ADMIN_BINDING not in access.virtual.objects
    assert event_messages(server, "Abandoned") == []


async def test_missing_permission_to_remove_bindings_is_reported(server: RegistryFixture, access: FakeAccess) -> None:
    await create_imported(server, access)
    access.virtual.failing_paths["clusterrolebindings"] = 403
    await server.delete(VC, "one")
    await eventually(lambda: condition_status(server, VC, "AccessSynced") == ("False", "Forbidden"))
    assert "may not delete the ClusterRoleBindings" in condition_message(server, VC, "AccessSynced")


@pytest.mark.parametrize("spec", [{"external": True}, {}])
async def test_a_virtual_cluster_without_bindings_is_deleted_at_once(
    server: RegistryFixture, access: FakeAccess, spec: Object
) -> None:
    await create_cluster(server)
    await server.create(VC, "one", spec={"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, **spec})
    if spec:
        await wait_until_ready(server, access)
    else:
        await eventually(lambda: condition_status(server, VC, "VirtualClusterOnline") == ("False", "Unreachable"))
    await server.delete(VC, "one")
    assert server.get(VC, "one") is None
