"""The key of the first administrator: it expires, and is replaced on the machine of the server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.harness.eventually import wait_until
from tests.harness.server_process import ROOT, Server, running_server, server_environment

KEY = "/kubernetes/management/apis/management.service.sh/v1/ownedaccesskeys/admin-first-key"
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
ANNOTATION = "service.sh/expires-unless-replaced"


def reset(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "fairlead", "admin", "reset", "--data", str(folder), "--yes"]
    return subprocess.run(command, cwd=ROOT, env=server_environment(), capture_output=True, text=True, check=False)


def is_accepted(server: Server, key: str) -> bool:
    with server.client(key) as client:
        return client.get(KEY).status_code == 200


def expire(server: Server) -> None:
    """Moves the expiry of the first key into the past, which an administrator may do."""
    body = {"metadata": {"annotations": {ANNOTATION: "2026-01-01T00:00:00Z"}}}
    with server.client() as client:
        assert client.patch(KEY, content=json.dumps(body), headers=MERGE_PATCH).status_code == 200
    assert wait_until(lambda: not is_accepted(server, server.key))


def test_the_key_is_replaced_while_the_server_runs(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running_server(folder) as server:
        with server.client() as client:
            assert ANNOTATION in client.get(KEY).json()["metadata"]["annotations"]
        done = reset(folder)
        assert done.returncode == 0, done.stderr
        key = done.stdout.strip()
        assert is_accepted(server, key) and not is_accepted(server, server.key)
        config = yaml.safe_load((folder / "admin.kubeconfig").read_bytes())
        assert config["users"][0]["user"]["token"] == key
        assert sorted(path.name for path in folder.glob("admin.reset*")) == []


@pytest.mark.long
def test_an_expired_key_is_replaced_by_the_next_start_of_up(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running_server(folder) as server:
        expire(server)
        server.stop()
    with running_server(folder) as server:
        assert is_accepted(server, server.key)
        first = server.key
        server.stop()
    with running_server(folder) as server:  # it is not replaced as long as it works
        assert server.key == first and is_accepted(server, first)


def test_the_key_is_replaced_at_the_next_start_if_no_server_runs(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running_server(folder) as server:
        before = server.key
        server.stop()
    done = reset(folder)
    assert done.returncode == 0 and "at its next start" in done.stderr and not done.stdout
    with running_server(folder) as server:
        assert server.key != before and is_accepted(server, server.key) and not is_accepted(server, before)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = reset(tmp_path / "missing")
    assert done.returncode == 1 and "no such folder" in done.stderr
