"""What is left in a real cluster that was removed is never reported as uninstalled or deleted."""

from pathlib import Path

from tests.harness.apps import create_app, create_space, install_app, wait_until_deployed
from tests.harness.helm import CLUSTER, open_helm
from tests.reference.connected_cluster import ConnectedCluster
from tests.reference.control_plane import ControlPlane


def test_apps_and_spaces_in_a_removed_cluster_are_named(plane: ControlPlane, tmp_path: Path) -> None:
    with open_helm(tmp_path / "helm", plane.kubeconfig()) as (helm, server):
        connected = ConnectedCluster(server, plane, plane.binaries / "kubectl", tmp_path)
        create_app(helm, "orphan")
        namespace = create_space(helm, "den")
        install_app(helm, "one", "orphan", {"cluster": {"name": CLUSTER, "namespace": "left"}}, version="1.0.0")
        install_app(helm, "two", "orphan", {"spaceInstance": {"name": "den"}}, version="1.0.0")
        for name in ("one", "two"):
            wait_until_deployed(helm, name, 1)

        refused = connected.run_cli("cluster", "remove", CLUSTER, "--yes")
        assert refused.returncode == 1
        for line in (f"space den of the project demo: namespace {namespace}", "app one", "app two"):
            assert line in refused.stderr
        removed = connected.run_cli("cluster", "remove", CLUSTER, "--abandon", "--yes")
        assert removed.returncode == 0, removed.stderr
        assert "app service-p-demo/two" in removed.stderr

        deleted = connected.run_cli("space", "delete", "den", "--project", "demo", "--yes")
        assert (deleted.returncode, "was not deleted" in deleted.stderr) == (1, True), deleted.stderr
        for name in ("one", "two"):
            uninstalled = connected.run_cli("app", "uninstall", name, "--project", "demo", "--yes")
            assert (uninstalled.returncode, "was not uninstalled" in uninstalled.stderr) == (1, True)
            assert "is uninstalled" not in uninstalled.stderr
        direct = connected.direct_kubectl()
        for place, name in (("left", "one"), (namespace, "two")):
            assert direct("get", "configmap", f"{name}-settings", "-n", place, "-o", "name")
            direct("delete", "namespace", place, "--wait=false")
