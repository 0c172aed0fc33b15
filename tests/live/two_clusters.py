"""A server with two clusters, `oslo` and `paris`, each a far side that keeps a record of what it was asked.

Ada may use oslo. What the server has logged in the end has no stumble in it, and no credential.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.harness.gateways import GatewayUser, connect, create_user
from tests.harness.server_process import Server, running

TOKEN = "stored-token-of-oslo"
PODS = "/api/v1/namespaces/default/pods"
REQUEST_SECONDS = 2


@dataclass(frozen=True, slots=True)
class World:
    server: Server
    oslo: FakeCluster
    paris: FakeCluster
    ada: GatewayUser
    """May use oslo."""
    audit_log: Path

    def client(self, *, http2: bool = False) -> httpx.Client:
        return self.server.client(self.ada.key, http2=http2)


@contextmanager
def two_clusters(folder: Path) -> Iterator[World]:
    elsewhere = ClusterOptions(uid="00000000-0000-4000-8000-00000000fa13")
    with (
        running(folder / "data", request_timeout=REQUEST_SECONDS) as server,
        FakeCluster() as oslo,
        FakeCluster(options=elsewhere) as paris,
        server.client() as admin,
    ):
        connect(admin, "oslo", oslo.build_kubeconfig(token=TOKEN))
        connect(admin, "paris", paris.build_kubeconfig(token="stored-token-of-paris"))
        yield World(server, oslo, paris, create_user(admin, "ada", "oslo", "use"), folder / "data" / "audit.log")
        server.stop()
        said = server.log.read_text() + (folder / "data" / "audit.log").read_text()
    assert "Traceback" not in said
    assert "stored-token" not in said


def asked_by_people(far: FakeCluster) -> list[RecordedRequest]:
    """What came through the gateway. The server asks how its clusters are in its own name."""
    return [each for each in far.requests if each.header("impersonate-user")]
