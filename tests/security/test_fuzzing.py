"""Ten thousand requests that nobody should send, to one server, which should hardly notice.

HOSTILE_SEED and HOSTILE_REQUESTS choose other ones, and more of them. A failure names its seed.
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

from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, Server, configmap, running
from tests.security import api_resources, fuzz_run
from tests.security.conftest import assert_unharmed

SEED = os.environ.get("HOSTILE_SEED", "fairlead")
COUNT = int(os.environ.get("HOSTILE_REQUESTS", "10000"))
MEMORY = 64 * 1024 * 1024
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Aftermath:
    server: Server
    folder: Path
    world: api_resources.World
    storm: fuzz_run.Storm
    kept: dict[str, str]
    memory: int
    descriptors: int


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    folder = tmp_path_factory.mktemp("storm") / "data"
    with running(folder) as server:
        with server.client() as client:
            found = api_resources.explore(client, server.key)
            api_resources.furnish(client, found)
            kept = api_resources.settled(client, found)
        memory, descriptors = server.resident(), server.descriptors()
        raged = asyncio.run(fuzz_run.rage(server, found, SEED, COUNT))
        yield Aftermath(server, folder, found, raged, kept, memory, descriptors)


def test_no_answer_is_missing_malformed_indiscreet_or_an_error_of_ours(after: Aftermath) -> None:
    assert not after.storm.findings, f"{after.storm.report()}\n{after.server.log.read_text()[-3000:]}"
    assert after.storm.asked == COUNT


def test_those_who_watched_have_seen_nothing_odd(after: Aftermath) -> None:
    assert not after.storm.watched, "\n".join(after.storm.watched[:5])


def test_the_requests_have_gone_deep(after: Aftermath) -> None:
    """Otherwise the other tests would say little."""
    seen = after.storm.statuses
    assert {200, 201, 400, 401, 404, 405, 406, 409, 415, 422, 431} <= seen.keys()
    assert seen[200] + seen[201] + seen[409] + seen[422] > COUNT / 5


def test_the_log_has_nothing_to_say(after: Aftermath) -> None:
    assert_unharmed(after.server)


def test_it_still_reads_writes_and_watches(after: Aftermath) -> None:
    with after.server.client() as client, client.stream("GET", f"{CONFIGMAPS}?watch=1&timeoutSeconds=20") as watch:
        assert client.post(CONFIGMAPS, json=configmap("after-the-storm")).status_code == 201
        assert client.get(f"{CONFIGMAPS}/after-the-storm").status_code == 200
        names = (json.loads(line)["object"]["metadata"]["name"] for line in watch.iter_lines())
        assert "after-the-storm" in names


@pytest.mark.parametrize("accept", ["application/json", "application/yaml", TABLE])
def test_whatever_it_has_taken_in_can_be_read(after: Aftermath, accept: str) -> None:
    with after.server.client() as client:
        for resource in (each for each in after.world.resources if each.stored):
            found = client.get(f"{resource.root}/{resource.plural}", headers={"Accept": accept})
            assert found.status_code == 200, found.text


def test_what_was_there_before_is_unchanged(after: Aftermath) -> None:
    with after.server.client() as client:
        assert api_resources.snapshot(client, after.world) == after.kept


def test_memory_has_hardly_grown(after: Aftermath) -> None:
    assert after.server.resident() - after.memory < MEMORY


def test_every_descriptor_is_given_back(after: Aftermath) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while after.server.descriptors() > after.descriptors and time.monotonic() < until:
        time.sleep(0.05)
    assert after.server.descriptors() <= after.descriptors


def test_it_stops_in_peace_and_starts_again_with_all_it_had(after: Aftermath) -> None:
    with after.server.client() as client:
        had = _everything(client, after.world)
    assert after.server.stop() == 0
    with running(after.folder) as again, again.client() as client:
        assert _everything(client, after.world) == had


def _everything(client: httpx.Client, found: api_resources.World) -> dict[str, str]:
    """What does not change by itself: Events and the ends of namespaces go on."""
    lists = [each for each in found.resources if each.kind in ("ConfigMap", "Secret", "Lease", "App", "Cluster")]
    items = {each.plural: client.get(f"{each.root}/{each.plural}").json()["items"] for each in lists}
    return {plural: json.dumps([_lasting(each) for each in found]) for plural, found in items.items()}


def _lasting(obj: dict[str, Any]) -> dict[str, Any]:
    """Without what the server says about a cluster: it looks at it again and again, and when it starts."""
    if obj.get("kind") != "Cluster":
        return obj
    meta = obj["metadata"]
    return {
        "spec": obj["spec"],
        "metadata": {name: meta.get(name) for name in ("name", "uid", "labels", "annotations")},
    }
