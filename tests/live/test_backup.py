"""Backups of servers that work, and what becomes of clients whose server has moved to another store."""

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
    environment,
    running,
)
from tests.live.test_shutdown import Writers, listed

SECRETS = f"{MANAGEMENT}/api/v1/namespaces/default/secrets"
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"word": "canary-in-a-backup"}}


def fairlead(*arguments: str) -> None:
    command = [sys.executable, "-m", "fairlead", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=3 * TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr


def remembered(folder: Path) -> tuple[int, bytes]:
    """The revision of a backup, and all that it holds in one piece."""
    with folder.open("rb") as file:
        backup = BackupReader(file)
        return backup.header.revision, b"".join(value for _, value in backup.records())


def status_of_watch(client: httpx.Client, version: str | int) -> int:
    """The code of the Status that a watch from there is answered with, or 200 where it goes on."""
    query = {"watch": "1", "resourceVersion": str(version), "timeoutSeconds": "1"}
    answer = client.get(CONFIGMAPS, params=query)
    told: dict[str, Any] = answer.json() if answer.text else {}
    told = told.get("object", told)
    return int(told.get("code", answer.status_code)) if told.get("kind") == "Status" else answer.status_code


def test_a_backup_taken_under_load_is_a_prefix_of_history_and_restores_to_a_server_that_knows_its_clients(
    tmp_path: Path,
) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "it.backup"
    with running(old) as server:
        with server.client() as client:
            first = client.post(CONFIGMAPS, json=configmap("first")).json()
            assert client.post(SECRETS, json=SECRET).status_code == 201
        writers = Writers(server)
        writers.wait_for(50)
        fairlead("backup", str(file), "--data", str(old))
        writers.wait_for(len(writers.acknowledged) + 50)
        server.kill()
        writers.join()
        key = server.key
    revision, content = remembered(file)
    assert b"canary-in-a-backup" not in content
    versions = {name: int(version) for name, version in writers.acknowledged.items()}
    before = {name for name, version in versions.items() if version <= revision}
    assert 50 <= len(before) < len(versions)

    fairlead("restore", str(file), "--data", str(new))
    for secret in ("encryption.keys", "pepper.key"):
        shutil.copy(old / secret, new / secret)
    with running(new) as restored:
        server = Server(restored.process, restored.url, key, restored.ca_file, restored.log)
        now = listed(server)
        assert set(now) == before | {"first"}
        assert min(map(int, now.values())) > max(versions.values())
        with server.client() as client:
            known(client, first, max(versions.values()))
            assert status_of_watch(client, revision) == 410


def known(client: httpx.Client, before: dict[str, Any], newest: int) -> None:
    """What clients whose server has moved rely on: uids, credentials, and that no version goes back or is mixed up."""
    again = client.get(f"{CONFIGMAPS}/{before['metadata']['name']}").json()
    assert again["metadata"]["uid"] == before["metadata"]["uid"]
    assert int(again["metadata"]["resourceVersion"]) > newest
    assert client.get(f"{SECRETS}/s").json()["data"] == {"word": "Y2FuYXJ5LWluLWEtYmFja3Vw"}
    assert client.put(f"{CONFIGMAPS}/{before['metadata']['name']}", json=before).status_code == 409
    for version in (newest, before["metadata"]["resourceVersion"]):
        assert status_of_watch(client, version) == 410
    assert status_of_watch(client, client.get(CONFIGMAPS).json()["metadata"]["resourceVersion"]) == 200


def test_a_server_moves_from_sqlite_to_postgresql_and_on_to_etcd(tmp_path: Path) -> None:
    data, online = tmp_path / "data", tmp_path / "online.backup"
    sqlite = f"sqlite:{data}/fairlead.db"
    postgres, etcd = asyncio.run(postgres_address(tmp_path / "copy")), asyncio.run(etcd_address(tmp_path / "copy"))
    with running(data) as server:
        with server.client() as client:
            client.post(SECRETS, json=SECRET)
            before = client.post(CONFIGMAPS, json=configmap("thing")).json()
        with pytest.raises(StartError, match="in use by another server"):
            asyncio.run(copy_store(sqlite, postgres))
        server.stop()
    fairlead("store", "copy", sqlite, postgres)
    with running(data, store=postgres) as server:
        with server.client() as client:
            known(client, before, int(before["metadata"]["resourceVersion"]))
            then = client.get(f"{CONFIGMAPS}/thing").json()
        with pytest.raises(StartError, match="stop all servers"):
            asyncio.run(copy_store(postgres, etcd))
        asyncio.run(back_up(postgres, str(online)))
        server.stop()
    assert verify_backup(str(online)).count > 10
    asyncio.run(copy_store(postgres, etcd, idle_seconds=0))
    with running(data, store=etcd) as server, server.client() as client:
        known(client, then, int(then["metadata"]["resourceVersion"]))
