"""A virtual cluster that sleeps and wakes on a real node: its pod ends, requests wake it, and its objects are kept."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, merge_patch
from tests.reference.connected_cluster import seconds_since
from tests.reference.test_virtual_clusters import virtual_node
from tests.reference.virtual_node import VirtualNode

__all__ = ["virtual_node"]

NAMESPACE = "demo-v-dev"
INSTANCE = f"{M}/namespaces/service-p-demo/virtualclusterinstances/dev"
PREFIX = "sleepmode.service.sh/"
REQUESTS = 50
AT_ONCE = 10

pytestmark = pytest.mark.timeout(900)


def annotate(node: VirtualNode, **notes: str | None) -> None:
    changes = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in notes.items()}
    merge_patch(node.admin, INSTANCE, {"metadata": {"annotations": changes}})


def phase_of(node: VirtualNode) -> str:
    return str(node.get_instance("dev").get("status", {}).get("phase"))


def pods_of(node: VirtualNode) -> list[str]:
    """Without those that have ended, and are still to be deleted."""
    return node.host.get_names("pods", "-n", NAMESPACE, "--field-selector=status.phase!=Failed,status.phase!=Succeeded")


def test_its_pod_ends_and_comes_back_with_its_objects(
    virtual_node: VirtualNode, record_figure: Callable[[str], None]
) -> None:
    command = ("vcluster", "create", "dev", "--project", "demo", "--cluster", "real", "--template", "own", "--wait")
    created = virtual_node.run_cli(*command)
    assert created.returncode == 0, created.stdout + created.stderr
    virtual_node.member_kubectl("dev")("create", "namespace", "kept")
    start = time.monotonic()
    asleep = virtual_node.run_cli("vcluster", "sleep", "dev", "--project", "demo", "--wait")
    assert asleep.returncode == 0, asleep.stderr
    asleep_seconds = seconds_since(start)
    assert (phase_of(virtual_node), pods_of(virtual_node)) == ("Sleeping", [])
    refused = virtual_node.member_kubectl("dev").expect_failure("get", "namespaces")
    assert "fairlead vcluster wake dev" in refused
    start = time.monotonic()
    awake = virtual_node.run_cli("vcluster", "wake", "dev", "--project", "demo", "--wait")
    assert awake.returncode == 0, awake.stderr
    record_figure(f"asleep after {asleep_seconds:.1f} s, awake after {seconds_since(start):.1f} s")
    assert "kept" in virtual_node.member_kubectl("dev")("get", "namespaces")


def test_fifty_requests_wake_it_once_and_all_succeed(
    virtual_node: VirtualNode, record_figure: Callable[[str], None]
) -> None:
    annotate(virtual_node, sleep_after="3", last_activity=str(int(time.time()) - 60))
    wait_until(lambda: phase_of(virtual_node) == "Sleeping", 90)
    annotate(virtual_node, sleep_after="3600")
    assert pods_of(virtual_node) == []
    kubectl = virtual_node.member_kubectl("dev")
    kubectl.expect_failure("get", "--raw", "/version")  # what asks for that wakes nothing
    assert phase_of(virtual_node) == "Sleeping"
    start = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda _: kubectl("get", "namespaces"), range(REQUESTS)))
    assert all("kept" in each for each in answers)
    record_figure(f"{REQUESTS} requests of kubectl, {AT_ONCE} at a time, done after {seconds_since(start):.1f} s")
    assert phase_of(virtual_node) == "Ready"


def test_a_virtual_cluster_without_a_claim_is_refused(virtual_node: VirtualNode) -> None:
    template = f"{M}/virtualclustertemplates/own"
    chart = virtual_node.admin.get(template).json()["spec"]["template"]["helmRelease"]["chart"]
    release = {"chart": chart, "values": 'storage: ""\n'}
    merge_patch(virtual_node.admin, template, {"spec": {"template": {"helmRelease": release}}})
    command = ("vcluster", "create", "lost", "--project", "demo", "--cluster", "real", "--template", "own", "--wait")
    created = virtual_node.run_cli(*command)
    assert created.returncode == 0, created.stdout + created.stderr
    refused = virtual_node.run_cli("vcluster", "sleep", "lost", "--project", "demo", "--wait")
    assert refused.returncode == 1
    assert "its data is on an emptyDir volume" in refused.stderr
    assert virtual_node.host.get_names("pods", "-n", "demo-v-lost") == ["lost-0"]
