"""`python -m bench.workspaces`: one runner with many dev containers, and what it adds to the tools that it uses.

Real processes: a server, a runner, podman and the dev container CLI, as the live tests start them. It needs root and
the programs of `make test-tools`; without them it says so, and measures nothing.
"""

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import httpx
import typer
from pytest import skip

from bench.figures import percentile
from bench.processes import proportional_memory
from tests.harness.eventually import wait_until
from tests.harness.server_process import Server, running_server
from tests.live.runner_process import RunnerProcess, running_runner
from tests.live.workspace_setup import WORKSPACE, create_object, open_socket
from tests.runner.harness.podman import IMAGE, TOOLS, Containers, find_node, open_containers
from tests.runner.harness.real_engine import ENGINE, describe_containers
from tests.runner.harness.root_programs import HARNESS_VARIABLE

COLLECTION = WORKSPACE.removesuffix("/dev")
WAIT_SECONDS = 300
MIB = 1 << 20
ABOVE_SECONDS, STATUS_MS = 3.0, 50.0
"""The aims: of an `up` from an image that exists, above what the CLI itself takes; and of the 99th percentile."""
CONFIGURATION = {"image": IMAGE, "remoteUser": "dev", "postCreateCommand": "true"}
WRAPPER = """#!/bin/sh
for argument; do shift; [ "$argument" = --userns=keep-id ] || set -- "$@" "$argument"; done
exec /usr/bin/podman "$@"
"""
"""Podman without the option that the CLI adds for users other than root, and that fails for root."""


@dataclass(frozen=True, slots=True)
class Measurement:
    cli_seconds: Sequence[float]
    up_seconds: Sequence[float]
    status_ms: Sequence[float]
    first_memory: int
    last_memory: int


def measure(count: int, requests: int) -> Measurement:
    with (
        tempfile.TemporaryDirectory(prefix="fairlead-bench-") as data,
        open_containers() as containers,
        running_server(Path(data) / "data") as server,
        server.client() as admin,
        running_runner(server, admin, containers.folder / "runner", ENGINE, describe_containers(containers)) as runner,
    ):
        source = containers.commit("demo", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
        names = [f"w{number}" for number in range(count)]
        create_workspaces(admin, names)
        first_memory = read_memory(runner)
        cli_seconds, up_seconds = [], []
        for index, name in enumerate(names):
            if index % 5 == 0:  # in between, so that other load of the machine affects both
                cli_seconds.append(time_cli(containers, index))
            up_seconds.append(time_up(admin, name, source))
            print(f"{name}: {up_seconds[-1]:.1f} s", flush=True)
        status_ms = asyncio.run(time_status(server, names, requests))
        return Measurement(cli_seconds, up_seconds, status_ms, first_memory, read_memory(runner))


def create_workspaces(admin: httpx.Client, names: Sequence[str]) -> None:
    for name in names:
        create_object(admin, COLLECTION, "DevPodWorkspaceInstance", name, runnerRef={"runner": "local"})
    for name in names:
        wait_until(partial(can_reach, admin, name), WAIT_SECONDS, what=f"the runner has taken {name}")


def can_reach(admin: httpx.Client, name: str) -> bool:
    return admin.get(f"{COLLECTION}/{name}/tasks").status_code == 200


def time_up(admin: httpx.Client, name: str, source: str) -> float:
    """From the request to the end of the log of its task."""
    began = time.monotonic()
    body = {"spec": {"options": json.dumps({"source": f"git:{source}"})}}
    response = admin.post(f"{COLLECTION}/{name}/up", json=body)
    task_id = response.json()["status"]["taskId"]
    log = admin.get(f"{COLLECTION}/{name}/log", params={"taskID": task_id, "follow": "true"}, timeout=WAIT_SECONDS)
    assert json.loads(log.text.splitlines()[-1])["exitCode"] == 0, log.text
    return time.monotonic() - began


def time_cli(containers: Containers, number: int) -> float:
    """The CLI alone, on a clone of the same repository, with podman as it is."""
    folder = containers.folder / f"plain-{number}"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(containers.folder),
        "CONTAINERS_STORAGE_CONF": str(TOOLS / "images/storage.conf"),
        HARNESS_VARIABLE: "1",
    }
    subprocess.run(["git", "clone", "--quiet", containers.repositories / "demo", folder], env=environment, check=True)
    wrapper = containers.folder / "wrapper"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    label = f"bench={number}"
    command = [find_node(), str((TOOLS / "bin/devcontainer").resolve()), "up", "--docker-path", str(wrapper)]
    began = time.monotonic()
    subprocess.run(
        [*command, "--workspace-folder", str(folder), "--id-label", label, "--update-remote-user-uid-default", "never"],
        env=environment,
        check=True,
        capture_output=True,
    )
    seconds = time.monotonic() - began
    remove = f"podman rm --force --time=0 $(podman ps -q --filter label={label})"
    subprocess.run(["/bin/sh", "-c", remove], env=environment, check=True, capture_output=True)
    return seconds


async def time_status(server: Server, names: Sequence[str], requests: int) -> list[float]:
    """Each request is a WebSocket of its own, as tools open it."""
    durations = []
    for index in range(requests):
        began = time.monotonic()
        async with open_socket(server, "getstatus", path=f"{COLLECTION}/{names[index % len(names)]}") as socket:
            output = await socket.read_all()
        durations.append((time.monotonic() - began) * 1000)
        assert json.loads(output.stdout)["state"] == "Running"
    return durations


def read_memory(runner: RunnerProcess) -> int:
    return proportional_memory(runner.processes[-1].pid)


def command(
    count: Annotated[int, typer.Option("--count", help="How many workspaces run at the end.")] = 20,
    requests: Annotated[int, typer.Option("--requests", help="How many times the status is read.")] = 1000,
) -> None:
    """Measure a runner with real dev containers."""
    try:
        found = measure(count, requests)
    except skip.Exception as reason:
        print(f"not measured: {reason}")
        return
    above = median(found.up_seconds) - median(found.cli_seconds)
    status = {percent: percentile(found.status_ms, percent) for percent in (50, 99)}
    print(f"workspaces                 {count}; load of the machine {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores")
    print(f"up                         {median(found.up_seconds):.2f} s, slowest {max(found.up_seconds):.2f} s")
    print(f"the CLI alone              {median(found.cli_seconds):.2f} s, slowest {max(found.cli_seconds):.2f} s")
    print(f"up above the CLI           {above:.2f} s (aim: at most {ABOVE_SECONDS:g})")
    print(f"getstatus p50, p99         {status[50]:.1f} ms, {status[99]:.1f} ms (aim: p99 at most {STATUS_MS:g})")
    print(f"memory, none and all run   {found.first_memory // MIB} MiB, {found.last_memory // MIB} MiB")


if __name__ == "__main__":
    typer.run(command)
