"""Clusters that die: it is told soon, they come back by themselves, nothing is deleted, and nobody else suffers.

The cluster that dies is a Fairlead in a process of its own, which is killed; beside it stand one that answers and one
that takes connections and never says a word.
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
from tests.harness.gateways import (
    SYSTEM_SECRETS,
    M,
    connect,
    create_user,
    gateway_path,
    is_online,
    kubeconfig,
    status_of,
    wait_until,
)
from tests.harness.server_process import MANAGEMENT, ROOT, TIMEOUT_SECONDS, Server, command, environment, running
from tests.live.http2_client import Http2

REPORTED_SECONDS = 15.0
"""Not a measurement of speed: the promise itself is a time."""
REQUESTS = 4
"""Of one cluster at a time; so each user has one of them."""
RECOVERY_SECONDS = 35.0
"""A cluster that stays away is looked at less and less often, but at least twice a minute."""


@dataclass(frozen=True, slots=True)
class World:
    server: Server
    admin: httpx.Client
    healthy: FakeCluster


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("outages")
    with (
        running(folder / "near", cluster_requests=REQUESTS) as server,
        FakeCluster() as healthy,
        server.client() as admin,
    ):
        connect(admin, "healthy", healthy.build_kubeconfig())
        yield World(server, admin, healthy)


@contextmanager
def again(folder: Path, port: int) -> Iterator[None]:
    """A server that was killed, started anew where it was."""
    with folder.with_suffix(".log").open("ab") as errors:
        process = subprocess.Popen(
            command(folder, "--port", str(port), "--json"),
            cwd=ROOT,
            env=environment(),
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
def crowd(server: Server, *clusters: str) -> Iterator[list[int]]:
    """More requests to each of the clusters than it may have at a time. The statuses are there in the end."""
    statuses: list[int] = []

    def ask(cluster: str) -> None:
        with server.client() as client:
            statuses.append(client.get(f"{gateway_path(cluster)}/version").status_code)

    threads = [threading.Thread(target=ask, args=(name,)) for name in clusters for _ in range(3 * REQUESTS)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        for thread in threads:
            thread.join()
    assert len(statuses) == len(threads)


@pytest.fixture
def dead_ones(world: World) -> Iterator[tuple[str, ...]]:
    """One that takes connections and never says a word, and one that takes none."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=512) as listener,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        ports = {"silent": listener.getsockname()[1], "dead": other.getsockname()[1]}
        other.close()
        for name, port in ports.items():
            connect(world.admin, name, world.healthy.build_kubeconfig(server=f"https://127.0.0.1:{port}"))
        yield tuple(ports)


def test_a_killed_cluster_is_reported_and_comes_back_while_the_healthy_one_goes_on(
    world: World, dead_ones: tuple[str, ...], tmp_path: Path
) -> None:
    with crowd(world.server, *dead_ones) as statuses:
        assert_it_dies_and_comes_back(world, tmp_path / "far")
    assert set(statuses) <= {429, 503, 504}


def assert_it_dies_and_comes_back(world: World, folder: Path) -> None:
    admin = world.admin
    with running(folder) as far:
        port = urlsplit(far.url).port or 0
        connect(admin, "mortal", kubeconfig(far, MANAGEMENT, far.key).encode())
        wait_until(lambda: is_healthy(world) and is_online(admin, "mortal"))
        before = admin.get(f"{M}/clusters/mortal").json()
        assert admin.get(f"{gateway_path('mortal')}/version").status_code == 200
        far.kill()
        wait_until(lambda: is_healthy(world) and not is_online(admin, "mortal"), REPORTED_SECONDS)
        assert_gone(admin, far.key)
    assert is_online(admin, "healthy")
    with again(folder, port):
        wait_until(lambda: is_healthy(world) and is_online(admin, "mortal"), RECOVERY_SECONDS)
        assert admin.get(f"{gateway_path('mortal')}/version").status_code == 200
    after = admin.get(f"{M}/clusters/mortal").json()
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    assert admin.get(f"{SYSTEM_SECRETS}/cluster-mortal").status_code == 200


