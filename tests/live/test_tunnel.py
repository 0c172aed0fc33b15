"""A virtual cluster behind the port-forward of its pod: a chart by real Helm, and a member's kubectl.

The cluster is another Fairlead, to which a fake cluster adds the Service, the pod and its port-forward.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, Responder
from tests.fake_cluster.kube import FakeKube, build_kube_responder
from tests.fake_cluster.pods import LOG_TEXT, serve_pod
from tests.fake_cluster.relay import build_relay
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.fake_cluster.virtual_cluster_pods import VirtualClusterPods
from tests.harness.eventually import BUSY_SECONDS, wait_until
from tests.harness.gateways import M, build_kubectl, create_key, create_resource, gateway_kubeconfig
from tests.harness.helm import HelmFixture, open_helm
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, Server, running_server

PATH = "/kubernetes/project/demo/virtualcluster/dev"
BIG = b'{"kind": "ConfigMapList", "apiVersion": "v1", "items": [], "x": "' + b"y" * 50_000_000 + b'"}'


@dataclass(frozen=True, slots=True)
class Tunnel:
    helm: HelmFixture
    server: Server
    inner: FakeCluster
    pods: VirtualClusterPods
    mia: Kubectl

    def status(self) -> dict[str, Any]:
        path = f"{M}/namespaces/service-p-demo/virtualclusterinstances/dev"
        found: dict[str, Any] = self.helm.admin.get(path).json()["status"]
        return found


def build_responder(kube: FakeKube, *parts: str) -> Responder:
    """Responds with the objects of `kube` if the path has one of these parts."""
    respond = build_kube_responder(kube)

    def respond_to_parts(request: RecordedRequest) -> CannedResponse | None:
        return respond(request) if any(each in request.path for each in parts) else None

    return respond_to_parts


@contextmanager
def relaying(host: FakeCluster, remote: Server) -> Iterator[None]:
    """Everything else is done by the remote server."""
    host.other_requests = build_relay(remote.url, MANAGEMENT, remote.key, remote.ca_file)
    yield


@pytest.fixture(scope="module")
def tunnel(component: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tunnel]:
    folder = tmp_path_factory.mktemp("tunnel")
    kube = FakeKube()
    with (
        running_server(folder / "remote") as remote,
        FakeCluster(build_responder(kube, "demo-v-dev/services", "demo-v-dev/pods")) as host,
        FakeCluster(build_responder(FakeKube(), "/apis/rbac."), ClusterOptions(names=("localhost",))) as inner,
        relaying(host, remote),
        open_helm(folder / "server", host.build_kubeconfig().decode()) as (helm, server),
    ):
        serve_pod(inner)
        inner.set_response("/api/v1/configmaps", CannedResponse(body=BIG))
        pods = VirtualClusterPods(host, kube)
        create_resource(helm.admin, "users", "User", "mia", username="mia")
        key = create_key(helm.admin, "mia", "mia")
        mia = build_kubectl(component("kubectl"), folder / "mia", gateway_kubeconfig(server, PATH, key))
        chart = helm.release(kubeconfig=inner.build_kubeconfig("inner", server="https://localhost:8443").decode())
        create_resource(helm.admin, "virtualclustertemplates", "VirtualClusterTemplate", "dev", template=chart)
        helm.create_virtual_cluster("dev", templateRef={"name": "dev"}, owner={"user": "mia"})
        helm.wait_for_condition("dev", "VirtualClusterOnline", "ServiceNotFound")
        pods.add_service(inner.port)
        helm.wait_for_condition("dev", "VirtualClusterOnline", "WaitingForPod")
        pods.add_pod("dev-0")
        helm.wait_for_condition("dev", "VirtualClusterReady", "Ready")
        yield Tunnel(helm, server, inner, pods, mia)
        assert "Traceback" not in server.log.read_text()


def test_a_member_uses_the_virtual_cluster_with_kubectl(tunnel: Tunnel) -> None:
    assert tunnel.helm.condition("dev", "VirtualClusterOnline")["reason"] == "Tunnelled"
    expected = {"mode": "Tunnel", "service": "dev", "port": tunnel.inner.port, "pod": "dev-0"}
    assert expected.items() <= tunnel.status()["connection"].items()
    assert tunnel.mia("exec", "p", "-i", "--", "cat", body="through two servers") == "through two servers"
    assert tunnel.mia("logs", "p") == LOG_TEXT
    request = tunnel.inner.requests[-1]
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
    wait_until(lambda: tunnel.status()["connection"]["pod"] == "dev-1", 60)


def test_without_a_pod_the_error_says_what_is_missing(tunnel: Tunnel) -> None:
    (name,) = [path.rpartition("/")[2] for path in tunnel.pods.kube.objects if "/pods/" in path]
    tunnel.pods.remove_pod(name)
    with tunnel.server.client() as admin:
        answer = admin.get(f"{PATH}/version")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert 'no ready pod behind Service "dev": none exists' in answer.json()["message"]
    tunnel.pods.add_pod("dev-2")
