"""Clusters that fail: the outage is reported soon, ends by itself, deletes nothing, and does not affect other clusters.

The failing cluster is a Fairlead process, which is killed; others are a healthy one, and one that accepts connections
and never responds.
"""

import asyncio
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    SYSTEM_SECRETS,
    M,
    cluster_status,
    connect_cluster,
    create_user,
    gateway_kubeconfig,
    gateway_path,
    is_online,
)
from tests.harness.server_process import (
    MANAGEMENT,
    ROOT,
    TIMEOUT_SECONDS,
    Server,
    running_server,
    server_command,
    server_environment,
)
from tests.live.http2_client import Http2Client

REPORTED_SECONDS = 15.0
"""Not a performance test: the time itself is guaranteed."""
REQUESTS = 4
"""Concurrent requests to one cluster; each user may have one of them."""
RECOVERY_SECONDS = 35.0
"""An offline cluster is probed less and less often, but at least twice a minute."""


@dataclass(frozen=True, slots=True)
class GatewayFixture:
    server: Server
    admin: httpx.Client
    healthy: FakeCluster


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayFixture]:
    folder = tmp_path_factory.mktemp("outages")
    with (
        running_server(folder / "server", cluster_requests=REQUESTS) as server,
        FakeCluster() as healthy,
        server.client() as admin,
    ):
        connect_cluster(admin, "healthy", healthy.build_kubeconfig())
        yield GatewayFixture(server, admin, healthy)


