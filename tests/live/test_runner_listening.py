"""A runner that listens: the server connects to it, both ends authenticate, and failures are in a condition."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.eventually import wait_until
from tests.harness.server_process import ROOT, Server, running_server, server_environment
from tests.live.test_runner_secrets import make_repository
from tests.live.workspace_setup import WORKSPACE, M, create_object, open_socket, wait_for_runner

RUNNER = f"{M}/runners/local"


@dataclass(frozen=True, slots=True)
class ListeningRunner:
    process: "subprocess.Popen[bytes]"
    address: str
    fingerprint: str
    log: Path


@contextmanager
def listening_runner(server: Server, key: str, folder: Path, address: str = "127.0.0.1:0") -> Iterator[ListeningRunner]:
    """All have the same state, by which they are one machine: another one would wait for the Lease of the former."""
    state = server.log.parent / "runner-state"
    folder.mkdir(exist_ok=True)
    (folder / "key").write_text(key)
    (folder / "key").chmod(0o600)
    command = [
        *(sys.executable, "-m", "fairlead", "runner", "start", "local", "--server", server.url, "--json"),
        *("--ca-file", server.ca_file, "--key-file", str(folder / "key"), "--state", str(state)),
        *("--engine", "process", "--listen", address),
    ]
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=server_environment(), stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "log").read_text()
        ready = json.loads(line)
        yield ListeningRunner(process, ready["listen"], ready["endpointFingerprint"], folder / "log")
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("listening") / "data", log_level="info", workers=2) as server:
        yield server


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
        for path in (WORKSPACE, RUNNER, f"{M}/projects/web"):
            client.delete(path)
            wait_until(lambda path=path: client.get(path).status_code == 404)  # type: ignore[misc]


@pytest.fixture
def key(admin: httpx.Client) -> str:
    create_object(admin, f"{M}/projects", "Project", "web")
    create_object(admin, f"{M}/runners", "Runner", "local")
    found: str = admin.get(f"{RUNNER}/accesskey").json()["accessKey"]
    return found


def set_endpoint(client: httpx.Client, endpoint: str, fingerprint: str) -> httpx.Response:
    spec = {"endpoint": endpoint or None, "endpointFingerprint": fingerprint or None}
    headers = {"Content-Type": "application/merge-patch+json"}
    return client.patch(RUNNER, json={"spec": spec}, headers=headers)


def find_condition(client: httpx.Client) -> dict[str, Any]:
    conditions = client.get(RUNNER).json().get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Reachable"), {})


def wait_for_reason(client: httpx.Client, reason: str) -> dict[str, Any]:
    return wait_until(lambda: found if (found := find_condition(client)).get("reason") == reason else None)


def test_the_server_connects_and_workspaces_work_through_it(
    server: Server, admin: httpx.Client, key: str, tmp_path: Path
) -> None:
    with listening_runner(server, key, tmp_path / "runner") as runner:
        assert set_endpoint(admin, runner.address, runner.fingerprint).status_code == 200
        assert wait_for_reason(admin, "Connected")["status"] == "True"
        start_workspace(admin, make_repository(tmp_path / "repository"))
        for _ in range(4):  # any worker serves it
            assert asyncio.run(read_status(server)) == "Running"
        log = admin.get(f"{WORKSPACE}/log").text
        assert json.loads(log.splitlines()[-1]) == {"type": 6, "exitCode": 0}
        annotations = admin.get(WORKSPACE).json()["metadata"].get("annotations") or {}
        assert "service.sh/runner-endpoint" not in annotations, "clients cannot use this endpoint"
    assert wait_for_reason(admin, "ConnectionFailed")["status"] == "False"
    assert admin.get(f"{WORKSPACE}/tasks").status_code == 503
    with listening_runner(server, key, tmp_path / "runner", runner.address) as again:
        assert again.fingerprint == runner.fingerprint
        wait_for_reason(admin, "Connected")
        assert asyncio.run(read_status(server)) == "Running"
        assert admin.delete(WORKSPACE).is_success
        wait_until(lambda: admin.get(WORKSPACE).status_code == 404)
        assert set_endpoint(admin, "", "").status_code == 200
        wait_until(lambda: not find_condition(admin))
        wait_until(lambda: "the connection of the server has ended" in again.log.read_text())


def start_workspace(admin: httpx.Client, repository: str) -> None:
    annotations = {"service.sh/workspace-source": f"git:{repository}", "service.sh/workspace-up": "1"}
    body = {
        "apiVersion": "management.service.sh/v1",
        "kind": "DevPodWorkspaceInstance",
        "metadata": {"name": "dev", "annotations": annotations},
        "spec": {"runnerRef": {"runner": "local"}, "template": {"provider": {"name": "process"}}},
    }
    created = admin.post(WORKSPACE.removesuffix("/dev"), json=body)
    assert created.status_code == 201, created.text
    wait_until(lambda: admin.get(WORKSPACE).json().get("status", {}).get("lastWorkspaceStatus") == "Running")


async def read_status(server: Server) -> str:
    await wait_for_runner(server)
    async with open_socket(server, "getstatus") as status:
        return str(json.loads((await status.read_all()).stdout)["state"])


def test_another_certificate_is_not_connected_to_and_gets_no_token(
    server: Server, admin: httpx.Client, key: str, tmp_path: Path
) -> None:
    with listening_runner(server, key, tmp_path / "runner") as runner:
        set_endpoint(admin, runner.address, "0" * 64)
        found = wait_for_reason(admin, "FingerprintMismatch")
        assert runner.fingerprint in found["message"] and found["status"] == "False"
        assert "the server has connected" not in runner.log.read_text()


def test_a_runner_rejects_connections_that_are_not_its_servers(
    server: Server, admin: httpx.Client, key: str, tmp_path: Path
) -> None:
    """Not even with a token of the server that was issued for something else."""
    token = {"apiVersion": "management.service.sh/v1", "kind": "DirectClusterEndpointToken", "metadata": {}, "spec": {}}
    issued = admin.post(f"{M}/directclusterendpointtokens", json=token).json()["status"]["token"]
    with listening_runner(server, key, tmp_path / "runner") as runner:
        for content in (b"no token", issued.encode(), admin.headers["Authorization"].encode()):
            reply = send_first_frame(runner.address, content)
            assert json.loads(reply)["error"] and issued not in reply.decode()
        assert "the server has connected" not in runner.log.read_text()


def send_first_frame(address: str, content: bytes) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as raw, context.wrap_socket(raw) as connection:
        connection.sendall(len(content).to_bytes(4, "little") + content)
        size = int.from_bytes(connection.recv(4), "little")
        return connection.recv(size)


def test_only_those_who_may_connect_clusters_set_the_endpoint_and_never_the_runner(
    server: Server, admin: httpx.Client, key: str
) -> None:
    with server.client(key) as runner:
        assert set_endpoint(runner, "127.0.0.1:9999", "0" * 64).status_code == 403
    create_object(admin, f"{M}/users", "User", "olga", username="olga")
    try:
        headers = {"Content-Type": "application/merge-patch+json"}
        admin.patch(RUNNER, json={"spec": {"owner": {"user": "olga"}}}, headers=headers).raise_for_status()
        olga = create_object(admin, f"{M}/ownedaccesskeys", "OwnedAccessKey", "olga", user="olga")["spec"]["key"]
        with server.client(olga) as owner:
            assert owner.patch(RUNNER, json={"spec": {"displayName": "mine"}}, headers=headers).status_code == 200
            refused = set_endpoint(owner, "127.0.0.1:9999", "0" * 64)
            assert refused.status_code == 403 and "may not create clusters" in refused.json()["message"]
    finally:
        admin.delete(f"{M}/users/olga")


def test_addresses_that_are_not_allowed_are_named_in_the_condition_without_a_hot_loop(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", log_level="info", cluster_networks="192.0.2.0/24") as server:
        with server.client() as admin:
            create_object(admin, f"{M}/runners", "Runner", "local")
            assert set_endpoint(admin, "127.0.0.1:9999", "A" * 64).status_code == 422
            assert set_endpoint(admin, "", "a" * 64).status_code == 422
            set_endpoint(admin, "127.0.0.1:9999", "a" * 64)
            found = wait_for_reason(admin, "AddressBlocked")
            assert "the runner's address is loopback" in found["message"]
            version = admin.get(RUNNER).json()["metadata"]["resourceVersion"]
            with pytest.raises(AssertionError):
                wait_until(lambda: admin.get(RUNNER).json()["metadata"]["resourceVersion"] != version, seconds=3)
        attempts = server.log.read_text().count("no connection to a runner")
        assert 1 <= attempts <= 6, attempts
        assert os.path.getsize(server.log) < 100_000
