"""The open-source chart of the default template on a real node, with the service account that the tutorial creates:
from nothing to nothing, and pods in the virtual cluster.

The chart and its programs were built from their source: `vcluster/chart` in the folder REFERENCE, and `vcluster` and
`kine` beside kube-apiserver. Without them nothing here is collected. The template and the values are those of a new
server; only the repository is another one. The images have the names that the chart gives them, and are busybox with
these programs. There is no image for the DNS server inside, so its pod does not start.
"""

import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.domain.open_source_chart import CHART_NAME, CHART_VERSION
from tests.fake_cluster.chart_repository import Chart
from tests.harness.eventually import wait_until
from tests.reference.conftest import OPEN_SOURCE_CHART, REFERENCE
from tests.reference.connected_cluster import IMAGE, is_root, seconds_since
from tests.reference.control_plane import ControlPlane, Network
from tests.reference.node import build_layer, running_node
from tests.reference.virtual_node import (
    DEFAULT_TEMPLATE,
    READY_SECONDS,
    Image,
    Offer,
    VirtualNode,
    install_app,
    open_virtual_node,
    read_app,
)

SYNCER_IMAGE = f"ghcr.io/loft-sh/vcluster-oss:{CHART_VERSION}"
KUBERNETES_IMAGE = re.compile(r'repository: "loft-sh/kubernetes"\s+#[^\n]*\s+tag: "([^"]+)"')
"""In the values of the chart."""
ROLES = ("spaces", "virtual-clusters", "sleep")
NAMESPACE, POD = "demo-v-dev", "dev-0"
ROLLOUT_SECONDS = 120.0
MIB = 2**20
DEPLOYMENT = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: hello, namespace: shop}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: hello}}}}
  template:
    metadata: {{labels: {{app: hello}}}}
    spec:
      containers:
        - name: web
          image: {IMAGE}
          imagePullPolicy: Never
          command: [sh, -c, "echo started; mkdir /www; echo hello > /www/index.html; exec httpd -f -p 8080 -h /www"]
