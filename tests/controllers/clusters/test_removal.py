"""A deleted Cluster takes along what was made for it in the cluster, tells what stays, and never waits silently."""

import asyncio
from typing import Any

import orjson
import pytest

from fairlead.controllers.clusters.removal import FINALIZER
from fairlead.core.objects import Object, metadata
from fairlead.upstream.clusters import NotConnected
from fairlead.upstream.errors import Unreachable
from tests.controllers.clusters.cluster_fixture import (
    CONFIG,
    Far,
    Reach,
    connect,
    events,
    reach,
    state,
    status,
    working,
)
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture

__all__ = ["reach", "working"]

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
BINDING = f"{BINDINGS}/service.sh:admins"
ABANDON = {"service.sh/abandon": "true"}


GROUP = "fairlead:service:admins"


def binding(role: str = "cluster-admin", **labels: str) -> Object:
    """As a real server shows it."""
    return {
        "kind": "ClusterRoleBinding",
        "metadata": {
            **{"name": "service.sh:admins", "uid": "b-1", "resourceVersion": "7"},
            "labels": labels or {"service.sh/managed": "fairlead"},
        },
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "name": GROUP}],
    }


async def bound(api: RegistryFixture, reach: Reach, name: str = "berlin", uid: str = "u-1") -> Far:
    """A cluster whose administrators are bound."""
    reach.far[name] = far = Far(uid)
    far.answers[BINDINGS] = (201, {})
    await api.create("Cluster", name, spec={"config": CONFIG})
    await eventually(lambda: state(api, "AdministratorsBound", name) == ("True", "Bound"))
    far.answers[BINDING] = (200, binding())
    far.by_method["DELETE", BINDING] = (200, {"kind": "Status", "status": "Success"})
    return far


def message(api: RegistryFixture, reason: str) -> str:
    found = [api.of("Event").get_cached("default", name) for name in api.names("Event")]
    told = [orjson.loads(entry.body) for entry in found if entry]
    return next(str(each["message"]) for each in told if each["reason"] == reason)


def is_gone(api: RegistryFixture, name: str = "berlin") -> bool:
    return api.see("Cluster", name) is None


async def test_only_a_cluster_that_was_reached_is_held(working: RegistryFixture, reach: Reach) -> None:
    reach.far["berlin"] = far = Far()
    far.error = Unreachable("nobody there")
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: status(working).get("reason") == "Offline")
    assert "finalizers" not in metadata(working.see("Cluster", "berlin") or {})
    await working.delete("Cluster", "berlin")
    assert is_gone(working)
    await connect(working, reach, "paris", "u-2")
    assert metadata(working.see("Cluster", "paris") or {})["finalizers"] == [FINALIZER]


async def test_the_finalizer_is_there_before_anything_is_made(working: RegistryFixture, reach: Reach) -> None:
    held: list[Any] = []

    class Watchful(Far):
        async def send(self, request: Any, *, seconds: float | None = None) -> Any:
            if request.target.startswith(BINDINGS):
                held.append(metadata(working.see("Cluster", "berlin") or {}).get("finalizers"))
            return await super().send(request, seconds=seconds)

    reach.far["berlin"] = Watchful()
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: status(working).get("phase"))
    assert held == [[FINALIZER]] * 2


async def test_the_binding_of_administrators_goes_with_the_cluster(working: RegistryFixture, reach: Reach) -> None:
    far = await bound(working, reach)
    await working.delete("Cluster", "berlin")
    await eventually(lambda: is_gone(working))
    method, target, options = far.sent[-1]
    assert (method, target) == ("DELETE", BINDING)
    assert options["preconditions"] == {"uid": "b-1", "resourceVersion": "7"}
    assert [reason for _, reason in events(working)] == ["Connected"]


async def test_subjects_that_others_have_added_stay_bound(working: RegistryFixture, reach: Reach) -> None:
    far = await bound(working, reach)
    others = [{"kind": "User", "name": GROUP}, {"kind": "Group", "name": "other:service:admins"}]
    found = binding()
    far.answers[BINDING] = (200, {**found, "subjects": [others[0], *found["subjects"], others[1]]})
    await working.delete("Cluster", "berlin")
    await eventually(lambda: is_gone(working))
    method, target, body = far.sent[-1]
    assert (method, target) == ("PUT", BINDING)
    assert body["subjects"] == others and body["metadata"]["resourceVersion"] == "7"
    assert "DELETE" not in [method for method, _, _ in far.sent]
    assert "it has other subjects than the group fairlead:service:admins" in message(working, "LeftBehind")


async def test_a_binding_of_others_alone_is_not_written(working: RegistryFixture, reach: Reach) -> None:
    far = await bound(working, reach)
    far.answers[BINDING] = (200, {**binding(), "subjects": [{"kind": "Group", "name": "ops"}]})
    await working.delete("Cluster", "berlin")
    await eventually(lambda: is_gone(working))
    assert far.sent[-1][:2] == ("GET", BINDING)


async def test_a_binding_that_changes_before_the_group_is_taken_out_is_read_again(
    working: RegistryFixture, reach: Reach
) -> None:
    far = await bound(working, reach)
    found = binding()
    far.answers[BINDING] = (200, {**found, "subjects": [*found["subjects"], {"kind": "User", "name": "bob"}]})
    far.by_method["PUT", BINDING] = (409, {})
    await working.delete("Cluster", "berlin")
    await eventually(lambda: state(working, "Ready") == ("False", "Deleting"))
    assert "status 409" in status(working)["message"]
    del far.by_method["PUT", BINDING]
    await eventually(lambda: is_gone(working), seconds=6)


