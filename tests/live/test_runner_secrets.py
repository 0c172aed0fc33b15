"""Secrets of a template on their way from a real server to a workspace of a real runner, and nowhere else."""

import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx

from tests.harness.eventually import wait_until
from tests.harness.server_process import running_server
from tests.live.runner_process import PROCESS_ENGINE, RunnerProcess, running_runner
from tests.live.workspace_setup import WORKSPACE, M, create_object

CANARY = "canary-8f14e45f-not-to-be-stored"
WORKSPACES = WORKSPACE.removesuffix("/dev")
CREDENTIALS = f"{WORKSPACE}/credentials"
REFERENCE = {"valueFrom": {"projectSecretRef": {"name": "token", "key": "value"}}}


def make_repository(folder: Path) -> str:
    folder.mkdir()
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", "-C", str(folder), *identity, *command], check=True)
    return str(folder)


def get_status(admin: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = admin.get(WORKSPACE).json().get("status") or {}
    return found


def list_files_with(text: str, *folders: Path) -> list[Path]:
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text.encode() in path.read_bytes()]


def check_access(server_url: str, admin: httpx.Client, runner: RunnerProcess) -> None:
    """Only the runner itself may read the values, also not an administrator."""
    assert admin.get(CREDENTIALS).status_code == 403
    create_object(admin, f"{M}/runners", "Runner", "other")
    other = admin.get(f"{M}/runners/other/accesskey").json()["accessKey"]
    own = (runner.folder / "key").read_text()
    with runner.server.client(other) as foreign, runner.server.client(own) as allowed:
        assert foreign.get(CREDENTIALS).status_code in (403, 404)
        assert allowed.get(CREDENTIALS).json()["workspaceEnv"] == {"TOKEN": CANARY}
        secrets = f"{M}/namespaces/service-p-web/projectsecrets/token"
        assert allowed.get(secrets).status_code == 403


def test_a_secret_of_the_template_reaches_the_workspace_and_nothing_else(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    with (
        running_server(tmp_path / "data") as server,
        server.client() as admin,
        running_runner(server, admin, tmp_path / "runner", PROCESS_ENGINE) as runner,
    ):
        data = {"value": b64encode(CANARY.encode()).decode()}
        create_object(admin, f"{M}/namespaces/service-p-web/projectsecrets", "ProjectSecret", "token", data=data)
        body = {
            "apiVersion": "management.service.sh/v1",
            "kind": "DevPodWorkspaceInstance",
            "metadata": {
                "name": "dev",
                "annotations": {"service.sh/workspace-source": f"git:{repository}", "service.sh/workspace-up": "1"},
            },
            "spec": {
                "owner": {"user": "admin"},
                "template": {"provider": {"name": "process"}, "workspaceEnv": {"TOKEN": REFERENCE}},
            },
        }
        created = admin.post(WORKSPACES, json=body)
        assert created.status_code == 201, created.text
        wait_until(lambda: get_status(admin).get("lastWorkspaceStatus") == "Running", what="the workspace runs")
        check_access(server.url, admin, runner)
        uid = created.json()["metadata"]["uid"]
        (found,) = list_files_with(CANARY, runner.folder, tmp_path / "data")
        assert found.parts[-3:] == (uid, "secrets", "TOKEN")
        assert CANARY not in str(get_status(admin))
        audit = "".join(path.read_text() for path in (tmp_path / "data").rglob("audit*.log"))
        assert '"service.sh/secrets":"projectsecrets/service-p-web/token"' in audit.replace('": "', '":"')
        assert admin.delete(f"{M}/namespaces/service-p-web/projectsecrets/token").is_success
        admin.patch(
            WORKSPACE,
            json={"metadata": {"annotations": {"service.sh/workspace-up": "2"}}},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        wait_until(lambda: "SecretsUnavailable" in str(get_status(admin)), what="the secret is missed")
        assert get_status(admin)["lastWorkspaceStatus"] == "Running"


STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
MERGE = {"Content-Type": "application/merge-patch+json"}
SCHEDULED = {"type": "Scheduled", "status": "True", "reason": "Scheduled", "lastTransitionTime": "2026-01-02T03:04:05Z"}


def put_status(runner: httpx.Client, status: dict[str, Any]) -> httpx.Response:
    """Sends back the workspace as it was read, with some fields of its status replaced. Repeated if it has changed."""
    while True:
        served = runner.get(WORKSPACE).json()
        response = runner.put(f"{WORKSPACE}/status", json={**served, "status": {**served["status"], **status}})
        if response.status_code != 409:
            return response


def check_forgeries(runner: httpx.Client) -> None:
    """What the runner would need to change for other secrets, or to stop the controllers, is refused."""
    forgeries: dict[str, Any] = {
        "status.instance": {"instance": {"workspaceEnv": {"STOLEN": REFERENCE}}},
        "status.conditions": {"conditions": [{**SCHEDULED, "message": "forged"}]},
        "status.ignoreReconciliation": {"ignoreReconciliation": True},
    }
    for field, status in forgeries.items():
        responses = [put_status(runner, status)]
        for headers in (MERGE, STRATEGIC):
            responses.append(runner.patch(f"{WORKSPACE}/status", json={"status": status}, headers=headers))
        for response in responses:
            assert (response.status_code, field in response.text) == (403, True), response.text


def check_reports(runner: httpx.Client) -> None:
    condition = {**SCHEDULED, "type": "TaskSucceeded", "reason": "UpSucceeded"}
    status = {"phase": "Ready", "lastWorkspaceStatus": "Running", "conditions": [condition]}
    response = runner.patch(f"{WORKSPACE}/status", json={"status": status}, headers=STRATEGIC)
    assert response.status_code == 200, response.text
    response = put_status(runner, {"message": "sent back as it was read"})
    assert response.status_code == 200, response.text


def is_condition_set(client: httpx.Client, type: str, reason: str) -> bool:
    conditions = client.get(WORKSPACE).json().get("status", {}).get("conditions", ())
    return any((each["type"], each["reason"]) == (type, reason) for each in conditions)


def test_the_key_of_a_runner_cannot_choose_its_secrets(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        create_object(admin, f"{M}/projects", "Project", "web")
        create_object(admin, f"{M}/runners", "Runner", "one")
        data = {"value": b64encode(CANARY.encode()).decode()}
        create_object(admin, f"{M}/namespaces/service-p-web/projectsecrets", "ProjectSecret", "token", data=data)
        template = {"provider": {"name": "process"}, "workspaceEnv": {"PLAIN": {"value": "1"}}}
        spec = {"owner": {"user": "admin"}, "template": template, "runnerRef": {"runner": "one"}}
        create_object(admin, WORKSPACES, "DevPodWorkspaceInstance", "dev", **spec)
        wait_until(lambda: is_condition_set(admin, "TemplateResolved", "Resolved"), what="the template is resolved")
        wait_until(lambda: is_condition_set(admin, "Scheduled", "Scheduled"), what="it is scheduled")
        key = admin.get(f"{M}/runners/one/accesskey").json()["accessKey"]
        with server.client(key) as runner:
            check_forgeries(runner)
            check_reports(runner)
            response = runner.get(CREDENTIALS)
            assert (response.status_code, response.json().get("workspaceEnv")) == (200, None), response.text
            admin.patch(f"{M}/projects/web", json={"spec": {"allowedRunners": []}}, headers=MERGE).raise_for_status()
            assert runner.get(CREDENTIALS).status_code == 409
