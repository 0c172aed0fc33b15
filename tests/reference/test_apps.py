"""Apps are deployed with real Helm, into a real Kubernetes."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.controllers.helm.deployments import CHECK_SECONDS
from tests.harness.apps import (
    check_annotations,
    check_app_lifecycle,
    check_template_releases,
    create_app,
    create_space,
    install_app,
    merge_app,
    read_app,
    uninstall_app,
    wait_until_deployed,
)
from tests.harness.eventually import wait_until
from tests.harness.gateways import gateway_path
from tests.harness.helm import CLUSTER, SECONDS, HelmFixture, open_helm
from tests.harness.server_process import Server
from tests.reference.connected_cluster import DIALLED, IMAGE, ConnectedCluster
from tests.reference.control_plane import ControlPlane


@pytest.fixture(scope="module")
def opened(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HelmFixture, Server]]:
    with open_helm(tmp_path_factory.mktemp("apps"), plane.kubeconfig()) as (fixture, server):
        yield fixture, server
        assert "Traceback" not in server.log.read_text()


@pytest.fixture
def helm(opened: tuple[HelmFixture, Server]) -> HelmFixture:
    return opened[0]


def test_an_app_is_deployed_upgraded_rolled_back_and_uninstalled(helm: HelmFixture) -> None:
    check_app_lifecycle(helm)


def test_the_charts_and_apps_of_a_template_are_deployed(helm: HelmFixture) -> None:
    check_template_releases(helm)


def test_the_annotations_of_an_app_are_on_its_objects(helm: HelmFixture) -> None:
    check_annotations(helm)


def test_twelve_apps_at_once_wait_only_for_each_other(helm: HelmFixture, record_figure: Callable[[str], None]) -> None:
    create_app(helm, "many")
    create_space(helm, "crowded")
    target = {"spaceInstance": {"name": "crowded"}}
    started = time.monotonic()
    install_app(helm, "first", "many", target, version="1.0.0")
    wait_until_deployed(helm, "first", 1)
    alone = time.monotonic() - started
    names = [f"one-of-{number}" for number in range(12)]
    started = time.monotonic()
    for name in names:
        install_app(helm, name, "many", target, version="1.0.0")
    for name in names:
        wait_until_deployed(helm, name, 1)
    together = time.monotonic() - started
    record_figure(f"one app {alone:.1f} s, twelve at once {together:.1f} s, two of a project at a time")
    assert together < 12 * alone + 10
    for name in ("first", *names):
        uninstall_app(helm, name)


def test_a_command_that_waits_ends_with_the_reason_once(
    opened: tuple[HelmFixture, Server], plane: ControlPlane, tmp_path: Path, record_figure: Callable[[str], None]
) -> None:
    helm, server = opened
    manifests = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n"
    create_app(helm, "refused", versions=[], parameters=[], config={"manifests": manifests})
    create_space(helm, "waiting")
    user = ConnectedCluster(server, plane, plane.binaries / "kubectl", tmp_path)
    command = ("app", "install", "refused", "--project", "demo", "--space", "waiting", "--name", "no", "--wait")
    started = time.monotonic()
    result = user.run_cli(*command)
    record_figure(f"exit code {result.returncode} after {time.monotonic() - started:.1f} s")
    assert (result.returncode, result.stdout) == (1, ""), result.stderr
    assert result.stderr.count('ConfigMap "Not_A_Name" is invalid') == 1, result.stderr
    uninstall_app(helm, "no")


def test_a_release_that_another_tool_uninstalled_is_deployed_again(helm: HelmFixture) -> None:
    create_app(helm, "repaired")
    namespace = create_space(helm, "drifting")
    install_app(helm, "fixed", "repaired", {"spaceInstance": {"name": "drifting"}}, version="1.0.0")
    wait_until_deployed(helm, "fixed", 1)
    secrets = f"{gateway_path(CLUSTER)}/api/v1/namespaces/{namespace}/secrets"
    assert helm.admin.delete(secrets, params={"labelSelector": "owner=helm"}).is_success
    wait_until(lambda: "drift" in read_app(helm, "fixed")["status"], 2 * CHECK_SECONDS)
    status = wait_until_deployed(helm, "fixed", 1)
    assert status["drift"]["reason"] == "ReleaseMissing"
    uninstall_app(helm, "fixed")


@pytest.mark.parametrize("connected_node", [DIALLED], indirect=True)
def test_pods_of_an_app_run_and_are_scaled(connected_node: ConnectedCluster, tmp_path: Path) -> None:
    with open_helm(tmp_path / "helm", connected_node.plane.kubeconfig()) as (helm, _):
        chart = {"name": "pods", "repoURL": helm.repository.url}
        values = f"replicas: {{{{ parameters.replicas }}}}\nimage: {IMAGE}\n"
        parameters = [{"variable": "replicas", "type": "number", "defaultValue": "1"}]
        create_app(
            helm, "pods", versions=[], config={"chart": chart, "values": values}, parameters=parameters, wait=True
        )
        namespace = create_space(helm, "busy")
        install_app(helm, "web", "pods", {"spaceInstance": {"name": "busy"}})

        def count_running() -> int:
            pods = helm.remote_object(f"/api/v1/namespaces/{namespace}/pods")["items"]
            return sum(each["status"]["phase"] == "Running" for each in pods)

        wait_until_deployed(helm, "web", 1)
        assert count_running() == 1
        merge_app(helm, "web", parameters="replicas: 2\n")
        wait_until_deployed(helm, "web", 2)
        assert count_running() == 2
        uninstall_app(helm, "web")
        wait_until(lambda: count_running() == 0, SECONDS)
