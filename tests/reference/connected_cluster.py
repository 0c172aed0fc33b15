"""A Fairlead server with the real cluster connected as `real`, and what tests do with both."""

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
)
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, ROOT, Server, running_agent, running_server, server_environment
from tests.reference.control_plane import ADMIN_TOKEN, ControlPlane

CLUSTER = "real"
IMAGE = "localhost/busybox:1"
"""The image that the node has."""


@dataclass(frozen=True, slots=True)
class World:
    """`server` is Fairlead, `plane` the control plane behind it."""

    server: Server
    plane: ControlPlane
    program: Path
    folder: Path

    def direct(self, token: str = ADMIN_TOKEN) -> Kubectl:
        """kubectl at the cluster itself, past Fairlead."""
        return build_kubectl(self.program, self.folder / f"direct-{token}", self.plane.kubeconfig(token))

    def through_gateway(self, key: str = "", name: str = "admin", path: str = "") -> Kubectl:
        """kubectl through Fairlead's gateway, by default to the cluster and with the administrator's key.

        Each name has a home, and so a discovery cache, of its own, which lasts as long as the world."""
        content = gateway_kubeconfig(self.server, path or gateway_path(CLUSTER), key or self.server.key)
        return build_kubectl(self.program, self.folder / f"gateway-{name}", content)

    def management(self, key: str = "", name: str = "admin") -> Kubectl:
        """kubectl at Fairlead's own API."""
        content = gateway_kubeconfig(self.server, MANAGEMENT, key or self.server.key)
        return build_kubectl(self.program, self.folder / f"management-{name}", content)

    def fairlead(self, *arguments: str, timeout: float = 90, **variables: str) -> "subprocess.CompletedProcess[str]":
        """The command-line tool, signed in as the administrator."""
        home = self.folder / "cli"
        if not home.exists():
            home.mkdir()
            signing_in = ("login", self.server.url, "--key", self.server.key, "--ca-file", self.server.ca_file)
            done = self.fairlead(*signing_in)
            assert done.returncode == 0, done.stderr
        own = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "COLUMNS": "200", **variables}
        return subprocess.run(
            [sys.executable, "-m", "fairlead", *arguments],
            cwd=ROOT,
            env=server_environment() | own,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


@contextmanager
def connected_world(plane: ControlPlane, folder: Path, **settings: str | int) -> Iterator[World]:
    """Fairlead with the cluster connected by its administrator's token, and seen to be online."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_server(folder / "data", **settings) as server:
        with server.client() as admin:
            connect_cluster(admin, CLUSTER, plane.kubeconfig().encode())
            wait_until(lambda: is_online(admin, CLUSTER), 30)
        yield World(server, plane, plane.binaries / "kubectl", folder)
        log = server.log.read_text()
    assert "Traceback" not in log, log


@contextmanager
def agent_beside(world: World, folder: Path) -> Iterator[Kubectl]:
    """`fairlead agent` beside the cluster, and kubectl at its direct endpoint with an administrator's direct token."""
    folder.mkdir(parents=True)
    with world.server.client() as admin:
        (folder / "key").write_text(admin.get(f"{M}/clusters/{CLUSTER}/accesskey").json()["accessKey"])
        made = post_object(admin, f"{M}/directclusterendpointtokens", {"spec": {"ttl": 3600}})
    (folder / "kubeconfig").write_text(world.plane.kubeconfig())
    with running_agent(folder, world.server, CLUSTER) as said:
        at_agent = replace(world.server, url=said["url"], ca_file=said["caFile"])
        content = gateway_kubeconfig(at_agent, "/kubernetes/cluster", made["status"]["token"])
        yield build_kubectl(world.program, folder / "home", content)


def seconds_since(began: float) -> float:
    return time.monotonic() - began


def condition(obj: dict[str, Any], type: str) -> dict[str, Any]:
    """A condition of an object, or an empty one."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == type), {})


def run_pod(kubectl: Kubectl, name: str, *command: str) -> None:
    """Returns when the pod runs. What it does with `command` goes on until it is deleted."""
    what = command or ("sleep", "1000000")
    kubectl("run", name, f"--image={IMAGE}", "--image-pull-policy=Never", "--restart=Never", "--command", "--", *what)
    kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=25s")


def is_root() -> bool:
    return os.geteuid() == 0
