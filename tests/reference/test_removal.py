"""A connected cluster is let go: what was made in it goes, what stays is told, and a dead one holds nobody up."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, connect_cluster, create_resource, post_object
from tests.harness.server_process import running_server
from tests.reference.connected_cluster import World, condition
from tests.reference.control_plane import ControlPlane

SECONDS = 30.0
BINDING = "service.sh:admins"
NUMBERS = count(1)


@pytest.fixture(scope="module")
def lone(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A Fairlead that knows no cluster yet."""
    folder = tmp_path_factory.mktemp("removal")
    with running_server(folder / "data") as server:
        yield World(server, plane, plane.binaries / "kubectl", folder)


def cluster(world: World, name: str) -> dict[str, Any]:
    with world.server.client() as admin:
        found: dict[str, Any] = admin.get(f"{M}/clusters/{name}").json()
    return found


def is_gone(world: World, name: str) -> bool:
    with world.server.client() as admin:
        return admin.get(f"{M}/clusters/{name}").status_code == 404


@pytest.fixture
def named(lone: World) -> Iterator[str]:
    """A cluster whose administrators are bound."""
    name = f"leaving-{next(NUMBERS)}"
    with lone.server.client() as admin:
        connect_cluster(admin, name, lone.plane.kubeconfig().encode())
    wait_until(lambda: condition(cluster(lone, name), "AdministratorsBound").get("status") == "True", SECONDS)
    yield name
    lone.fairlead("cluster", "remove", name, "--keep", "--yes")
    lone.direct()("delete", "clusterrolebinding", BINDING, "--ignore-not-found")


def test_the_binding_goes_when_the_object_is_deleted(lone: World, named: str) -> None:
    assert BINDING in lone.direct().get_names("clusterrolebindings")
    lone.management()("delete", "cluster", named, "--timeout=30s")
    assert BINDING not in lone.direct().get_names("clusterrolebindings")


def test_a_binding_that_was_given_to_others_stays(lone: World, named: str) -> None:
    lone.direct()("label", "clusterrolebinding", BINDING, "service.sh/managed=ops", "--overwrite")
    lone.management()("delete", "cluster", named, "--timeout=30s")
    assert BINDING in lone.direct().get_names("clusterrolebindings")


def test_a_cluster_that_does_not_answer_tells_what_its_deletion_waits_for_and_the_way_out(
    lone: World, named: str
) -> None:
    lone.plane.pause_api_server()
    try:
        lone.management()("delete", "cluster", named, "--wait=false")
        wait_until(lambda: condition(cluster(lone, named), "Ready").get("reason") == "Deleting", SECONDS)
        assert "service.sh/abandon=true" in condition(cluster(lone, named), "Ready")["message"]
        let_go = lone.fairlead("cluster", "remove", named, "--keep", "--yes")
        assert let_go.returncode == 0 and "was left in the cluster" in let_go.stderr, let_go.stderr
        assert is_gone(lone, named)
    finally:
        lone.plane.resume_api_server()
    wait_until(lone.plane.is_ready, SECONDS)
    assert BINDING in lone.direct().get_names("clusterrolebindings")


def test_a_cluster_that_comes_back_is_cleaned_up(lone: World, named: str) -> None:
    lone.plane.pause_api_server()
    try:
        lone.management()("delete", "cluster", named, "--wait=false")
        wait_until(lambda: condition(cluster(lone, named), "Ready").get("reason") == "Deleting", SECONDS)
    finally:
        lone.plane.resume_api_server()
    wait_until(lambda: is_gone(lone, named), SECONDS)
    assert BINDING not in lone.direct().get_names("clusterrolebindings")


def test_a_cluster_with_a_space_is_removed_only_on_request_and_its_namespace_is_named(lone: World, named: str) -> None:
    with lone.server.client() as admin:
        create_resource(admin, "projects", "Project", named, owner={"user": "admin"}, allowedClusters=[{"name": named}])
        spaces = f"{M}/namespaces/service-p-{named}/spaceinstances"
        wait_until(lambda: admin.get(spaces).status_code == 200, SECONDS)
        kind = {"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance", "metadata": {"name": "one"}}
        post_object(admin, spaces, {**kind, "spec": {"clusterRef": {"cluster": named}, "template": {}}})
        wait_until(lambda: condition(admin.get(f"{spaces}/one").json(), "SpaceSynced").get("status") == "True", SECONDS)
        namespace = admin.get(f"{spaces}/one").json()["spec"]["clusterRef"]["namespace"]
    refused = lone.fairlead("cluster", "remove", named, "--yes")
    assert refused.returncode == 1 and f"namespace {namespace}" in refused.stderr, refused.stderr
    assert not is_gone(lone, named)
    removed = lone.fairlead("cluster", "remove", named, "--abandon", "--yes")
    assert removed.returncode == 0 and f"namespace {namespace}" in removed.stderr, removed.stderr
    direct = lone.direct()
    assert BINDING not in direct.get_names("clusterrolebindings")
    assert namespace in direct.get_names("namespaces")
    direct("delete", "namespace", namespace)
