"""A virtual cluster on a real node, with the chart of our own and default values: from nothing to nothing.

Nothing about addresses, certificates or services is set. What the member does goes through the gateway, and from there
by port-forward through the connected cluster to a real kube-apiserver in a pod.
"""

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, post_object
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT
from tests.reference.conftest import REFERENCE
from tests.reference.connected_cluster import is_root, seconds_since
from tests.reference.control_plane import ControlPlane, Network
from tests.reference.node import running_node
from tests.reference.pod_streams import (
    MIB,
    check_copies,
    check_forwarded_port,
    check_input,
    check_output,
    execute,
    serve_page,
)
from tests.reference.virtual_cluster_chart import add_pod, offer_own_chart
from tests.reference.virtual_node import MEMBER, READY_SECONDS, VirtualNode, install_app, open_virtual_node, read_app

NAMESPACE, POD = "demo-v-dev", "dev-0"
LARGE_OBJECTS, LARGE_BYTES = 56, 900_000
"""50 MB in objects of a size that etcd accepts."""
RESTART_SECONDS = 90.0
WATCHES = 50
ROUNDS, REQUESTS = 3, 400

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def virtual_node(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualNode]:
    assert is_root(), f"REFERENCE={REFERENCE}: a node needs root"
    folder = tmp_path_factory.mktemp("virtual")
    with (
        ControlPlane(binaries, folder / "plane", network=Network()) as plane,
        running_node(plane),
        open_virtual_node(plane, folder / "fairlead", offer_own_chart(plane)) as node,
    ):
        yield node


def test_a_member_creates_one_and_uses_it(virtual_node: VirtualNode, record_figure: Callable[[str], None]) -> None:
    start = time.monotonic()
    command = ("vcluster", "create", "dev", "--project", "demo", "--cluster", "real", "--template", "own", "--wait")
    created = virtual_node.run_cli(*command)
    assert created.returncode == 0, created.stdout + created.stderr
    record_figure(f"Ready after {seconds_since(start):.0f} s")
    status = virtual_node.get_instance("dev")["status"]
    assert (status["connection"]["mode"], status["connection"]["pod"]) == ("Tunnel", POD)
    kubectl = virtual_node.member_kubectl("dev")
    assert "fairlead:mia" in kubectl("auth", "whoami")
    kubectl("create", "namespace", "mine")
    kubectl("create", "deployment", "web", "-n", "mine", "--image=web")
    wait_until(lambda: "web-" in kubectl("get", "replicasets", "-n", "mine", "-o", "name"), RESTART_SECONDS)
    assert "mine" not in virtual_node.host.get_names("namespaces")


def test_fifty_megabytes_are_listed(virtual_node: VirtualNode, record_figure: Callable[[str], None]) -> None:
    kubectl = virtual_node.member_kubectl("dev")
    text = "x" * LARGE_BYTES
    for number in range(LARGE_OBJECTS):
        meta = {"name": f"large-{number}", "namespace": "mine"}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"text": text}}
        kubectl("create", "-f", "-", body=json.dumps(config_map))
    start = time.monotonic()
    listed = kubectl("get", "--raw", "/api/v1/namespaces/mine/configmaps")
    seconds = seconds_since(start)
    assert len(listed) > 50_000_000
    assert sum(each["metadata"]["name"].startswith("large-") for each in json.loads(listed)["items"]) == LARGE_OBJECTS
    record_figure(f"{len(listed) / MIB:.0f} MiB in {seconds:.1f} s")
    path = "/kubernetes/project/demo/virtualcluster/dev/api/v1/namespaces/mine/configmaps"
    assert virtual_node.member.delete(path, timeout=120).is_success  # all at once


def test_fifty_megabytes_pass_through_exec_and_cp_both_ways(
    virtual_node: VirtualNode, tmp_path: Path, record_figure: Callable[[str], None]
) -> None:
    """Through the gateway, the tunnel, the API server of the virtual cluster and the kubelet."""
    kubectl = virtual_node.member_kubectl("dev")
    add_pod(virtual_node.host, kubectl, Network(), "box")
    checks: dict[str, Callable[[Kubectl, int], None]] = {
        "out": check_output,
        "in": check_input,
        "copied there and back": partial(check_copies, folder=tmp_path),
    }
    for title, check in checks.items():
        start = time.monotonic()
        check(kubectl, 50 * MIB)
        record_figure(f"50 MiB {title}: {seconds_since(start):.1f} s")


