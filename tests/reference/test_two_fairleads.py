"""Two Fairleads on one real cluster: with the same prefix of user names the second one is blocked, else it is not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    M,
    build_kubectl,
    cluster_status,
    connect_cluster,
    create_user,
    gateway_kubeconfig,
    gateway_path,
    merge_patch,
)
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import Server, running_server
from tests.reference.connected_cluster import CLUSTER, ConnectedCluster, connect_plane, find_condition
from tests.reference.control_plane import ControlPlane

SECONDS = 60.0
READY = ("True", "Healthy")


@pytest.fixture(scope="module")
def first(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectedCluster]:
    """The Fairlead that was there first. In the cluster, `fairlead:bob` may read the namespace `default`."""
    folder = tmp_path_factory.mktemp("two")
    with ControlPlane(binaries, folder / "plane") as plane, connect_plane(plane, folder / "first") as connected:
        direct = connected.direct_kubectl()
        direct("create", "rolebinding", "bob", "-n", "default", "--clusterrole=view", "--user=fairlead:bob")
        yield connected


def bobs_kubectl(first: ConnectedCluster, server: Server, admin: httpx.Client, name: str) -> Kubectl:
    """kubectl of a user `bob` of that server."""
    user = create_user(admin, "bob", CLUSTER, "use")
    content = gateway_kubeconfig(server, gateway_path(CLUSTER), user.key)
    return build_kubectl(first.program, first.folder / name, content)


def ready_condition(admin: httpx.Client) -> tuple[Any, Any]:
    found = find_condition({"status": cluster_status(admin, CLUSTER)}, "Ready")
    return found.get("status"), found.get("reason")


def list_installations(first: ConnectedCluster) -> list[str]:
    found = first.direct_kubectl().get_json("-n", "kube-system", "configmap", "fairlead-identities")
    return sorted(json.loads(text)["prefix"] for text in found["data"].values())


def test_with_the_same_prefix_no_user_of_the_second_reaches_the_cluster(
    first: ConnectedCluster, tmp_path: Path
) -> None:
    with first.server.client() as admin:
        assert bobs_kubectl(first, first.server, admin, "bob-of-first")("get", "configmaps", "-o", "name")
    with running_server(tmp_path / "data") as second, second.client() as admin:
        connect_cluster(admin, CLUSTER, first.plane.kubeconfig().encode())
        wait_until(lambda: ready_condition(admin) == ("False", "IdentityPrefixTaken"), SECONDS)
        bob = bobs_kubectl(first, second, admin, "bob-of-second")
        assert "another Fairlead" in bob.expect_failure("get", "configmaps")
        answer = admin.get(f"{gateway_path(CLUSTER)}/api/v1/namespaces/default/configmaps")
        assert (answer.status_code, "another Fairlead" in answer.text) == (503, True)
        assert find_condition({"status": cluster_status(admin, CLUSTER)}, "AdministratorsBound") == {}

        other = cluster_status(admin, CLUSTER)["identity"]["otherInstallation"]
        annotations = {"service.sh/shared-identity": other}
        merge_patch(admin, f"{M}/clusters/{CLUSTER}", {"metadata": {"annotations": annotations}})
        wait_until(lambda: ready_condition(admin) == READY, SECONDS)
        assert bob("get", "configmaps", "-o", "name")
    assert list_installations(first) == ["fairlead:"]


def test_with_another_prefix_both_work_and_users_are_different(first: ConnectedCluster, tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "data", cluster_identity_prefix="second:") as second,
        second.client() as admin,
    ):
        connect_cluster(admin, CLUSTER, first.plane.kubeconfig().encode())
        wait_until(lambda: ready_condition(admin) == READY, SECONDS)
        assert list_installations(first) == ["fairlead:", "second:"]
        bob = bobs_kubectl(first, second, admin, "bob-with-prefix")
        assert 'User "second:bob" cannot list resource "configmaps"' in bob.expect_failure("get", "configmaps")
        assert admin.delete(f"{M}/clusters/{CLUSTER}").is_success
        wait_until(lambda: list_installations(first) == ["fairlead:"], SECONDS)


def test_the_second_is_usable_when_the_first_has_removed_the_cluster(first: ConnectedCluster, tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as second, second.client() as admin:
        connect_cluster(admin, CLUSTER, first.plane.kubeconfig().encode())
        wait_until(lambda: ready_condition(admin) == ("False", "IdentityPrefixTaken"), SECONDS)
        removed = first.run_cli("cluster", "remove", CLUSTER, "--yes")
        assert removed.returncode == 0, removed.stderr
        wait_until(lambda: ready_condition(admin) == READY, SECONDS)
