"""A runner's key over HTTP: read, used as the runner, refused everywhere else, rotated, and never on disk in clear."""

import json
import time
from pathlib import Path
from typing import Any

import httpx

from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
HOME = f"{M}/namespaces/service-p-web"
EVENTS = f"{MANAGEMENT}/api/v1/namespaces/service-p-web/events"
MERGE = {"Content-Type": "application/merge-patch+json"}


def make(client: httpx.Client, path: str, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    version = "management.service.sh/v1"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    answer = client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def furnish(client: httpx.Client) -> None:
    """Runners `one` and `two`, and a workspace of each in project `web`."""
    make(client, f"{M}/projects", "Project", "web")
    for name in ("one", "two"):
        make(client, f"{M}/runners", "Runner", name)
        workspaces = f"{HOME}/devpodworkspaceinstances"
        make(client, workspaces, "DevPodWorkspaceInstance", f"ws-{name}", runnerRef={"runner": name})


def read_key(client: httpx.Client, name: str) -> str:
    answer = client.get(f"{M}/runners/{name}/accesskey")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["kind"], told["apiVersion"]) == ("RunnerAccessKey", "management.service.sh/v1")
    assert told["metadata"] == {"creationTimestamp": None}
    key: str = told["accessKey"]
    return key


def until(client: httpx.Client, path: str, condition: str) -> dict[str, Any]:
    """Waits until a condition of an object is True."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found: dict[str, Any] = client.get(path).json()
        conditions = found.get("status", {}).get("conditions", ())
        if any((each["type"], each["status"]) == (condition, "True") for each in conditions):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{path} is not {condition}")


def test_a_runner_reads_its_key_and_does_its_work_with_it(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.client() as admin:
        furnish(admin)
        key = read_key(admin, "one")
        assert read_key(admin, "one") == key != read_key(admin, "two")
        with server.client(key) as runner:
            _acts_as_itself(runner)
            _looks_after_its_workspace(runner)
            _is_refused_elsewhere(runner)
        assert until(admin, f"{HOME}/devpodworkspaceinstances/ws-one", "Ready")["status"]["phase"] == "Ready"
        assert until(admin, f"{M}/runners/one", "Ready")["status"]["phase"] == "Initialized"
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()
        _leaves_no_trace(tmp_path, server, key)


def _acts_as_itself(runner: httpx.Client) -> None:
    status = runner.post(f"{M}/selves", json={}).json()["status"]
    assert status["subject"] == "service:runner:one"
    assert runner.get(f"{M}/runners/one").status_code == 200
    answer = runner.patch(f"{M}/runners/one/status", json={"status": {"phase": "Initialized"}}, headers=MERGE)
    assert answer.status_code == 200, answer.text
    config = runner.get(f"{M}/runners/one/config").json()
    assert (config["kind"], config["projectNamespacePrefix"]) == ("RunnerConfig", "service-p-")
    assert "tokenCaCert" in config


def _looks_after_its_workspace(runner: httpx.Client) -> None:
    for path in (f"{M}/devpodworkspaceinstances", f"{HOME}/devpodworkspaceinstances"):
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
    answer = runner.patch(f"{HOME}/devpodworkspaceinstances/ws-one/status", json=status, headers=MERGE)
    assert answer.status_code == 200, answer.text
    about = {"kind": "DevPodWorkspaceInstance", "name": "ws-one", "namespace": "service-p-web"}
    event = {"metadata": {"name": "up"}, "involvedObject": about, "reason": "Up", "message": "it is up"}
    assert runner.post(EVENTS, json=event).status_code == 201


def _is_refused_elsewhere(runner: httpx.Client) -> None:
    rename = {"spec": {"displayName": "x"}}
    own, other = f"{HOME}/devpodworkspaceinstances/ws-one", f"{HOME}/devpodworkspaceinstances/ws-two"
    refused = [
        runner.get(other),
        runner.get(f"{HOME}/devpodworkspaceinstances/missing"),
        runner.patch(f"{other}/status", json={"status": {"phase": "Failed"}}, headers=MERGE),
        runner.patch(own, json=rename, headers=MERGE),
        runner.delete(own),
        runner.patch(f"{M}/runners/one", json=rename, headers=MERGE),
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
    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert runner.get(f"{M}/ownedaccesskeys").json()["items"] == []


def _leaves_no_trace(folder: Path, server: Server, key: str) -> None:
    events = [json.loads(line) for line in (folder / "data" / "audit.log").read_bytes().splitlines()]
    reads = [each for each in events if each.get("objectRef", {}).get("subresource") == "accesskey"]
    ended = [each for each in reads if each["stage"] == "ResponseComplete"]
    assert [each["responseStatus"]["code"] for each in ended] == [200, 200, 200, 403, 403]
    files = [each for each in (folder / "data").rglob("*") if each.is_file()]
    assert len(files) > 3
    assert [each.name for each in (*files, server.log) if key.encode() in each.read_bytes()] == []


def test_a_key_is_rotated_and_read_by_those_who_may(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.client() as admin:
        furnish(admin)
        make(admin, f"{M}/users", "User", "ada")
        ada = make(admin, f"{M}/ownedaccesskeys", "OwnedAccessKey", "ada", user="ada")["spec"]["key"]
        key = read_key(admin, "one")
        with server.client(ada) as client:
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
        answer = admin.post(f"{M}/runners/one/rotatekey", json={"spec": {"overlapSeconds": 600}})
        assert answer.status_code == 201, answer.text
        rotated = answer.json()["accessKey"]
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
        admin.delete(f"{M}/runners/one").raise_for_status()
        with server.client(key) as runner:
            assert runner.get(f"{HOME}/devpodworkspaceinstances/ws-one").status_code in (401, 403)
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while runner.get(f"{M}/runners/one").status_code != 401:
                assert time.monotonic() < deadline
                time.sleep(0.05)
