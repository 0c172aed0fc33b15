"""Backups of running servers, and what clients see after their server has moved to another store."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead.app.maintenance import back_up, copy_store, verify_backup
from fairlead.settings import StartError
from fairlead.storage.backup import BackupReader
from tests.harness.durable_stores import etcd_address, postgres_address
from tests.harness.server_process import (
    CONFIGMAPS,
    MANAGEMENT,
    ROOT,
    TIMEOUT_SECONDS,
    Server,
    configmap,
    running_server,
    server_environment,
)
from tests.live.writers import Writers, list_configmaps

SECRETS = f"{MANAGEMENT}/api/v1/namespaces/default/secrets"
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"word": "canary-in-a-backup"}}


def run_fairlead(*arguments: str) -> None:
    command = [sys.executable, "-m", "fairlead", *arguments]
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=server_environment(),
        capture_output=True,
        text=True,
        timeout=3 * TIMEOUT_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def read_backup(folder: Path) -> tuple[int, bytes]:
    """Returns the revision of a backup, and all its values joined."""
    with folder.open("rb") as file:
        backup = BackupReader(file)
        return backup.header.revision, b"".join(value for _, value in backup.records())


def get_watch_status_code(client: httpx.Client, version: str | int) -> int:
    """Returns the code of the Status of a watch from this version, or 200 if the watch works."""
    query = {"watch": "1", "resourceVersion": str(version), "timeoutSeconds": "1"}
    response = client.get(CONFIGMAPS, params=query)
    status: dict[str, Any] = response.json() if response.text else {}
    status = status.get("object", status)
    return int(status.get("code", response.status_code)) if status.get("kind") == "Status" else response.status_code


def test_a_backup_under_load_is_a_prefix_of_the_history_and_can_be_restored(
    tmp_path: Path,
) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "it.backup"
    with running_server(old) as server:
        with server.client() as client:
            first = client.post(CONFIGMAPS, json=configmap("first")).json()
            assert client.post(SECRETS, json=SECRET).status_code == 201
        writers = Writers(server)
        writers.wait_for(50)
        run_fairlead("backup", str(file), "--data", str(old))
        writers.wait_for(len(writers.acknowledged) + 50)
        server.kill()
        writers.join()
        key = server.key
    revision, content = read_backup(file)
    assert b"canary-in-a-backup" not in content
    versions = {name: int(version) for name, version in writers.acknowledged.items()}
    before = {name for name, version in versions.items() if version <= revision}
    assert 50 <= len(before) < len(versions)

    run_fairlead("restore", str(file), "--data", str(new))
    for secret in ("encryption.keys", "pepper.key"):
        shutil.copy(old / secret, new / secret)
    with running_server(new) as restored:
        server = Server(restored.process, restored.url, key, restored.ca_file, restored.log)
        configmaps = list_configmaps(server)
        assert set(configmaps) == before | {"first"}
        assert min(map(int, configmaps.values())) > max(versions.values())
        with server.client() as client:
            check_moved_store(client, first, max(versions.values()))
            assert get_watch_status_code(client, revision) == 410


def check_moved_store(client: httpx.Client, before: dict[str, Any], newest: int) -> None:
    """Clients rely on uids, credentials, and versions that neither decrease nor become ambiguous."""
    current = client.get(f"{CONFIGMAPS}/{before['metadata']['name']}").json()
    assert current["metadata"]["uid"] == before["metadata"]["uid"]
    assert int(current["metadata"]["resourceVersion"]) > newest
    assert client.get(f"{SECRETS}/s").json()["data"] == {"word": "Y2FuYXJ5LWluLWEtYmFja3Vw"}
    assert client.put(f"{CONFIGMAPS}/{before['metadata']['name']}", json=before).status_code == 409
    for version in (newest, before["metadata"]["resourceVersion"]):
        assert get_watch_status_code(client, version) == 410
    assert get_watch_status_code(client, client.get(CONFIGMAPS).json()["metadata"]["resourceVersion"]) == 200


def test_a_server_moves_from_sqlite_to_postgresql_and_on_to_etcd(tmp_path: Path) -> None:
    data, online = tmp_path / "data", tmp_path / "online.backup"
    sqlite = f"sqlite:{data}/fairlead.db"
    postgres, etcd = asyncio.run(postgres_address(tmp_path / "copy")), asyncio.run(etcd_address(tmp_path / "copy"))
    with running_server(data) as server:
        with server.client() as client:
            client.post(SECRETS, json=SECRET)
            before = client.post(CONFIGMAPS, json=configmap("thing")).json()
        with pytest.raises(StartError, match="in use by another server"):
            asyncio.run(copy_store(sqlite, postgres))
        server.stop()
    run_fairlead("store", "copy", sqlite, postgres)
    with running_server(data, store=postgres) as server:
        with server.client() as client:
            check_moved_store(client, before, int(before["metadata"]["resourceVersion"]))
            after = client.get(f"{CONFIGMAPS}/thing").json()
        with pytest.raises(StartError, match="stop all servers"):
            asyncio.run(copy_store(postgres, etcd))
        asyncio.run(back_up(postgres, str(online)))
        server.stop()
    assert verify_backup(str(online)).count > 10
    asyncio.run(copy_store(postgres, etcd, idle_seconds=0))
    with running_server(data, store=etcd) as server, server.client() as client:
        check_moved_store(client, after, int(after["metadata"]["resourceVersion"]))
