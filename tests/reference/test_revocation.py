"""What is taken away here ends at the real cluster, too: in requests at once, in open streams within seconds."""

import subprocess
import time
from collections.abc import Callable

import pytest

from tests.harness.gateways import M, bind_role, cluster_rule, create_key, create_resource
from tests.harness.server_process import TIMEOUT_SECONDS
from tests.reference.connected_cluster import CLUSTER, World, seconds_since

LIMIT = 10.0
"""Seconds within which an open stream ends."""


@pytest.fixture(scope="module")
def user(node_world: World) -> str:
    """User `rita`, who may use the cluster and do everything in it."""
    with node_world.server.client() as admin:
        create_resource(admin, "users", "User", "rita", username="rita")
        bind_role(admin, "rita", "rita", [cluster_rule(CLUSTER, "use")])
    subjects = ("--user=fairlead:rita", "--user=rita")
    node_world.direct()("create", "clusterrolebinding", "rita", "--clusterrole=cluster-admin", *subjects)
    return "rita"


STREAMS = {
    "watch": ("get", "pods", "-w"),
    "logs": ("logs", "-f", "talking"),
    "exec": ("exec", "box", "--", "sh", "-c", "while :; do date; sleep 0.2; done"),
    "port-forward": ("port-forward", "box", ":8080"),
}


@pytest.fixture(scope="module", autouse=True)
def talking(node_world: World) -> None:
    command = ("sh", "-c", "while :; do date; sleep 0.2; done")
    overrides = ("--image=localhost/busybox:1", "--image-pull-policy=Never", "--restart=Never", "--command")
    kubectl = node_world.direct()
    kubectl("run", "talking", *overrides, "--", *command)
    kubectl("wait", "--for=condition=Ready", "pod/talking", "--timeout=25s")


@pytest.mark.parametrize("stream", STREAMS)
def test_an_open_stream_ends_with_its_key(
    node_world: World, user: str, stream: str, measured: Callable[[str], None]
) -> None:
    name = f"rita-{stream}"
    with node_world.server.client() as admin:
        key = create_key(admin, user, name)
        kubectl = node_world.through_gateway(key, name)
        with kubectl.watching(*STREAMS[stream]) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            admin.delete(f"{M}/ownedaccesskeys/{name}").raise_for_status()
            began = time.monotonic()
            assert "Unauthorized" in kubectl.expect_failure("get", "pods") or "logged in" in kubectl.expect_failure(
                "get", "pods"
            )
            _await_end(process, stream)
            measured(f"ended after {seconds_since(began):.1f} s")
            assert seconds_since(began) < LIMIT


def _await_end(process: "subprocess.Popen[str]", stream: str) -> None:
    """port-forward goes on listening; what ends is its connection to the cluster, which it says."""
    assert process.stdout is not None
    if stream == "port-forward":
        process.wait(TIMEOUT_SECONDS)
    else:
        process.communicate(timeout=TIMEOUT_SECONDS)
