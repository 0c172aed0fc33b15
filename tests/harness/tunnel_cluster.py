"""A server with a connected cluster in which virtual clusters are reached by port-forward only.

The cluster is another Fairlead, so that Helm deploys charts into it, and a fake cluster in front of it adds Services,
pods and their port-forward. What runs in the pods is one more fake cluster, with a certificate for `localhost`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, Responder
from tests.fake_cluster.kube import FakeKube, build_kube_responder
from tests.fake_cluster.relay import build_relay
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.fake_cluster.virtual_cluster_pods import VirtualClusterPods
from tests.harness.gateways import create_resource
from tests.harness.helm import HelmFixture, open_helm
from tests.harness.server_process import MANAGEMENT, Server, running_server


@dataclass(frozen=True, slots=True)
class TunnelCluster:
    helm: HelmFixture
    server: Server
    host: FakeCluster
    kube: FakeKube
    inner: FakeCluster

    def create_template(self, name: str = "tunnelled") -> None:
        """A template whose chart stores a kubeconfig with a loopback address."""
        kubeconfig = self.inner.build_kubeconfig("inner", server="https://localhost:8443").decode()
        release = self.helm.release(kubeconfig=kubeconfig)
        create_resource(self.helm.admin, "virtualclustertemplates", "VirtualClusterTemplate", name, template=release)

    def pods_of(self, name: str) -> VirtualClusterPods:
        """The Service and the pods of a virtual cluster, of which there are none yet."""
        return VirtualClusterPods(self.host, self.kube, f"demo-v-{name}", name)


def _build_responder(kube: FakeKube, *parts: str) -> Responder:
    """Responds with the objects of `kube` if the path has one of these parts."""
    respond = build_kube_responder(kube)

    def respond_to_parts(request: RecordedRequest) -> CannedResponse | None:
        return respond(request) if any(each in request.path for each in parts) else None

    return respond_to_parts


@contextmanager
def open_tunnel_cluster(folder: Path) -> Iterator[TunnelCluster]:
    kube = FakeKube()
    options = ClusterOptions(names=("localhost", "127.0.0.1"))
    with (
        running_server(folder / "remote") as remote,
        FakeCluster(_build_responder(kube, "/services", "/pods")) as host,
        FakeCluster(_build_responder(FakeKube(), "/apis/rbac."), options) as inner,
    ):
        host.other_requests = build_relay(remote.url, MANAGEMENT, remote.key, remote.ca_file)
        with open_helm(folder / "server", host.build_kubeconfig().decode()) as (helm, server):
            yield TunnelCluster(helm, server, host, kube, inner)
