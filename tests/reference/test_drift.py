"""Changes and deletions by others in a real cluster are repaired on the watch event, and reported as Events."""

import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from tests.harness.eventually import seconds_until, wait_until
from tests.harness.gateways import M, create_resource, merge_patch
from tests.harness.server_process import MANAGEMENT
from tests.reference.connected_cluster import CLUSTER, ConnectedCluster, find_condition
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
def space(connected: ConnectedCluster) -> Iterator[Callable[[], dict[str, Any]]]:
    """Reads the space `one` of a project, which is ready."""
    with connected.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, owner={"user": "admin"})
        spec = {"owner": {"user": "admin"}, "clusterRef": {"cluster": CLUSTER}, "template": {"objects": OBJECTS}}
        create_resource(admin, f"namespaces/service-p-{PROJECT}/spaceinstances", "SpaceInstance", "one", **spec)

        def read() -> dict[str, Any]:
            found: dict[str, Any] = admin.get(f"{SPACES}/one").raise_for_status().json()
            return found

        wait_until(lambda: find_condition(read(), "SpaceReady").get("status") == "True", 30, "the space is ready")
        wait_until(lambda: count_watches(connected) >= 4, 30, "everything is watched")
        yield read
        admin.delete(f"{SPACES}/one").raise_for_status()
        wait_until(lambda: admin.get(f"{SPACES}/one").status_code == 404, 60, "the space is gone")


def count_watches(connected: ConnectedCluster) -> int:
    """The number of watches with our selector at the API server."""
    metrics = connected.direct_kubectl()("get", "--raw", "/metrics")
    lines = [each for each in metrics.splitlines() if each.startswith("apiserver_longrunning_requests{")]
    resources = ('resource="namespaces"', 'resource="configmaps"', 'resource="secrets"', 'resource="rolebindings"')
    return sum(1 for each in lines if 'verb="WATCH"' in each and any(part in each for part in resources))


def list_events(connected: ConnectedCluster, reason: str) -> list[str]:
    with connected.server.client() as admin:
        found = (
            admin.get(f"{MANAGEMENT}/api/v1/namespaces/service-p-{PROJECT}/events").raise_for_status().json()["items"]
        )
    return [each["message"] for each in found if each["reason"] == reason]


def get_uid(connected: ConnectedCluster, *resource: str) -> str:
    return connected.direct_kubectl()("get", *resource, "-o", "jsonpath={.metadata.uid}", "--ignore-not-found")


def has_new_uid(connected: ConnectedCluster, before: str, *resource: str) -> bool:
    return get_uid(connected, *resource) not in ("", before)


def test_a_deleted_namespace_is_created_again_and_its_loss_is_reported(
    connected: ConnectedCluster, space: Callable[[], dict[str, Any]], record_figure: Callable[[str], None]
) -> None:
    for run in range(RUNS):
        before = get_uid(connected, "namespace", NAMESPACE)
        connected.direct_kubectl()("-n", NAMESPACE, "create", "configmap", f"precious-{run}")
        connected.direct_kubectl()("delete", "namespace", NAMESPACE)  # returns after the deletion
        is_back = partial(has_new_uid, connected, before, "namespace", NAMESPACE)
        record_figure(f"namespace back {seconds_until(is_back, 30, 'the namespace is back'):.2f} s after it was gone")
        wait_until(
            partial(has_new_uid, connected, "", "-n", NAMESPACE, "configmap", "greeting"), 30, "objects are back"
        )
        wait_until(
            lambda: find_condition(space(), "SpaceReady").get("status") == "True", 30, "the space is ready again"
        )
    assert len(list_events(connected, "NamespaceDeleted")) == RUNS
    assert "its former content is lost" in list_events(connected, "NamespaceDeleted")[0]


def test_objects_deleted_from_a_space_are_created_again(
    connected: ConnectedCluster, space: Callable[[], dict[str, Any]], record_figure: Callable[[str], None]
) -> None:
    for resource in (("rolebinding", "service.sh:admin"), ("secret", "sealed")) * RUNS:
        before = get_uid(connected, "-n", NAMESPACE, *resource)
        connected.direct_kubectl()("-n", NAMESPACE, "delete", *resource)
        is_back = partial(has_new_uid, connected, before, "-n", NAMESPACE, *resource)
        record_figure(f"{resource[0]} back after {seconds_until(is_back, 30, 'it is back'):.2f} s")
    wait_until(lambda: len(list_events(connected, "ObjectsRestored")) >= RUNS, 30, "the Events are there")
    assert any("Secret sealed" in each for each in list_events(connected, "ObjectsRestored"))


