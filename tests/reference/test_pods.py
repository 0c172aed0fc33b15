"""Running pods through the gateway and through a direct endpoint: exec, cp, logs, attach and port-forward.

The cluster is dialled, or an agent dials out from a network into which no connections can be opened."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.kubectl import Kubectl
from tests.reference.connected_cluster import DIALLED, ConnectedCluster, run_agent, run_pod
from tests.reference.pod_streams import (
    MIB,
    check_copies,
    check_forwarded_port,
    check_input,
    check_output,
    execute,
    serve_page,
)

ROUTES = [(DIALLED, "gateway"), (DIALLED, "direct"), ("agent", "gateway")]
"""How Fairlead reaches the cluster, and whether kubectl talks to Fairlead or to the direct endpoint at the cluster."""
SIZES = (1, 5, 50)
ROUNDS = {1: 5, 5: 5, 50: 2}

pytestmark = pytest.mark.parametrize(("connected_node", "route"), ROUTES, indirect=True, scope="session")


@pytest.fixture(scope="module")
def agent_kubectl(connected_node: ConnectedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with run_agent(connected_node, tmp_path_factory.mktemp("agents") / "agent") as kubectl:
        yield kubectl


@pytest.fixture
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kubectl(request: pytest.FixtureRequest, connected_node: ConnectedCluster, route: str) -> Kubectl:
    if route == "direct":
        agent_kubectl: Kubectl = request.getfixturevalue("agent_kubectl")
        return agent_kubectl
    return connected_node.gateway_kubectl()


@pytest.mark.parametrize("size", SIZES)
def test_output_and_exit_code_of_a_command_are_complete(kubectl: Kubectl, size: int) -> None:
    for _ in range(ROUNDS[size]):
        check_output(kubectl, size * MIB)


@pytest.mark.parametrize("size", SIZES)
def test_input_of_a_command_is_complete(kubectl: Kubectl, size: int) -> None:
    check_input(kubectl, size * MIB)


@pytest.mark.parametrize("size", SIZES)
def test_files_are_copied_both_ways(kubectl: Kubectl, size: int, tmp_path: Path) -> None:
    check_copies(kubectl, size * MIB, tmp_path)


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


def test_logs_are_read_and_followed(kubectl: Kubectl, connected_node: ConnectedCluster, route: str) -> None:
    name = f"counter-{route}"
    run_pod(
        connected_node.direct_kubectl(), name, "sh", "-c", "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done"
    )
    assert "line 0" in kubectl("logs", name)
    with kubectl.watching("logs", "-f", name) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(20)][-1].startswith("line ")
    connected_node.direct_kubectl()("delete", "pod", name, "--now", "--wait=false")


def test_a_port_is_forwarded(kubectl: Kubectl) -> None:
    serve_page(kubectl)
    port = check_forwarded_port(kubectl)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


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
