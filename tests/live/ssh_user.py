"""A user with ssh, a real server and runner, and two real containers: one whose image has sshd, and one without."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from fairlead.runner.engines.devcontainer.grant import CONTAINER
from tests.harness.eventually import wait_until
from tests.harness.server_process import ROOT, Server, running_server, server_environment
from tests.live.runner_process import running_runner
from tests.live.workspace_setup import WORKSPACE, create_object
from tests.runner.harness.podman import IMAGE, Containers, open_containers
from tests.runner.harness.real_engine import ENGINE, describe_containers

WORKSPACES = WORKSPACE.removesuffix("/dev")
WAIT_SECONDS = 60
CONFIGURATION = {"image": IMAGE, "remoteUser": "dev", "containerEnv": {"GREETING": "hello world"}}
WITH_SSHD, WITHOUT_SSHD = "dev", "bare"


@dataclass(frozen=True, slots=True)
class SshUser:
    """A user with a configuration of ssh that `fairlead workspace ssh-config` has written."""

    server: Server
    admin: httpx.Client
    containers: Containers
    home: Path
    uids: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        server = {"FAIRLEAD_URL": self.server.url, "FAIRLEAD_KEY": self.server.key}
        folders = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config")}
        return {**server_environment(), **server, "FAIRLEAD_CA_FILE": self.server.ca_file, **folders, "TERM": "xterm"}

    @property
    def folder(self) -> Path:
        return self.home / "config/fairlead/ssh"

    def start(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """ssh does not look at HOME, so it gets the path of its configuration."""
        flags = () if program == sys.executable else ("-F", str(self.home / ".ssh/config"))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([program, *flags, *arguments], env=self.environment, cwd=ROOT, **pipes)  # type: ignore[call-overload,no-any-return]

    def run(self, program: str, *arguments: str, input: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        process = self.start(program, *arguments)
        try:
            output, errors = process.communicate(input, timeout=WAIT_SECONDS)
        finally:
            process.kill()
        return subprocess.CompletedProcess([program, *arguments], process.returncode, output, errors)

    def fairlead(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return self.run(sys.executable, "-m", "fairlead", "workspace", *arguments)

    def list_processes(self, name: str) -> str:
        return self.containers.podman(self.uids[name], "exec", CONTAINER, "ps", "-eo", "args")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshUser]:
    folder = tmp_path_factory.mktemp("ssh")
    with (
        open_containers() as containers,
        running_server(folder / "data") as server,
        server.client() as admin,
        running_runner(server, admin, containers.folder / "runner", ENGINE, describe_containers(containers)),
    ):
        url = containers.commit("demo", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
        uids = {name: start_workspace(admin, name, f"git:{url}") for name in (WITH_SSHD, WITHOUT_SSHD)}
        running = dict.fromkeys(uids, "Running")
        wait_until(lambda: {name: get_state(admin, name) for name in uids} == running, WAIT_SECONDS, what="both run")
        containers.podman(uids[WITHOUT_SSHD], "exec", "--user=root", CONTAINER, "rm", "/usr/sbin/sshd")
        home = folder / "home"
        (home / ".ssh").mkdir(parents=True)
        user = SshUser(server, admin, containers, home, uids)
        assert user.fairlead("ssh-config", "--write").returncode == 0
        yield user


def start_workspace(admin: httpx.Client, name: str, source: str, owner: str = "") -> str:
    spec: dict[str, object] = {"runnerRef": {"runner": "local"}, "templateRef": {"name": "default"}}
    if owner:
        spec["owner"] = {"user": owner}
    created = create_object(admin, WORKSPACES, "DevPodWorkspaceInstance", name, **spec)
    path = f"{WORKSPACES}/{name}"
    wait_until(lambda: admin.get(f"{path}/tasks").status_code == 200, WAIT_SECONDS, what="the runner has taken it")
    response = admin.post(f"{path}/up", json={"spec": {"options": json.dumps({"source": source})}})
    assert response.status_code == 201, response.text
    return str(created["metadata"]["uid"])


def get_state(admin: httpx.Client, name: str) -> str:
    return str((admin.get(f"{WORKSPACES}/{name}").json().get("status") or {}).get("lastWorkspaceStatus"))


def host_of(name: str) -> str:
    return f"{name}.web.fairlead"


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class forwarded_port:
    """`fairlead workspace port-forward` to this port, and the local port."""

    def __init__(self, user: SshUser, name: str, port: int) -> None:
        arguments = ("-m", "fairlead", "workspace", "port-forward", name, f"0:{port}", "--project", "web")
        self._process = user.start(sys.executable, *arguments)

    def __enter__(self) -> int:
        assert self._process.stderr is not None
        return int(self._process.stderr.readline().split()[1].rpartition(b":")[2])

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=WAIT_SECONDS)
        assert self._process.returncode == 0
