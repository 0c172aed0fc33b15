"""A disk that is full, for real: writes are refused and say why, reads go on, and all is well once there is space.

A small disk is a tmpfs that only root may mount; where that is not permitted its test is skipped and says why. The
limit on file sizes works for everybody, and to the database it is much the same.
"""

import json
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, configmap, running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("mount is not installed")
    options = ("-t", "tmpfs", "-o", "size=4m,mode=700", "fairlead-live-test", str(folder))
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def filled(client: httpx.Client, count: int) -> set[str]:
    """Objects that were written while there was space."""
    for number in range(count):
        answer = client.post(CONFIGMAPS, json=configmap(f"before-{number}", text="x" * 50_000))
        assert answer.status_code == 201
    return {f"before-{number}" for number in range(count)}


def refuses_writes_and_nothing_else(client: httpx.Client, before: set[str], expected: str) -> None:
    for _ in range(2):
        refused = client.post(CONFIGMAPS, json=configmap("refused", text="x" * 50_000))
        status = refused.json()
        assert (refused.status_code, status["code"], status["reason"]) == (503, 503, "ServiceUnavailable")
        assert (status["kind"], status["status"]) == ("Status", "Failure")
        assert int(refused.headers["retry-after"]) == status["details"]["retryAfterSeconds"] >= 1
        assert expected in status["message"]
    for path in ("/readyz", "/kubernetes/management/readyz"):
        ready = client.get(path)
        assert ready.status_code == 503
        assert "[-]store failed: " in ready.text and expected in ready.text
    assert client.get("/healthz").status_code == client.get("/livez").status_code == 200
    assert {item["metadata"]["name"] for item in client.get(CONFIGMAPS).json()["items"]} == before
    with client.stream("GET", CONFIGMAPS, params={"watch": "1", "timeoutSeconds": "1"}) as answer:
        events = [json.loads(line) for line in answer.iter_lines()]
    assert {event["object"]["metadata"]["name"] for event in events} == before


def recovers_by_itself(client: httpx.Client) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline, client.get("/readyz").text
        time.sleep(0.05)
    assert client.post(CONFIGMAPS, json=configmap("afterwards", text="y" * 50_000)).status_code == 201
    assert client.get(f"{CONFIGMAPS}/afterwards").status_code == 200


def test_a_full_disk_stops_writes_until_there_is_space_again(tmp_path: Path, small_disk: Path) -> None:
    store = f"sqlite:{small_disk / 'fairlead.db'}"
    with running(tmp_path / "data", store=store) as server, server.client() as client:
        before = filled(client, 5)
        filler = small_disk / "filler"
        with pytest.raises(OSError), filler.open("wb", buffering=0) as rest:
            while True:
                rest.write(bytes(4096))
        refuses_writes_and_nothing_else(client, before, "the disk is full; free some space")
        filler.unlink()
        recovers_by_itself(client)
        assert server.stop() == 0


def test_a_limit_on_files_stops_writes_until_it_is_lifted(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.client() as client:
        before = filled(client, 5)
        limit = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (100_000, limit[1]))
        refuses_writes_and_nothing_else(client, before, "fairlead.db")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limit)
        recovers_by_itself(client)
        assert server.stop() == 0