def test_a_member_follows_logs_and_forwards_ports_of_a_pod(virtual_node: VirtualNode) -> None:
    kubectl = virtual_node.member_kubectl("dev")
    execute(kubectl, "sh", "-c", "echo written > /proc/1/fd/1")
    with kubectl.watching("logs", "-f", "box") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        execute(kubectl, "sh", "-c", "echo later > /proc/1/fd/1")
        assert process.stdout.readline() == "later\n"
    serve_page(kubectl)
    check_forwarded_port(kubectl)


def test_fifty_watches_share_few_forwards(virtual_node: VirtualNode) -> None:
    path = "/kubernetes/project/demo/virtualcluster/dev/api/v1/namespaces"

    def watch(number: int) -> bytes:
        query = {"watch": "true", "timeoutSeconds": "8"}
        with virtual_node.member.stream("GET", path, params=query, timeout=30) as response:
            assert response.status_code == 200
            return b"".join(response.iter_bytes())

    with ThreadPoolExecutor(WATCHES) as threads:
        results = list(threads.map(watch, range(WATCHES)))
    assert all(b'"mine"' in each for each in results)


def test_a_tunnel_costs_little_more_than_a_node_port(
    virtual_node: VirtualNode, record_figure: Callable[[str], None]
) -> None:
    """Beside an import of the same API server by the address of the node, as a chart with a NodePort has it."""
    import_by_node_port(virtual_node, "port")
    assert virtual_node.get_instance("port")["status"]["connection"]["mode"] == "Direct"
    costs: dict[str, list[float]] = {"port": [], "dev": []}
    for name in ("port", "dev") * ROUNDS:
        milliseconds, cpu = measure_requests(virtual_node, name)
        costs[name].append(cpu)
        record_figure(f"{name}: {milliseconds:.1f} ms and {cpu:.2f} ms of the server's CPU for a request")
    assert min(costs["dev"]) < 2 * min(costs["port"])
    virtual_node.admin.delete(f"{M}/namespaces/service-p-demo/virtualclusterinstances/port")
    virtual_node.wait_until_gone("port")


def import_by_node_port(node: VirtualNode, name: str) -> None:
    selector = {"app": "vcluster", "release": "dev"}
    spec = {"type": "NodePort", "selector": selector, "ports": [{"port": 443, "targetPort": 8443}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "outside"}, "spec": spec}
    node.host("create", "-n", NAMESPACE, "-f", "-", body=json.dumps(service))
    ports = node.host.get_json("service", "outside", "-n", NAMESPACE)["spec"]["ports"]
    secret = node.host.get_json("secret", "vc-dev", "-n", NAMESPACE)
    kubeconfig = yaml.safe_load(b64decode(secret["data"]["config"]))
    kubeconfig["clusters"][0]["cluster"] |= {
        "server": f"https://{Network().node}:{ports[0]['nodePort']}",
        "tls-server-name": "localhost",
    }
    content = b64encode(yaml.safe_dump(kubeconfig).encode()).decode()
    stored = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"config": content}}
    post_object(node.admin, f"{MANAGEMENT}/api/v1/namespaces/service-p-demo/secrets", stored)
    instance = {
        **{"apiVersion": "management.service.sh/v1", "kind": "VirtualClusterInstance", "metadata": {"name": name}},
        "spec": {"config": {"secretName": name}, "owner": {"user": MEMBER}},
    }
    post_object(node.admin, f"{M}/namespaces/service-p-demo/virtualclusterinstances", instance)
    wait_until(lambda: node.get_instance(name)["status"].get("phase") == "Ready", READY_SECONDS)


def measure_requests(node: VirtualNode, name: str) -> tuple[float, float]:
    """Milliseconds of a request, one at a time, and of the server's CPU for it."""
    path = f"/kubernetes/project/demo/virtualcluster/{name}/api/v1/namespaces/default"
    start, cpu = time.monotonic(), node.server.cpu_seconds()
    for _ in range(REQUESTS):
        assert node.member.get(path).is_success
    return 1000 * seconds_since(start) / REQUESTS, 1000 * (node.server.cpu_seconds() - cpu) / REQUESTS


