"""Running pods through the gateway and through an agent: exec, cp, logs, attach and port-forward."""

import hashlib
import os
import re
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.kubectl import Kubectl
from tests.reference.connected_cluster import ConnectedCluster, run_agent, run_pod

MIB = 2**20
SIZES = (1, 5, 50)
ROUNDS = {1: 5, 5: 5, 50: 2}


@pytest.fixture(scope="module")
def agent_kubectl(connected_node: ConnectedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with run_agent(connected_node, tmp_path_factory.mktemp("agents") / "agent") as kubectl:
        yield kubectl


@pytest.fixture(params=["gateway", "agent"])
def kubectl(request: pytest.FixtureRequest, connected_node: ConnectedCluster, agent_kubectl: Kubectl) -> Kubectl:
    return connected_node.gateway_kubectl() if request.param == "gateway" else agent_kubectl


def execute(
    kubectl: Kubectl, *command: str, stdin: bytes = b"", seconds: float = 120
) -> "subprocess.CompletedProcess[bytes]":
    """Runs `kubectl exec` with binary input and output."""
    exec_command = [str(kubectl.program), "exec", "-i", "box", "--", *command]
    variables = {"PATH": os.environ["PATH"], "HOME": str(kubectl.home), "KUBECONFIG": str(kubectl.kubeconfig)}
    return subprocess.run(exec_command, input=stdin, capture_output=True, timeout=seconds, check=False, env=variables)


@pytest.mark.parametrize("size", SIZES)
def test_output_and_exit_code_of_a_command_are_complete(kubectl: Kubectl, size: int) -> None:
    expected_bytes = size * MIB
    for _ in range(ROUNDS[size]):
        result = execute(kubectl, "sh", "-c", f"yes fairlead | head -c {expected_bytes}; exit 7")
        assert (len(result.stdout), result.returncode) == (expected_bytes, 7), result.stderr


@pytest.mark.parametrize("size", SIZES)
def test_input_of_a_command_is_complete(kubectl: Kubectl, size: int) -> None:
    sent = os.urandom(size * MIB)
    result = execute(kubectl, "sha256sum", stdin=sent)
    assert result.stdout.split()[0].decode() == hashlib.sha256(sent).hexdigest(), result.stderr


@pytest.mark.parametrize("size", SIZES)
def test_files_are_copied_both_ways(kubectl: Kubectl, size: int, tmp_path: Path) -> None:
    sent, returned = tmp_path / "sent", tmp_path / "back"
    sent.write_bytes(os.urandom(size * MIB))
    for arguments in (("cp", str(sent), "box:/tmp/file"), ("cp", "box:/tmp/file", str(returned))):
        assert not kubectl.expect_warnings(*arguments)
    assert returned.read_bytes() == sent.read_bytes()


def test_a_slow_reader_gets_everything(kubectl: Kubectl) -> None:
    """The command has ended long before the last of its output is read."""
    exec_command = f"{kubectl.program} exec box -- sh -c 'yes fairlead | head -c {20 * MIB}' | (sleep 3; wc -c)"
    variables = {"PATH": os.environ["PATH"], "HOME": str(kubectl.home), "KUBECONFIG": str(kubectl.kubeconfig)}
    result = subprocess.run(
        ["sh", "-c", exec_command], capture_output=True, text=True, timeout=60, check=False, env=variables
    )
    assert result.stdout.strip() == str(20 * MIB), result.stderr


def test_the_output_of_a_killed_command_is_complete(kubectl: Kubectl) -> None:
    """It is killed by a signal right after it has written."""
    result = execute(kubectl, "sh", "-c", f"yes fairlead | head -c {5 * MIB}; kill -9 $$")
    assert (len(result.stdout), result.returncode) == (5 * MIB, 137), result.stderr


def test_logs_are_read_and_followed(
    kubectl: Kubectl, connected_node: ConnectedCluster, request: pytest.FixtureRequest
) -> None:
    name = f"counter-{request.node.callspec.params['kubectl']}"
    run_pod(
        connected_node.direct_kubectl(), name, "sh", "-c", "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done"
    )
    assert "line 0" in kubectl("logs", name)
    with kubectl.watching("logs", "-f", name) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(20)][-1].startswith("line ")
    connected_node.direct_kubectl()("delete", "pod", name, "--now", "--wait=false")


def test_a_port_is_forwarded(kubectl: Kubectl, connected_node: ConnectedCluster) -> None:
    execute(kubectl, "sh", "-c", "mkdir -p /www; echo hello > /www/index.html; busybox httpd -p 8080 -h /www")
    with kubectl.watching("port-forward", "pod/box", ":8080") as process:
        assert process.stdout is not None
        match = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert match is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{match[1]}/", timeout=10) as response:
            assert response.read() == b"hello\n"
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(match[1]))) != 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("exec", "missing", "--", "true"), 'pods "missing" not found'),
        (("exec", "box", "-c", "wrong", "--", "true"), "container wrong is not valid for pod box"),
        (("attach", "pending"), "pod pending does not have a host assigned"),
        (("exec", "pending", "--", "true"), "pod pending does not have a host assigned"),
        (("port-forward", "pending", ":80"), "pod is not running"),
    ],
)
def test_errors_of_the_cluster_are_shown_unchanged(
    kubectl: Kubectl,
    connected_node: ConnectedCluster,
    arguments: tuple[str, ...],
    expected: str,
    pending_pod: Callable[[], None],
) -> None:
    pending_pod()
    direct = connected_node.direct_kubectl().expect_failure(*arguments)
    through_fairlead = kubectl.expect_failure(*arguments)
    assert "SPDY" not in through_fairlead
    assert expected in direct and expected in through_fairlead, (direct, through_fairlead)


@pytest.fixture(scope="module")
def pending_pod(connected_node: ConnectedCluster) -> Callable[[], None]:
    created: list[bool] = []

    def create() -> None:
        if not created:
            overrides = '{"spec": {"nodeSelector": {"nowhere": "yes"}}}'
            image = "--image=localhost/busybox:1"
            connected_node.direct_kubectl()(
                "run", "pending", image, f"--overrides={overrides}", "--command", "--", "sleep", "9"
            )
            created.append(True)

    return create
