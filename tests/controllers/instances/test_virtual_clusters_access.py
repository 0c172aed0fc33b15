"""The roles inside of imported virtual clusters: taken away when the instance goes, and said where that cannot be."""

import asyncio
from typing import Any

import pytest

from fairlead.core.objects import Object, deep_copy, get_path
from fairlead.registry.codec import decode
from fairlead.upstream.clusters import NotConnected
from fairlead.upstream.errors import Unreachable, UpstreamError
from tests.controllers.instances.helm_fixture import VC, helm, reach, ready, working
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess, condition_message, condition_status, create_cluster, labels

__all__ = ["helm", "reach", "working"]

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ADMIN = f"{BINDINGS}/service.sh:cluster-admin"
FINALIZER = "service.sh/virtual-cluster-access"


async def imported(api: RegistryFixture, reach: FakeAccess, **spec: Any) -> Object:
    """An imported virtual cluster in which its owner has a role."""
    await create_cluster(api)
    made = await api.create(VC, "one", spec={"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, **spec})
    await ready(api, reach)
    await eventually(lambda: condition_status(api, VC, "AccessSynced") == ("True", "Synced"))
    return made


def events(api: RegistryFixture, reason: str) -> list[str]:
    found = [decode(each) for each in api.view.entries("", "events", "demo")]
    return [each["message"] for each in found if each["reason"] == reason]


async def test_the_bindings_carry_the_marks_of_their_instance(working: RegistryFixture, reach: FakeAccess) -> None:
    made = await imported(working, reach)
    assert labels(reach.virtual.objects[ADMIN])["service.sh/uid"] == made["metadata"]["uid"]
    assert get_path(working.see(VC, "one"), "metadata.finalizers") == [FINALIZER]


async def test_deletion_removes_our_bindings_and_no_others(working: RegistryFixture, reach: FakeAccess) -> None:
    await imported(working, reach)
    ours = {"service.sh/managed": "fairlead"}
    reach.virtual.put(f"{BINDINGS}/service.sh:admins", metadata={"labels": ours})
    reach.virtual.put(f"{BINDINGS}/service.sh:edit", metadata={"labels": {**ours, "service.sh/uid": "of-another"}})
    reach.virtual.put(f"{BINDINGS}/own", metadata={"labels": ours})
    await working.delete(VC, "one")
    await eventually(lambda: working.see(VC, "one") is None)
    left = {path.rpartition("/")[2] for path in reach.virtual.objects}
    assert left == {"service.sh:admins", "service.sh:edit", "own"}
    (text,) = events(working, "AccessRemoved")
    assert "ClusterRoleBindings service.sh:cluster-admin" in text
    assert "service.sh:admins was kept, since the same cluster is also connected as a Cluster" in text
    assert "service.sh:edit was kept, since it belongs to another instance" in text


async def test_bindings_of_another_instance_for_the_same_cluster_are_left_alone(
    working: RegistryFixture, reach: FakeAccess
) -> None:
    await imported(working, reach)
    theirs = {"service.sh/managed": "fairlead", "service.sh/uid": "of-another"}
    reach.virtual.put(f"{BINDINGS}/service.sh:edit", metadata={"labels": theirs})
    await asyncio.sleep(100)
    assert f"{BINDINGS}/service.sh:edit" in reach.virtual.objects


@pytest.mark.parametrize("marks", [{}, {"service.sh/managed": "fairlead"}])
async def test_the_binding_of_administrators_is_never_replaced(
    working: RegistryFixture, reach: FakeAccess, marks: dict[str, str]
) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    path = f"{BINDINGS}/service.sh:admins"
    theirs = deep_copy(reach.virtual.put(path, metadata={"labels": marks}, roleRef=role))
    await create_cluster(working)
    rules = [{"clusterRole": "admins", "users": ["eve"]}]
    spec = {"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, "extraAccessRules": rules}
    await working.create(VC, "one", spec=spec)
    await ready(working, reach)
    await eventually(lambda: condition_status(working, VC, "AccessSynced") == ("False", "BindingReserved"))
    assert "rename the ClusterRole" in condition_message(working, VC, "AccessSynced")
    assert reach.virtual.objects[path] == theirs


@pytest.mark.parametrize("role", ["view", "cluster-admin"])
async def test_a_binding_of_somebody_else_is_left_alone_and_told(
    working: RegistryFixture, reach: FakeAccess, role: str
) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    theirs = deep_copy(reach.virtual.put(ADMIN, metadata={}, roleRef=reference, subjects=[]))
    await create_cluster(working)
    await working.create(VC, "one", spec={"owner": {"user": "eve"}, "config": {"secretName": "theirs"}})
    await ready(working, reach)
    await eventually(lambda: condition_status(working, VC, "AccessSynced") == ("False", "BindingConflict"))
    assert 'ClusterRoleBinding "service.sh:cluster-admin"' in condition_message(working, VC, "AccessSynced")
    assert reach.virtual.objects[ADMIN] == theirs
    del reach.virtual.objects[ADMIN]
    await eventually(lambda: condition_status(working, VC, "AccessSynced") == ("True", "Synced"))


async def test_two_instances_for_the_same_cluster_do_not_take_turns_in_it(
    working: RegistryFixture, reach: FakeAccess
) -> None:
    made = await imported(working, reach)
    await working.create(VC, "two", spec={"owner": {"user": "bob"}, "config": {"secretName": "theirs"}})
    await eventually(lambda: condition_status(working, VC, "AccessSynced", "two") == ("False", "AccessConflict"))
    assert "delete one of the two" in condition_message(working, VC, "AccessSynced", "two")
    await asyncio.sleep(100)
    assert condition_status(working, VC, "AccessSynced") == ("True", "Synced")
    assert labels(reach.virtual.objects[ADMIN])["service.sh/uid"] == made["metadata"]["uid"]
    await working.delete(VC, "one")
    await eventually(lambda: condition_status(working, VC, "AccessSynced", "two") == ("True", "Synced"))
    assert "bob" in str(reach.virtual.objects[ADMIN]["subjects"])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unreachable("nobody answers"), "Unreachable"),
        (NotConnected("SecretNotFound", "there is no secret; create it"), "SecretNotFound"),
    ],
)
async def test_one_that_cannot_be_reached_waits_and_says_the_way_out(
    working: RegistryFixture, reach: FakeAccess, error: UpstreamError, reason: str
) -> None:
    made = await imported(working, reach)
    reach.virtual_down = error
    await working.delete(VC, "one")
    await eventually(lambda: condition_status(working, VC, "AccessSynced") == ("False", reason))
    assert "service.sh/abandon=true" in condition_message(working, VC, "AccessSynced")
    await eventually(lambda: "service.sh/abandon=true" in str(get_path(working.see(VC, "one"), "status.message")))
    assert get_path(working.see(VC, "one"), "status.reason") == "Deleting"
    await asyncio.sleep(600)
    assert working.see(VC, "one") is not None
    annotate = {"annotations": {"service.sh/abandon": "true"}}
    await working.patch(VC, "one", lambda each: each["metadata"].update(annotate))
    await eventually(lambda: working.see(VC, "one") is None)
    assert ADMIN in reach.virtual.objects
    (text,) = events(working, "Abandoned")
    assert f"kubectl delete clusterrolebindings -l service.sh/uid={made['metadata']['uid']}" in text