async def test_a_binding_that_is_gone_already_is_no_obstacle(working: RegistryFixture, reach: Reach) -> None:
    far = await bound(working, reach)
    del far.answers[BINDING]
    await working.delete("Cluster", "berlin")
    await eventually(lambda: is_gone(working))
    assert events(working) == [("Normal", "Connected")]


@pytest.mark.parametrize("changed", [binding("view"), binding(team="ops"), binding(**{"service.sh/managed": "x"})])
async def test_a_binding_that_others_have_changed_stays_and_is_told(
    working: RegistryFixture, reach: Reach, changed: Object
) -> None:
    far = await bound(working, reach)
    far.answers[BINDING] = (200, changed)
    await working.delete("Cluster", "berlin")
    await eventually(lambda: is_gone(working))
    assert "DELETE" not in [method for method, _, _ in far.sent]
    assert "not as this server created it" in message(working, "LeftBehind")


async def test_where_nothing_was_bound_nothing_is_asked(working: RegistryFixture, reach: Reach) -> None:
    reach.far["berlin"] = far = Far()
    far.answers[BINDING] = (403, {})
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: state(working, "AdministratorsBound") == ("False", "Forbidden"))
    count, far.error = len(far.sent), Unreachable("nobody there")
    await working.delete("Cluster", "berlin")
    await eventually(lambda: is_gone(working), seconds=1)
    assert len(far.sent) == count


async def test_a_cluster_out_of_reach_is_waited_for_and_that_is_told_with_the_way_out(
    working: RegistryFixture, reach: Reach
) -> None:
    far = await bound(working, reach)
    far.error = Unreachable("nobody there")
    await working.delete("Cluster", "berlin")
    await eventually(lambda: state(working, "Ready") == ("False", "Deleting"))
    assert (status(working)["reason"], status(working)["online"]) == ("Deleting", False)
    told = status(working)["message"]
    assert "(Unreachable): nobody there" in told and "service.sh/abandon=true" in told
    revision = await working.store.revision()
    await asyncio.sleep(300)
    assert await working.store.revision() <= revision + 1
    assert events(working).count(("Warning", "DeletionBlocked")) == 1
    far.error = None
    await eventually(lambda: is_gone(working), seconds=6)


@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        ("GET", (401, {}), "(Unauthorized)"),
        ("GET", (403, {}), "(Forbidden): the stored credential may not read it"),
        ("DELETE", (403, {}), "(Forbidden): the stored credential may not delete it"),
        ("DELETE", (409, {}), "status 409"),
        ("GET", (200, {"kind": "Odd"}), "status 200"),
        ("GET", (503, {}), "status 503"),
    ],
)
async def test_a_cluster_that_does_not_remove_the_binding_is_waited_for(
    working: RegistryFixture, reach: Reach, method: str, answer: tuple[int, Any], said: str
) -> None:
    far = await bound(working, reach)
    far.by_method[method, BINDING] = answer
    await working.delete("Cluster", "berlin")
    await eventually(lambda: state(working, "Ready") == ("False", "Deleting"))
    assert said in status(working)["message"]
    del far.by_method[method, BINDING]
    await eventually(lambda: is_gone(working), seconds=6)


async def test_a_silent_cluster_is_waited_for(working: RegistryFixture, reach: Reach) -> None:
    far = await bound(working, reach)
    far.silent = True
    await working.delete("Cluster", "berlin")
    await eventually(lambda: "(TimedOut)" in status(working).get("message", ""))


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_annotation_lets_the_cluster_go_and_leaves_the_binding(
    working: RegistryFixture, reach: Reach, at_once: bool
) -> None:
    far = await bound(working, reach)
    far.error = Unreachable("nobody there")
    if not at_once:
        await working.delete("Cluster", "berlin")
        await eventually(lambda: state(working, "Ready") == ("False", "Deleting"))
    await working.patch("Cluster", "berlin", lambda each: metadata(each).update(annotations=ABANDON))
    if at_once:
        await working.delete("Cluster", "berlin")
    await eventually(lambda: is_gone(working), seconds=1)
    assert "DELETE" not in [method for method, _, _ in far.sent]
    assert 'ClusterRoleBinding "service.sh:admins" was left in the cluster' in message(working, "LeftBehind")


async def test_without_a_kubeconfig_there_is_nothing_to_wait_for(working: RegistryFixture, reach: Reach) -> None:
    await bound(working, reach)
    reach.far["berlin"] = NotConnected("SecretNotFound", "there is no secret")
    await working.delete("Cluster", "berlin")
    await eventually(lambda: is_gone(working), seconds=1)
    assert "cannot be reached any more: there is no secret" in message(working, "LeftBehind")


async def test_the_binding_stays_for_another_cluster_object_of_the_same_cluster(
    working: RegistryFixture, reach: Reach
) -> None:
    far = await bound(working, reach, "elder")
    await connect(working, reach, "younger")
    await working.delete("Cluster", "elder")
    await eventually(lambda: is_gone(working, "elder"))
    assert "DELETE" not in [method for method, _, _ in far.sent]
    assert 'was kept for the Cluster "younger"' in message(working, "LeftBehind")


async def test_instances_that_stay_are_told_with_their_namespaces_and_not_too_many(
    working: RegistryFixture, reach: Reach
) -> None:
    await bound(working, reach)
    for number in range(10):
        spec = {"clusterRef": {"cluster": "berlin", "namespace": f"demo-{number}"}}
        await working.create("SpaceInstance", f"s-{number}", spec=spec)
    await working.create("SpaceInstance", "elsewhere", spec={"clusterRef": {"cluster": "paris", "namespace": "x"}})
    await working.delete("Cluster", "berlin")
    await eventually(lambda: is_gone(working))
    told = message(working, "LeftBehind")
    assert "space demo/s-0 (namespace demo-0)" in told
    assert told.endswith("and 2 more") and "elsewhere" not in told
    assert len(told) < 1024
