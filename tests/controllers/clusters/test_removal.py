"""Tests of `fairlead.controllers.clusters.removal`: what is removed from the cluster, and what is left behind."""

import asyncio
from typing import Any

import orjson
import pytest

from fairlead.controllers.clusters.removal import FINALIZER
from fairlead.core.deployed_runners import DEPLOYMENT_FINALIZER
from fairlead.core.objects import Object, metadata
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.clusters import NotConnected
from fairlead.upstream.errors import Unreachable
from tests.controllers.clusters.cluster_fixture import (
    CONFIG,
    FakeUpstream,
    FakeUpstreams,
    cluster_status,
    condition_status,
    connect_cluster,
    list_events,
    server,
    upstreams,
)
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture

__all__ = ["server", "upstreams"]

BINDINGS_PATH = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
BINDING_PATH = f"{BINDINGS_PATH}/service.sh:admins"
ABANDON_ANNOTATION = {"service.sh/abandon": "true"}
ADMIN_GROUP = "fairlead:service:admins"


def build_binding(role: str = "cluster-admin", **labels: str) -> Object:
    """As a real API server returns it."""
    return {
        "kind": "ClusterRoleBinding",
        "metadata": {
            **{"name": "service.sh:admins", "uid": "b-1", "resourceVersion": "7"},
            "labels": labels or {"service.sh/managed": "fairlead"},
        },
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "name": ADMIN_GROUP}],
    }


async def create_bound_cluster(
    api: RegistryFixture, upstreams: FakeUpstreams, name: str = "berlin", uid: str = "u-1"
) -> FakeUpstream:
    """Creates a cluster whose administrators are bound."""
    upstreams.by_name[name] = upstream = FakeUpstream(uid)
    upstream.responses[BINDINGS_PATH] = (201, {})
    await api.create("Cluster", name, spec={"config": CONFIG})
    await eventually(lambda: condition_status(api, "AdministratorsBound", name) == ("True", "Bound"))
    upstream.responses[BINDING_PATH] = (200, build_binding())
    upstream.responses_by_method["DELETE", BINDING_PATH] = (200, {"kind": "Status", "status": "Success"})
    return upstream


def event_message(api: RegistryFixture, reason: str) -> str:
    entries = [api.resource("Event").get_cached("default", name) for name in api.list_names("Event")]
    events = [orjson.loads(entry.body) for entry in entries if entry]
    return next(str(event["message"]) for event in events if event["reason"] == reason)


def is_deleted(api: RegistryFixture, name: str = "berlin") -> bool:
    return api.get("Cluster", name) is None


async def test_only_a_cluster_that_was_reached_gets_a_finalizer(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstreams.by_name["berlin"] = upstream = FakeUpstream()
    upstream.error = Unreachable("no response")
    await server.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: cluster_status(server).get("reason") == "Offline")
    assert "finalizers" not in metadata(server.get("Cluster", "berlin") or {})
    await server.delete("Cluster", "berlin")
    assert is_deleted(server)
    await connect_cluster(server, upstreams, "paris", "u-2")
    assert metadata(server.get("Cluster", "paris") or {})["finalizers"] == [FINALIZER]


async def test_the_finalizer_is_added_before_anything_is_created(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    finalizers: list[Any] = []

    class FinalizerRecorder(FakeUpstream):
        async def send(self, request: Any, *, seconds: float | None = None) -> Any:
            if request.target.startswith(BINDINGS_PATH):
                finalizers.append(metadata(server.get("Cluster", "berlin") or {}).get("finalizers"))
            return await super().send(request, seconds=seconds)

    upstreams.by_name["berlin"] = FinalizerRecorder()
    await server.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: cluster_status(server).get("phase"))
    assert finalizers == [[FINALIZER]] * 2


async def test_the_binding_of_administrators_is_deleted_with_the_cluster(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await create_bound_cluster(server, upstreams)
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server))
    method, target, options = upstream.sent[-1]
    assert (method, target) == ("DELETE", BINDING_PATH)
    assert options["preconditions"] == {"uid": "b-1", "resourceVersion": "7"}
    assert [reason for _, reason in list_events(server)] == ["Connected"]


async def test_subjects_added_by_others_stay_in_the_binding(server: RegistryFixture, upstreams: FakeUpstreams) -> None:
    upstream = await create_bound_cluster(server, upstreams)
    other_subjects = [{"kind": "User", "name": ADMIN_GROUP}, {"kind": "Group", "name": "other:service:admins"}]
    binding = build_binding()
    upstream.responses[BINDING_PATH] = (
        200,
        {**binding, "subjects": [other_subjects[0], *binding["subjects"], other_subjects[1]]},
    )
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server))
    method, target, body = upstream.sent[-1]
    assert (method, target) == ("PUT", BINDING_PATH)
    assert body["subjects"] == other_subjects and body["metadata"]["resourceVersion"] == "7"
    assert "DELETE" not in [method for method, _, _ in upstream.sent]
    assert "it has other subjects than the group fairlead:service:admins" in event_message(server, "LeftBehind")


