"""A node of the real cluster, a Fairlead that deploys virtual clusters there, and an ordinary member of two projects.

Which chart that is, an `Offer` says. Helm is `helm` of the folder of binaries, if it is there. Volumes are folders of
this machine: there is no provisioner.
"""

import json
import os
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fake_cluster.chart_repository import Chart, ChartRepository
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
    merge_patch,
    post_object,
    share_identity,
)
from tests.harness.helm import CHARTS
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, ROOT, Server, running_server, server_environment
from tests.reference.control_plane import ADMIN_TOKEN, ControlPlane
from tests.reference.node import import_image

CLUSTER, MEMBER = "real", "mia"
DEFAULT_TEMPLATE = "default"
ACCOUNT = "fairlead"
VOLUME_SIZE = "10Gi"
PROJECTS = ("demo", "other")
VOLUMES = 4
READY_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Image:
    """`layer`: its file system, as a tar archive."""

    name: str
    layer: bytes = field(repr=False)
    command: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """A chart for virtual clusters, and the template that deploys it: the one of a new server, from the repository of
    the test, or else one without values. With `roles`, the server has a service account with these roles that
    `fairlead cluster role` prints, else an administrator's token."""

    chart: Chart
    template: str
    images: Sequence[Image]
    roles: Sequence[str] = ()


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
def open_virtual_node(plane: ControlPlane, folder: Path, offer: Offer) -> Iterator[VirtualNode]:
    folder.mkdir(parents=True, exist_ok=True)
    for image in offer.images:
        import_image(plane, image.name, image.layer, *image.command)
    host = build_kubectl(plane.binaries / "kubectl", folder / "host", plane.kubeconfig())
    for number in range(VOLUMES):
        _add_volume(host, folder / f"volume-{number}")
    with ChartRepository(folder, (*CHARTS, offer.chart)) as repository, pytest.MonkeyPatch.context() as patched:
        _provide_helm(plane.binaries, folder)
        patched.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        patched.setenv("SSL_CERT_FILE", str(repository.ca_file))
        with running_server(folder / "data", chart_repositories=repository.url) as server, server.client() as admin:
            token = create_account(host, folder, offer.roles) if offer.roles else ADMIN_TOKEN
            connect_cluster(admin, CLUSTER, plane.kubeconfig(token).encode())
            wait_until(lambda: is_online(admin, CLUSTER), READY_SECONDS)
            share_identity(admin, CLUSTER)
            _create_template(admin, repository, offer)
            key = _create_projects(admin, repository, offer.template)
            with server.client(key) as member:
                yield VirtualNode(server, admin, member, repository, host, folder, key)
        log = server.log.read_text()
    assert "Traceback" not in log, log


def create_account(host: Kubectl, folder: Path, roles: Sequence[str]) -> str:
    """Creates the service account that the command line prints for these roles. Returns its token."""
    command = (sys.executable, "-m", "fairlead", "cluster", "role", *roles, "--account", ACCOUNT)
    printed = subprocess.run(command, cwd=ROOT, env=server_environment(), capture_output=True, text=True, check=True)
    (folder / "roles.yaml").write_text(printed.stdout)
    host("apply", "-f", str(folder / "roles.yaml"))

    def read_token() -> str:
        found = host.get_json("-n", "kube-system", "secret", ACCOUNT)
        return b64decode((found.get("data") or {}).get("token", "")).decode()

    return wait_until(read_token, READY_SECONDS)


def _provide_helm(binaries: Path, folder: Path) -> None:
    program = binaries / "helm"
    if program.exists():
        (folder / "helm").symlink_to(program)
    else:
        write_helm_program(folder)


def _add_volume(host: Kubectl, folder: Path) -> None:
    folder.mkdir()
    spec = {
        "capacity": {"storage": VOLUME_SIZE},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(folder)},
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": folder.name}, "spec": spec}
    host("apply", "-f", "-", body=json.dumps(volume))


def _create_template(admin: httpx.Client, repository: ChartRepository, offer: Offer) -> None:
    if offer.template == DEFAULT_TEMPLATE:
        chart = {"repo": repository.url, "version": offer.chart.version}
        spec = {"template": {"helmRelease": {"chart": chart}}}
        merge_patch(admin, f"{M}/virtualclustertemplates/{offer.template}", {"spec": spec})
        return
    template = {"helmRelease": {"chart": {"name": offer.chart.name, "repo": repository.url}}}
    create_resource(admin, "virtualclustertemplates", "VirtualClusterTemplate", offer.template, template=template)


def _create_projects(admin: httpx.Client, repository: ChartRepository, template: str) -> str:
    """Creates the projects, and their member. Returns the key of the member."""
    create_resource(admin, "users", "User", MEMBER, username=MEMBER)
    for project in PROJECTS:
        create_resource(
            admin,
            "projects",
            "Project",
            project,
            allowedClusters=[{"name": CLUSTER}],
            allowedTemplates=[{"kind": "VirtualClusterTemplate", "name": template}],
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
