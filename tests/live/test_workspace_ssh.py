"""A real ssh client, a real server and runner, and real containers: one whose image has sshd, and one without."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from fairlead.core.crypto.ssh_certificates import (
    CertificateFields,
    find_public_key,
    generate_private_key,
    parse_public_key,
    sign_user_certificate,
)
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
CONTENT = b"".join(sha256(b"%d" % number).digest() for number in range(100_000))
ECHO = """
import os, socket, subprocess
server = socket.create_server(("127.0.0.1", 8123))
print(subprocess.check_output(["stty", "size"]).decode().strip(), os.environ["GREETING"], flush=True)
while True:
    connected, _ = server.accept()
    connected.sendall(connected.recv(100).upper())
    connected.close()
"""


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


def start_workspace(admin: httpx.Client, name: str, source: str) -> str:
    spec = {"runnerRef": {"runner": "local"}, "templateRef": {"name": "default"}}
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


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", [pytest.param(WITH_SSHD, marks=pytest.mark.long), WITHOUT_SSHD])
def test_ssh_scp_and_forwarding_work_and_a_killed_client_leaves_nothing(
    user: SshUser, name: str, tmp_path: Path
) -> None:
    host = host_of(name)
    result = user.fairlead("ssh", name, "--project", "web", "--", "id -un; pwd; echo $GREETING; echo bad >&2; exit 7")
    assert (result.returncode, result.stdout) == (7, b"dev\n/home/dev\nhello world\n"), result.stderr
    assert b"bad" in result.stderr

    copied = user.run("ssh", host, "cat >copy && sha256sum <copy && cat copy", input=CONTENT)
    digest, _, content = copied.stdout.partition(b"  -\n")
    assert (copied.returncode, digest.decode(), content == CONTENT) == (0, sha256(CONTENT).hexdigest(), True)
    assert user.run("scp", "-q", f"{host}:copy", str(tmp_path / "copy")).returncode == 0
    assert (tmp_path / "copy").read_bytes() == CONTENT

    port = find_port()
    forwarding = user.start("ssh", "-tt", "-L", f"127.0.0.1:{port}:localhost:8123", host, f"python3 -c '{ECHO}'")
    try:
        assert forwarding.stdout is not None
        assert forwarding.stdout.readline().split()[-2:] == [b"hello", b"world"]
        with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as connected:
            connected.sendall(b"hello")
            assert connected.recv(100) == b"HELLO"
        if name == WITH_SSHD:  # they do not use SSH, so once is enough
            check_ports(user, name)
        assert "python3 -c" in user.list_processes(name)
    finally:
        forwarding.send_signal(signal.SIGKILL)
        forwarding.communicate()
    wait_until(lambda: not has_session(user.list_processes(name)), WAIT_SECONDS, what="nothing of the session is left")


def check_ports(user: SshUser, name: str) -> None:
    listed = user.fairlead("ports", name, "--project", "web")
    assert listed.stdout.decode().split("\n")[1].split() == ["8123", "127.0.0.1", "python3"]
    with forwarded_port(user, name) as local, socket.create_connection(("127.0.0.1", local), WAIT_SECONDS) as connected:
        connected.sendall(b"again")
        assert connected.recv(100) == b"AGAIN"


def has_session(processes: str) -> bool:
    return any(word in line for line in processes.splitlines() for word in ("sshd", "python3", "dd bs=1"))


class forwarded_port:
    """`fairlead workspace port-forward` to the port 8123, and the local port."""

    def __init__(self, user: SshUser, name: str) -> None:
        arguments = ("-m", "fairlead", "workspace", "port-forward", name, "0:8123", "--project", "web")
        self._process = user.start(sys.executable, *arguments)

    def __enter__(self) -> int:
        assert self._process.stderr is not None
        return int(self._process.stderr.readline().split()[1].rpartition(b":")[2])

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=WAIT_SECONDS)
        assert self._process.returncode == 0


@pytest.mark.timeout(240)
def test_other_certificates_users_and_host_keys_are_refused(user: SshUser, tmp_path: Path) -> None:
    """By an sshd; tests/runner/ssh has the same for the SSH server of the runner."""
    name, other = WITH_SSHD, WITHOUT_SSHD
    host = host_of(name)
    for each in (name, other):
        assert user.fairlead("ssh-prepare", each, "--project", "web").returncode == 0
    now, key, foreign = datetime.now(UTC), user.folder / "id_ed25519", tmp_path / "foreign-cert.pub"
    fields = CertificateFields(user.uids[name], "admin", 1, now - timedelta(minutes=1), now + timedelta(minutes=5))
    public_key = parse_public_key(find_public_key(key.read_text()))
    foreign.write_text(sign_user_certificate(generate_private_key(), public_key, fields))
    valid, invalid = user.folder / f"{host}-cert.pub", (foreign, user.folder / f"{host_of(other)}-cert.pub")

    refused = connect(user, name, "dev", *invalid)
    assert (refused.returncode, b"Permission denied" in refused.stderr) == (255, True), refused.stderr
    refused = connect(user, name, "root", valid)
    assert (refused.returncode, b"Permission denied" in refused.stderr) == (255, True), refused.stderr
    assert connect(user, name, "dev", valid).stdout == b"in\n"
    wrong = (user.folder / f"{host_of(other)}.known_hosts").read_text().replace(host_of(other), host)
    (user.folder / f"{host}.known_hosts").write_text(wrong)
    refused = connect(user, name, "dev", valid)
    assert (refused.returncode, b"Host key verification failed" in refused.stderr) == (255, True), refused.stderr


def connect(user: SshUser, name: str, login: str, *certificates: Path) -> "subprocess.CompletedProcess[bytes]":
    """Without the configuration, which would fetch a certificate and the host keys again."""
    host = host_of(name)
    options = {
        "ProxyCommand": f"{sys.executable} -m fairlead workspace ssh-proxy {name} --project web",
        "UserKnownHostsFile": str(user.folder / f"{host}.known_hosts"),
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "IdentitiesOnly": "yes",
        "IdentityFile": str(user.folder / "id_ed25519"),
    }
    pairs = (*options.items(), *(("CertificateFile", str(each)) for each in certificates))
    flags = [part for name, value in pairs for part in ("-o", f"{name}={value}")]
    command = ["ssh", "-F", "none", *flags, "-l", login, host, "echo in"]
    return subprocess.run(
        command, env=user.environment, cwd=ROOT, capture_output=True, timeout=WAIT_SECONDS, check=False
    )


@pytest.mark.timeout(240)
def test_sessions_end_with_a_message_when_their_container_stops(user: SshUser) -> None:
    """The last test: nothing runs after it."""
    sessions = {name: user.start("ssh", host_of(name), "echo begun; sleep 600") for name in user.uids}
    for name, session in sessions.items():
        assert session.stdout is not None
        assert session.stdout.readline() == b"begun\n"
        user.containers.podman(user.uids[name], "stop", "--time=0", CONTAINER)
        _, errors = session.communicate(timeout=WAIT_SECONDS)
        assert b"the workspace has stopped" in errors
        assert session.returncode != 0
    stopped = user.fairlead("ssh", WITH_SSHD, "--project", "web", "--", "true")
    assert (stopped.returncode, b"the workspace is not running" in stopped.stderr) == (255, True), stopped.stderr