def is_healthy(world: World) -> bool:
    """Asked again and again, and never to be false."""
    with world.server.client() as client:
        assert client.get(f"{gateway_path('healthy')}/version", timeout=2).status_code == 200
    return True


def assert_gone(admin: httpx.Client, key: str) -> None:
    told = status_of(admin, "mortal")
    assert told["reason"] == "Offline" and told["message"]
    answer = admin.get(f"{gateway_path('mortal')}/version")
    assert (answer.status_code, answer.json()["reason"]) == (503, "ServiceUnavailable")
    assert "127.0.0.1" not in answer.text and key not in answer.text


def test_a_cluster_that_never_answers_has_a_limit_of_its_own(world: World) -> None:
    """Streams to it fill its places; who comes then is told to come again, and the other clusters have theirs."""
    with (
        FakeCluster(options=ClusterOptions(uid="busy")) as busy,
        world.server.client() as client,
        ExitStack() as streams,
    ):
        connect(world.admin, "busy", busy.build_kubeconfig())
        people = [create_user(world.admin, f"busy-{number}", "busy", "use") for number in range(REQUESTS)]
        clients = [streams.enter_context(world.server.client(each.key)) for each in people]
        for each in clients:
            assert streams.enter_context(each.stream("GET", f"{gateway_path('busy')}/fake/ticks")).status_code == 200
        answer = client.get(f"{gateway_path('busy')}/version")
        assert (answer.status_code, answer.json()["reason"]) == (503, "ServiceUnavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert client.get(f"{gateway_path('healthy')}/version").status_code == 200
        streams.close()
        wait_until(lambda: client.get(f"{gateway_path('busy')}/version").status_code == 200)


def test_one_user_takes_no_more_than_a_share_of_a_cluster(world: World) -> None:
    """Administrators, too."""
    with FakeCluster(options=ClusterOptions(uid="shared")) as far, world.server.client() as client:
        connect(world.admin, "shared", far.build_kubeconfig())
        other = create_user(world.admin, "shared-other", "shared", "use")
        with client.stream("GET", f"{gateway_path('shared')}/fake/ticks") as stream:
            assert stream.status_code == 200
            answer = client.get(f"{gateway_path('shared')}/version")
            assert (answer.status_code, answer.json()["reason"]) == (429, "TooManyRequests")
            assert int(answer.headers["retry-after"]) >= 1
            with world.server.client(other.key) as another:
                assert another.get(f"{gateway_path('shared')}/version").status_code == 200
        wait_until(lambda: client.get(f"{gateway_path('shared')}/version").status_code == 200)


async def ticking(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """A watch in which something happens all the time."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    while not reader.at_eof():
        writer.write(b'e\r\n{"type":"ADD"}\r\n')
        await writer.drain()
        await asyncio.sleep(0.05)
    return False


def test_a_cluster_that_dies_ends_its_watches_and_nothing_else_on_the_connection(world: World) -> None:
    """Over HTTP/2 a client has its streams from all clusters on one connection."""
    path = "/api/v1/pods"
    with FakeCluster(options=ClusterOptions(uid="dying")) as dying:
        connect(world.admin, "dying", dying.build_kubeconfig())
        for far in (dying, world.healthy):
            far.set_behaviour(path, ticking)
        client = Http2(world.server)
        try:
            lost = client.request("GET", f"{gateway_path('dying')}{path}?watch=true")
            kept = client.request("GET", f"{gateway_path('healthy')}{path}?watch=true")
            assert client.read(lambda: bool(client.bodies[lost] and client.bodies[kept]))
            dying.stop()
            assert client.read(lambda: lost in client.ended)
            before = len(client.bodies[kept])
            assert client.read(lambda: len(client.bodies[kept]) > before + 100)
            assert not client.closed and kept not in client.ended | client.reset
        finally:
            client.close()