async def test_one_that_comes_back_is_cleaned_up_then(working: RegistryFixture, reach: FakeAccess) -> None:
    await imported(working, reach)
    reach.virtual_down = Unreachable("nobody answers")
    await working.delete(VC, "one")
    await eventually(lambda: condition_status(working, VC, "AccessSynced") == ("False", "Unreachable"))
    reach.virtual_down = None
    await eventually(lambda: working.see(VC, "one") is None)
    assert ADMIN not in reach.virtual.objects
    assert events(working, "Abandoned") == []


async def test_a_credential_that_may_not_remove_them_is_said(working: RegistryFixture, reach: FakeAccess) -> None:
    await imported(working, reach)
    reach.virtual.refused["clusterrolebindings"] = 403
    await working.delete(VC, "one")
    await eventually(lambda: condition_status(working, VC, "AccessSynced") == ("False", "Forbidden"))
    assert "may not delete the ClusterRoleBindings" in condition_message(working, VC, "AccessSynced")


@pytest.mark.parametrize("spec", [{"external": True}, {}])
async def test_one_in_which_nothing_was_made_goes_at_once(
    working: RegistryFixture, reach: FakeAccess, spec: Object
) -> None:
    await create_cluster(working)
    await working.create(VC, "one", spec={"owner": {"user": "eve"}, "config": {"secretName": "theirs"}, **spec})
    if spec:
        await ready(working, reach)
    else:
        await eventually(lambda: condition_status(working, VC, "VirtualClusterOnline") == ("False", "Unreachable"))
    await working.delete(VC, "one")
    assert working.see(VC, "one") is None
