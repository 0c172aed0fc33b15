"""A runner that the server deploys into a real cluster: the image of the project, the permissions that the command line
prints, and a workspace in it.

The node has neither a DNS server nor a provisioner: the Pod template names hosts, and the claim template a class.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, build_kubectl, connect_cluster, create_resource, is_online, merge_patch
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import running_server
from tests.live.image_build import open_podman
from tests.reference.connected_cluster import CLUSTER, find_condition, seconds_since
from tests.reference.control_plane import ControlPlane, Network, free_port
from tests.reference.node import import_archive, import_image, running_node
from tests.reference.virtual_node import create_account
from tests.reference.workspace_cluster import WORKSPACE_IMAGE, build_local_volume
from tests.runner.harness.podman import TOOLS

NAME = NAMESPACE = "fairlead-runner-berlin"
HOST, RUNNER_IMAGE = "fairlead.test", "localhost/fairlead:1"
RUNNER = f"{M}/runners/berlin"
WORKSPACES = f"{M}/namespaces/service-p-web/devpodworkspaceinstances"
SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class RunnerCluster:
    """`admin` is an administrator of Fairlead, `host` kubectl at the connected cluster itself."""

    admin: httpx.Client
    host: Kubectl
    network: Network
    folder: Path

    def add_volume(self, name: str) -> None:
        """A volume whose folder belongs to root, so that only the group that a Pod asks for may write."""
        folder = self.folder / name
        folder.mkdir(mode=0o755)
        self.host("apply", "-f", "-", body=json.dumps(build_local_volume(name, folder)))

    @property
    def pod_spec(self) -> dict[str, Any]:
        services = self.network.services.removesuffix("0/24") + "1"
        aliases = ((self.network.host, HOST), (services, "kubernetes.default.svc"))
        return {"hostAliases": [{"ip": address, "hostnames": [name]} for address, name in aliases]}

    def read_condition(self, type: str) -> tuple[str, str, str]:
        """Its status, reason and message."""
        condition = find_condition(self.admin.get(RUNNER).json(), type)
        return condition.get("status", ""), condition.get("reason", ""), condition.get("message", "")

    def wait_for(self, type: str, status: str, reason: str = "") -> str:
        """Returns the message of the condition."""

        def is_reached() -> bool:
            found = self.read_condition(type)
            return found[0] == status and reason in ("", found[1])

        wait_until(is_reached, SECONDS, what=f"{type} is {status} {reason}")
        return self.read_condition(type)[2]

    def list_pods(self) -> list[dict[str, Any]]:
        """The Pods of the runner that are not being deleted."""
        found = self.host.get_json("pods", "-n", NAMESPACE, "-l", "service.sh/runner=berlin")["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def change_pod(self, **spec: Any) -> None:
        reference = {"podTemplate": {"spec": spec}}
        merge_patch(self.admin, RUNNER, {"spec": {"clusterRef": reference}})


@pytest.fixture(scope="module")
def cluster(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunnerCluster]:
    folder = tmp_path_factory.mktemp("runners")
    archive, port = folder / "fairlead.tar", free_port()
    with open_podman(tmp_path_factory.mktemp("podman"), "amd64") as podman:
        podman.build(RUNNER_IMAGE)
        podman("save", "--quiet", "--format=docker-archive", f"--output={archive}", RUNNER_IMAGE)
    with (
        ControlPlane(binaries, folder / "plane", network=Network()) as plane,
        running_node(plane),
        running_server(
            folder / "data", port=port, public_url=f"https://{HOST}:{port}", runner_image=RUNNER_IMAGE
        ) as server,
        replace(server, url=f"https://127.0.0.1:{port}").client() as admin,  # only Pods know the name
    ):
        import_archive(plane, archive)
        import_image(plane, WORKSPACE_IMAGE, (TOOLS / "workspace-image.tar").read_bytes())
        host = build_kubectl(plane.binaries / "kubectl", folder / "host", plane.kubeconfig())
        connect_cluster(admin, CLUSTER, plane.kubeconfig(create_account(host, folder, ["runners"])).encode())
        wait_until(lambda: is_online(admin, CLUSTER), SECONDS)
        assert plane.network is not None
        yield RunnerCluster(admin, host, plane.network, folder)
    log = server.log.read_text()
    assert "Traceback" not in log, log


@pytest.mark.timeout(900)  # the first run makes the bases of the image
def test_a_runner_is_deployed_runs_a_workspace_and_is_removed(
    cluster: RunnerCluster, record_figure: Callable[[str], None]
) -> None:
    admin, host = cluster.admin, cluster.host
    cluster.add_volume("state")
    began = time.monotonic()
    pod = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "x"}}, "spec": cluster.pod_spec}
    claim = {"spec": {"storageClassName": "local"}}
    reference = {"cluster": CLUSTER, "podTemplate": pod, "persistentVolumeClaimTemplate": claim}
    create_resource(admin, "runners", "Runner", "berlin", clusterRef=reference)
    assert cluster.wait_for("Deployed", "True").startswith(f'Deployment "{NAME}" runs in namespace "{NAMESPACE}"')
    cluster.wait_for("Ready", "True")
    deployed = seconds_since(began)
    (found,) = cluster.list_pods()
    assert found["metadata"]["labels"]["team"] == "a" and found["metadata"]["annotations"]["note"] == "x"
    assert found["spec"]["hostAliases"] == cluster.pod_spec["hostAliases"]
    assert found["spec"]["containers"][0]["image"] == RUNNER_IMAGE
    assert host.get_json("namespace", NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]

    cluster.add_volume("desk")
    began = time.monotonic()
    create_workspace(admin)
    wait_until(lambda: is_ready(admin), SECONDS, what="the workspace is Ready")
    started = seconds_since(began)
    assert sorted(list_containers(host)) == [RUNNER_IMAGE, WORKSPACE_IMAGE]
    refused = admin.delete(RUNNER)
    assert refused.status_code == 409 and "service-p-web/desk is on it" in refused.json()["message"], refused.text

    host("delete", "deployment", NAME, "-n", NAMESPACE)
    began = time.monotonic()
    wait_until(lambda: host.run("get", "deployment", NAME, "-n", NAMESPACE).returncode == 0, SECONDS)
    cluster.wait_for("Deployed", "True")
    restored = seconds_since(began)
    wait_until(lambda: is_ready(admin), SECONDS, what="the workspace is Ready, as before")

    assert admin.delete(f"{WORKSPACES}/desk").status_code in (200, 202)
    wait_until(lambda: admin.get(f"{WORKSPACES}/desk").status_code == 404, SECONDS, what="the workspace is gone")
    assert list_containers(host) == [RUNNER_IMAGE]
    began = time.monotonic()
    assert admin.delete(RUNNER).status_code in (200, 202)
    wait_until(lambda: admin.get(RUNNER).status_code == 404, SECONDS, what="the Runner is gone")
    assert "NotFound" in host.expect_failure("get", "namespace", NAMESPACE)
    removed = seconds_since(began)
    record_figure(
        f"Ready {deployed:.1f} s, workspace {started:.1f} s, restored {restored:.1f} s, removed {removed:.1f} s"
    )


@pytest.mark.timeout(900)
def test_what_keeps_its_pod_from_running_is_said(cluster: RunnerCluster) -> None:
    cluster.add_volume("second")
    claim = {"spec": {"storageClassName": "local"}}
    template = {"spec": {**cluster.pod_spec, "nodeSelector": {"disk": "none"}}}
    reference = {"cluster": CLUSTER, "podTemplate": template, "persistentVolumeClaimTemplate": claim}
    create_resource(cluster.admin, "runners", "Runner", "berlin", clusterRef=reference)
    assert "node affinity/selector" in cluster.wait_for("Deployed", "False", "PodNotScheduled")
    cluster.change_pod(nodeSelector=None, volumes=[{"name": "etc", "hostPath": {"path": "/etc"}}])
    assert "violates PodSecurity" in cluster.wait_for("Deployed", "False", "PodNotCreated")
    cluster.change_pod(volumes=None, image="localhost/missing:1")
    assert "localhost/missing:1" in cluster.wait_for("Deployed", "False", "PodNotStarted")
    cluster.change_pod(image=None, env=[{"name": "NOTE", "value": "changed"}])
    cluster.wait_for("Deployed", "True")
    cluster.wait_for("Ready", "True")
    (pod,) = cluster.list_pods()
    assert {"name": "NOTE", "value": "changed"} in pod["spec"]["containers"][0]["env"]
    assert cluster.admin.delete(RUNNER).status_code in (200, 202)
    wait_until(lambda: cluster.admin.get(RUNNER).status_code == 404, SECONDS, what="the Runner is gone")


def create_workspace(admin: httpx.Client) -> None:
    options = {"image": WORKSPACE_IMAGE, "imagePullPolicy": "Never", "storageClass": "local", "storage": "1Gi"}
    options |= {"memory": "256Mi", "cpus": "1"}
    provider = {"name": "kubernetes", "options": {each: {"value": value} for each, value in options.items()}}
    template = {"provider": provider}
    create_resource(admin, "devpodworkspacetemplates", "DevPodWorkspaceTemplate", "desk", template=template)
    create_resource(admin, "projects", "Project", "web")
    path = "namespaces/service-p-web/devpodworkspaceinstances"
    references = {"runnerRef": {"runner": "berlin"}, "templateRef": {"name": "desk"}}
    create_resource(admin, path, "DevPodWorkspaceInstance", "desk", **references)
    wait_until(lambda: admin.get(f"{WORKSPACES}/desk/tasks").status_code == 200, SECONDS, what="the runner has it")
    body = {"spec": {"options": json.dumps({"source": f"image:{WORKSPACE_IMAGE}"})}}
    assert admin.post(f"{WORKSPACES}/desk/up", json=body).status_code == 201


def is_ready(admin: httpx.Client) -> bool:
    """Whether the container of the workspace runs."""
    workspace = admin.get(f"{WORKSPACES}/desk").json()
    assert (workspace.get("status") or {}).get("phase") != "Failed", workspace
    return bool(find_condition(workspace, "Ready").get("status") == "True")


def list_containers(host: Kubectl) -> list[str]:
    """The images of the containers in the namespace of the runner."""
    pods = host.get_json("pods", "-n", NAMESPACE)["items"]
    return [container["image"] for pod in pods for container in pod["spec"]["containers"]]
