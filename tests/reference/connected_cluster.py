"""A Fairlead server with the real cluster connected as `real`, and clients of both."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    M,
    build_kubectl,
    connect_cluster,
    gateway_kubeconfig,
    gateway_path,
    is_online,
    post_object,
    share_identity,
)
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, ROOT, Server, running_agent, running_server, server_environment
from tests.reference.control_plane import ADMIN_TOKEN, ControlPlane

CLUSTER = "real"
IMAGE = "localhost/busybox:1"
"""The image that the node has."""


@dataclass(frozen=True, slots=True)
class ConnectedCluster:
    """`server` is Fairlead, `plane` the control plane behind it."""

    server: Server
    plane: ControlPlane
    program: Path
    folder: Path

    def direct_kubectl(self, token: str = ADMIN_TOKEN) -> Kubectl:
        """kubectl directly at the cluster, without Fairlead."""
        return build_kubectl(self.program, self.folder / f"direct-{token}", self.plane.kubeconfig(token))

    def gateway_kubectl(self, key: str = "", name: str = "admin", path: str = "") -> Kubectl:
        """kubectl through Fairlead's gateway, by default to the cluster and with the administrator's key.

        Each name has its own home, and so its own discovery cache, for the whole session."""
        content = gateway_kubeconfig(self.server, path or gateway_path(CLUSTER), key or self.server.key)
        return build_kubectl(self.program, self.folder / f"gateway-{name}", content)

    def management_kubectl(self, key: str = "", name: str = "admin") -> Kubectl:
        """kubectl at Fairlead's own API."""
        content = gateway_kubeconfig(self.server, MANAGEMENT, key or self.server.key)
        return build_kubectl(self.program, self.folder / f"management-{name}", content)

    def run_cli(self, *arguments: str, timeout: float = 90, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Runs the command-line tool, logged in as the administrator."""
        home = self.folder / "cli"
        if not home.exists():
            home.mkdir()
            login = ("login", self.server.url, "--key", self.server.key, "--ca-file", self.server.ca_file)
            result = self.run_cli(*login)
            assert result.returncode == 0, result.stderr
        variables_of_cli = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "COLUMNS": "200", **variables}
        return subprocess.run(
            [sys.executable, "-m", "fairlead", *arguments],
            cwd=ROOT,
            env=server_environment() | variables_of_cli,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


@contextmanager
def connect_plane(plane: ControlPlane, folder: Path, **settings: str | int) -> Iterator[ConnectedCluster]:
    """Runs Fairlead with the cluster connected by its administrator's token, and waits until it is online."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_server(folder / "data", **settings) as server:
        with server.client() as admin:
            connect_cluster(admin, CLUSTER, plane.kubeconfig().encode())
            wait_until(lambda: is_online(admin, CLUSTER), 30)
            share_identity(admin, CLUSTER)
        yield ConnectedCluster(server, plane, plane.binaries / "kubectl", folder)
        log = server.log.read_text()
    assert "Traceback" not in log, log


@contextmanager
def run_agent(connected: ConnectedCluster, folder: Path) -> Iterator[Kubectl]:
    """Runs `fairlead agent` for the cluster. Yields kubectl for its direct endpoint."""
    folder.mkdir(parents=True)
    with connected.server.client() as admin:
        (folder / "key").write_text(admin.get(f"{M}/clusters/{CLUSTER}/accesskey").json()["accessKey"])
        token = post_object(admin, f"{M}/directclusterendpointtokens", {"spec": {"ttl": 3600}})
    (folder / "kubeconfig").write_text(connected.plane.kubeconfig())
    with running_agent(folder, connected.server, CLUSTER) as agent:
        agent_server = replace(connected.server, url=agent["url"], ca_file=agent["caFile"])
        content = gateway_kubeconfig(agent_server, "/kubernetes/cluster", token["status"]["token"])
        yield build_kubectl(connected.program, folder / "home", content)


def seconds_since(start: float) -> float:
    return time.monotonic() - start


def find_condition(obj: dict[str, Any], type: str) -> dict[str, Any]:
    """A condition of an object, or an empty dict."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == type), {})


def run_pod(kubectl: Kubectl, name: str, *command: str) -> None:
    """Starts a pod with this command and waits until it is ready."""
    container_command = command or ("sleep", "1000000")
    kubectl(
        "run",
        name,
        f"--image={IMAGE}",
        "--image-pull-policy=Never",
        "--restart=Never",
        "--command",
        "--",
        *container_command,
    )
    kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=25s")


def is_root() -> bool:
    return os.geteuid() == 0
