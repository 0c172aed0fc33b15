"""Settings about people and the audit log reach what they are about: a server with all of them turned down."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.server_process import MANAGEMENT, Server, running

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
MAX_TTL = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings") / "data"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    turned_down: dict[str, str | int] = {
        "watches_per_user": 1,
        "password_login": "off",
        "access_key_max_ttl": MAX_TTL,
        "audit_path": "off",
    }
    with running(folder, **turned_down) as server:
        yield server


def make_key(client: httpx.Client, name: str, **spec: Any) -> httpx.Response:
    version = "management.service.sh/v1"
    body = {"apiVersion": version, "kind": "OwnedAccessKey", "metadata": {"name": name}, "spec": spec}
    return client.post(f"{M}/ownedaccesskeys", json=body)


def test_t39_a_key_has_no_more_watches_open_than_the_setting_allows(server: Server) -> None:
    watch = {"watch": "1", "timeoutSeconds": "30", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    watch["resourceVersionMatch"] = "NotOlderThan"
    with server.client() as client:
        with client.stream("GET", f"{M}/apps", params=watch) as first:
            lines = first.iter_lines()  # kept: without it, the client would close the watch
            assert next(lines), "the bookmark says that the watch is open"
            refused = client.get(f"{M}/apps", params=watch)
            assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
        assert client.get(f"{M}/apps").status_code == 200


def test_passwords_can_be_turned_off(server: Server) -> None:
    with server.client(None) as stranger:
        refused = stranger.post("/auth/password/login", json={"username": "admin", "password": "x" * 20})
        assert refused.status_code == 403 and "disabled" in refused.json()["message"]
        assert stranger.get("/auth/methods").json()["methods"]["password"] == {"enabled": False}


def test_keys_live_no_longer_than_the_setting_allows(server: Server) -> None:
    with server.client() as client:
        assert make_key(client, "fits", ttl=MAX_TTL).status_code == 201
        assert make_key(client, "long", ttl=MAX_TTL + 1).status_code == 422
        assert make_key(client, "endless").status_code == 422


def test_the_audit_log_can_be_turned_off(server: Server, folder: Path) -> None:
    with server.client() as client:
        assert client.get(f"{M}/apps").status_code == 200
    assert not (folder / "audit.log").exists()
