"""SSH certificates for workspaces and the list of their ports, over a real server with a runner that has dialed it."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import SSHCertificate, load_ssh_public_identity

from fairlead.core.crypto.ssh_certificates import encode_public_key, find_public_key, generate_private_key
from tests.harness.eventually import TIMEOUT_SECONDS, eventually
from tests.harness.fake_runner import HOST_KEY, FakeRunner, connected_runner
from tests.harness.log_lines import read_lines
from tests.harness.server_process import MANAGEMENT, Server, running_server
from tests.live.workspace_setup import WORKSPACE, create_workspace, open_socket, wait_for_runner

PUBLIC_KEY = find_public_key(generate_private_key())
SECRET = f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets/ssh-authority"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("certificates") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def runner_key(server: Server) -> str:
    with server.client() as admin:
        return create_workspace(admin)


@pytest.fixture
async def runner(server: Server, runner_key: str) -> AsyncIterator[FakeRunner]:
    async with connected_runner(server, "local", runner_key) as runner:
        await wait_for_runner(server)
        yield runner


@pytest.fixture
async def admin(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with server.async_client() as client:
        yield client


async def request(admin: httpx.AsyncClient, public_key: Any = PUBLIC_KEY, query: str = "") -> httpx.Response:
    return await admin.post(f"{WORKSPACE}/sshcertificate{query}", json={"spec": {"publicKey": public_key}})


async def test_a_certificate_is_for_one_workspace_and_five_minutes(
    server: Server, admin: httpx.AsyncClient, runner: FakeRunner
) -> None:
    response = await request(admin, f"{PUBLIC_KEY} ada@laptop")
    assert response.status_code == 201, response.text
    status = response.json()["status"]
    assert (status["hostKeys"], status["user"]) == ([HOST_KEY], "dev")
    certificate = load_ssh_public_identity(status["certificate"].encode())
    assert isinstance(certificate, SSHCertificate)
    certificate.verify_cert_signature()
    uid = (await admin.get(WORKSPACE)).json()["metadata"]["uid"]
    assert (certificate.valid_principals, certificate.key_id) == ([uid.encode()], b"admin")
    assert encode_public_key(certificate.public_key()) == PUBLIC_KEY
    assert 200 < certificate.valid_before - datetime.now(UTC).timestamp() <= 300
    assert sorted(certificate.extensions) == [b"permit-agent-forwarding", b"permit-port-forwarding", b"permit-pty"]
    async with open_socket(server, "ssh", options='{"sshAuthorities": ["mine"]}') as socket:
        await socket.send_stdin(b"x")
        await socket.receive()
    assert runner.requests[-1].ssh_authorities == (encode_public_key(certificate.signature_key()),)


async def test_the_key_of_the_authority_is_the_same_until_its_secret_is_deleted(
    admin: httpx.AsyncClient, runner: FakeRunner
) -> None:
    async def find_authority() -> str:
        certificate = load_ssh_public_identity((await request(admin)).json()["status"]["certificate"].encode())
        assert isinstance(certificate, SSHCertificate)
        return encode_public_key(certificate.signature_key())

    first = await find_authority()
    assert await find_authority() == first
    assert "data" not in (await admin.get(SECRET)).json()
    assert (await admin.delete(SECRET)).status_code == 200
    assert await find_authority() != first


@pytest.mark.parametrize(
    "public_key", ["", "x", "ssh-ed25519 AAAA", f"{PUBLIC_KEY}\n{PUBLIC_KEY}", "ssh-rsa " + "A" * 4000]
)
async def test_what_is_not_a_public_key_is_rejected(
    admin: httpx.AsyncClient, runner: FakeRunner, public_key: str
) -> None:
    response = await request(admin, public_key)
    assert response.status_code == 400
    assert "spec.publicKey" in response.json()["message"]
    assert (await request(admin, query="?dryRun=All")).status_code == 400


@pytest.mark.parametrize(
    "endpoint",
    [
        {"hostKeys": ["x y"]},
        {"hostKeys": [f"{HOST_KEY}\n* {HOST_KEY}"]},
        {"hostKeys": []},
        {"hostKeys": [HOST_KEY], "user": "-oProxyCommand=x"},
        {"hostKeys": [HOST_KEY], "user": "a\nProxyCommand x"},
    ],
)
async def test_what_clients_could_misunderstand_is_not_passed_on(
    admin: httpx.AsyncClient, runner: FakeRunner, endpoint: dict[str, Any]
) -> None:
    runner.ssh_endpoint = endpoint
    assert (await request(admin)).status_code == 502


async def test_ports_are_listed(admin: httpx.AsyncClient, runner: FakeRunner) -> None:
    found = (await admin.get(f"{WORKSPACE}/ports")).json()
    assert found["ports"] == [{"port": 8080, "address": "127.0.0.1", "process": "node"}]


async def test_a_port_is_a_stream(server: Server, runner: FakeRunner) -> None:
    async with open_socket(server, "port", options='{"port": 8080}') as socket:
        await socket.send_stdin(b"x")
        assert await socket.receive() == b"\x00x"
    assert (runner.requests[-1].action, runner.requests[-1].options) == ("port", {"port": 8080})


async def test_certificates_are_audited_with_the_user_and_the_workspace(
    server: Server, admin: httpx.AsyncClient, runner: FakeRunner, tmp_path: Path
) -> None:
    assert (await request(admin)).status_code == 201
    found = await eventually(lambda: find_events(server), TIMEOUT_SECONDS)
    assert {(each["user"]["username"], each["objectRef"]["name"]) for each in found} == {("admin", "dev")}


def find_events(server: Server) -> list[dict[str, Any]]:
    events = [json.loads(line) for path in find_audit_logs(server) for line in read_lines(path)]
    return [each for each in events if (each.get("objectRef") or {}).get("subresource") == "sshcertificate"]


def find_audit_logs(server: Server) -> list[Path]:
    return sorted(Path(server.ca_file).parents[1].rglob("*audit*.log"))