async def test_a_binding_without_the_group_of_the_server_is_not_written(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await create_bound_cluster(server, upstreams)
    upstream.responses[BINDING_PATH] = (200, {**build_binding(), "subjects": [{"kind": "Group", "name": "ops"}]})
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server))
    assert upstream.sent[-1][:2] == ("GET", BINDING_PATH)


async def test_a_binding_that_changes_concurrently_is_read_again(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await create_bound_cluster(server, upstreams)
    binding = build_binding()
    upstream.responses[BINDING_PATH] = (
        200,
        {**binding, "subjects": [*binding["subjects"], {"kind": "User", "name": "bob"}]},
    )
    upstream.responses_by_method["PUT", BINDING_PATH] = (409, {})
    await server.delete("Cluster", "berlin")
    await eventually(lambda: condition_status(server, "Ready") == ("False", "Deleting"))
    assert "status 409" in cluster_status(server)["message"]
    del upstream.responses_by_method["PUT", BINDING_PATH]
    await eventually(lambda: is_deleted(server), seconds=6)


async def test_a_binding_that_was_already_deleted_does_not_block_the_deletion(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await create_bound_cluster(server, upstreams)
    del upstream.responses[BINDING_PATH]
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server))
    assert list_events(server) == [("Normal", "Connected")]


@pytest.mark.parametrize(
    "changed", [build_binding("view"), build_binding(team="ops"), build_binding(**{"service.sh/managed": "x"})]
)
async def test_a_binding_changed_by_others_is_kept_and_reported(
    server: RegistryFixture, upstreams: FakeUpstreams, changed: Object
) -> None:
    upstream = await create_bound_cluster(server, upstreams)
    upstream.responses[BINDING_PATH] = (200, changed)
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server))
    assert "DELETE" not in [method for method, _, _ in upstream.sent]
    assert "not as this server created it" in event_message(server, "LeftBehind")


async def test_without_a_binding_no_request_is_sent(server: RegistryFixture, upstreams: FakeUpstreams) -> None:
    upstreams.by_name["berlin"] = upstream = FakeUpstream()
    upstream.responses[BINDING_PATH] = (403, {})
    await server.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: condition_status(server, "AdministratorsBound") == ("False", "Forbidden"))
    count, upstream.error = len(upstream.sent), Unreachable("no response")
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server), seconds=1)
    assert len(upstream.sent) == count


async def test_deletion_waits_for_an_unreachable_cluster_and_names_the_abandon_annotation(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await create_bound_cluster(server, upstreams)
    upstream.error = Unreachable("no response")
    await server.delete("Cluster", "berlin")
    await eventually(lambda: condition_status(server, "Ready") == ("False", "Deleting"))
    assert (cluster_status(server)["reason"], cluster_status(server)["online"]) == ("Deleting", False)
    message = cluster_status(server)["message"]
    assert "(Unreachable): no response" in message and "service.sh/abandon=true" in message
    revision = await server.store.revision()
    await asyncio.sleep(300)
    assert await server.store.revision() <= revision + 1
    assert list_events(server).count(("Warning", "DeletionBlocked")) == 1
    upstream.error = None
    await eventually(lambda: is_deleted(server), seconds=6)


@pytest.mark.parametrize(
    ("method", "response", "expected"),
    [
        ("GET", (401, {}), "(Unauthorized)"),
        ("GET", (403, {}), "(Forbidden): the stored credential may not read it"),
        ("DELETE", (403, {}), "(Forbidden): the stored credential may not delete it"),
        ("DELETE", (409, {}), "status 409"),
        ("GET", (200, {"kind": "Odd"}), "status 200"),
        ("GET", (503, {}), "status 503"),
    ],
)
async def test_deletion_waits_for_a_cluster_that_does_not_remove_the_binding(
    server: RegistryFixture, upstreams: FakeUpstreams, method: str, response: tuple[int, Any], expected: str
) -> None:
    upstream = await create_bound_cluster(server, upstreams)
    upstream.responses_by_method[method, BINDING_PATH] = response
    await server.delete("Cluster", "berlin")
    await eventually(lambda: condition_status(server, "Ready") == ("False", "Deleting"))
    assert expected in cluster_status(server)["message"]
    del upstream.responses_by_method[method, BINDING_PATH]
    await eventually(lambda: is_deleted(server), seconds=6)


async def test_deletion_waits_for_a_cluster_that_does_not_respond(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await create_bound_cluster(server, upstreams)
    upstream.is_silent = True
    await server.delete("Cluster", "berlin")
    await eventually(lambda: "(TimedOut)" in cluster_status(server).get("message", ""))


@pytest.mark.parametrize("before_deletion", [True, False])
async def test_the_abandon_annotation_ends_the_wait_and_leaves_the_binding(
    server: RegistryFixture, upstreams: FakeUpstreams, before_deletion: bool
) -> None:
    upstream = await create_bound_cluster(server, upstreams)
    upstream.error = Unreachable("no response")
    if not before_deletion:
        await server.delete("Cluster", "berlin")
        await eventually(lambda: condition_status(server, "Ready") == ("False", "Deleting"))
    await server.patch("Cluster", "berlin", lambda obj: metadata(obj).update(annotations=ABANDON_ANNOTATION))
    if before_deletion:
        await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server), seconds=1)
    assert "DELETE" not in [method for method, _, _ in upstream.sent]
    assert 'ClusterRoleBinding "service.sh:admins" was left in the cluster' in event_message(server, "LeftBehind")


