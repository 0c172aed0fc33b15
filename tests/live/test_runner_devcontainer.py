"""A real server, a real runner process and a real dev container: the whole life of a workspace, as a user drives it."""

import asyncio
import base64
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead.runner.engines.devcontainer.isolation.holder import Holder, find_holder
from tests.harness.eventually import wait_until
from tests.harness.server_process import Server, running_server
from tests.live.runner_process import RunnerProcess, running_runner
from tests.live.workspace_setup import WORKSPACE, create_object, open_socket
from tests.runner.harness.podman import IMAGE, Containers, open_containers
from tests.runner.harness.real_engine import ENGINE, describe_containers

WAIT_SECONDS = 60
CONFIGURATION = {"image": IMAGE, "remoteUser": "dev", "postCreateCommand": "echo created by $(id -un)"}


def get_status(admin: httpx.Client) -> tuple[str, str]:
    status = admin.get(WORKSPACE).json().get("status") or {}
    return status.get("phase") or "", status.get("lastWorkspaceStatus") or ""


def wait_for(admin: httpx.Client, *expected: str) -> None:
    wait_until(lambda: get_status(admin) == expected, WAIT_SECONDS, what=f"the workspace is {expected}")


def post(admin: httpx.Client, subresource: str, **options: str) -> str:
    """Starts a task, and returns its ID."""
    response = admin.post(f"{WORKSPACE}/{subresource}", json={"spec": {"options": json.dumps(options)}})
    assert response.status_code == 201, response.text
    return str(response.json()["status"]["taskId"])


def read_log(admin: httpx.Client, task_id: str) -> tuple[str, int]:
    """The log of a task up to its end, and its exit code."""
    response = admin.get(f"{WORKSPACE}/log", params={"taskID": task_id, "follow": "true"}, timeout=WAIT_SECONDS)
    assert response.status_code == 200, response.text
    lines = [json.loads(line) for line in response.text.splitlines()]
    text = b"".join(base64.b64decode(line["bytes"]) for line in lines if "bytes" in line)
    return text.decode(), lines[-1]["exitCode"]


def read_file(admin: httpx.Client, path: str) -> str:
    response = admin.get(f"{WORKSPACE}/download", params={"path": path})
    assert response.status_code == 200, response.text
    with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
        file = archive.extractfile(archive.getmembers()[0])
        assert file is not None
        return file.read().decode()


def can_reach(admin: httpx.Client) -> bool:
    return admin.get(f"{WORKSPACE}/tasks").status_code == 200


async def read_status(server: Server) -> dict[str, Any]:
    async with open_socket(server, "getstatus") as socket:
        status: dict[str, Any] = json.loads((await socket.read_all()).stdout)
    return status


def list_leftovers(runner: RunnerProcess, uid: str) -> list[str]:
    """What still has the uid in its name or command, in the folders of the runner, and as a process."""
    files = [str(path) for path in (runner.folder / "state").rglob(f"*{uid}*")]
    processes = subprocess.run(["pgrep", "-f", uid], capture_output=True, text=True, check=False).stdout.split()
    return files + processes


def start_image_holder(containers: Containers, runner: RunnerProcess) -> Holder:
    """The holder in which the runner pulls images from registries."""
    (folder,) = (runner.folder / "state" / "engines").iterdir()
    pulled = containers.engine(runner="local", state_folder=folder).pulled
    asyncio.run(pulled._start())
    holder = find_holder(pulled.folder.holder)
    assert holder is not None
    return holder


@pytest.mark.timeout(180)
def test_a_workspace_comes_up_outlives_its_runner_stops_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        open_containers() as containers,
        running_server(tmp_path / "data") as server,
        server.client() as admin,
        running_runner(server, admin, containers.folder / "runner", ENGINE, describe_containers(containers)) as runner,
    ):
        url = containers.commit("demo", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION), "a": "first\n"})
        uid = create_object(
            admin,
            WORKSPACE.removesuffix("/dev"),
            "DevPodWorkspaceInstance",
            "dev",
            runnerRef={"runner": "local"},
            templateRef={"name": "default"},
        )["metadata"]["uid"]
        wait_until(lambda: can_reach(admin), WAIT_SECONDS, what="the runner has taken the workspace")

        up = post(admin, "up", source=f"git:{url}")
        wait_until(lambda: get_status(admin)[1] == "Busy", WAIT_SECONDS, what="the workspace is busy")
        runner.kill()
        runner.start()
        wait_for(admin, "Ready", "Running")
        log, code = read_log(admin, up)
        assert ("created by dev" in log, code) == (True, 0), (log, admin.get(WORKSPACE).json()["status"])
        started = containers.podman(uid, "ps", "--no-trunc", "--format", "{{.ID}} {{.StartedAt}}")
        assert len(started.splitlines()) == 1

        runner.kill()
        runner.start()
        wait_until(lambda: can_reach(admin), WAIT_SECONDS, what="the next runner is connected")
        assert read_file(admin, "a") == "first\n"
        assert asyncio.run(read_status(server))["state"] == "Running"
        assert containers.podman(uid, "ps", "--no-trunc", "--format", "{{.ID}} {{.StartedAt}}") == started

        assert read_log(admin, post(admin, "stop"))[1] == 0
        wait_for(admin, "Ready", "Stopped")
        assert admin.get(f"{WORKSPACE}/download", params={"path": "a"}).status_code in (400, 409)
        assert list_leftovers(runner, uid)
        assert admin.delete(WORKSPACE).status_code in (200, 202)
        wait_until(lambda: admin.get(WORKSPACE).status_code == 404, WAIT_SECONDS, what="the workspace is deleted")
        wait_until(lambda: not list_leftovers(runner, uid), what="nothing is left")
        images = start_image_holder(containers, runner)
        assert images.is_alive()
        assert runner.stop() == 0
        assert not images.is_alive()
