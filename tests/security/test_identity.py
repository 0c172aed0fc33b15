"""Authentication is required, and identity headers of clients are ignored (T-7, T-18); scripts never run (T-44)."""

import os
from pathlib import Path

import pytest

from tests.harness.server_process import MANAGEMENT, Server
from tests.requests.api_resources import discover_api

MANAGEMENT_API = f"{MANAGEMENT}/apis/management.service.sh/v1"
PUBLIC = {"/version", "/healthz", "/livez", "/readyz"}
OTHER_PATHS = (
    "/",
    "/metrics",
    "/debug",
    "/debug/pprof",
    "/internal",
    "/auth",
    "/auth/logout",
    "/kubernetes",
    "/consoles",
    f"{MANAGEMENT}/console",
    f"{MANAGEMENT}/console/assets/x",
)
CONSOLE_PATHS = ("/console", "/console/", "/console/projects", "/console/assets", "/console/assets/x/main.js")
"""Static files for everyone. `fairlead/features/console.py` serves them, and nothing else."""
IDENTITY_HEADERS = (
    "X-Remote-User",
    "x_remote_user",
    "X_Remote_User",
    "X-Remote-Group",
    "X-Remote-Extra-Scopes",
    "X-Forwarded-User",
    "X-Auth-Request-User",
    "Impersonate_User",
    "X-Original-User",
)


def test_t7_without_a_credential_only_health_and_version_are_served(server: Server) -> None:
    with server.client() as authenticated, server.client(None) as anonymous:
        catalog = discover_api(authenticated, server.key)
        paths = [f"{MANAGEMENT}{path}" for path in catalog.documents if path not in PUBLIC]
        for resource in catalog.resources:
            collection = resource.collection_path("default")
            paths += [
                collection,
                f"{collection}/x",
                *(f"{collection}/x/{subresource}" for subresource in resource.subresources),
            ]
        for path in (*paths, *OTHER_PATHS):
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                assert anonymous.request(method, path).status_code == 401, f"{method} {path}"
        assert len(paths) > 50


def test_t7_without_a_credential_the_console_is_read_only(server: Server) -> None:
    with server.client(None) as anonymous:
        for path in CONSOLE_PATHS:
            assert anonymous.get(path).status_code in (200, 307, 404), path
            for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                assert anonymous.request(method, path).status_code == 401, f"{method} {path}"


def test_t7_status_and_spec_are_written_only_through_their_own_endpoint(server: Server) -> None:
    body = {"apiVersion": "management.service.sh/v1", "kind": "Cluster", "metadata": {"name": "t7"}, "spec": {}}
    with server.client() as client:
        created = client.post(f"{MANAGEMENT_API}/clusters", json=body | {"status": {"phase": "Initialized"}}).json()
        assert not created.get("status")
        merge = {"Content-Type": "application/merge-patch+json"}
        patch = {"spec": {"displayName": "x"}, "status": {"phase": "Failed"}}
        updated = client.patch(f"{MANAGEMENT_API}/clusters/t7/status", json=patch, headers=merge).json()
        assert (updated["status"], updated["spec"]) == ({"phase": "Failed"}, {})
        updated = client.patch(
            f"{MANAGEMENT_API}/clusters/t7", json=patch | {"status": {"phase": "x"}}, headers=merge
        ).json()
        assert (updated["status"], updated["spec"]) == ({"phase": "Failed"}, {"displayName": "x"})
        client.delete(f"{MANAGEMENT_API}/clusters/t7")


@pytest.mark.parametrize("header", IDENTITY_HEADERS)
def test_t18_identity_headers_of_clients_are_ignored(server: Server, header: str) -> None:
    with server.client() as authenticated, server.client(None) as anonymous:
        for value in ("root", "system:masters"):
            assert anonymous.get(f"{MANAGEMENT_API}/apps", headers={header: value}).status_code == 401
            updated = authenticated.post(f"{MANAGEMENT_API}/selves", json={}, headers={header: value}).json()
            assert updated["status"]["user"]["name"] == "admin"


def test_t44_scripts_and_charts_are_stored_and_never_run(server: Server, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    script = f"#!/bin/sh\ntouch {marker}\n"
    spec = {
        "config": {"bash": {"script": script, "image": "busybox"}},
        "displayName": f"$(touch {marker}) `touch {marker}`",
    }
    body = {"apiVersion": "management.service.sh/v1", "kind": "App", "metadata": {"name": "t44"}, "spec": spec}
    with server.client() as client:
        assert client.post(f"{MANAGEMENT_API}/apps", json=body).status_code == 201
        assert client.get(f"{MANAGEMENT_API}/apps/t44").json()["spec"]["config"]["bash"]["script"] == script
        client.delete(f"{MANAGEMENT_API}/apps/t44")
    assert not marker.exists()
    assert not _list_child_processes(server.process.pid), "the server starts no other programs"


def _list_child_processes(pid: int) -> list[int]:
    catalog = []
    for entry in os.listdir("/proc"):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split() if entry.isdigit() else []
        except OSError:
            continue
        if fields and int(fields[1]) == pid:
            catalog.append(int(entry))
    return catalog
