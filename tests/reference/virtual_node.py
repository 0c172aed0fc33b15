"""A node of the real cluster, a Fairlead that deploys virtual clusters there, and an ordinary member of two projects.

The chart is the one of `virtual_cluster_chart.py`, with its default values; Helm is `helm` of the folder of binaries,
if it is there. Volumes are folders of this machine: there is no provisioner.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fake_cluster.chart_repository import ChartRepository
from tests.fake_cluster.helm_program import write_helm_program
from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    M,
    build_kubectl,
    connect_cluster,
    create_key,
    create_resource,
    gateway_kubeconfig,
    is_online,
    post_object,
    share_identity,
)
from tests.harness.helm import CHARTS
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, ROOT, Server, running_server, server_environment
from tests.reference.control_plane import ControlPlane
from tests.reference.node import import_image
from tests.reference.virtual_cluster_chart import KUBE_IMAGE, NAME, build_chart, build_image_layer

CLUSTER, TEMPLATE, MEMBER = "real", "own", "mia"
PROJECTS = ("demo", "other")
VOLUMES = 4
READY_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class VirtualNode:
    """`host` is kubectl at the connected cluster itself."""

    server: Server
    admin: httpx.Client
    member: httpx.Client
    repository: ChartRepository
    host: Kubectl
    folder: Path
    member_key: str

    def member_kubectl(self, name: str, project: str = "demo") -> Kubectl:
        """The member's kubectl for a virtual cluster, through the gateway."""
        path = f"/kubernetes/project/{project}/virtualcluster/{name}"
        content = gateway_kubeconfig(self.server, path, self.member_key)
        return build_kubectl(self.host.program, self.folder / f"mia-{project}-{name}", content)

    def run_cli(self, *arguments: str, timeout: float = 300) -> "subprocess.CompletedProcess[str]":
        """Runs the command-line tool, logged in as the member."""
        home = self.folder / "cli"
        if not home.exists():
            home.mkdir()
            login = ("login", self.server.url, "--key", self.member_key, "--ca-file", self.server.ca_file)
            result = self.run_cli(*login)
            assert result.returncode == 0, result.stderr
        variables = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, "-m", "fairlead", *arguments],
            cwd=ROOT,
            env=server_environment() | variables,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def get_instance(self, name: str, project: str = "demo") -> dict[str, Any]:
        answer = self.admin.get(f"{M}/namespaces/service-p-{project}/virtualclusterinstances/{name}")
        found: dict[str, Any] = answer.json() if answer.is_success else {}
        return found

    def wait_until_gone(self, name: str, project: str = "demo") -> None:
        wait_until(lambda: not self.get_instance(name, project), READY_SECONDS)


@contextmanager
def open_virtual_node(plane: ControlPlane, folder: Path) -> Iterator[VirtualNode]:
    folder.mkdir(parents=True, exist_ok=True)
    import_image(plane, KUBE_IMAGE, build_image_layer(plane.binaries))
    host = build_kubectl(plane.binaries / "kubectl", folder / "host", plane.kubeconfig())
    for number in range(VOLUMES):
        _add_volume(host, folder / f"volume-{number}")
    with ChartRepository(folder, (*CHARTS, build_chart())) as repository, pytest.MonkeyPatch.context() as patched:
        _provide_helm(plane.binaries, folder)
        patched.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        patched.setenv("SSL_CERT_FILE", str(repository.ca_file))
        with running_server(folder / "data", chart_repositories=repository.url) as server, server.client() as admin:
            connect_cluster(admin, CLUSTER, plane.kubeconfig().encode())
            wait_until(lambda: is_online(admin, CLUSTER), READY_SECONDS)
            share_identity(admin, CLUSTER)
            key = _create_projects(admin, repository)
            with server.client(key) as member:
                yield VirtualNode(server, admin, member, repository, host, folder, key)
        log = server.log.read_text()
    assert "Traceback" not in log, log


def _provide_helm(binaries: Path, folder: Path) -> None:
    program = binaries / "helm"
    if program.exists():
        (folder / "helm").symlink_to(program)
    else:
        write_helm_program(folder)


def _add_volume(host: Kubectl, folder: Path) -> None:
    folder.mkdir()
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(folder)},
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": folder.name}, "spec": spec}
    host("apply", "-f", "-", body=json.dumps(volume))


def _create_projects(admin: httpx.Client, repository: ChartRepository) -> str:
    """Creates the template, the projects, and their member. Returns the key of the member."""
    chart = {"name": NAME, "repo": repository.url}
    template = {"helmRelease": {"chart": chart}}
    create_resource(admin, "virtualclustertemplates", "VirtualClusterTemplate", TEMPLATE, template=template)
    create_resource(admin, "users", "User", MEMBER, username=MEMBER)
    for project in PROJECTS:
        create_resource(
            admin,
            "projects",
            "Project",
            project,
            allowedClusters=[{"name": CLUSTER}],
            allowedTemplates=[{"kind": "VirtualClusterTemplate", "name": TEMPLATE}],
            members=[{"kind": "User", "name": MEMBER, "clusterRole": "user"}],
        )
        namespace = f"{MANAGEMENT}/api/v1/namespaces/service-p-{project}"
        wait_until(lambda path=namespace: admin.get(path).is_success)  # type: ignore[misc]
    access = [{"users": [MEMBER], "verbs": ["get", "use"]}]
    config = {"chart": {"name": "web", "repoURL": repository.url}, "values": "size: 7\n"}
    create_resource(admin, "apps", "App", "web", config=config, access=access)
    return create_key(admin, MEMBER, MEMBER)


def install_app(node: VirtualNode, name: str, virtual_cluster: str, project: str = "demo") -> None:
    """The member installs the app `web` into a virtual cluster."""
    target = {"virtualClusterInstance": {"name": virtual_cluster, "namespace": "default"}}
    spec = {"appRef": {"name": "web"}, "target": target, "owner": {"user": MEMBER}}
    kind = {"apiVersion": "management.service.sh/v1", "kind": "AppInstance"}
    path = f"{M}/namespaces/service-p-{project}/appinstances"
    post_object(node.member, path, {**kind, "metadata": {"name": name}, "spec": spec})
    wait_until(lambda: read_app(node, name, project).get("phase") == "Ready", READY_SECONDS)


def read_app(node: VirtualNode, name: str, project: str = "demo") -> dict[str, Any]:
    """The status of an app."""
    answer = node.admin.get(f"{M}/namespaces/service-p-{project}/appinstances/{name}")
    found: dict[str, Any] = (answer.json().get("status") or {}) if answer.is_success else {}
    return found
