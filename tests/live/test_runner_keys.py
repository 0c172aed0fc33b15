"""Keys of runners over HTTP: read, used as the runner, forbidden elsewhere, rotated, and never stored in plain text."""

import json
import time
from pathlib import Path
from typing import Any

import httpx

from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running_server

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
PROJECT_PATH = f"{M}/namespaces/service-p-web"
EVENTS = f"{MANAGEMENT}/api/v1/namespaces/service-p-web/events"
MERGE = {"Content-Type": "application/merge-patch+json"}


def create_object(client: httpx.Client, path: str, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    version = "management.service.sh/v1"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    response = client.post(path, json=body)
    assert response.status_code == 201, response.text
    created: dict[str, Any] = response.json()
    return created


def create_objects(client: httpx.Client) -> None:
    """Creates the runners `one` and `two`, and a workspace of each in the project `web`."""
    create_object(client, f"{M}/projects", "Project", "web")
    for name in ("one", "two"):
        create_object(client, f"{M}/runners", "Runner", name)
        workspaces = f"{PROJECT_PATH}/devpodworkspaceinstances"
        create_object(client, workspaces, "DevPodWorkspaceInstance", f"ws-{name}", runnerRef={"runner": name})


def read_key(client: httpx.Client, name: str) -> str:
    response = client.get(f"{M}/runners/{name}/accesskey")
    assert response.status_code == 200, response.text
    access_key = response.json()
    assert (access_key["kind"], access_key["apiVersion"]) == ("RunnerAccessKey", "management.service.sh/v1")
    assert access_key["metadata"] == {"creationTimestamp": None}
    key: str = access_key["accessKey"]
    return key


def wait_for_condition(client: httpx.Client, path: str, condition: str) -> dict[str, Any]:
    """Waits until a condition of an object is True."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found: dict[str, Any] = client.get(path).json()
        conditions = found.get("status", {}).get("conditions", ())
        if any((each["type"], each["status"]) == (condition, "True") for each in conditions):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{path} is not {condition}")


def test_a_runner_works_with_its_key(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        create_objects(admin)
        key = read_key(admin, "one")
        assert read_key(admin, "one") == key != read_key(admin, "two")
        with server.client(key) as runner:
            check_own_identity(runner)
            check_own_workspace(runner)
            check_forbidden_requests(runner)
        assert (
            wait_for_condition(admin, f"{PROJECT_PATH}/devpodworkspaceinstances/ws-one", "Ready")["status"]["phase"]
            == "Ready"
        )
        assert wait_for_condition(admin, f"{M}/runners/one", "Ready")["status"]["phase"] == "Initialized"
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()
        check_key_is_not_stored(tmp_path, server, key)


def check_own_identity(runner: httpx.Client) -> None:
    status = runner.post(f"{M}/selves", json={}).json()["status"]
    assert status["subject"] == "service:runner:one"
    assert runner.get(f"{M}/runners/one").status_code == 200
    response = runner.patch(f"{M}/runners/one/status", json={"status": {"phase": "Initialized"}}, headers=MERGE)
    assert response.status_code == 200, response.text
    config = runner.get(f"{M}/runners/one/config").json()
    assert (config["kind"], config["projectNamespacePrefix"]) == ("RunnerConfig", "service-p-")
    assert "tokenCaCert" in config


def check_own_workspace(runner: httpx.Client) -> None:
    for path in (f"{M}/devpodworkspaceinstances", f"{PROJECT_PATH}/devpodworkspaceinstances"):
        assert [each["metadata"]["name"] for each in runner.get(path).json()["items"]] == ["ws-one"]
    watched = runner.get(
        f"{M}/devpodworkspaceinstances",
        params={"watch": "1", "timeoutSeconds": "1", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
        | {"resourceVersionMatch": "NotOlderThan"},
    )
    events = [json.loads(line) for line in watched.text.splitlines()]
    names = {each["object"]["metadata"]["name"] for each in events if each["type"] == "ADDED"}
    assert names == {"ws-one"}
    status = {"status": {"phase": "Ready", "lastWorkspaceStatus": "Running"}}
    response = runner.patch(f"{PROJECT_PATH}/devpodworkspaceinstances/ws-one/status", json=status, headers=MERGE)
    assert response.status_code == 200, response.text
    involved_object = {"kind": "DevPodWorkspaceInstance", "name": "ws-one", "namespace": "service-p-web"}
    event = {"metadata": {"name": "up"}, "involvedObject": involved_object, "reason": "Up", "message": "it is up"}
    assert runner.post(EVENTS, json=event).status_code == 201


def check_forbidden_requests(runner: httpx.Client) -> None:
    change = {"spec": {"displayName": "x"}}
    own, other = f"{PROJECT_PATH}/devpodworkspaceinstances/ws-one", f"{PROJECT_PATH}/devpodworkspaceinstances/ws-two"
    responses = [
        runner.get(other),
        runner.get(f"{PROJECT_PATH}/devpodworkspaceinstances/missing"),
        runner.patch(f"{other}/status", json={"status": {"phase": "Failed"}}, headers=MERGE),
        runner.patch(own, json=change, headers=MERGE),
        runner.delete(own),
        runner.patch(f"{M}/runners/one", json=change, headers=MERGE),
        runner.get(f"{M}/runners/two"),
        runner.get(f"{M}/runners"),
        runner.get(f"{M}/runners/one/accesskey"),
        runner.get(f"{M}/runners/two/accesskey"),
        runner.post(f"{M}/runners/one/rotatekey", json={}),
        runner.get(f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets/runner-one-key"),
        runner.get(f"{MANAGEMENT}/api/v1/namespaces/service-p-web/secrets"),
        runner.get(EVENTS),
        runner.post(f"{MANAGEMENT}/api/v1/namespaces/default/events", json={}),
        runner.get(f"{M}/projects/web"),
    ]
    assert [response.status_code for response in responses] == [403] * len(responses)
    assert runner.get(f"{M}/ownedaccesskeys").json()["items"] == []


def check_key_is_not_stored(folder: Path, server: Server, key: str) -> None:
    events = [json.loads(line) for line in (folder / "data" / "audit.log").read_bytes().splitlines()]
    events_of_reads = [each for each in events if each.get("objectRef", {}).get("subresource") == "accesskey"]
    completed = [each for each in events_of_reads if each["stage"] == "ResponseComplete"]
    assert [each["responseStatus"]["code"] for each in completed] == [200, 200, 200, 403, 403]
    files = [each for each in (folder / "data").rglob("*") if each.is_file()]
    assert len(files) > 3
    assert [each.name for each in (*files, server.log) if key.encode() in each.read_bytes()] == []


def test_a_key_is_rotated_and_read_by_authorized_users(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        create_objects(admin)
        create_object(admin, f"{M}/users", "User", "ada")
        ada_key = create_object(admin, f"{M}/ownedaccesskeys", "OwnedAccessKey", "ada", user="ada")["spec"]["key"]
        key = read_key(admin, "one")
        with server.client(ada_key) as client:
            assert client.get(f"{M}/runners/one/accesskey").status_code == 403
            entry = {"users": ["ada"], "verbs": ["get"]}
            admin.patch(f"{M}/runners/one", json={"spec": {"access": [entry]}}, headers=MERGE).raise_for_status()
            assert client.get(f"{M}/runners/one").status_code == 200
            assert client.get(f"{M}/runners/one/accesskey").status_code == 403
            entry = {**entry, "subresources": ["accesskey"]}
            admin.patch(f"{M}/runners/one", json={"spec": {"access": [entry]}}, headers=MERGE).raise_for_status()
            assert read_key(client, "one") == key
            assert client.post(f"{M}/runners/one/rotatekey", json={}).status_code == 403
            admin.patch(f"{M}/runners/two", json={"spec": {"owner": {"user": "ada"}}}, headers=MERGE).raise_for_status()
            assert read_key(client, "two")
        response = admin.post(f"{M}/runners/one/rotatekey", json={"spec": {"overlapSeconds": 600}})
        assert response.status_code == 201, response.text
        rotated = response.json()["accessKey"]
        assert read_key(admin, "one") == rotated != key
        for value in (key, rotated):
            with server.client(value) as runner:
                assert runner.get(f"{M}/runners/one").status_code == 200
        assert admin.post(f"{M}/runners/one/rotatekey").json()["accessKey"] == read_key(admin, "one")
        for value in (key, rotated):
            with server.client(value) as runner:
                assert runner.get(f"{M}/runners/one").status_code == 401
        assert admin.post(f"{M}/runners/one/rotatekey", params={"dryRun": "All"}, json={}).status_code == 400
        assert admin.get(f"{M}/runners/missing/accesskey").status_code == 404
        assert admin.get(f"{M}/runners/missing/config").status_code == 404
        key = read_key(admin, "one")
        abandoned = {"metadata": {"annotations": {"service.sh/abandon": "true"}}}
        assert admin.delete(f"{M}/runners/one").status_code == 409
        merge_patch = {"content-type": "application/merge-patch+json"}
        admin.patch(f"{M}/runners/one", json=abandoned, headers=merge_patch).raise_for_status()
        admin.delete(f"{M}/runners/one").raise_for_status()
        with server.client(key) as runner:
            assert runner.get(f"{PROJECT_PATH}/devpodworkspaceinstances/ws-one").status_code in (401, 403)
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while runner.get(f"{M}/runners/one").status_code != 401:
                assert time.monotonic() < deadline
                time.sleep(0.05)