@contextmanager
def restart(folder: Path, port: int) -> Iterator[None]:
    """Restarts a killed server with the same folder and port."""
    with folder.with_suffix(".log").open("ab") as errors:
        process = subprocess.Popen(
            server_command(folder, "--port", str(port), "--json"),
            cwd=ROOT,
            env=server_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        yield
    finally:
        process.kill()
        process.wait(TIMEOUT_SECONDS)


@contextmanager
def overload(server: Server, *clusters: str) -> Iterator[list[int]]:
    """Sends more requests to each cluster than its limit allows; yields the list of their status codes."""
    statuses: list[int] = []

    def send_request(cluster: str) -> None:
        with server.client() as client:
            statuses.append(client.get(f"{gateway_path(cluster)}/version").status_code)

    threads = [threading.Thread(target=send_request, args=(name,)) for name in clusters for _ in range(3 * REQUESTS)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        for thread in threads:
            thread.join()
    assert len(statuses) == len(threads)


@pytest.fixture
def dead_clusters(gateway: GatewayFixture) -> Iterator[tuple[str, ...]]:
    """One cluster that accepts connections and never responds, and one that accepts none."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=512) as listener,
        socket.create_server(("127.0.0.1", 0)) as closed_listener,
    ):
        ports = {"silent": listener.getsockname()[1], "dead": closed_listener.getsockname()[1]}
        closed_listener.close()
        for name, port in ports.items():
            connect_cluster(gateway.admin, name, gateway.healthy.build_kubeconfig(server=f"https://127.0.0.1:{port}"))
        yield tuple(ports)


def test_a_killed_cluster_is_reported_and_recovers_while_the_healthy_one_responds(
    gateway: GatewayFixture, dead_clusters: tuple[str, ...], tmp_path: Path
) -> None:
    with overload(gateway.server, *dead_clusters) as statuses:
        check_outage_and_recovery(gateway, tmp_path / "remote")
    assert set(statuses) <= {429, 503, 504}


def check_outage_and_recovery(gateway: GatewayFixture, folder: Path) -> None:
    admin = gateway.admin
    with running_server(folder) as remote:
        port = urlsplit(remote.url).port or 0
        connect_cluster(admin, "killed", gateway_kubeconfig(remote, MANAGEMENT, remote.key).encode())
        wait_until(lambda: check_healthy_cluster(gateway) and is_online(admin, "killed"))
        before = admin.get(f"{M}/clusters/killed").json()
        assert admin.get(f"{gateway_path('killed')}/version").status_code == 200
        remote.kill()
        wait_until(lambda: check_healthy_cluster(gateway) and not is_online(admin, "killed"), REPORTED_SECONDS)
        check_offline(admin, remote.key)
    assert is_online(admin, "healthy")
    with restart(folder, port):
        wait_until(lambda: check_healthy_cluster(gateway) and is_online(admin, "killed"), RECOVERY_SECONDS)
        assert admin.get(f"{gateway_path('killed')}/version").status_code == 200
    after = admin.get(f"{M}/clusters/killed").json()
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    assert admin.get(f"{SYSTEM_SECRETS}/cluster-killed").status_code == 200


def check_healthy_cluster(gateway: GatewayFixture) -> bool:
    """Requests a healthy cluster; fails if it ever does not respond."""
    with gateway.server.client() as client:
        assert client.get(f"{gateway_path('healthy')}/version").status_code == 200
    return True


def check_offline(admin: httpx.Client, key: str) -> None:
    status = cluster_status(admin, "killed")
    assert status["reason"] == "Offline" and status["message"]
    response = admin.get(f"{gateway_path('killed')}/version")
    assert (response.status_code, response.json()["reason"]) == (503, "ServiceUnavailable")
    assert "127.0.0.1" not in response.text and key not in response.text


def test_each_cluster_has_a_request_limit_of_its_own(gateway: GatewayFixture) -> None:
    """Streams use up its limit; further requests get a 503 with Retry-After, and other clusters are not affected."""
    with (
        FakeCluster(options=ClusterOptions(uid="busy")) as busy,
        gateway.server.client() as client,
        ExitStack() as streams,
    ):
        connect_cluster(gateway.admin, "busy", busy.build_kubeconfig())
        users = [create_user(gateway.admin, f"busy-{number}", "busy", "use") for number in range(REQUESTS)]
        clients = [streams.enter_context(gateway.server.client(each.key)) for each in users]
        for each in clients:
            assert streams.enter_context(each.stream("GET", f"{gateway_path('busy')}/fake/ticks")).status_code == 200
        response = client.get(f"{gateway_path('busy')}/version")
        assert (response.status_code, response.json()["reason"]) == (503, "ServiceUnavailable")
        assert int(response.headers["retry-after"]) >= 1
        assert client.get(f"{gateway_path('healthy')}/version").status_code == 200
        streams.close()
        wait_until(lambda: client.get(f"{gateway_path('busy')}/version").status_code == 200)


def test_one_user_gets_429_over_its_share_of_a_cluster(gateway: GatewayFixture) -> None:
    """Administrators, too."""
    with FakeCluster(options=ClusterOptions(uid="shared")) as cluster, gateway.server.client() as client:
        connect_cluster(gateway.admin, "shared", cluster.build_kubeconfig())
        other_user = create_user(gateway.admin, "shared-other", "shared", "use")
        with client.stream("GET", f"{gateway_path('shared')}/fake/ticks") as stream:
            assert stream.status_code == 200
            response = client.get(f"{gateway_path('shared')}/version")
            assert (response.status_code, response.json()["reason"]) == (429, "TooManyRequests")
            assert int(response.headers["retry-after"]) >= 1
            with gateway.server.client(other_user.key) as another:
                assert another.get(f"{gateway_path('shared')}/version").status_code == 200
        wait_until(lambda: client.get(f"{gateway_path('shared')}/version").status_code == 200)


async def send_watch_events(
    request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """A watch that sends events all the time."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    while not reader.at_eof():
        writer.write(b'e\r\n{"type":"ADD"}\r\n')
        await writer.drain()
        await asyncio.sleep(0.05)
    return False


def test_a_stopped_cluster_ends_its_own_watches_on_a_shared_http2_connection_only(gateway: GatewayFixture) -> None:
    """Over HTTP/2 a client has its streams from all clusters on one connection."""
    path = "/api/v1/pods"
    with FakeCluster(options=ClusterOptions(uid="dying")) as dying:
        connect_cluster(gateway.admin, "dying", dying.build_kubeconfig())
        for cluster in (dying, gateway.healthy):
            cluster.set_behaviour(path, send_watch_events)
        client = Http2Client(gateway.server)
        try:
            interrupted_stream = client.request("GET", f"{gateway_path('dying')}{path}?watch=true")
            healthy_stream = client.request("GET", f"{gateway_path('healthy')}{path}?watch=true")
            assert client.read(lambda: bool(client.bodies[interrupted_stream] and client.bodies[healthy_stream]))
            dying.stop()
            assert client.read(lambda: interrupted_stream in client.ended)
            before = len(client.bodies[healthy_stream])
            assert client.read(lambda: len(client.bodies[healthy_stream]) > before + 100)
            assert not client.closed and healthy_stream not in client.ended | client.reset
        finally:
            client.close()
