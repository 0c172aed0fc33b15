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

import httpx

from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    M,
    build_kubectl,
    connect_cluster,
    create_resource,
    gateway_kubeconfig,
    gateway_path,
    is_online,
    post_object,
    share_identity,
)
from tests.harness.joined_agents import create_join_token, joined_agent
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, ROOT, Server, running_agent, running_server, server_environment
from tests.reference.control_plane import ADMIN_TOKEN, ControlPlane
from tests.reference.dial_out import OUTSIDE, agent_inside

CLUSTER = "real"
DIALLED = "dialled"
LINKS = (DIALLED, "agent")
"""How Fairlead reaches the cluster."""
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
        folder = self.folder / f"direct-{token}"
        return build_kubectl(self._direct_program(), folder, self.plane.kubeconfig(token))

    def gateway_kubectl(self, key: str = "", name: str = "admin", path: str = "") -> Kubectl:
        """kubectl through Fairlead's gateway, by default to the cluster and with the administrator's key.

        Each name has its own home, and so its own discovery cache, for the whole session."""
        content = gateway_kubeconfig(self.server, path or gateway_path(CLUSTER), key or self.server.key)
        return build_kubectl(self.program, self.folder / f"gateway-{name}", content)

    def management_kubectl(self, key: str = "", name: str = "admin") -> Kubectl:
        """kubectl at Fairlead's own API."""
        content = gateway_kubeconfig(self.server, MANAGEMENT, key or self.server.key)
        return build_kubectl(self.program, self.folder / f"management-{name}", content)

    def _direct_program(self) -> Path:
        """kubectl where the API server listens, which may be a network namespace."""
        if not self.plane.enter:
            return self.program
        path = self.folder / "kubectl-inside"
        path.write_text(f'#!/bin/sh\nexec {" ".join(self.plane.enter)} {self.program} "$@"\n')
        path.chmod(0o755)
        return path

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
            _wait_until_online(admin)
        yield ConnectedCluster(server, plane, plane.binaries / "kubectl", folder)
        log = server.log.read_text()
    assert "Traceback" not in log, log


@contextmanager
def join_plane(plane: ControlPlane, folder: Path) -> Iterator[ConnectedCluster]:
    """Runs Fairlead, and an agent of the cluster that dials out to it: Fairlead has no credential of the cluster. The
    agent is in the network namespace of the cluster, if that has one."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_server(folder / "data", tls_names=OUTSIDE) as server:
        with server.client() as admin:
            create_resource(admin, "clusters", "Cluster", CLUSTER, networkPeer=True)
            token = create_join_token(admin, CLUSTER)
            with _run_joined_agent(plane, folder / "agent", server, token):
                _wait_until_online(admin)
                assert "config" not in admin.get(f"{M}/clusters/{CLUSTER}").json()["spec"]
                yield ConnectedCluster(server, plane, plane.binaries / "kubectl", folder)
        log = server.log.read_text()
    assert "Traceback" not in log, log


@contextmanager
def _run_joined_agent(plane: ControlPlane, folder: Path, server: Server, token: str) -> Iterator[None]:
    if plane.network is not None and plane.network.namespace:
        with agent_inside(plane.network, folder, server, plane.kubeconfig(), token):
            yield
    else:
        with joined_agent(folder, server, plane.kubeconfig().encode(), token):
            yield


def _wait_until_online(admin: httpx.Client) -> None:
    wait_until(lambda: is_online(admin, CLUSTER), 30)
    share_identity(admin, CLUSTER)


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
