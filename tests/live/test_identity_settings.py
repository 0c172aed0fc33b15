"""Settings about users and the audit log take effect: a server with the most restrictive values."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.server_process import MANAGEMENT, Server, running_server

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
MAX_TTL = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings") / "data"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    restrictive_settings: dict[str, str | int] = {
        "watches_per_user": 1,
        "password_login": "off",
        "access_key_max_ttl": MAX_TTL,
        "audit_path": "off",
    }
    with running_server(folder, **restrictive_settings) as server:
        yield server


def create_key(client: httpx.Client, name: str, **spec: Any) -> httpx.Response:
    version = "management.service.sh/v1"
    body = {"apiVersion": version, "kind": "OwnedAccessKey", "metadata": {"name": name}, "spec": spec}
    return client.post(f"{M}/ownedaccesskeys", json=body)


def test_t39_a_watch_over_the_limit_of_a_user_gets_429(server: Server) -> None:
    watch = {"watch": "1", "timeoutSeconds": "30", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    watch["resourceVersionMatch"] = "NotOlderThan"
    with server.client() as client:
        with client.stream("GET", f"{M}/apps", params=watch) as first:
            lines = first.iter_lines()  # without a reference to it, the client would close the watch
            assert next(lines), "the bookmark shows that the watch is open"
            response = client.get(f"{M}/apps", params=watch)
            assert response.status_code == 429 and int(response.headers["retry-after"]) > 0
        assert client.get(f"{M}/apps").status_code == 200


def test_password_login_can_be_disabled(server: Server) -> None:
    with server.client(None) as anonymous:
        response = anonymous.post("/auth/password/login", json={"username": "admin", "password": "x" * 20})
        assert response.status_code == 403 and "disabled" in response.json()["message"]
        assert anonymous.get("/auth/methods").json()["methods"]["password"]["enabled"] is False


def test_a_key_ttl_over_the_limit_is_rejected(server: Server) -> None:
    with server.client() as client:
        assert create_key(client, "fits", ttl=MAX_TTL).status_code == 201
        assert create_key(client, "long", ttl=MAX_TTL + 1).status_code == 422
        assert create_key(client, "endless").status_code == 422


def test_the_audit_log_can_be_disabled(server: Server, folder: Path) -> None:
    with server.client() as client:
        assert client.get(f"{M}/apps").status_code == 200
    assert not (folder / "audit.log").exists()
