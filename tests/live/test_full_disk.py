"""A full disk: writes are rejected with the reason, reads continue, and writes work again once there is space.

The small disk is a tmpfs, which only root may mount; otherwise its test is skipped with the reason. The limit on file
sizes works for every user, and has nearly the same effect on the database.
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

from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, configmap, running_server


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


def create_objects(client: httpx.Client, count: int) -> set[str]:
    """Creates objects while there is space; returns their names."""
    for number in range(count):
        response = client.post(CONFIGMAPS, json=configmap(f"before-{number}", text="x" * 50_000))
        assert response.status_code == 201
    return {f"before-{number}" for number in range(count)}


def check_only_writes_are_rejected(client: httpx.Client, before: set[str], expected: str) -> None:
    for _ in range(2):
        response = client.post(CONFIGMAPS, json=configmap("refused", text="x" * 50_000))
        status = response.json()
        assert (response.status_code, status["code"], status["reason"]) == (503, 503, "ServiceUnavailable")
        assert (status["kind"], status["status"]) == ("Status", "Failure")
        assert int(response.headers["retry-after"]) == status["details"]["retryAfterSeconds"] >= 1
        assert expected in status["message"]
    for path in ("/readyz", "/kubernetes/management/readyz"):
        ready = client.get(path)
        assert ready.status_code == 503
        assert "[-]store failed: " in ready.text and expected in ready.text
    assert client.get("/healthz").status_code == client.get("/livez").status_code == 200
    assert {item["metadata"]["name"] for item in client.get(CONFIGMAPS).json()["items"]} == before
    with client.stream("GET", CONFIGMAPS, params={"watch": "1", "timeoutSeconds": "1"}) as stream:
        events = [json.loads(line) for line in stream.iter_lines()]
    assert {event["object"]["metadata"]["name"] for event in events} == before


def wait_for_recovery(client: httpx.Client) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline, client.get("/readyz").text
        time.sleep(0.05)
    assert client.post(CONFIGMAPS, json=configmap("afterwards", text="y" * 50_000)).status_code == 201
    assert client.get(f"{CONFIGMAPS}/afterwards").status_code == 200


def test_a_full_disk_stops_writes_until_there_is_space_again(tmp_path: Path, small_disk: Path) -> None:
    store = f"sqlite:{small_disk / 'fairlead.db'}"
    with running_server(tmp_path / "data", store=store) as server, server.client() as client:
        before = create_objects(client, 5)
        filler = small_disk / "filler"
        with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        check_only_writes_are_rejected(client, before, "the disk is full; free some space")
        filler.unlink()
        wait_for_recovery(client)
        assert server.stop() == 0


def test_a_file_size_limit_stops_writes_until_it_is_lifted(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as client:
        before = create_objects(client, 5)
        limit = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        for pid in server.pids():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (100_000, limit[1]))
        check_only_writes_are_rejected(client, before, "fairlead.db")
        for pid in server.pids():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
        wait_for_recovery(client)
        assert server.stop() == 0
