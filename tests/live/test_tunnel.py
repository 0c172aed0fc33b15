"""A virtual cluster behind the port-forward of its pod: a chart by real Helm, and a member's kubectl.

The cluster is another Fairlead, to which a fake cluster adds the Service, the pod and its port-forward.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fake_cluster.exchange import CannedResponse
from tests.fake_cluster.pods import LOG_TEXT, serve_pod
from tests.fake_cluster.virtual_cluster_pods import VirtualClusterPods
from tests.harness.eventually import BUSY_SECONDS, wait_until
from tests.harness.gateways import M, build_kubectl, create_key, create_resource, gateway_kubeconfig
from tests.harness.kubectl import Kubectl
from tests.harness.tunnel_cluster import TunnelCluster, open_tunnel_cluster

PATH = "/kubernetes/project/demo/virtualcluster/dev"
BIG = b'{"kind": "ConfigMapList", "apiVersion": "v1", "items": [], "x": "' + b"y" * 50_000_000 + b'"}'


@dataclass(frozen=True, slots=True)
class Tunnel:
    cluster: TunnelCluster
    pods: VirtualClusterPods
    mia: Kubectl

    def condition(self, type: str) -> dict[str, Any]:
        return self.cluster.helm.condition("dev", type)

    def connection(self) -> dict[str, Any]:
        path = f"{M}/namespaces/service-p-demo/virtualclusterinstances/dev"
        found: dict[str, Any] = self.cluster.helm.admin.get(path).json()["status"]["connection"]
        return found


@pytest.fixture(scope="module")
def tunnel(component: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tunnel]:
    folder = tmp_path_factory.mktemp("tunnel")
    with open_tunnel_cluster(folder) as cluster:
        helm = cluster.helm
        serve_pod(cluster.inner)
        cluster.inner.set_response("/api/v1/configmaps", CannedResponse(body=BIG))
        create_resource(helm.admin, "users", "User", "mia", username="mia")
        key = create_key(helm.admin, "mia", "mia")
        mia = build_kubectl(component("kubectl"), folder / "mia", gateway_kubeconfig(cluster.server, PATH, key))
        cluster.create_template()
        helm.create_virtual_cluster("dev", templateRef={"name": "tunnelled"}, owner={"user": "mia"})
        helm.wait_for_condition("dev", "VirtualClusterOnline", "ServiceNotFound")
        pods = cluster.pods_of("dev")
        pods.add_service(cluster.inner.port)
        helm.wait_for_condition("dev", "VirtualClusterOnline", "WaitingForPod")
        pods.add_pod("dev-0")
        helm.wait_for_condition("dev", "VirtualClusterReady", "Ready")
        yield Tunnel(cluster, pods, mia)
        assert "Traceback" not in cluster.server.log.read_text()


def test_a_member_uses_the_virtual_cluster_with_kubectl(tunnel: Tunnel) -> None:
    assert tunnel.condition("VirtualClusterOnline")["reason"] == "Tunnelled"
    expected = {"mode": "Tunnel", "service": "dev", "port": tunnel.cluster.inner.port, "pod": "dev-0"}
    assert expected.items() <= tunnel.connection().items()
    assert tunnel.mia("exec", "p", "-i", "--", "cat", body="through two servers") == "through two servers"
    assert tunnel.mia("logs", "p") == LOG_TEXT
    request = tunnel.cluster.inner.requests[-1]
    assert request.header("authorization") == "Bearer inner"
    assert request.header("impersonate-user") == "fairlead:mia"


def test_50_mb_are_complete(tunnel: Tunnel) -> None:
    assert len(tunnel.mia("get", "--raw", "/api/v1/configmaps")) == len(BIG)


def test_a_new_pod_is_found_within_seconds(tunnel: Tunnel) -> None:
    tunnel.mia("get", "--raw", "/version")
    tunnel.pods.remove_pod("dev-0")
    tunnel.pods.add_pod("dev-1")
    start = time.monotonic()
    tunnel.mia("get", "--raw", "/version")
    assert time.monotonic() - start < 3 + BUSY_SECONDS
    wait_until(lambda: tunnel.connection()["pod"] == "dev-1", 60)


def test_without_a_pod_the_error_says_what_is_missing(tunnel: Tunnel) -> None:
    (name,) = [path.rpartition("/")[2] for path in tunnel.pods.kube.objects if "/pods/" in path]
    tunnel.pods.remove_pod(name)
    with tunnel.cluster.server.client() as admin:
        answer = admin.get(f"{PATH}/version")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert 'no ready pod behind Service "dev": none exists' in answer.json()["message"]
    tunnel.pods.add_pod("dev-2")