async def test_runners_that_the_server_has_deployed_are_reported(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    await create_bound_cluster(server, upstreams)
    mark = {"finalizers": [DEPLOYMENT_FINALIZER]}
    await server.create("Runner", "here", metadata=mark, spec={"clusterRef": {"cluster": "berlin"}})
    await server.create("Runner", "there", spec={"clusterRef": {"cluster": "berlin"}})
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server))
    assert event_message(server, "LeftBehind").endswith(": runner here (namespace fairlead-runner-here)")


async def set_release(server: RegistryFixture, name: str, namespace: str) -> None:
    status = {"release": {"name": name, "namespace": namespace}}
    await server.patch("AppInstance", name, lambda each: each.update(status=status), server_write_options("status"))


async def test_apps_that_are_deployed_in_the_cluster_are_reported(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    await create_bound_cluster(server, upstreams)
    target = {"cluster": {"name": "berlin", "namespace": "shop"}}
    await server.create("AppInstance", "pending", spec={"appRef": {"name": "web"}, "target": target})
    await server.create("AppInstance", "web", spec={"appRef": {"name": "web"}, "target": target})
    await set_release(server, "web", "shop")
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server))
    assert event_message(server, "LeftBehind").endswith(": app demo/web (namespace shop)")


async def test_apps_that_are_deployed_in_instances_of_the_cluster_are_reported(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    await create_bound_cluster(server, upstreams)
    for name, cluster in (("dev", "berlin"), ("far", "paris")):
        spec = {"clusterRef": {"cluster": cluster, "namespace": f"demo-{name}"}}
        await server.create("SpaceInstance", name, spec=spec)
        target = {"spaceInstance": {"name": name}}
        await server.create("AppInstance", f"web-{name}", spec={"appRef": {"name": "web"}, "target": target})
        await set_release(server, f"web-{name}", f"demo-{name}")
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server))
    left = "space demo/dev (namespace demo-dev), app demo/web-dev (namespace demo-dev)"
    assert event_message(server, "LeftBehind").endswith(f": {left}")


async def test_deletion_does_not_wait_without_a_kubeconfig(server: RegistryFixture, upstreams: FakeUpstreams) -> None:
    await create_bound_cluster(server, upstreams)
    upstreams.by_name["berlin"] = NotConnected("SecretNotFound", "there is no secret")
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server), seconds=1)
    assert "cannot be reached any more: there is no secret" in event_message(server, "LeftBehind")


async def test_the_binding_is_kept_for_another_object_of_the_same_cluster(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await create_bound_cluster(server, upstreams, "older")
    await connect_cluster(server, upstreams, "newer")
    await server.delete("Cluster", "older")
    await eventually(lambda: is_deleted(server, "older"))
    assert "DELETE" not in [method for method, _, _ in upstream.sent]
    assert 'was kept for the Cluster "newer"' in event_message(server, "LeftBehind")


async def test_remaining_instances_are_listed_with_their_namespaces_up_to_a_limit(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    await create_bound_cluster(server, upstreams)
    for number in range(10):
        spec = {"clusterRef": {"cluster": "berlin", "namespace": f"demo-{number}"}}
        await server.create("SpaceInstance", f"s-{number}", spec=spec)
    await server.create("SpaceInstance", "elsewhere", spec={"clusterRef": {"cluster": "paris", "namespace": "x"}})
    await server.delete("Cluster", "berlin")
    await eventually(lambda: is_deleted(server))
    message = event_message(server, "LeftBehind")
    assert "space demo/s-0 (namespace demo-0)" in message
    assert message.endswith("and 2 more") and "elsewhere" not in message
    assert len(message) < 1024
