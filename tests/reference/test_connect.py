"""A real cluster is connected with the command-line tool, looked at, entered and let go again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.kubectl import Kubectl
from tests.harness.server_process import running_server
from tests.reference.connected_cluster import World
from tests.reference.control_plane import ControlPlane


@pytest.fixture(scope="module")
def lone(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A Fairlead that knows no cluster yet, and a control plane that no other Fairlead uses: removing a cluster removes
    the binding of its administrators."""
    folder = tmp_path_factory.mktemp("lone")
    with ControlPlane(binaries, tmp_path_factory.mktemp("plane")) as plane, running_server(folder / "data") as server:
        yield World(server, plane, plane.binaries / "kubectl", folder)


def test_a_cluster_is_added_checked_entered_and_removed(lone: World, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(lone.plane.kubeconfig())
    added = lone.fairlead("cluster", "add", "fresh", "--kubeconfig", str(tmp_path / "config"))
    assert added.returncode == 0 and "connected" in added.stdout + added.stderr, added.stderr
    checked = lone.fairlead("cluster", "check", "fresh")
    assert checked.returncode == 0 and "v1." in checked.stdout, checked.stdout
    written = lone.fairlead("kubeconfig", "--cluster", "fresh", "--embed", "--output", str(tmp_path / "people"))
    assert written.returncode == 0, written.stderr
    kubectl = Kubectl(lone.program, tmp_path / "people", tmp_path)
    assert "kube-system" in kubectl.get_names("namespaces")
    removed = lone.fairlead("cluster", "remove", "fresh", "--yes")
    assert removed.returncode == 0, removed.stderr
    bindings = lone.direct().get_names("clusterrolebindings", "-l", "service.sh/managed=fairlead")
    assert bindings == []


def test_a_token_of_somebody_without_rights_is_told_which_are_missing(lone: World, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(lone.plane.kubeconfig("alice-token"))
    added = lone.fairlead("cluster", "add", "alices", "--kubeconfig", str(tmp_path / "config"))
    assert added.returncode != 0
    assert "impersonate" in added.stdout + added.stderr