def test_a_changed_object_is_repaired_once(
    connected: ConnectedCluster, space: Callable[[], dict[str, Any]], record_figure: Callable[[str], None]
) -> None:
    def read_value() -> str:
        return connected.direct_kubectl()(
            "-n", NAMESPACE, "get", "configmap", "greeting", "-o", "jsonpath={.data.hello}"
        )

    for _ in range(RUNS):
        change = '{"data": {"hello": "moon", "theirs": "stays"}}'
        connected.direct_kubectl()("-n", NAMESPACE, "patch", "configmap", "greeting", "--type=merge", "-p", change)
        record_figure(
            f"ConfigMap repaired after {seconds_until(lambda: read_value() == 'world', 30, 'it is repaired'):.2f} s"
        )
    wait_until(lambda: bool(list_events(connected, "DriftRepaired")), 30, "the Event is there")
    assert "ConfigMap greeting" in list_events(connected, "DriftRepaired")[0]
    foreign = connected.direct_kubectl()(
        "-n", NAMESPACE, "get", "configmap", "greeting", "-o", "jsonpath={.data.theirs}"
    )
    assert foreign == "stays"


def test_a_binding_to_another_role_is_replaced(
    connected: ConnectedCluster, space: Callable[[], dict[str, Any]]
) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"
    context = ssl.create_default_context(cadata=connected.plane.ca_pem)
    headers = {"authorization": f"Bearer {ADMIN_TOKEN}"}
    with httpx.Client(base_url=connected.plane.url, verify=context, headers=headers) as direct:
        foreign = direct.get(f"{path}/service.sh:admin").raise_for_status().json()
        foreign["roleRef"]["name"] = "view"
        del foreign["metadata"]["resourceVersion"], foreign["metadata"]["uid"]
        direct.delete(f"{path}/service.sh:admin").raise_for_status()
        replaced = direct.post(path, json=foreign).raise_for_status().json()  # before the server can repair it
        assert replaced["roleRef"]["name"] == "view"

        def read_role() -> str:
            found = direct.get(f"{path}/service.sh:admin")
            return str(found.json()["roleRef"]["name"]) if found.is_success else ""

        wait_until(lambda: read_role() == "admin", 30, "it is ours again")


def test_the_error_for_an_immutable_object_is_shown_and_the_object_stays(
    connected: ConnectedCluster, space: Callable[[], dict[str, Any]]
) -> None:
    with connected.server.client() as admin:
        merge_patch(
            admin, f"{SPACES}/one", {"spec": {"template": {"objects": OBJECTS.replace("word: one", "word: two")}}}
        )
        wait_until(lambda: find_condition(space(), "SpaceSynced").get("reason") == "Invalid", 30, "it is refused")
        assert "field is immutable when `immutable` is set" in find_condition(space(), "SpaceSynced")["message"]
        assert space()["status"]["phase"] == "Failed"
        merge_patch(admin, f"{SPACES}/one", {"spec": {"template": {"objects": OBJECTS}}})
        wait_until(lambda: find_condition(space(), "SpaceSynced").get("status") == "True", 30, "it is well again")


def test_a_restarted_api_server_is_watched_again(
    connected: ConnectedCluster, space: Callable[[], dict[str, Any]], record_figure: Callable[[str], None]
) -> None:
    before = get_uid(connected, "-n", NAMESPACE, "secret", "sealed")
    connected.plane.stop_api_server()
    connected.plane.start_api_server()
    connected.direct_kubectl()("-n", NAMESPACE, "delete", "secret", "sealed")
    is_back = partial(has_new_uid, connected, before, "-n", NAMESPACE, "secret", "sealed")
    record_figure(f"deleted right after the restart, back after {seconds_until(is_back, 30, 'it is back'):.2f} s")
