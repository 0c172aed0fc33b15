"""Virtual clusters on a real node: a real kube-apiserver in a pod, which only a port-forward reaches.

Its kubeconfig names `localhost`, and there is no ingress and no NodePort. `mia` is an ordinary member.
"""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.harness.apps import create_app, install_app, uninstall_app, wait_until_deployed
from tests.harness.eventually import wait_until
from tests.harness.gateways import M, build_kubectl, create_key, create_resource, gateway_kubeconfig
from tests.harness.helm import CHARTS, HelmFixture, open_helm
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import Server
from tests.reference.connected_cluster import ConnectedCluster, seconds_since
from tests.reference.virtual_cluster_chart import CHART, import_kubernetes

PATH = "/kubernetes/project/demo/virtualcluster/dev"
READY_SECONDS = 120
Record = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class VirtualCluster:
    helm: HelmFixture
    server: Server
    node: ConnectedCluster
    mia: Kubectl
    mias_key: str
    ready_after: float

    @property
    def connection(self) -> dict[str, str]:
        path = f"{M}/namespaces/service-p-demo/virtualclusterinstances/dev"
        found: dict[str, str] = self.helm.admin.get(path).json()["status"]["connection"]
        return found


@pytest.fixture(scope="module")
def virtual(connected_node: ConnectedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCluster]:
    folder = tmp_path_factory.mktemp("virtual")
    import_kubernetes(connected_node.plane)
    with open_helm(folder, connected_node.plane.kubeconfig(), (*CHARTS, CHART)) as (helm, server):
        create_resource(helm.admin, "users", "User", "mia", username="mia")
        key = create_key(helm.admin, "mia", "mia")
        mia = build_kubectl(connected_node.program, folder / "mia", gateway_kubeconfig(server, PATH, key))
        chart = {"helmRelease": {"chart": {"name": CHART.name, "repo": helm.repository.url}, "values": ""}}
        create_resource(helm.admin, "virtualclustertemplates", "VirtualClusterTemplate", "dev", template=chart)
        start = time.monotonic()
        helm.create_virtual_cluster("dev", templateRef={"name": "dev"}, owner={"user": "mia"})
        wait_until(lambda: helm.condition("dev", "Ready").get("status") == "True", READY_SECONDS)
        yield VirtualCluster(helm, server, connected_node, mia, key, seconds_since(start))
        assert "Traceback" not in server.log.read_text()


def test_pods_a_member_uses_a_virtual_cluster_without_any_address(
    virtual: VirtualCluster, record_figure: Record
) -> None:
    online = virtual.helm.condition("dev", "VirtualClusterOnline")
    assert (online["reason"], online["message"]) == ("Tunnelled", 'it is reached by port-forward to pod "dev-0"')
    assert virtual.connection["mode"] == "Tunnel"
    review = json.loads(virtual.mia("auth", "whoami", "-o", "json"))
    assert review["status"]["userInfo"]["username"] == "fairlead:mia"
    virtual.mia("create", "deployment", "web", "--image=web", "--replicas=3")
    assert virtual.mia.get_names("deployments") == ["web"]
    record_figure(f"Ready {virtual.ready_after:.1f} s after its creation")


def test_pods_hundred_watches_and_50_mb(virtual: VirtualCluster, record_figure: Record) -> None:
    virtual.mia("create", "namespace", "large")
    for number in range(60):
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"c{number}"},
            "data": {"x": "y" * 900_000},
        }
        virtual.mia("create", "-n", "large", "-f", "-", body=json.dumps(body))
    start = time.monotonic()
    listed = virtual.mia("get", "--raw", "/api/v1/namespaces/large/configmaps")
    seconds = seconds_since(start)
    assert len(listed) > 50_000_000
    record_figure(f"{len(listed) / 1e6:.0f} MB in {seconds:.1f} s")
    with virtual.server.client(virtual.mias_key) as mia:
        streams = ThreadPoolExecutor(100)

        def watch(number: int) -> bytes:
            query = {"watch": "true", "timeoutSeconds": "8"}
            with mia.stream("GET", f"{PATH}/api/v1/namespaces", params=query, timeout=30) as response:
                assert response.status_code == 200
                return b"".join(response.iter_bytes())

        results = list(streams.map(watch, range(100)))
        assert all(b'"large"' in each for each in results)


def test_pods_a_pod_that_is_deleted_is_found_again(virtual: VirtualCluster, record_figure: Record) -> None:
    direct = virtual.node.direct_kubectl()
    before = virtual.connection["podUID"]
    direct("delete", "pod", "dev-0", "-n", "demo-v-dev", "--wait=true")
    direct("wait", "--for=condition=Ready", "pod/dev-0", "-n", "demo-v-dev", "--timeout=60s")
    start = time.monotonic()
    wait_until(lambda: virtual.mia.run("get", "--raw", "/version").returncode == 0, 30)
    seconds = seconds_since(start)
    record_figure(f"{seconds:.1f} s after its new pod was Ready")
    assert seconds < 3
    wait_until(lambda: virtual.connection["podUID"] != before, 60)


def test_pods_helm_deploys_an_app_inside(virtual: VirtualCluster) -> None:
    create_app(virtual.helm, "inside")
    wait_until(lambda: virtual.helm.condition("dev", "Ready").get("status") == "True", READY_SECONDS)
    install_app(virtual.helm, "inner", "inside", {"virtualClusterInstance": {"name": "dev"}}, version="1.0.0")
    wait_until_deployed(virtual.helm, "inner", 1)
    uninstall_app(virtual.helm, "inner")


def test_pods_a_virtual_cluster_with_another_authority_gets_no_request(virtual: VirtualCluster) -> None:
    chart = {
        "helmRelease": {"chart": {"name": CHART.name, "repo": virtual.helm.repository.url}, "values": "wrongCA: true"}
    }
    create_resource(virtual.helm.admin, "virtualclustertemplates", "VirtualClusterTemplate", "wrong", template=chart)
    virtual.helm.create_virtual_cluster("wrong", templateRef={"name": "wrong"}, owner={"user": "mia"})
    virtual.helm.wait_for_condition("wrong", "VirtualClusterOnline", "CertificateNotTrusted")
    virtual.helm.delete("wrong")
