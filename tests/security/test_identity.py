"""Who one is, and nothing a client claims about that: T-7, T-18, T-44."""

import os
from pathlib import Path

import pytest

from tests.harness.server_process import MANAGEMENT, Server
from tests.security.api_resources import explore

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
OPEN = {"/version", "/healthz", "/livez", "/readyz"}
PLATFORM = ("/", "/metrics", "/debug", "/debug/pprof", "/internal", "/auth", "/auth/logout", "/kubernetes", "/console")
CLAIMS = (
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


def test_t7_nothing_but_health_and_version_answers_without_a_credential(server: Server) -> None:
    with server.client() as known, server.client(None) as stranger:
        found = explore(known, server.key)
        paths = [f"{MANAGEMENT}{path}" for path in found.documents if path not in OPEN]
        for resource in found.resources:
            place = resource.collection("default")
            paths += [place, f"{place}/x", *(f"{place}/x/{below}" for below in resource.subresources)]
        for path in (*paths, *PLATFORM):
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                assert stranger.request(method, path).status_code == 401, f"{method} {path}"
        assert len(paths) > 50


def test_t7_the_status_is_not_written_with_the_object_nor_the_object_with_the_status(server: Server) -> None:
    body = {"apiVersion": "management.service.sh/v1", "kind": "Cluster", "metadata": {"name": "t7"}, "spec": {}}
    with server.client() as client:
        made = client.post(f"{M}/clusters", json=body | {"status": {"phase": "Initialized"}}).json()
        assert not made.get("status")
        merge = {"Content-Type": "application/merge-patch+json"}
        patch = {"spec": {"displayName": "x"}, "status": {"phase": "Failed"}}
        told = client.patch(f"{M}/clusters/t7/status", json=patch, headers=merge).json()
        assert (told["status"], told["spec"]) == ({"phase": "Failed"}, {})
        told = client.patch(f"{M}/clusters/t7", json=patch | {"status": {"phase": "x"}}, headers=merge).json()
        assert (told["status"], told["spec"]) == ({"phase": "Failed"}, {"displayName": "x"})
        client.delete(f"{M}/clusters/t7")


@pytest.mark.parametrize("header", CLAIMS)
def test_t18_what_a_client_claims_to_be_is_not_listened_to(server: Server, header: str) -> None:
    with server.client() as known, server.client(None) as stranger:
        for value in ("root", "system:masters"):
            assert stranger.get(f"{M}/apps", headers={header: value}).status_code == 401
            told = known.post(f"{M}/selves", json={}, headers={header: value}).json()
            assert told["status"]["user"]["name"] == "admin"


def test_t44_scripts_and_charts_are_kept_and_never_run(server: Server, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    script = f"#!/bin/sh\ntouch {mark}\n"
    spec = {
        "config": {"bash": {"script": script, "image": "busybox"}},
        "displayName": f"$(touch {mark}) `touch {mark}`",
    }
    body = {"apiVersion": "management.service.sh/v1", "kind": "App", "metadata": {"name": "t44"}, "spec": spec}
    with server.client() as client:
        assert client.post(f"{M}/apps", json=body).status_code == 201
        assert client.get(f"{M}/apps/t44").json()["spec"]["config"]["bash"]["script"] == script
        client.delete(f"{M}/apps/t44")
    assert not mark.exists()
    assert not _children(server.process.pid), "the server starts no other programs"


def _children(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split() if entry.isdigit() else []
        except OSError:
            continue
        if fields and int(fields[1]) == pid:
            found.append(int(entry))
    return found
