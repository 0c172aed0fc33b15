"""A real runner process on a real server, killed with kill -9 in each phase of up, stop and delete.

The engine is a fake one whose containers are files, so that they survive the process. `RUNNER_ROUNDS` sets how many
times each phase is hit, each time a little later.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.eventually import wait_until
from tests.harness.server_process import (
    MANAGEMENT,
    ROOT,
    Server,
    running_server,
    server_command,
    server_environment,
)
from tests.live.runner_process import RunnerProcess, running_runner
from tests.runner.fake_engine import SECONDS_VARIABLE

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
WORKSPACES = f"{M}/namespaces/service-p-web/devpodworkspaceinstances"
MERGE = {"Content-Type": "application/merge-patch+json"}
STEP_SECONDS = 0.4
ROUNDS = int(os.environ.get("RUNNER_ROUNDS", "1"))
SOURCE, UP, SLEEP = "service.sh/workspace-source", "service.sh/workspace-up", "sleepmode.service.sh/force"


ENVIRONMENT = {SECONDS_VARIABLE: str(STEP_SECONDS)}


def engine_folder(runner: RunnerProcess) -> Path:
    return runner.folder / "state" / "engines" / "tests.runner.fake_engine"


def count_containers(runner: RunnerProcess, uid: str) -> int:
    return len(list((engine_folder(runner) / "containers").glob(f"{uid}.*")))


def read_data(runner: RunnerProcess, uid: str) -> str:
    path = engine_folder(runner) / "volumes" / uid
    return path.read_text() if path.exists() else ""


def list_leftovers(runner: RunnerProcess) -> list[str]:
    folders = (
        engine_folder(runner) / "containers",
        engine_folder(runner) / "volumes",
        runner.folder / "state/workspaces",
    )
    return [path.name for folder in folders for path in folder.iterdir()]


def create(admin: httpx.Client, path: str, kind: str, name: str, **annotations: str) -> dict[str, Any]:
    meta = {"name": name, "annotations": annotations}
    response = admin.post(path, json={"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": meta})
    assert response.status_code == 201, response.text
    created: dict[str, Any] = response.json()
    return created


def create_workspace(admin: httpx.Client, name: str) -> str:
    """Creates a workspace that comes up at once, and returns its uid."""
    annotations = {SOURCE: "git:https://example.com/repository.git", UP: "1"}
    return str(create(admin, WORKSPACES, "DevPodWorkspaceInstance", name, **annotations)["metadata"]["uid"])


def annotate(admin: httpx.Client, name: str, **annotations: str | None) -> None:
    body = {"metadata": {"annotations": annotations}}
    response = admin.patch(f"{WORKSPACES}/{name}", json=body, headers=MERGE)
    assert response.status_code == 200, response.text


def get_status(admin: httpx.Client, name: str) -> dict[str, Any]:
    found = admin.get(f"{WORKSPACES}/{name}").json().get("status")
    return found if isinstance(found, dict) else {}


def summary(admin: httpx.Client, name: str) -> tuple[str, str]:
    status = get_status(admin, name)
    return status.get("phase") or "", status.get("lastWorkspaceStatus") or ""


def current_step(admin: httpx.Client, name: str) -> str:
    """The step of the task under way."""
    conditions = get_status(admin, name).get("conditions") or ()
    found = [each for each in conditions if (each["type"], each["status"]) == ("TaskSucceeded", "Unknown")]
    return found[0]["message"] if found else ""


def wait_for(admin: httpx.Client, name: str, *expected: str) -> None:
    wait_until(lambda: summary(admin, name) == expected, what=f"{name} is {expected}")


def ready_condition(admin: httpx.Client, path: str) -> tuple[str, str]:
    conditions = (admin.get(path).json().get("status") or {}).get("conditions") or ()
    return next(((each["status"], each["reason"]) for each in conditions if each["type"] == "Ready"), ("", ""))


def pause(round: int) -> None:
    """Waits a little longer in each round, so that the kill hits other moments of the step."""
    began = os.times().elapsed
    wait_until(lambda: os.times().elapsed - began >= (round % 7) * STEP_SECONDS / 7)


@pytest.mark.timeout(120 + 150 * ROUNDS)
def test_a_runner_that_is_killed_in_any_phase_loses_and_doubles_no_workspace(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "data") as server,
        server.client() as admin,
        running_runner(server, admin, tmp_path / "runner", environment=ENVIRONMENT) as runner,
    ):
        wait_until(lambda: ready_condition(admin, f"{M}/runners/local") == ("True", "Reported"))
        for round in range(ROUNDS):
            for step in ("Clone", "Build", "Start"):
                check_up(admin, runner, f"up-{step.lower()}-{round}", step, round)
            events = admin.get(f"{MANAGEMENT}/api/v1/namespaces/service-p-web/events").json()["items"]
            assert {("UpSucceeded", "Normal")} <= {(each["reason"], each["type"]) for each in events}
            names = [f"up-{step}-{round}" for step in ("clone", "build", "start")]
            check_stop(admin, runner, names[0], round)
            for name in names:
                check_delete(admin, runner, name, round)
        wait_until(lambda: not list_leftovers(runner), what=f"nothing is left: {list_leftovers(runner)}")
        assert runner.stop() == 0


def wait_for_step(admin: httpx.Client, name: str, step: str, end: str) -> None:
    """Waits for a step of a task; or for its end, because a busy machine may miss a short step."""
    wait_until(lambda: current_step(admin, name) == step or summary(admin, name)[1] == end, what=f"{name} is at {step}")


def check_up(admin: httpx.Client, runner: RunnerProcess, name: str, step: str, round: int) -> None:
    uid = create_workspace(admin, name)
    wait_for_step(admin, name, step, "Running")
    pause(round)
    runner.kill()
    data = read_data(runner, uid)
    runner.start()
    wait_for(admin, name, "Ready", "Running")
    assert count_containers(runner, uid) == 1
    assert data in ("", read_data(runner, uid))


def check_stop(admin: httpx.Client, runner: RunnerProcess, name: str, round: int) -> None:
    uid = admin.get(f"{WORKSPACES}/{name}").json()["metadata"]["uid"]
    data = read_data(runner, uid)
    annotate(admin, name, **{SLEEP: "true"})
    wait_for_step(admin, name, "Stop", "Stopped")
    pause(round)
    runner.kill()
    runner.start()
    wait_for(admin, name, "Sleeping", "Stopped")
    assert (count_containers(runner, uid), read_data(runner, uid)) == (1, data)
    annotate(admin, name, **{SLEEP: None})
    wait_for(admin, name, "Ready", "Running")
    assert (count_containers(runner, uid), read_data(runner, uid)) == (1, data)


def check_delete(admin: httpx.Client, runner: RunnerProcess, name: str, round: int) -> None:
    uid = admin.get(f"{WORKSPACES}/{name}").json()["metadata"]["uid"]
    assert admin.delete(f"{WORKSPACES}/{name}").status_code in (200, 202)
    wait_for_step(admin, name, "Delete", "")
    pause(round)
    runner.kill()
    runner.start()
    wait_until(lambda: admin.get(f"{WORKSPACES}/{name}").status_code == 404, what=f"{name} is deleted")
    assert (count_containers(runner, uid), read_data(runner, uid)) == (0, "")


def test_a_restart_of_the_server_restarts_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_server(data) as server, server.client() as admin:
        port = httpx.URL(server.url).port
        with running_runner(server, admin, tmp_path / "runner", environment=ENVIRONMENT) as runner:
            uid = create_workspace(admin, "w")
            wait_for(admin, "w", "Ready", "Running")
            content = read_data(runner, uid)
            other = create_workspace(admin, "other")
            wait_until(lambda: current_step(admin, "other") == "Build", what="other is at Build")
            server.kill()
            with running_server_on_port(data, server, port) as later:
                wait_until(lambda: _is_up(later, "other"), what="other runs")
                assert summary(later, "w") == ("Ready", "Running")
                assert (count_containers(runner, uid), read_data(runner, uid), count_containers(runner, other)) == (
                    1,
                    content,
                    1,
                )
                assert runner.processes[-1].poll() is None


@contextmanager
def running_server_on_port(data: Path, before: Server, port: int | None) -> Iterator[httpx.Client]:
    """A server on the same data and port as one that has ended."""
    command = [str(port) if part == "0" else part for part in server_command(data, "--json")]
    with open(before.log, "ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=server_environment(), stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), before.log.read_text()
        with before.client() as client:
            yield client
    finally:
        process.kill()
        process.communicate()


def _is_up(client: httpx.Client, name: str) -> bool:
    return summary(client, name) == ("Ready", "Running")


def run_command(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=ROOT, env=server_environment(), capture_output=True, text=True, timeout=60, check=False
    )


def test_a_second_process_starts_on_another_folder_and_after_the_first_was_stopped(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "data") as server,
        server.client() as admin,
        running_runner(server, admin, tmp_path / "runner", environment=ENVIRONMENT) as runner,
    ):
        second = run_command(sys.executable, "-m", "fairlead", *runner.arguments)
        assert second.returncode == 1
        assert "another runner process uses this folder" in second.stderr
        key = (runner.folder / "key").read_text()
        assert key not in runner.read_log()
        lease = f"{MANAGEMENT}/apis/coordination.k8s.io/v1/namespaces/service-system/leases/runner-local"
        assert admin.get(lease).json()["spec"]["holderIdentity"]
        assert runner.stop() == 0
        assert admin.get(lease).json()["spec"].get("holderIdentity", "") == ""
        runner.flags = ("--state", str(tmp_path / "other"))
        runner.start()
        assert admin.get(lease).json()["spec"]["holderIdentity"]


def test_the_doctor_says_what_is_missing(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        flags = ("--server", server.url, "--ca-file", server.ca_file, "--state", str(tmp_path / "state"))
        command = [sys.executable, "-m", "fairlead", "runner", "doctor", "local", *flags]
        engine = ("--engine", "tests.runner.fake_engine:create_engine")
        (tmp_path / "key").write_text("wrong")
        wrong = run_command(*command, *engine, "--key-file", str(tmp_path / "key"))
        assert wrong.returncode == 1
        assert "PROBLEM  server" in wrong.stdout and "fairlead runner key local" in wrong.stdout
        missing = run_command(*command, *engine)
        assert missing.returncode == 1
        assert "PROBLEM  key" in missing.stdout and "FAIRLEAD_RUNNER_KEY" in missing.stdout
