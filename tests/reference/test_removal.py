"""Removing a connected cluster: what was created is deleted, what remains is named, also for a dead cluster."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, connect_cluster, create_resource, is_online, post_object, share_identity
from tests.harness.server_process import running_server
from tests.reference.connected_cluster import ConnectedCluster, find_condition
from tests.reference.control_plane import ControlPlane

SECONDS = 30.0
BINDING = "service.sh:admins"
NUMBERS = count(1)


@pytest.fixture(scope="module")
def unconnected(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectedCluster]:
    """A Fairlead without clusters."""
    folder = tmp_path_factory.mktemp("removal")
    with running_server(folder / "data") as server:
        yield ConnectedCluster(server, plane, plane.binaries / "kubectl", folder)


def get_cluster(connected: ConnectedCluster, name: str) -> dict[str, Any]:
    with connected.server.client() as admin:
        found: dict[str, Any] = admin.get(f"{M}/clusters/{name}").json()
    return found


def is_gone(connected: ConnectedCluster, name: str) -> bool:
    with connected.server.client() as admin:
        return admin.get(f"{M}/clusters/{name}").status_code == 404


@pytest.fixture
def cluster_name(unconnected: ConnectedCluster) -> Iterator[str]:
    """The name of a cluster whose administrators are bound."""
    name = f"leaving-{next(NUMBERS)}"
    with unconnected.server.client() as admin:
        connect_cluster(admin, name, unconnected.plane.kubeconfig().encode())
        wait_until(lambda: is_online(admin, name), SECONDS)
        share_identity(admin, name)
    wait_until(
        lambda: find_condition(get_cluster(unconnected, name), "AdministratorsBound").get("status") == "True", SECONDS
    )
    yield name
    unconnected.run_cli("cluster", "remove", name, "--keep", "--yes")
    unconnected.direct_kubectl()("delete", "clusterrolebinding", BINDING, "--ignore-not-found")


def test_the_binding_is_deleted_with_the_cluster_object(unconnected: ConnectedCluster, cluster_name: str) -> None:
    assert BINDING in unconnected.direct_kubectl().get_names("clusterrolebindings")
    unconnected.management_kubectl()("delete", "cluster", cluster_name, "--timeout=30s")
    assert BINDING not in unconnected.direct_kubectl().get_names("clusterrolebindings")


def test_a_binding_managed_by_others_stays(unconnected: ConnectedCluster, cluster_name: str) -> None:
    unconnected.direct_kubectl()("label", "clusterrolebinding", BINDING, "service.sh/managed=ops", "--overwrite")
    unconnected.management_kubectl()("delete", "cluster", cluster_name, "--timeout=30s")
    assert BINDING in unconnected.direct_kubectl().get_names("clusterrolebindings")


def test_the_status_of_a_hanging_cluster_says_what_its_deletion_waits_for(
    unconnected: ConnectedCluster, cluster_name: str
) -> None:
    unconnected.plane.pause_api_server()
    try:
        unconnected.management_kubectl()("delete", "cluster", cluster_name, "--wait=false")
        wait_until(
            lambda: find_condition(get_cluster(unconnected, cluster_name), "Ready").get("reason") == "Deleting", SECONDS
        )
        assert "service.sh/abandon=true" in find_condition(get_cluster(unconnected, cluster_name), "Ready")["message"]
        removed = unconnected.run_cli("cluster", "remove", cluster_name, "--keep", "--yes")
        assert removed.returncode == 0 and "was left in the cluster" in removed.stderr, removed.stderr
        assert is_gone(unconnected, cluster_name)
    finally:
        unconnected.plane.resume_api_server()
    wait_until(unconnected.plane.is_ready, SECONDS)
    assert BINDING in unconnected.direct_kubectl().get_names("clusterrolebindings")


def test_a_recovered_cluster_is_cleaned_up(unconnected: ConnectedCluster, cluster_name: str) -> None:
    unconnected.plane.pause_api_server()
    try:
        unconnected.management_kubectl()("delete", "cluster", cluster_name, "--wait=false")
        wait_until(
            lambda: find_condition(get_cluster(unconnected, cluster_name), "Ready").get("reason") == "Deleting", SECONDS
        )
    finally:
        unconnected.plane.resume_api_server()
    wait_until(lambda: is_gone(unconnected, cluster_name), SECONDS)
    assert BINDING not in unconnected.direct_kubectl().get_names("clusterrolebindings")


def test_a_cluster_with_a_space_is_removed_only_with_abandon(unconnected: ConnectedCluster, cluster_name: str) -> None:
    with unconnected.server.client() as admin:
        create_resource(
            admin,
            "projects",
            "Project",
            cluster_name,
            owner={"user": "admin"},
            allowedClusters=[{"name": cluster_name}],
        )
        spaces = f"{M}/namespaces/service-p-{cluster_name}/spaceinstances"
        wait_until(lambda: admin.get(spaces).status_code == 200, SECONDS)
        kind = {"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance", "metadata": {"name": "one"}}
        post_object(admin, spaces, {**kind, "spec": {"clusterRef": {"cluster": cluster_name}, "template": {}}})
        wait_until(
            lambda: find_condition(admin.get(f"{spaces}/one").json(), "SpaceSynced").get("status") == "True", SECONDS
        )
        namespace = admin.get(f"{spaces}/one").json()["spec"]["clusterRef"]["namespace"]
    rejected = unconnected.run_cli("cluster", "remove", cluster_name, "--yes")
    assert rejected.returncode == 1 and f"namespace {namespace}" in rejected.stderr, rejected.stderr
    assert not is_gone(unconnected, cluster_name)
    removed = unconnected.run_cli("cluster", "remove", cluster_name, "--abandon", "--yes")
    assert removed.returncode == 0 and f"namespace {namespace}" in removed.stderr, removed.stderr
    direct = unconnected.direct_kubectl()
    assert BINDING not in direct.get_names("clusterrolebindings")
    assert namespace in direct.get_names("namespaces")
    direct("delete", "namespace", namespace)
