"""The audit log of a real server: every request is completed once, no secret is recorded, and nothing is unrecorded."""

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, TIMEOUT_SECONDS, Server, configmap, running_server

CANARY = "canary-71d2b9c4-not-to-be-recorded"
SECRETS = f"{MANAGEMENT}/api/v1/namespaces/default/secrets"
KEYS = f"{MANAGEMENT}/apis/management.service.sh/v1/ownedaccesskeys"
POLICY = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: RequestResponse}]}"


def build_secret(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"password": CANARY}}


def send_requests(server: Server) -> list[str]:
    """Sends requests of many kinds; returns the values of all access keys."""
    with server.client() as client, server.client(None) as anonymous:
        assert client.post(SECRETS, json=build_secret("s")).status_code == 201
        assert client.get(f"{SECRETS}/s").status_code == client.get(SECRETS).status_code == 200
        assert client.patch(
            f"{SECRETS}/s",
            json={"stringData": {"password": CANARY}},
            headers={"Content-Type": "application/merge-patch+json"},
        ).is_success
        assert client.post(SECRETS, content=json.dumps(build_secret("t"))[:-5]).status_code == 400
        assert client.post(SECRETS, content=b"x", headers={"Content-Encoding": "gzip"}).status_code == 415
        assert client.post(CONFIGMAPS, json=configmap("large", text="x" * 4_000_000)).status_code == 413
        assert anonymous.get(CONFIGMAPS, params={"access_token": CANARY}).status_code == 401
        assert anonymous.post("/auth/password/login", json={"username": "u", "password": CANARY}).status_code == 401
        created = client.post(
            KEYS, json={"metadata": {"name": "mine"}, "spec": {}, **build_type_meta("OwnedAccessKey")}
        )
        assert created.status_code == 201
        rotated = client.post(f"{KEYS}/mine/rotate", json={"spec": {}, **build_type_meta("OwnedAccessKeyRotation")})
        assert rotated.status_code == 201
        with client.stream("GET", CONFIGMAPS, params={"watch": "1", "timeoutSeconds": "60"}) as abandoned:
            assert abandoned.status_code == 200
        assert client.get(CONFIGMAPS, params={"watch": "1", "timeoutSeconds": "1"}).status_code == 200
        return [server.key, created.json()["spec"]["key"], rotated.json()["spec"]["key"]]


def build_type_meta(kind: str) -> dict[str, str]:
    return {"apiVersion": "management.service.sh/v1", "kind": kind}


def test_with_level_request_response_each_request_completes_once_and_no_secret_is_logged(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    with running_server(tmp_path / "data", audit_policy=str(policy)) as server:
        keys = send_requests(server)
        with server.client() as client, client.stream("GET", CONFIGMAPS, params={"watch": "1"}) as open_watch:
            assert open_watch.status_code == 200
            assert server.stop() == 0
    authenticated_log, anonymous_log = (
        (tmp_path / "data" / f"audit{part}.log").read_bytes() for part in ("", ".unauthenticated")
    )
    assert b'"code":401' in anonymous_log and b'"code":401' not in authenticated_log
    log = authenticated_log + anonymous_log
    for value in (CANARY, *keys):
        assert value.encode() not in log
    events = [json.loads(line) for line in log.splitlines()]
    completed = Counter(event["auditID"] for event in events if event["stage"] == "ResponseComplete")
    assert set(completed.values()) == {1}
    assert {event["auditID"] for event in events} == set(completed)
    assert len(completed) == 14
    assert sum(event["stage"] == "ResponseStarted" for event in events) == 3
    rotation = next(event for event in events if event.get("objectRef", {}).get("subresource") == "rotate")
    assert rotation["user"]["username"] == "admin" and rotation["objectRef"]["name"] == "mine"


def test_while_the_log_cannot_be_written_writes_and_secret_reads_get_503(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    with running_server(tmp_path / "data", audit_path=str(folder / "audit.log")) as server, server.client() as client:
        assert client.post(SECRETS, json=build_secret("s")).status_code == 201
        shutil.rmtree(folder)
        wait_for_readyz(503, client)
        for response in (client.post(CONFIGMAPS, json=configmap("a")), client.get(f"{SECRETS}/s")):
            assert response.status_code == 503
            assert "the audit log cannot be written (No such file or directory)" in response.json()["message"]
            assert int(response.headers["retry-after"]) >= 1
        assert client.get(f"{CONFIGMAPS}/a").status_code == 404
        assert client.get("/healthz").status_code == 200
        folder.mkdir()
        wait_for_readyz(200, client)
        assert client.post(CONFIGMAPS, json=configmap("a")).status_code == 201
        assert server.stop() == 0
    codes = [json.loads(line)["responseStatus"]["code"] for line in (folder / "audit.log").read_bytes().splitlines()]
    assert codes.count(503) == 2
    assert codes[-1] == 201


def wait_for_readyz(code: int, client: httpx.Client) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while client.get("/readyz").status_code != code:
        client.get(f"{CONFIGMAPS}/none")
        assert time.monotonic() < deadline
        time.sleep(0.05)
