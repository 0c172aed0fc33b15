"""A real cluster is connected, checked, used and removed with the command-line tool."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.kubectl import Kubectl
from tests.harness.server_process import running_server
from tests.reference.connected_cluster import ConnectedCluster
from tests.reference.control_plane import ControlPlane


@pytest.fixture(scope="module")
def unconnected(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectedCluster]:
    """A Fairlead without clusters, and a control plane that no other Fairlead uses: removing a cluster removes
    the binding of its administrators."""
    folder = tmp_path_factory.mktemp("lone")
    with ControlPlane(binaries, tmp_path_factory.mktemp("plane")) as plane, running_server(folder / "data") as server:
        yield ConnectedCluster(server, plane, plane.binaries / "kubectl", folder)


def test_a_cluster_is_added_checked_used_and_removed(unconnected: ConnectedCluster, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(unconnected.plane.kubeconfig())
    added = unconnected.run_cli("cluster", "add", "fresh", "--kubeconfig", str(tmp_path / "config"))
    assert added.returncode == 0 and "connected" in added.stdout + added.stderr, added.stderr
    checked = unconnected.run_cli("cluster", "check", "fresh")
    assert checked.returncode == 0 and "v1." in checked.stdout, checked.stdout
    written = unconnected.run_cli("kubeconfig", "--cluster", "fresh", "--embed", "--output", str(tmp_path / "people"))
    assert written.returncode == 0, written.stderr
    kubectl = Kubectl(unconnected.program, tmp_path / "people", tmp_path)
    assert "kube-system" in kubectl.get_names("namespaces")
    removed = unconnected.run_cli("cluster", "remove", "fresh", "--yes")
    assert removed.returncode == 0, removed.stderr
    bindings = unconnected.direct_kubectl().get_names("clusterrolebindings", "-l", "service.sh/managed=fairlead")
    assert bindings == []


def test_the_error_for_a_token_without_permissions_names_the_missing_ones(
    unconnected: ConnectedCluster, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(unconnected.plane.kubeconfig("alice-token"))
    added = unconnected.run_cli("cluster", "add", "alices", "--kubeconfig", str(tmp_path / "config"))
    assert added.returncode != 0
    assert "impersonate" in added.stdout + added.stderr
