"""Behind trusted proxies, the audit log and login throttling see the client; no header decides about access."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.server.flow.attempts import NETWORK_BACKOFF
from tests.harness.log_lines import read_lines
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running_server

APPS = f"{MANAGEMENT}/apis/management.service.sh/v1/apps"
CLIENT, OTHER_CLIENT = "198.51.100.7", "198.51.100.8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proxies") / "data"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with running_server(folder, trusted_proxies="127.0.0.0/8,10.0.0.0/8", audit_rejected=0) as server:
        yield server


def find_event(folder: Path, marker: str) -> dict[str, Any]:
    """The audit event of a request. It is written a moment after the response."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        lines = [line for file in folder.glob("audit*.log") for line in read_lines(file)]
        for line in lines:
            if marker in line:
                event: dict[str, Any] = json.loads(line)
                return event
        assert time.monotonic() < deadline, lines
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("forwarded", "source_ips"),
    [
        (CLIENT, [CLIENT, "127.0.0.1"]),
        (f"203.0.113.1, {CLIENT}, 10.1.1.1", [CLIENT, "10.1.1.1", "127.0.0.1"]),
        ("nonsense", ["127.0.0.1"]),
        (f"{'203.0.113.1, ' * 3000}{CLIENT}", [CLIENT, "127.0.0.1"]),
    ],
    ids=["one", "several", "malformed", "huge"],
)
def test_the_audit_log_has_the_client_and_the_proxies(
    server: Server, folder: Path, forwarded: str, source_ips: list[str]
) -> None:
    marker = f"marker-{abs(hash(forwarded))}"
    with server.client() as client:
        headers = {"X-Forwarded-For": forwarded, "User-Agent": marker, "Connection": "X-Forwarded-For"}
        assert client.get(APPS, headers=headers).status_code == 200
    assert find_event(folder, marker)["sourceIPs"] == source_ips


def test_logins_are_throttled_by_client(server: Server) -> None:
    def sign_in(address: str, number: int) -> int:
        body = {"username": f"nobody{number}", "password": "wrong-password-1"}
        return client.post("/auth/password/login", json=body, headers={"X-Forwarded-For": address}).status_code

    with server.client(None) as client:
        codes = [sign_in(CLIENT, number) for number in range(NETWORK_BACKOFF.free_attempts + 6)]
        assert codes[0] == 401 and 429 in codes
        assert sign_in(OTHER_CLIENT, 0) == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "127.0.0.1"},
        {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
        {"x_remote_user": "admin", "x_remote_group": "system:masters"},
        {"X-Forwarded-User": "admin", "X-Forwarded-Groups": "system:masters", "Forwarded": "for=127.0.0.1;by=admin"},
        {"X-Forwarded-Client-Cert": "Subject=CN=admin", "X-SSL-Client-S-DN": "CN=admin", "Remote-User": "admin"},
    ],
    ids=["address", "request headers", "underscores", "forwarded user", "certificate"],
)
def test_no_header_of_a_trusted_proxy_authenticates(server: Server, headers: dict[str, str]) -> None:
    with server.client(None) as anonymous:
        assert anonymous.get(APPS, headers=headers).status_code == 401
