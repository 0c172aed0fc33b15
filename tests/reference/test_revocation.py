"""Revoked keys stop working at the real cluster: for requests at once, for open streams within seconds."""

import subprocess
import time
from collections.abc import Callable

import pytest

from tests.harness.gateways import M, bind_role, cluster_rule, create_key, create_resource
from tests.harness.server_process import TIMEOUT_SECONDS
from tests.reference.connected_cluster import CLUSTER, ConnectedCluster, seconds_since

LIMIT = 10.0
"""Seconds within which an open stream ends."""


@pytest.fixture(scope="module")
def user(connected_node: ConnectedCluster) -> str:
    """User `rita`, who can use the cluster and has all permissions in it."""
    with connected_node.server.client() as admin:
        create_resource(admin, "users", "User", "rita", username="rita")
        bind_role(admin, "rita", "rita", [cluster_rule(CLUSTER, "use")])
    subjects = ("--user=fairlead:rita", "--user=rita")
    connected_node.direct_kubectl()("create", "clusterrolebinding", "rita", "--clusterrole=cluster-admin", *subjects)
    return "rita"


STREAMS = {
    "watch": ("get", "pods", "-w"),
    "logs": ("logs", "-f", "talking"),
    "exec": ("exec", "box", "--", "sh", "-c", "while :; do date; sleep 0.2; done"),
    "port-forward": ("port-forward", "box", ":8080"),
}


@pytest.fixture(scope="module", autouse=True)
def run_talking_pod(connected_node: ConnectedCluster) -> None:
    command = ("sh", "-c", "while :; do date; sleep 0.2; done")
    overrides = ("--image=localhost/busybox:1", "--image-pull-policy=Never", "--restart=Never", "--command")
    kubectl = connected_node.direct_kubectl()
    kubectl("run", "talking", *overrides, "--", *command)
    kubectl("wait", "--for=condition=Ready", "pod/talking", "--timeout=25s")


@pytest.mark.parametrize("stream", STREAMS)
def test_an_open_stream_ends_with_its_key(
    connected_node: ConnectedCluster, user: str, stream: str, record_figure: Callable[[str], None]
) -> None:
    name = f"rita-{stream}"
    with connected_node.server.client() as admin:
        key = create_key(admin, user, name)
        kubectl = connected_node.gateway_kubectl(key, name)
        with kubectl.watching(*STREAMS[stream]) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            admin.delete(f"{M}/ownedaccesskeys/{name}").raise_for_status()
            start = time.monotonic()
            assert "Unauthorized" in kubectl.expect_failure("get", "pods") or "logged in" in kubectl.expect_failure(
                "get", "pods"
            )
            _wait_for_end(process, stream)
            record_figure(f"ended after {seconds_since(start):.1f} s")
            assert seconds_since(start) < LIMIT


def _wait_for_end(process: "subprocess.Popen[str]", stream: str) -> None:
    """port-forward exits itself; the other commands end with their output."""
    assert process.stdout is not None
    if stream == "port-forward":
        process.wait(TIMEOUT_SECONDS)
    else:
        process.communicate(timeout=TIMEOUT_SECONDS)