"""

pytestmark = pytest.mark.timeout(900)


def offer_open_source_chart(binaries: Path) -> Offer:
    missing = [each for each in OPEN_SOURCE_CHART if not (Path(REFERENCE) / each).exists()]
    assert not missing, f"REFERENCE={REFERENCE}: {', '.join(missing)} not found; build the chart and its programs there"
    folder = Path(REFERENCE) / "vcluster" / "chart"
    texts = {str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*") if each.is_file()}
    texts.pop("Chart.yaml")
    tag = KUBERNETES_IMAGE.search(texts["values.yaml"])
    assert tag is not None
    programs = {f"kubernetes/{each}": binaries / each for each in ("kube-apiserver", "kube-controller-manager", "kine")}
    images = [
        Image(SYNCER_IMAGE, build_layer({"vcluster": binaries / "vcluster"}), ("/vcluster", "start")),
        Image(f"ghcr.io/loft-sh/kubernetes:{tag[1]}", build_layer(programs)),
    ]
    return Offer(Chart(CHART_NAME, texts, CHART_VERSION), DEFAULT_TEMPLATE, images, ROLES)


@pytest.fixture(scope="module")
def node(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualNode]:
    assert is_root(), f"REFERENCE={REFERENCE}: a node needs root"
    folder = tmp_path_factory.mktemp("open-source")
    with (
        ControlPlane(binaries, folder / "plane", network=Network()) as plane,
        running_node(plane),
        open_virtual_node(plane, folder / "fairlead", offer_open_source_chart(binaries)) as found,
    ):
        yield found


def synced_pods(node: VirtualNode) -> list[str]:
    """The pods of the Deployment in the host namespace."""
    return [each for each in node.host.get_names("pods", "-n", NAMESPACE) if each.startswith("hello-")]


def test_a_member_creates_one_with_nothing_but_its_name(
    node: VirtualNode, record_figure: Callable[[str], None]
) -> None:
    start = time.monotonic()
    created = node.run_cli("vcluster", "create", "dev", "--project", "demo", "--wait")
    assert created.returncode == 0, created.stdout + created.stderr
    record_figure(f"Ready after {seconds_since(start):.0f} s")
    status = node.get_instance("dev")["status"]
    assert (status["connection"]["mode"], status["connection"]["pod"]) == ("Tunnel", POD)
    assert "fairlead:mia" in node.member_kubectl("dev")("auth", "whoami")


def test_pods_in_it_run_on_the_node(node: VirtualNode, record_figure: Callable[[str], None]) -> None:
    kubectl = node.member_kubectl("dev")
    kubectl("create", "namespace", "shop")
    kubectl("apply", "-f", "-", body=DEPLOYMENT)
    start = time.monotonic()
    wait_until(lambda: kubectl.get_json("-n", "shop", "deployment", "hello")["status"].get("readyReplicas") == 2, 120)
    record_figure(f"two pods ready after {seconds_since(start):.0f} s")
    assert len(synced_pods(node)) == 2


def test_exec_logs_and_port_forward_pass_two_api_servers(node: VirtualNode, tmp_path: Path) -> None:
    kubectl = node.member_kubectl("dev")
    shop = ("-n", "shop")
    assert kubectl(*shop, "logs", "deploy/hello") == "started\n"
    assert kubectl(*shop, "exec", "deploy/hello", "--", "cat", "/www/index.html") == "hello\n"
    listed = kubectl(*shop, "exec", "deploy/hello", "--", "sh", "-c", f"yes fairlead | head -c {50 * MIB}")
    assert len(listed) == 50 * MIB
    failed = kubectl.run(*shop, "exec", "deploy/hello", "--", "sh", "-c", "exit 7")
    assert failed.returncode == 7, failed.stderr
    name = kubectl.get_names(*shop, "pods")[0]
    sent, returned = tmp_path / "sent", tmp_path / "returned"
    sent.write_bytes(os.urandom(50 * MIB))
    kubectl("cp", str(sent), f"shop/{name}:/tmp/file")
    kubectl("cp", f"shop/{name}:/tmp/file", str(returned))
    assert returned.read_bytes() == sent.read_bytes()
    with kubectl.watching(*shop, "logs", "-f", name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
    with kubectl.watching(*shop, "port-forward", f"pod/{name}", ":8080") as process:
        assert process.stdout is not None
        match = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert match is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{match[1]}/", timeout=30) as response:
            assert response.read() == b"hello\n"


def test_it_sleeps_with_its_pods_and_a_request_brings_them_back(
    node: VirtualNode, record_figure: Callable[[str], None]
) -> None:
    start = time.monotonic()
    asleep = node.run_cli("vcluster", "sleep", "dev", "--project", "demo", "--wait")
    assert asleep.returncode == 0, asleep.stderr
    asleep_seconds = seconds_since(start)
    assert node.host.get_names("pods", "-n", NAMESPACE) == []
    start = time.monotonic()
    awake = node.run_cli("vcluster", "wake", "dev", "--project", "demo", "--wait")
    assert awake.returncode == 0, awake.stderr
    awake_seconds = seconds_since(start)
    kubectl = node.member_kubectl("dev")

    def is_back() -> bool:
        found = kubectl.get_json("-n", "shop", "deployment", "hello")
        return found["status"].get("readyReplicas") == 2 and len(synced_pods(node)) == 2

    wait_until(is_back, ROLLOUT_SECONDS)
    pods_seconds = seconds_since(start)
    record_figure(f"asleep after {asleep_seconds:.0f} s, awake after {awake_seconds:.0f} s, pods {pods_seconds:.0f} s")
    wait_until(lambda: kubectl.run("-n", "shop", "logs", "deploy/hello").stdout == "started\n", ROLLOUT_SECONDS)


def test_it_moves_with_an_app_and_is_deleted_with_nothing_left(node: VirtualNode) -> None:
    install_app(node, "one", "dev")
    pods = synced_pods(node)
    move = ("vcluster", "migrate", "dev", "--from", "demo", "--to", "other")
    planned = node.run_cli(*move, "--dry-run")
    assert (planned.returncode, "AppInstance one" in planned.stderr) == (0, True), planned.stderr
    moved = node.run_cli(*move)
    assert moved.returncode == 0, moved.stderr
    kubectl = node.member_kubectl("dev", "other")
    wait_until(lambda: kubectl.run("get", "namespace", "shop").returncode == 0, READY_SECONDS)
    wait_until(lambda: read_app(node, "one", "other").get("phase") == "Ready", READY_SECONDS)
    assert synced_pods(node) == pods
    deleted = node.run_cli("vcluster", "delete", "dev", "--project", "other", "--yes")
    assert deleted.returncode == 0, deleted.stderr
    assert NAMESPACE not in node.host.get_names("namespaces")
    left = [each for kind in ("clusterroles", "clusterrolebindings") for each in node.host.get_names(kind)]
    assert [each for each in left if "dev" in each] == []
