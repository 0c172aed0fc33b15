"""What others change or delete in a real cluster is put right as soon as the cluster tells of it, and is told."""

import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from tests.harness.eventually import seconds_until, wait_until
from tests.harness.gateways import M, create_resource, merge_patch
from tests.harness.server_process import MANAGEMENT
from tests.reference.connected_cluster import CLUSTER, World, condition
from tests.reference.control_plane import ADMIN_TOKEN

RUNS = 3
OBJECTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting, labels: {mine: stays}}
data: {hello: world}
---
apiVersion: v1
kind: Secret
metadata: {name: sealed}
immutable: true
stringData: {word: one}
"""
PROJECT, NAMESPACE = "drift", "drift-one"
SPACES = f"{M}/namespaces/service-p-{PROJECT}/spaceinstances"


@pytest.fixture(scope="module")
def space(world: World) -> Iterator[Callable[[], dict[str, Any]]]:
    """Reads the space `one` of a project, which is ready."""
    with world.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, owner={"user": "admin"})
        spec = {"owner": {"user": "admin"}, "clusterRef": {"cluster": CLUSTER}, "template": {"objects": OBJECTS}}
        create_resource(admin, f"namespaces/service-p-{PROJECT}/spaceinstances", "SpaceInstance", "one", **spec)

        def read() -> dict[str, Any]:
            found: dict[str, Any] = admin.get(f"{SPACES}/one").raise_for_status().json()
            return found

        wait_until(lambda: condition(read(), "SpaceReady").get("status") == "True", 30, "the space is ready")
        wait_until(lambda: watches_of(world) >= 4, 30, "everything is watched")
        yield read
        admin.delete(f"{SPACES}/one").raise_for_status()
        wait_until(lambda: admin.get(f"{SPACES}/one").status_code == 404, 60, "the space is gone")


def watches_of(world: World) -> int:
    """How many watches with our selector the API server has."""
    metrics = world.direct()("get", "--raw", "/metrics")
    lines = [each for each in metrics.splitlines() if each.startswith("apiserver_longrunning_requests{")]
    wanted = ('resource="namespaces"', 'resource="configmaps"', 'resource="secrets"', 'resource="rolebindings"')
    return sum(1 for each in lines if 'verb="WATCH"' in each and any(part in each for part in wanted))


def events(world: World, reason: str) -> list[str]:
    with world.server.client() as admin:
        found = (
            admin.get(f"{MANAGEMENT}/api/v1/namespaces/service-p-{PROJECT}/events").raise_for_status().json()["items"]
        )
    return [each["message"] for each in found if each["reason"] == reason]


def uid_of(world: World, *what: str) -> str:
    return world.direct()("get", *what, "-o", "jsonpath={.metadata.uid}", "--ignore-not-found")


def has_another_uid(world: World, before: str, *what: str) -> bool:
    return uid_of(world, *what) not in ("", before)


def test_a_deleted_namespace_is_made_again_and_said_to_have_been_lost(
    world: World, space: Callable[[], dict[str, Any]], measured: Callable[[str], None]
) -> None:
    for run in range(RUNS):
        before = uid_of(world, "namespace", NAMESPACE)
        world.direct()("-n", NAMESPACE, "create", "configmap", f"precious-{run}")
        world.direct()("delete", "namespace", NAMESPACE)  # returns when it is gone
        is_back = partial(has_another_uid, world, before, "namespace", NAMESPACE)
        measured(f"namespace back {seconds_until(is_back, 30, 'the namespace is back'):.2f} s after it was gone")
        wait_until(
            partial(has_another_uid, world, "", "-n", NAMESPACE, "configmap", "greeting"), 30, "objects are back"
        )
        wait_until(lambda: condition(space(), "SpaceReady").get("status") == "True", 30, "the space is ready again")
    assert len(events(world, "NamespaceDeleted")) == RUNS
    assert "its former content is lost" in events(world, "NamespaceDeleted")[0]


def test_what_is_deleted_from_a_space_is_made_again(
    world: World, space: Callable[[], dict[str, Any]], measured: Callable[[str], None]
) -> None:
    for what in (("rolebinding", "service.sh:admin"), ("secret", "sealed")) * RUNS:
        before = uid_of(world, "-n", NAMESPACE, *what)
        world.direct()("-n", NAMESPACE, "delete", *what)
        is_back = partial(has_another_uid, world, before, "-n", NAMESPACE, *what)
        measured(f"{what[0]} back after {seconds_until(is_back, 30, 'it is back'):.2f} s")
    wait_until(lambda: len(events(world, "ObjectsRestored")) >= RUNS, 30, "the Events are there")
    assert any("Secret sealed" in each for each in events(world, "ObjectsRestored"))


def test_what_is_changed_is_changed_back_once(
    world: World, space: Callable[[], dict[str, Any]], measured: Callable[[str], None]
) -> None:
    def value() -> str:
        return world.direct()("-n", NAMESPACE, "get", "configmap", "greeting", "-o", "jsonpath={.data.hello}")

    for _ in range(RUNS):
        change = '{"data": {"hello": "moon", "theirs": "stays"}}'
        world.direct()("-n", NAMESPACE, "patch", "configmap", "greeting", "--type=merge", "-p", change)
        measured(f"ConfigMap repaired after {seconds_until(lambda: value() == 'world', 30, 'it is repaired'):.2f} s")
    wait_until(lambda: bool(events(world, "DriftRepaired")), 30, "the Event is there")
    assert "ConfigMap greeting" in events(world, "DriftRepaired")[0]
    theirs = world.direct()("-n", NAMESPACE, "get", "configmap", "greeting", "-o", "jsonpath={.data.theirs}")
    assert theirs == "stays"


def test_a_binding_to_another_role_is_replaced(world: World, space: Callable[[], dict[str, Any]]) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"
    context = ssl.create_default_context(cadata=world.plane.ca_pem)
    headers = {"authorization": f"Bearer {ADMIN_TOKEN}"}
    with httpx.Client(base_url=world.plane.url, verify=context, headers=headers) as direct:
        theirs = direct.get(f"{path}/service.sh:admin").raise_for_status().json()
        theirs["roleRef"]["name"] = "view"
        del theirs["metadata"]["resourceVersion"], theirs["metadata"]["uid"]
        direct.delete(f"{path}/service.sh:admin").raise_for_status()
        replaced = direct.post(path, json=theirs).raise_for_status().json()  # sooner than anybody can repair it
        assert replaced["roleRef"]["name"] == "view"

        def role() -> str:
            found = direct.get(f"{path}/service.sh:admin")
            return str(found.json()["roleRef"]["name"]) if found.is_success else ""

        wait_until(lambda: role() == "admin", 30, "it is ours again")


def test_what_cannot_be_changed_is_said_in_the_words_of_the_cluster_and_left_alone(
    world: World, space: Callable[[], dict[str, Any]]
) -> None:
    with world.server.client() as admin:
        merge_patch(
            admin, f"{SPACES}/one", {"spec": {"template": {"objects": OBJECTS.replace("word: one", "word: two")}}}
        )
        wait_until(lambda: condition(space(), "SpaceSynced").get("reason") == "Invalid", 30, "it is refused")
        assert "field is immutable when `immutable` is set" in condition(space(), "SpaceSynced")["message"]
        assert space()["status"]["phase"] == "Failed"
        merge_patch(admin, f"{SPACES}/one", {"spec": {"template": {"objects": OBJECTS}}})
        wait_until(lambda: condition(space(), "SpaceSynced").get("status") == "True", 30, "it is well again")


def test_a_restarted_api_server_is_followed_again(
    world: World, space: Callable[[], dict[str, Any]], measured: Callable[[str], None]
) -> None:
    before = uid_of(world, "-n", NAMESPACE, "secret", "sealed")
    world.plane.stop_api_server()
    world.plane.start_api_server()
    world.direct()("-n", NAMESPACE, "delete", "secret", "sealed")
    is_back = partial(has_another_uid, world, before, "-n", NAMESPACE, "secret", "sealed")
    measured(f"deleted right after the restart, back after {seconds_until(is_back, 30, 'it is back'):.2f} s")
