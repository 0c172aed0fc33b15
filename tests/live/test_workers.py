"""Several workers on one port: they are one server to clients, and the end of any process is survived or announced."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.harness.eventually import wait_until
from tests.harness.replicas import BECAME_LEADER, LEASE, NAMESPACES, read_log
from tests.harness.server_process import (
    CONFIGMAPS,
    MANAGEMENT,
    TIMEOUT_SECONDS,
    Server,
    configmap,
    expect_startup_error,
    running_server,
)
from tests.harness.worker_processes import (
    OWNER,
    STORES,
    WORKER_1,
    WORKER_2,
    count_events,
    find_pids,
    is_running,
    kill_process,
    running_workers,
    suspend,
)
from tests.live.writers import list_configmaps

CLIENT_COUNT = 12
"""Connections that are open at once: it is practically certain that each of two workers has some of them."""


@pytest.fixture(params=STORES)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with running_workers(tmp_path / "data", request.param) as server:
        yield server


@pytest.fixture
def clients(server: Server) -> Iterator[list[httpx.Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(server.client()) for _ in range(CLIENT_COUNT)]


def wait_for_controllers(server: Server, name: str) -> None:
    """Deletes a namespace, which needs the controllers."""
    with server.client() as client:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        client.post(NAMESPACES, json=body).raise_for_status()
        client.delete(f"{NAMESPACES}/{name}").raise_for_status()
        wait_until(lambda: client.get(f"{NAMESPACES}/{name}").status_code == 404)


class PersistentWriters:
    """Threads that create objects, on a new connection after each error, until `stop`. They record what was
    acknowledged, and every status other than success."""

    def __init__(self, server: Server) -> None:
        self.acknowledged: dict[str, str] = {}
        self.statuses: list[int] = []
        self._server = server
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(4)]
        for thread in self._threads:
            thread.start()

    def _write(self, writer: int) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                with self._server.client() as client:
                    while not self._stop.is_set():
                        number += 1
                        response = client.post(CONFIGMAPS, json=configmap(f"w{writer}-{number}"))
                        if response.status_code == 201:
                            version = response.json()["metadata"]["resourceVersion"]
                            self.acknowledged[f"w{writer}-{number}"] = version
                        else:
                            self.statuses.append(response.status_code)
            except httpx.HTTPError:
                continue

    def wait_for_more(self, count: int = 20) -> None:
        expected = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= expected, what="more writes are acknowledged")

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)
            assert not thread.is_alive()


def test_a_write_through_one_worker_is_visible_through_all(server: Server, clients: list[httpx.Client]) -> None:
    for number in range(3 * CLIENT_COUNT):
        created = clients[number % CLIENT_COUNT].post(CONFIGMAPS, json=configmap(f"c{number}"))
        assert created.status_code == 201, created.text
        for client in clients:
            assert client.get(f"{CONFIGMAPS}/c{number}").json() == created.json()


def test_the_controllers_run_in_one_worker(server: Server) -> None:
    wait_for_controllers(server, "temporary")
    assert count_events(server, BECAME_LEADER) == 1


def test_killed_processes_are_replaced_and_no_acknowledged_write_is_lost(server: Server) -> None:
    writers = PersistentWriters(server)
    try:
        for name in (WORKER_1, OWNER, WORKER_2, WORKER_1):
            writers.wait_for_more()
            kill_process(server, name)
            writers.wait_for_more()
    finally:
        writers.stop()
    # The owner was killed while writes were in progress: these may have happened, or not.
    assert set(writers.statuses) <= {503}
    assert writers.acknowledged.items() <= list_configmaps(server).items()
    wait_for_controllers(server, "temporary")
    threads = os.listdir(f"/proc/{server.process.pid}/task")
    assert len(threads) == 1, "a process with several threads must not be forked"


def test_the_replacement_of_the_leader_leads(server: Server) -> None:
    with server.client() as client:
        holder = wait_until(lambda: client.get(LEASE).json().get("spec", {}).get("holderIdentity"))
    kill_process(server, f"worker-{holder.rpartition('-')[2]}")
    # Another worker would have to wait until the lease expires.
    wait_until(lambda: count_events(server, BECAME_LEADER) == 2)
    with server.client() as client:
        assert client.get(LEASE).json()["spec"]["holderIdentity"] == holder
    wait_for_controllers(server, "temporary")


def test_connections_that_a_killed_worker_had_not_accepted_are_served_by_its_replacement(server: Server) -> None:
    suspend(find_pids(server)[WORKER_2])
    request = f"GET /version HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer {server.key}\r\n\r\n".encode()
    responses: list[bytes] = []

    def connect() -> None:
        with server.connect() as connection:
            connection.sendall(request)
            responses.append(connection.recv(100))

    threads = [threading.Thread(target=connect) for _ in range(CLIENT_COUNT)]
    for thread in threads:
        thread.start()
    wait_until(lambda: responses, what="the other worker responds")
    kill_process(server, WORKER_2)
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    assert [response[:12] for response in responses] == [b"HTTP/1.1 200"] * CLIENT_COUNT


def test_the_processes_end_with_their_supervisor(server: Server) -> None:
    pids = find_pids(server)
    assert len(pids) == 3
    server.kill()
    wait_until(lambda: not any(map(is_running, pids.values())))


def test_no_worker_holds_the_lease_after_a_stop_during_the_start(tmp_path: Path) -> None:
    """The next server would have to wait until the lease expires."""
    with running_server(tmp_path / "data", workers=3) as server:
        assert server.stop() == 0
    with running_server(tmp_path / "data", workers=1) as server, server.client() as client:
        lease = client.get(LEASE)
        assert lease.status_code == 404 or lease.json()["spec"]["holderIdentity"] == ""


def test_a_server_can_be_started_as_soon_as_the_supervisor_of_another_was_killed(tmp_path: Path) -> None:
    with running_workers(tmp_path / "data") as server:
        server.kill()
        with running_workers(tmp_path / "data") as again, again.client() as client:
            assert client.get(CONFIGMAPS).status_code == 200


@pytest.mark.parametrize("is_group_signalled", [False, True])
def test_a_stopped_server_ends_its_watches_and_leaves_no_process(server: Server, is_group_signalled: bool) -> None:
    """Terminals and service managers send the signal to all processes."""
    names: list[str] = []
    ended: list[bool] = []
    started = threading.Barrier(CLIENT_COUNT + 1)

    def watch() -> None:
        with server.client() as client, client.stream("GET", CONFIGMAPS, params={"watch": "1"}) as response:
            started.wait(TIMEOUT_SECONDS)
            for line in response.iter_lines():
                names.append(json.loads(line)["object"]["metadata"]["name"])
            ended.append(True)

    threads = [threading.Thread(target=watch) for _ in range(CLIENT_COUNT)]
    for thread in threads:
        thread.start()
    started.wait(TIMEOUT_SECONDS)
    with server.client() as client:
        client.post(CONFIGMAPS, json=configmap("last")).raise_for_status()
    wait_until(lambda: names == ["last"] * CLIENT_COUNT)
    pids = find_pids(server)
    for pid in [server.process.pid, *(pids.values() if is_group_signalled else ())]:
        os.kill(pid, signal.SIGTERM)
    assert server.process.wait(TIMEOUT_SECONDS) == 0
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    assert ended == [True] * CLIENT_COUNT
    assert not any(map(is_running, pids.values()))
    assert "Traceback" not in server.log.read_text()
    assert count_events(server, "a process does not stop in time; killing it") == 0
    assert count_events(server, "lost leadership: controllers are stopped in this replica") == 0


def test_a_worker_whose_event_loop_is_stuck_is_replaced(tmp_path: Path) -> None:
    with running_workers(tmp_path / "data", program="tests.live.impatient_supervisor") as server:
        pid = find_pids(server)[WORKER_2]
        suspend(pid)
        wait_until(lambda: find_pids(server)[WORKER_2] != pid)
        (reason,) = [line for line in read_log(server) if line["event"] == "a worker has ended; starting another one"]
        assert reason["reason"] == "was killed by SIGKILL"
        with server.client() as client:
            assert client.get(CONFIGMAPS).status_code == 200


def test_a_server_ends_when_its_store_in_memory_is_lost(tmp_path: Path) -> None:
    """It could start again only without all objects, and without the key that clients have."""
    with running_workers(tmp_path / "data", count=2, store="memory:") as server:
        with server.client() as client:
            client.post(CONFIGMAPS, json=configmap("lost")).raise_for_status()
        os.kill(find_pids(server)[OWNER], signal.SIGKILL)
        assert server.process.wait(TIMEOUT_SECONDS) == 1
        assert "all objects are lost" in server.log.read_text()
        assert not any(map(is_running, find_pids(server).values()))


def test_a_start_error_of_any_process_is_printed_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a database")
    fail = partial(expect_startup_error, workers=2)
    with running_workers(tmp_path / "data") as server:
        port = server.url.rpartition(":")[2]
        data = tmp_path / "data"
        assert f"in use by another server (process {server.process.pid})" in fail(data)
        assert "cannot listen on 127.0.0.1" in fail(tmp_path / "b", "--port", port)
        assert "not a database" in fail(tmp_path / "c", store=f"sqlite:{tmp_path / 'file'}")
        assert "in use by another server" in fail(tmp_path / "d", store=f"sqlite:{data / 'fairlead.db'}")
        (tmp_path / "e" / "store.socket" / "blocked").mkdir(parents=True, mode=0o700)
        (tmp_path / "e").chmod(0o700)
        assert "cannot create a socket for the workers" in fail(tmp_path / "e")
        with server.client() as client:
            assert client.get(f"{MANAGEMENT}/api/v1/namespaces").status_code == 200