def test_a_new_pod_is_found_and_has_the_data(virtual_node: VirtualNode, record_figure: Callable[[str], None]) -> None:
    kubectl = virtual_node.member_kubectl("dev")
    before = virtual_node.host("get", "pod", POD, "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}")
    virtual_node.host("delete", "pod", POD, "-n", NAMESPACE, "--now")

    def is_new_and_ready() -> bool:
        answer = virtual_node.host.run("get", "pod", POD, "-n", NAMESPACE, "-o", "json")
        found = json.loads(answer.stdout) if answer.returncode == 0 else {}
        conditions = found.get("status", {}).get("conditions") or ()
        is_ready = any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
        return is_ready and found["metadata"]["uid"] != before

    wait_until(is_new_and_ready, RESTART_SECONDS)
    start = time.monotonic()
    wait_until(lambda: kubectl.run("get", "namespace", "mine").returncode == 0, 15)
    record_figure(f"found again {seconds_since(start):.1f} s after it was ready")


def test_it_moves_to_another_project_with_its_apps(virtual_node: VirtualNode) -> None:
    for name in ("one", "two"):
        install_app(virtual_node, name, "dev")
    pod = virtual_node.host("get", "pod", POD, "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}")
    move = ("vcluster", "migrate", "dev", "--from", "demo", "--to", "other")
    planned = virtual_node.run_cli(*move, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "AppInstance one" in planned.stderr and "AppInstance two" in planned.stderr
    moved = virtual_node.run_cli(*move)
    assert moved.returncode == 0, moved.stderr
    kubectl = virtual_node.member_kubectl("dev", "other")
    wait_until(lambda: kubectl.run("get", "namespace", "mine").returncode == 0, RESTART_SECONDS)
    assert kubectl.get_json("configmap", "one-settings")["data"]["size"] == "7"
    assert virtual_node.member_kubectl("dev").run("get", "namespace", "mine").returncode != 0
    wait_until(lambda: virtual_node.get_instance("dev", "other")["status"].get("phase") == "Ready", READY_SECONDS)
    wait_until(lambda: read_app(virtual_node, "one", "other").get("phase") == "Ready", READY_SECONDS)
    assert [read_app(virtual_node, each, "other")["release"]["revision"] for each in ("one", "two")] == [1, 1]
    labels = virtual_node.host.get_json("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["service.sh/project"] == "other"
    assert virtual_node.host("get", "pod", POD, "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}") == pod
    uninstalled = virtual_node.run_cli("app", "uninstall", "two", "--project", "other", "--yes")
    assert (uninstalled.returncode, "is uninstalled" in uninstalled.stderr) == (0, True), uninstalled.stderr
    assert kubectl.run("get", "configmap", "two-settings").returncode != 0


def test_it_is_deleted_with_nothing_left(virtual_node: VirtualNode) -> None:
    deleted = virtual_node.run_cli("vcluster", "delete", "dev", "--project", "other", "--yes")
    assert deleted.returncode == 0, deleted.stderr
    assert NAMESPACE not in virtual_node.host.get_names("namespaces")
    bindings = virtual_node.host.get_names("clusterrolebindings")
    assert [each for each in bindings if "deployer" in each] == []
    phases = virtual_node.host("get", "persistentvolumes", "-o", "jsonpath={.items[*].status.phase}").split()
    assert sorted(phases) == ["Available", "Available", "Available", "Released"]
    secrets = virtual_node.admin.get("/kubernetes/management/api/v1/namespaces/service-p-other/secrets").json()["items"]
    assert [each["metadata"]["name"] for each in secrets if each["metadata"]["name"].startswith("vc-")] == []
    uninstalled = virtual_node.run_cli("app", "uninstall", "one", "--project", "other", "--yes")
    assert uninstalled.returncode == 0, uninstalled.stderr
    assert virtual_node.admin.get(f"{M}/namespaces/service-p-other/appinstances").json()["items"] == []
