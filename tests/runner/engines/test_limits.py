"""The limits of a workspace, with each runtime that this machine has and its version of cgroups allows.

The containers are started without the dev container CLI, so that this takes little time where a processor is slow:
`make test-cgroup2` runs it on an emulated one.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ContainerState, ImageSource, Limits, WorkspaceSpec
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.grant import CONTAINER, Grant
from fairlead.runner.engines.devcontainer.isolation import workspace_holder
from fairlead.runner.engines.devcontainer.isolation.cgroups import is_unified
from fairlead.runner.engines.devcontainer.isolation.holder import Holder, save_holder
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import HolderFactory
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, open_folder
from fairlead.runner.engines.devcontainer.preparation import build_grant, prepare
from tests.runner.harness.podman import IMAGE, Containers, expect_nothing_left
from tests.runner.harness.tasks import RecordedTask

LIMITS = Limits(memory_bytes=128 << 20, cpus=0.5, processes=64)
RUNTIMES = ("crun", "runc") if is_unified() else ("runc",)
DELEGATED = {"cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"}
EXCEED = """
import os, subprocess, sys, time
print("memory", subprocess.run([sys.executable, "-c", "x = b'x' * (1 << 28)"]).returncode)
children = []
try:
    while len(children) < 200:
        child = os.fork()
        if child == 0:
            time.sleep(600)
        children.append(child)
except OSError as error:
    print("processes", error.errno)
for child in children:
    os.kill(child, 9)
    os.waitpid(child, 0)
began, used = time.monotonic(), time.process_time()
while time.monotonic() < began + 2:
    pass
print("cpu", (time.process_time() - used) / (time.monotonic() - began))
"""
LIST_WRITABLE = "find /sys/fs/cgroup -mindepth 2 -path '*/box/*' -type d -prune -o -type f -writable -print"


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed; `make test-cgroup2` has it")
    monkeypatch.setattr(workspace_holder, "choose_runtime", lambda: name)
    yield name


async def start(engine: DevcontainerEngine, folder: WorkspaceFolder, grant: Grant) -> Holder:
    """A holder with a running container in it, as `up` makes them."""
    network = await prepare(engine.settings, folder, grant)
    holder = await HolderFactory(engine.settings, folder, grant, network).start(json.dumps({"image": IMAGE}))
    save_holder(folder.holder, holder)
    await holder.expect("podman", "rm", "--all", "--force", "--time=0")
    await holder.expect("podman", "run", "--detach", *grant.confinement, *grant.labels, IMAGE, "sleep", "6000")
    return holder


async def test_a_container_stays_within_its_limits_and_cannot_change_them(containers: Containers, runtime: str) -> None:
    engine = containers.engine()
    uid = f"11117000-0000-4000-8000-{runtime}"
    spec = WorkspaceSpec(uid, "project", "demo", "mallory", ImageSource(IMAGE), limits=LIMITS)
    folder = open_folder(engine.settings.state_folder, uid)
    grant = build_grant(engine.settings, spec, folder, "task-1")
    holder = await start(engine, folder, grant)
    used = await holder.expect("podman", "container", "inspect", "--format={{.OCIRuntime}}", CONTAINER)
    assert used.strip() == runtime

    exceeded = await holder.expect("podman", "exec", CONTAINER, "python3", "-c", EXCEED)
    memory, processes, cpu = exceeded.splitlines()
    assert (memory, processes) == ("memory -9", "processes 11")
    assert float(cpu.split()[1]) < 0.65
    status = await engine.status(uid)
    assert (status.state, status.cause) == (
        ContainerState.RUNNING,
        "OutOfMemory: processes killed because the workspace reached its memory limit: 1",
    )
    assert 0 < (status.memory_bytes or 0) <= (LIMITS.memory_bytes or 0)
    sample = await engine.measure(uid)
    assert sample is not None and sample.cpu_seconds > 0

    writable = (await holder.expect("/bin/sh", "-c", LIST_WRITABLE)).splitlines()
    assert {Path(each).name for each in writable} <= DELEGATED
    assert any("/box/" in each for each in writable)

    await holder.kill()
    await start(engine, folder, grant)
    status = await engine.status(uid)
    assert (status.state, status.cause) == (ContainerState.RUNNING, "")
    await engine.delete(uid, RecordedTask("task-2"))
    expect_nothing_left(uid, grant.first_uid)
