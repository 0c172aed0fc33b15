"""Rounds with real dev containers: the runner is killed with kill -9 in each phase of up, stop and delete.

`make test-runner` runs this; `CONTAINER_ROUNDS` sets how many workspaces come and go. The runner is killed three times
for each: while it comes up, each time in another step and at another moment; while it stops; and while it is deleted.
"""

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from fairlead.runner.engines.devcontainer.grant import CONTAINER
from tests.harness.eventually import wait_until
from tests.harness.server_process import running_server
from tests.live.runner_process import RunnerProcess, running_runner
from tests.live.test_runner import SLEEP, SOURCE, UP, WORKSPACES, annotate, create, current_step, get_status, summary
from tests.live.test_runner_devcontainer import list_leftovers
from tests.runner.harness.podman import IMAGE, Containers, open_containers
from tests.runner.harness.processes import list_pids
from tests.runner.harness.real_engine import ENGINE, describe_containers

ROUNDS = int(os.environ.get("CONTAINER_ROUNDS", "12"))
WAIT_SECONDS = 180
STEPS = ("Prepare", "Clone", "Configure", "Build", "Start", "LifecycleCommands")
LONGEST_PAUSE = 0.8


@dataclass(slots=True)
class Rounds:
    admin: httpx.Client
    runner: RunnerProcess
    containers: Containers
    pauses: random.Random = field(default_factory=lambda: random.Random(7))
    hits: list[str] = field(default_factory=list)
    """What was under way at each kill."""

    def run(self, number: int) -> None:
        name, step = f"w{number}", STEPS[number % len(STEPS)]
        uid = self.create(name, number)
        self.kill_at(name, lambda shown: shown == step, lambda: summary(self.admin, name)[1] == "Running")
        self.wait_for(name, "Ready", "Running")
        self.check_single(uid)
        assert self.read_file(uid) == ["created"]
        annotate(self.admin, name, **{SLEEP: "true"})
        self.kill_at(name, lambda shown: shown == "Stop", lambda: summary(self.admin, name)[1] == "Stopped")
        self.wait_for(name, "Sleeping", "Stopped")
        self.check_single(uid)
        if number % 2:
            annotate(self.admin, name, **{SLEEP: None})
            self.wait_for(name, "Ready", "Running")
            self.check_single(uid)
            assert self.read_file(uid) == ["created"]
        assert self.admin.delete(f"{WORKSPACES}/{name}").status_code in (200, 202)
        self.kill_at(name, lambda shown: shown == "Delete", lambda: self.is_gone(name))
        wait_until(lambda: self.is_gone(name), WAIT_SECONDS, what=f"{name} is deleted")
        wait_until(lambda: not self.list_leftovers(uid), WAIT_SECONDS, what=f"nothing is left of {name}")

    def create(self, name: str, number: int) -> str:
        """A workspace whose every step takes a while, from a repository of its own: nothing is built already."""
        command = "sleep 1; [ -s /workspaces/*/file ] || echo created >file"
        configuration = {"build": {"dockerfile": "Dockerfile"}, "remoteUser": "dev", "postCreateCommand": command}
        files = {
            ".devcontainer/devcontainer.json": json.dumps(configuration),
            ".devcontainer/Dockerfile": f"FROM {IMAGE}\nRUN sleep 1; echo {number}\n",
        }
        annotations = {SOURCE: f"git:{self.containers.commit(name, files)}", UP: "1"}
        created = create(self.admin, WORKSPACES, "DevPodWorkspaceInstance", name, **annotations)
        return str(created["metadata"]["uid"])

    def kill_at(self, name: str, is_wanted: Callable[[str], bool], is_over: Callable[[], bool]) -> None:
        """Kills the runner within a step, or right after it: a short one may be over before it shows."""
        wait_until(lambda: is_wanted(current_step(self.admin, name)) or is_over(), WAIT_SECONDS, what=f"{name} is on")
        time.sleep(self.pauses.uniform(0, LONGEST_PAUSE))
        self.runner.kill()
        self.hits.append(current_step(self.admin, name) or "afterwards")
        self.runner.start()

    def wait_for(self, name: str, *expected: str) -> None:
        def has_arrived() -> bool:
            status = get_status(self.admin, name)
            assert status.get("phase") != "Failed", status
            return (status.get("phase"), status.get("lastWorkspaceStatus")) == expected

        wait_until(has_arrived, WAIT_SECONDS, what=f"{name} is {expected}")

    def is_gone(self, name: str) -> bool:
        return self.admin.get(f"{WORKSPACES}/{name}").status_code == 404

    def check_single(self, uid: str) -> None:
        assert self.containers.podman(uid, "ps", "--all", "--format", "{{.Names}}").split() == [CONTAINER]

    def read_file(self, uid: str) -> list[str]:
        work = next((self.runner.folder / "state").rglob(f"workspaces/{uid}/work"))
        return [line for path in work.glob("*/file") for line in path.read_text().splitlines()]

    def list_leftovers(self, uid: str) -> list[str]:
        groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/*{uid}*")]
        return [*list_leftovers(self.runner, uid), *groups]


@pytest.mark.timeout(120 + 600 * ROUNDS)
def test_a_runner_that_is_killed_in_any_phase_loses_and_doubles_no_container(tmp_path: Path) -> None:
    with (
        open_containers() as containers,
        running_server(tmp_path / "data") as server,
        server.client() as admin,
        running_runner(server, admin, containers.folder / "runner", ENGINE, describe_containers(containers)) as runner,
    ):
        rounds = Rounds(admin, runner, containers)
        for number in range(ROUNDS):
            began = time.monotonic()
            rounds.run(number)
            print(f"round {number}: {time.monotonic() - began:.0f} s, killed in {rounds.hits[-3:]}", flush=True)
        owners = range(containers.settings().first_uid, containers.settings().first_uid + 64 * 65536)
        assert [pid for pid in list_pids() if read_owner(pid) in owners] == []
        assert runner.stop() == 0


def read_owner(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1
