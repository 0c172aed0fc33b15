"""Pods that really run, reached through the gateway and through an agent: exec, cp, logs, attach and port-forward."""

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
from tests.reference.connected_cluster import World, agent_beside, run_pod

MIB = 2**20
SIZES = (1, 5, 50)
ROUNDS = {1: 5, 5: 5, 50: 2}


@pytest.fixture(scope="module")
def agents(node_world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with agent_beside(node_world, tmp_path_factory.mktemp("agents") / "agent") as kubectl:
        yield kubectl


@pytest.fixture(params=["gateway", "agent"])
def kubectl(request: pytest.FixtureRequest, node_world: World, agents: Kubectl) -> Kubectl:
    return node_world.through_gateway() if request.param == "gateway" else agents


def execute(
    kubectl: Kubectl, *command: str, stdin: bytes = b"", seconds: float = 120
) -> "subprocess.CompletedProcess[bytes]":
    """`kubectl exec` with bytes in and out, which need not be text."""
    asked = [str(kubectl.program), "exec", "-i", "box", "--", *command]
    variables = {"PATH": os.environ["PATH"], "HOME": str(kubectl.home), "KUBECONFIG": str(kubectl.kubeconfig)}
    return subprocess.run(asked, input=stdin, capture_output=True, timeout=seconds, check=False, env=variables)


@pytest.mark.parametrize("size", SIZES)
def test_output_of_a_command_is_whole_and_so_is_its_exit_code(kubectl: Kubectl, size: int) -> None:
    wanted = size * MIB
    for _ in range(ROUNDS[size]):
        done = execute(kubectl, "sh", "-c", f"yes fairlead | head -c {wanted}; exit 7")
        assert (len(done.stdout), done.returncode) == (wanted, 7), done.stderr


@pytest.mark.parametrize("size", SIZES)
def test_input_of_a_command_is_whole(kubectl: Kubectl, size: int) -> None:
    sent = os.urandom(size * MIB)
    done = execute(kubectl, "sha256sum", stdin=sent)
    assert done.stdout.split()[0].decode() == hashlib.sha256(sent).hexdigest(), done.stderr


@pytest.mark.parametrize("size", SIZES)
def test_files_are_copied_both_ways(kubectl: Kubectl, size: int, tmp_path: Path) -> None:
    sent, back = tmp_path / "sent", tmp_path / "back"
    sent.write_bytes(os.urandom(size * MIB))
    for arguments in (("cp", str(sent), "box:/tmp/file"), ("cp", "box:/tmp/file", str(back))):
        assert not kubectl.expect_warnings(*arguments)
    assert back.read_bytes() == sent.read_bytes()


def test_a_slow_reader_gets_everything(kubectl: Kubectl) -> None:
    """The command is long over when the last of its output is read."""
    asked = f"{kubectl.program} exec box -- sh -c 'yes fairlead | head -c {20 * MIB}' | (sleep 3; wc -c)"
    variables = {"PATH": os.environ["PATH"], "HOME": str(kubectl.home), "KUBECONFIG": str(kubectl.kubeconfig)}
    done = subprocess.run(["sh", "-c", asked], capture_output=True, text=True, timeout=60, check=False, env=variables)
    assert done.stdout.strip() == str(20 * MIB), done.stderr


def test_a_command_that_is_killed_has_all_of_its_output(kubectl: Kubectl) -> None:
    """It is killed by a signal right after it has written."""
    done = execute(kubectl, "sh", "-c", f"yes fairlead | head -c {5 * MIB}; kill -9 $$")
    assert (len(done.stdout), done.returncode) == (5 * MIB, 137), done.stderr


def test_logs_are_read_and_followed(kubectl: Kubectl, node_world: World, request: pytest.FixtureRequest) -> None:
    name = f"counter-{request.node.callspec.params['kubectl']}"
    run_pod(node_world.direct(), name, "sh", "-c", "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done")
    assert "line 0" in kubectl("logs", name)
    with kubectl.watching("logs", "-f", name) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(20)][-1].startswith("line ")
    node_world.direct()("delete", "pod", name, "--now", "--wait=false")


def test_a_port_is_forwarded(kubectl: Kubectl, node_world: World) -> None:
    execute(kubectl, "sh", "-c", "mkdir -p /www; echo hello > /www/index.html; busybox httpd -p 8080 -h /www")
    with kubectl.watching("port-forward", "pod/box", ":8080") as process:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/", timeout=10) as answer:
            assert answer.read() == b"hello\n"
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(found[1]))) != 0


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
def test_refusals_are_the_clusters_own(
    kubectl: Kubectl, node_world: World, arguments: tuple[str, ...], expected: str, pending_pod: Callable[[], None]
) -> None:
    pending_pod()
    direct = node_world.direct().expect_failure(*arguments)
    through = kubectl.expect_failure(*arguments)
    assert "SPDY" not in through
    assert expected in direct and expected in through, (direct, through)


@pytest.fixture(scope="module")
def pending_pod(node_world: World) -> Callable[[], None]:
    made: list[bool] = []

    def make() -> None:
        if not made:
            overrides = '{"spec": {"nodeSelector": {"nowhere": "yes"}}}'
            image = "--image=localhost/busybox:1"
            node_world.direct()("run", "pending", image, f"--overrides={overrides}", "--command", "--", "sleep", "9")
            made.append(True)

    return make
