"""Starts and ends of a workspace at bad moments: nothing of it stays that the next one with its user ids could meet."""

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import EngineError, ImageSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.isolation import holder as holder_module
from fairlead.runner.engines.devcontainer.isolation.holder import find_holder
from fairlead.runner.engines.devcontainer.layout import open_folder
from tests.harness.server_process import ROOT
from tests.runner.harness.podman import IMAGE, Containers, expect_nothing_left
from tests.runner.harness.tasks import RecordedTask

UID = "4ace5000-0000-4000-8000-000000000001"
OTHER = "4ace5000-0000-4000-8000-000000000002"


def describe(uid: str) -> WorkspaceSpec:
    return WorkspaceSpec(uid, "project", "demo", "mallory", ImageSource(IMAGE))


def expect_workspace_is_gone(containers: Containers, seconds: float = 5) -> None:
    """The only one of its runner."""
    expect_nothing_left(UID, containers.settings().first_uid, seconds)


@pytest.mark.timeout(400)
async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing_after_the_deletion(
    containers: Containers,
) -> None:
    engine = containers.engine()
    began = time.monotonic()
    await engine.up(describe(UID), RecordedTask())
    whole = time.monotonic() - began
    await engine.delete(UID, RecordedTask("delete"))
    for share in (0.02, 0.1, 0.25, 0.4, 0.6, 0.8):
        task = RecordedTask(f"up-{share}")
        starting = asyncio.create_task(engine.up(describe(UID), task))
        await asyncio.sleep(whole * share)
        task.is_cancelled = True
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await engine.delete(UID, RecordedTask("delete"))
        expect_workspace_is_gone(containers)


def change_namespaces(monkeypatch: pytest.MonkeyPatch, folder: Path, line: str) -> None:
    """Has the program that builds holders do something else before it makes the inner user namespace."""
    place = "    enter_inner_namespace()\n"
    text = holder_module.NAMESPACES.read_text()
    assert text.count(place) == 1
    changed = folder / "namespaces.py"
    changed.write_text(text.replace(place, f"    {line}\n{place}"))
    monkeypatch.setattr(holder_module, "NAMESPACES", changed)


async def test_nothing_enters_a_holder_before_its_inner_user_namespace_is_complete(
    containers: Containers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_namespaces(monkeypatch, tmp_path, "import time; time.sleep(1.5)")
    engine = containers.engine()
    holder = await engine.pulled._start()
    try:
        entered = (await holder.expect("/bin/readlink", "/proc/self/ns/user")).strip()
        await asyncio.sleep(2)
        assert os.readlink(f"/proc/{holder.pid}/ns/user") == entered
    finally:
        await engine.close()


async def test_a_holder_whose_inner_user_namespace_cannot_be_made_says_why(
    containers: Containers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_namespaces(monkeypatch, tmp_path, "raise OSError('no room for a user namespace')")
    with pytest.raises(EngineError, match="the namespaces cannot be made: OSError: no room for a user namespace"):
        await containers.engine().pulled._start()


async def start(command: list[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )


RUNNER = """
import asyncio, sys
from pathlib import Path
from fairlead.runner.engines.contract import ImageSource, WorkspaceSpec
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.tasks import RecordedTask
containers = Containers(Path(sys.argv[1]), int(sys.argv[2]))
print("started", flush=True)
spec = WorkspaceSpec(sys.argv[3], "project", "demo", "mallory", ImageSource(IMAGE))
asyncio.run(containers.engine().up(spec, RecordedTask()))
"""


@pytest.mark.timeout(400)
async def test_a_runner_that_is_killed_at_any_moment_leaves_nothing_that_a_deletion_does_not_end(
    containers: Containers,
) -> None:
    engine = containers.engine()
    command = [sys.executable, "-c", RUNNER, str(containers.folder), str(containers.number), UID]
    for seconds in (0.05, 0.3, 0.8, 1.6, 3.0):
        runner = await start(command)
        assert runner.stdout is not None and await runner.stdout.readline() == b"started\n"
        await asyncio.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):  # a fast machine is done by then
            runner.kill()
        await runner.wait()
        await engine.delete(UID, RecordedTask("delete"))
        expect_workspace_is_gone(containers)


FORKING = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("forking", flush=True)
while True:
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        pass
    os.setsid()
"""
"""A process that is another one at each moment: a list of pids is old before it is complete."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "forgotten"])
async def test_processes_that_fork_all_the_time_end_with_their_holder_before_its_ids_are_used_again(
    containers: Containers, is_known: bool
) -> None:
    """Also if a runner that was killed did not write down which holder it has started."""
    engine = containers.engine()
    await engine.up(describe(UID), RecordedTask())
    folder = open_folder(engine.settings.state_folder, UID)
    holder = find_holder(folder.holder)
    assert holder is not None
    former = folder.identity.read_text()
    groups = (
        "for g in /sys/fs/cgroup/*/box /sys/fs/cgroup/box; do mkdir $g/hidden && echo $$ >$g/hidden/cgroup.procs; done"
    )
    script = f"({groups}) 2>/dev/null; exec python3 -c '{FORKING}'"
    forking = [await start(holder.enter(["/bin/sh", "-c", script])) for _ in range(4)]
    for each in forking:
        assert each.stdout is not None and await each.stdout.readline() == b"forking\n"
    if not is_known:
        folder.holder.unlink()
    await engine.delete(UID, RecordedTask("delete"))
    expect_workspace_is_gone(containers)
    await engine.up(describe(OTHER), RecordedTask())
    try:
        identity = open_folder(engine.settings.state_folder, OTHER).identity.read_text()
        assert identity == former  # the ids of the first one
        assert "hidden" not in containers.run(
            OTHER, "/bin/sh", "-c", "ls /sys/fs/cgroup/*/box /sys/fs/cgroup/box; true"
        )
    finally:
        await engine.delete(OTHER, RecordedTask("delete"))
        for each in forking:
            await asyncio.wait_for(each.wait(), 30)


@pytest.mark.timeout(400)
async def test_starts_stops_and_deletions_at_the_same_time_leave_nothing_after_the_last_deletion(
    containers: Containers,
) -> None:
    """The runner has one task for each workspace at a time. If it ever had two, none of them may outlive the last."""
    engine = containers.engine()

    async def act(number: int) -> None:
        with contextlib.suppress(EngineError, OSError):
            match number % 3:
                case 0:
                    await engine.up(describe(UID), RecordedTask(f"up-{number}"))
                case 1:
                    await engine.stop(UID, RecordedTask(f"stop-{number}"))
                case 2:
                    await engine.delete(UID, RecordedTask(f"delete-{number}"))

    acting = []
    for number in range(6):
        acting.append(asyncio.create_task(act(number)))
        await asyncio.sleep(0.3)
    await asyncio.wait(acting, timeout=120)
    for each in acting:
        each.cancel()
    await asyncio.gather(*acting, return_exceptions=True)
    await engine.delete(UID, RecordedTask("delete"))
    expect_workspace_is_gone(containers, seconds=30)
