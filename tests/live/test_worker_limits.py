"""Limits, metrics and the audit log of a server with several workers are those of one server."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.server.flow.attempts import USER_BACKOFF
from tests.harness.eventually import wait_until
from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap
from tests.harness.worker_processes import OWNER, WORKER_1, kill_process, running_workers

CLIENT_COUNT = 12
"""Connections that are open at once: it is practically certain that each of two workers has some of them."""
MAX_WATCHES = 5


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For tests that end no process."""
    with running_workers(
        tmp_path_factory.mktemp("workers") / "data", watches_per_user=MAX_WATCHES, metrics_public="on"
    ) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_workers(tmp_path / "data", watches_per_user=MAX_WATCHES, metrics_public="on") as server:
        yield server


@pytest.fixture
def shared_clients(shared_server: Server) -> Iterator[list[httpx.Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(shared_server.client()) for _ in range(CLIENT_COUNT)]


@pytest.fixture
def clients(server: Server) -> Iterator[list[httpx.Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(server.client()) for _ in range(CLIENT_COUNT)]


def open_watches(server: Server, stack: ExitStack) -> list[int]:
    """Opens a watch on each of several connections. Returns the status of each."""
    statuses = []
    for _ in range(CLIENT_COUNT):
        client = stack.enter_context(server.client())
        response = stack.enter_context(client.stream("GET", CONFIGMAPS, params={"watch": "1", "timeoutSeconds": 600}))
        statuses.append(response.status_code)
        if response.status_code == 429:
            assert int(response.headers["retry-after"]) > 0
    return statuses


def test_the_limit_of_watches_covers_all_workers(shared_server: Server) -> None:
    for _ in range(2):  # they are released when they are closed
        with ExitStack() as stack:
            assert Counter(open_watches(shared_server, stack)) == {200: MAX_WATCHES, 429: CLIENT_COUNT - MAX_WATCHES}
        wait_until(lambda: count_open_watches(shared_server) == 0)


def test_the_limit_of_watches_covers_all_workers_that_open_the_store_themselves(tmp_path: Path) -> None:
    with running_workers(tmp_path / "data", "postgres", watches_per_user=MAX_WATCHES) as server, ExitStack() as stack:
        assert Counter(open_watches(server, stack)) == {200: MAX_WATCHES, 429: CLIENT_COUNT - MAX_WATCHES}


def count_open_watches(server: Server) -> float:
    return sum(read_metrics(server, "apiserver_longrunning_requests").values())


def read_metrics(server: Server, name: str) -> dict[str, float]:
    """The values of a family, by their labels as text. On a new connection, so at any of the workers."""
    with server.client(None) as client:
        response = client.get("/metrics", params={"name[]": name})
    assert response.status_code == 200, response.text
    families = text_string_to_metric_families(response.text)
    return {json.dumps(sample.labels): sample.value for family in families for sample in family.samples}


@pytest.mark.parametrize("name", [WORKER_1, OWNER])
def test_the_watches_of_a_killed_process_no_longer_count(server: Server, name: str) -> None:
    with ExitStack() as stack:
        assert open_watches(server, stack).count(200) == MAX_WATCHES
        kill_process(server, name)
        freed = MAX_WATCHES - count_open_watches(server)
        assert open_watches(server, stack).count(200) == freed


def test_failed_logins_are_throttled_across_workers(shared_clients: list[httpx.Client]) -> None:
    def guess(client: httpx.Client) -> int:
        body = {"username": "nobody", "password": "a wrong password"}
        return client.post("/auth/password/login", json=body).status_code

    free = USER_BACKOFF.free_attempts
    assert [guess(client) for client in shared_clients[:free]] == [401] * free
    with ThreadPoolExecutor(CLIENT_COUNT) as pool:
        statuses = Counter(pool.map(guess, shared_clients))
    # On a busy machine, the second may be over after which one more guess is allowed.
    assert statuses[429] >= CLIENT_COUNT - 2


def test_any_worker_serves_the_metrics_of_all(server: Server, clients: list[httpx.Client]) -> None:
    for number, client in enumerate(clients):
        client.post(CONFIGMAPS, json=configmap(f"c{number}")).raise_for_status()

    def count_creates() -> float:
        counts = read_metrics(server, "apiserver_request_total")
        return sum(
            value
            for labels, value in counts.items()
            if json.loads(labels).items() >= {"verb": "POST", "resource": "configmaps", "code": "201"}.items()
        )

    assert [count_creates() for _ in range(CLIENT_COUNT)] == [CLIENT_COUNT] * CLIENT_COUNT
    workers = [json.loads(labels)["worker"] for labels in read_metrics(server, "process_resident_memory_bytes")]
    assert sorted(workers) == ["1", "2", "owner"]
    kill_process(server, WORKER_1)
    assert count_creates() == CLIENT_COUNT, "the counters of a worker that has ended stay in the sum"


def read_audit_events(folder: Path) -> list[dict[str, Any]]:
    """All events of signed-in users. Fails for an incomplete line."""
    events = []
    for path in [*folder.glob("audit-*"), folder / "audit.log"]:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        events += [json.loads(line) for line in content.splitlines()]
    return events


def test_every_write_is_in_the_audit_log_exactly_once(
    server: Server, clients: list[httpx.Client], tmp_path: Path
) -> None:
    for number in range(40):
        for place, client in enumerate(clients):
            client.post(CONFIGMAPS, json=configmap(f"c{number}-{place}")).raise_for_status()
    assert server.stop() == 0
    created = Counter(
        event["objectRef"]["name"]
        for event in read_audit_events(tmp_path / "data")
        if event["verb"] == "create" and event["stage"] == "ResponseComplete"
    )
    expected = {f"c{number}-{place}" for number in range(40) for place in range(CLIENT_COUNT)}
    assert {name: created[name] for name in expected} == dict.fromkeys(expected, 1)


def test_a_revoked_key_is_rejected_by_all_workers_at_once(shared_clients: list[httpx.Client]) -> None:
    clients = shared_clients
    keys = f"{MANAGEMENT}/apis/management.service.sh/v1/ownedaccesskeys"
    for number in range(5):
        body = {
            "apiVersion": "management.service.sh/v1",
            "kind": "OwnedAccessKey",
            "metadata": {"name": f"k{number}"},
            "spec": {"user": "admin"},
        }
        value = clients[0].post(keys, json=body).raise_for_status().json()["spec"]["key"]
        bearer = {"Authorization": f"Bearer {value}"}
        assert {client.get(CONFIGMAPS, headers=bearer).status_code for client in clients} == {200}
        clients[number].delete(f"{keys}/k{number}").raise_for_status()
        assert {client.get(CONFIGMAPS, headers=bearer).status_code for client in clients} == {401}
