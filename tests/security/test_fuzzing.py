"""Fuzzing: thousands of malformed requests to one server, and checks of its state afterwards.

HOSTILE_SEED and HOSTILE_REQUESTS set the seed and the number of requests; `make test-long` sends ten thousand. A
failure names its seed.
"""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, Server, configmap, running_server
from tests.requests import api_resources
from tests.security import fuzz_run
from tests.security.conftest import assert_healthy

SEED = os.environ.get("HOSTILE_SEED", "fairlead")
COUNTS = (int(os.environ.get("HOSTILE_REQUESTS", "3000")), pytest.param(10_000, marks=pytest.mark.long))
MAX_MEMORY_GROWTH = 96 * 1024 * 1024
"""Two threads search the audit log, and each keeps a window of 8 MiB and the pages that it builds."""
READER_DESCRIPTORS = 2
"""The second thread that reads the database opens it, and its WAL, when it is needed for the first time."""
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class FuzzedServer:
    server: Server
    folder: Path
    catalog: api_resources.ApiCatalog
    result: fuzz_run.FuzzResult
    snapshot: dict[str, str]
    memory: int
    descriptors: int
    count: int


@pytest.fixture(scope="module", params=COUNTS)
def fuzzed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedServer]:
    folder = tmp_path_factory.mktemp("fuzz") / "data"
    with running_server(folder) as server:
        with server.client() as client:
            catalog = api_resources.discover_api(client, server.key)
            api_resources.create_objects(client, catalog)
            snapshot = api_resources.wait_for_stable_snapshot(client, catalog)
        memory, descriptors = server.resident_bytes(), server.count_descriptors()
        result = asyncio.run(fuzz_run.run_fuzzing(server, catalog, SEED, request.param))
        yield FuzzedServer(server, folder, catalog, result, snapshot, memory, descriptors, request.param)


def test_no_response_is_missing_malformed_a_leak_or_a_server_error(fuzzed: FuzzedServer) -> None:
    assert not fuzzed.result.findings, f"{fuzzed.result.report()}\n{fuzzed.server.log.read_text()[-3000:]}"
    assert fuzzed.result.request_count == fuzzed.count


def test_watches_deliver_no_unexpected_events(fuzzed: FuzzedServer) -> None:
    assert not fuzzed.result.watch_faults, "\n".join(fuzzed.result.watch_faults[:5])


def test_the_requests_reach_every_kind_of_response(fuzzed: FuzzedServer) -> None:
    """Otherwise the other tests would prove little."""
    statuses = fuzzed.result.statuses
    assert {200, 201, 400, 401, 404, 405, 406, 409, 415, 422, 431} <= statuses.keys()
    assert statuses[200] + statuses[201] + statuses[409] + statuses[422] > fuzzed.count / 5


def test_the_server_stays_healthy(fuzzed: FuzzedServer) -> None:
    assert_healthy(fuzzed.server)


def test_reads_writes_and_watches_still_work(fuzzed: FuzzedServer) -> None:
    with fuzzed.server.client() as client, client.stream("GET", f"{CONFIGMAPS}?watch=1&timeoutSeconds=20") as watch:
        assert client.post(CONFIGMAPS, json=configmap("after-fuzzing")).status_code == 201
        assert client.get(f"{CONFIGMAPS}/after-fuzzing").status_code == 200
        names = (json.loads(line)["object"]["metadata"]["name"] for line in watch.iter_lines())
        assert "after-fuzzing" in names


@pytest.mark.parametrize("accept", ["application/json", "application/yaml", TABLE])
def test_every_stored_object_can_be_read(fuzzed: FuzzedServer, accept: str) -> None:
    with fuzzed.server.client() as client:
        for resource in (each for each in fuzzed.catalog.resources if each.is_stored):
            catalog = client.get(f"{resource.root}/{resource.plural}", headers={"Accept": accept})
            assert catalog.status_code == 200, catalog.text


def test_protected_objects_are_unchanged(fuzzed: FuzzedServer) -> None:
    with fuzzed.server.client() as client:
        assert api_resources.take_snapshot(client, fuzzed.catalog) == fuzzed.snapshot


def test_memory_hardly_grows(fuzzed: FuzzedServer) -> None:
    assert fuzzed.server.resident_bytes() - fuzzed.memory < MAX_MEMORY_GROWTH


def test_all_file_descriptors_are_closed(fuzzed: FuzzedServer) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    limit = fuzzed.descriptors + READER_DESCRIPTORS
    while fuzzed.server.count_descriptors() > limit and time.monotonic() < deadline:
        time.sleep(0.05)
    assert fuzzed.server.count_descriptors() <= limit


def test_the_server_restarts_with_the_same_objects(fuzzed: FuzzedServer) -> None:
    with fuzzed.server.client() as client:
        before = _list_stable_objects(client, fuzzed.catalog)
    assert fuzzed.server.stop() == 0
    with running_server(fuzzed.folder) as restarted, restarted.client() as client:
        assert _list_stable_objects(client, fuzzed.catalog) == before


def _list_stable_objects(client: httpx.Client, catalog: api_resources.ApiCatalog) -> dict[str, str]:
    """Objects that do not change by themselves, unlike Events and namespaces that are being deleted."""
    lists = [each for each in catalog.resources if each.kind in ("ConfigMap", "Secret", "Lease", "App", "Cluster")]
    items = {each.plural: client.get(f"{each.root}/{each.plural}").json()["items"] for each in lists}
    return {plural: json.dumps([_drop_volatile_fields(each) for each in catalog]) for plural, catalog in items.items()}


def _drop_volatile_fields(obj: dict[str, Any]) -> dict[str, Any]:
    """Drops what the server writes to a cluster when it probes it."""
    if obj.get("kind") != "Cluster":
        return obj
    meta = obj["metadata"]
    return {
        "spec": obj["spec"],
        "metadata": {name: meta.get(name) for name in ("name", "uid", "labels", "annotations")},
    }
