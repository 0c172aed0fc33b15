"""A real ssh client, a real server and runner, and real containers: one whose image has sshd, and one without."""

import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

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
from tests.harness.server_process import ROOT
from tests.live.ssh_user import WAIT_SECONDS, WITH_SSHD, WITHOUT_SSHD, SshUser, find_port, forwarded_port, host_of, user

__all__ = ["user"]
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


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", [WITH_SSHD, WITHOUT_SSHD])
def test_a_terminal_gives_a_command_what_the_client_sends_and_nothing_else(user: SshUser, name: str) -> None:
    """The end of the input comes before podman has set its terminal up. An sshd does not pass it on to a terminal."""
    command = "cat; echo end" if name == WITHOUT_SSHD else "echo end"
    ended = user.run("ssh", "-tt", host_of(name), command)
    assert (ended.returncode, ended.stdout) == (0, b"end\r\n")
    sent = user.run("ssh", "-tt", host_of(name), 'read -r line; echo "got $line"', input=b"a word\n")
    assert (sent.returncode, sent.stdout.replace(b"a word\r\n", b"", 1)) == (0, b"got a word\r\n")


def check_ports(user: SshUser, name: str) -> None:
    listed = user.fairlead("ports", name, "--project", "web")
    assert listed.stdout.decode().split("\n")[1].split() == ["8123", "127.0.0.1", "python3"]
    with (
        forwarded_port(user, name, 8123) as local,
        socket.create_connection(("127.0.0.1", local), WAIT_SECONDS) as connected,
    ):
        connected.sendall(b"again")
        assert connected.recv(100) == b"AGAIN"


def has_session(processes: str) -> bool:
    return any(word in line for line in processes.splitlines() for word in ("sshd", "python3", "dd bs=1"))


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
