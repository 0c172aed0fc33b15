"""A server with two fake clusters, `oslo` and `paris`, which record their requests.

Ada may use oslo. After the test, the server's log must have no traceback and no credential.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.harness.gateways import GatewayUser, connect_cluster, create_user
from tests.harness.server_process import Server, running_server

TOKEN = "stored-token-of-oslo"
PODS = "/api/v1/namespaces/default/pods"
REQUEST_SECONDS = 2


@dataclass(frozen=True, slots=True)
class GatewayFixture:
    server: Server
    oslo: FakeCluster
    paris: FakeCluster
    ada: GatewayUser
    """May use oslo."""
    audit_log: Path

    def client(self, *, http2: bool = False) -> httpx.Client:
        return self.server.client(self.ada.key, http2=http2)


@contextmanager
def run_two_clusters(folder: Path) -> Iterator[GatewayFixture]:
    paris_behaviour = ClusterOptions(uid="00000000-0000-4000-8000-00000000fa13")
    with (
        running_server(folder / "data", request_timeout=REQUEST_SECONDS) as server,
        FakeCluster() as oslo,
        FakeCluster(options=paris_behaviour) as paris,
        server.client() as admin,
    ):
        connect_cluster(admin, "oslo", oslo.build_kubeconfig(token=TOKEN))
        connect_cluster(admin, "paris", paris.build_kubeconfig(token="stored-token-of-paris"))
        yield GatewayFixture(
            server, oslo, paris, create_user(admin, "ada", "oslo", "use"), folder / "data" / "audit.log"
        )
        server.stop()
        logs = server.log.read_text() + (folder / "data" / "audit.log").read_text()
    assert "Traceback" not in logs
    assert "stored-token" not in logs


def get_user_requests(cluster: FakeCluster) -> list[RecordedRequest]:
    """Returns requests of users through the gateway, without the server's own probes."""
    return [each for each in cluster.requests if each.header("impersonate-user")]
