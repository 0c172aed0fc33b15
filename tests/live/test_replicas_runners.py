"""Replicas that reach each other: every one serves the workspaces of a runner that is connected to one of them."""

import asyncio
import base64
import json
import re
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlead.core.crypto.peer_certificates import build_peer_contexts, create_peer_authority
from tests.harness.eventually import wait_until
from tests.harness.fake_runner import LOG, connected_runner
from tests.harness.replicas import STORES, Replicas, read_log, running_replicas
from tests.harness.server_process import MANAGEMENT, Server
from tests.live.workspace_setup import WORKSPACE, create_workspace, open_socket, wait_for_runner

LEASES = f"{MANAGEMENT}/apis/coordination.k8s.io/v1/namespaces/service-system/leases"
SECRET = f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets/replica-authority"
LISTENING = "other replicas reach this one"


@pytest.fixture(params=STORES)
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replicas]:
    settings: dict[str, Any] = {"replica_address": "127.0.0.1", "replica_port": 0}
    with running_replicas(request.param, tmp_path, 3, **settings) as group:
        yield group


def replica_leases(server: Server) -> list[dict[str, Any]]:
    with server.client() as client:
        items = client.get(LEASES).json()["items"]
    return [item for item in items if item["metadata"]["name"].startswith("fairlead-replica-")]


def replica_port(server: Server) -> int:
    address = next(line["address"] for line in read_log(server) if line.get("event") == LISTENING)
    return int(address.rpartition(":")[2])


async def test_every_replica_serves_a_runner_and_a_killed_one_is_replaced(group: Replicas) -> None:
    servers = group.servers
    wait_until(lambda: len(replica_leases(servers[0])) == 3)
    with servers[0].client() as admin:
        key = create_workspace(admin)
    place = [servers[1]]
    async with connected_runner(lambda: place[0], "local", key) as runner:
        for server in servers:
            await wait_for_runner(server)
            await check_requests(server)
        assert runner.link_count == 1
        async with open_socket(servers[2], "ssh") as session:
            await session.send_stdin(b"x")
            assert await session.receive() == b"\x00x"
            servers[1].kill()
            output = await session.read_all()
            assert (output.code, output.exit_message) == (1011, b"")
        async with servers[2].async_client() as client:
            response = await client.get(f"{WORKSPACE}/tasks")
            assert response.status_code == 503 and response.headers["retry-after"] == "5"
            assert "which could not be reached" in response.json()["message"]
        place[0] = servers[0]
        for server in (servers[0], servers[2]):
            await wait_for_runner(server)
            await check_requests(server)
        assert runner.link_count == 2
    for server in servers:
        assert "Traceback" not in server.log.read_text()


async def check_requests(server: Server) -> None:
    """A response, a log that is followed, and a session with input, through this replica."""
    async with open_socket(server, "getstatus") as status:
        output = await status.read_all()
    assert b"Running" in output.stdout and output.exit_message == b"\x00"
    async with server.async_client() as client:
        lines = (await client.get(f"{WORKSPACE}/log", params={"follow": "true"})).text.splitlines()
    entries = [json.loads(line) for line in lines]
    assert b"".join(base64.b64decode(entry["bytes"]) for entry in entries if entry["type"] == 0) == LOG
    assert entries[-1] == {"type": 6, "exitCode": 0}
    async with open_socket(server, "ssh") as session:
        content = bytes(range(256)) * 64
        for _ in range(20):
            await session.send_stdin(content)
        await session.close_stdin()
        output = await session.read_all()
    assert (bytes(output.stdout), output.exit_message) == (content * 20, bytes((14,)))


async def test_a_process_that_was_superseded_at_another_replica_is_rejected(group: Replicas) -> None:
    first, second, third = group.servers
    wait_until(lambda: len(replica_leases(first)) == 3)
    with first.client() as admin:
        key = create_workspace(admin)
    async with connected_runner(first, "local", key, "old") as old:
        await wait_for_runner(first)
        async with connected_runner(second, "local", key, "new") as new, asyncio.timeout(20):
            await old.superseded.wait()
            await wait_for_runner(third)
            assert not new.superseded.is_set()


def test_connections_without_a_certificate_of_the_installation_are_rejected(group: Replicas, tmp_path: Path) -> None:
    server = group.servers[0]
    port = wait_until(lambda: replica_port(server))
    now, day = datetime.now(UTC), timedelta(days=1)
    foreign = build_peer_contexts(create_peer_authority(now, day), "impostor", now, day, tmp_path).client
    without = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    own_ca = ssl.create_default_context(cafile=server.ca_file)
    for context in (foreign, without, own_ca):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        assert receive_anything(context, port) == b""
    assert any("rejected" in line.get("event", "") for line in read_log(server))


def receive_anything(context: ssl.SSLContext, port: int) -> bytes:
    """What the listener sends to this client, which is nothing if it rejects its certificate."""
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        try:
            with context.wrap_socket(raw, server_hostname="any") as connection:
                return connection.recv(100)
        except (ssl.SSLError, ConnectionError):
            return b""


def test_leases_come_and_go_with_replicas_and_the_authority_is_in_no_response(group: Replicas) -> None:
    first, third = group.servers[0], group.servers[2]
    wait_until(lambda: len(replica_leases(first)) == 3)
    for lease in replica_leases(first):
        address = lease["metadata"]["annotations"]["service.sh/replica-address"]
        assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
    assert third.stop() == 0
    assert len(replica_leases(first)) == 2
    with first.client() as admin:
        create_workspace(admin)
        assert admin.get(f"{WORKSPACE}/tasks").status_code == 503
        secret = admin.get(SECRET)
        assert secret.status_code == 200 and secret.json()["type"] == "service.sh/replica-authority"
        assert "PRIVATE" not in secret.text and not secret.json().get("data")
