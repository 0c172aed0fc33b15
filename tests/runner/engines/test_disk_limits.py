"""How fast workspaces read and write: in a folder in place of the kernel's, and on the kernel of the machine."""

import asyncio
import time
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ImageSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.isolation import cgroups, disk_limits
from fairlead.runner.engines.devcontainer.isolation.disk import attach
from fairlead.runner.engines.devcontainer.isolation.disk_limits import (
    BYTES,
    OPERATIONS,
    find_limit_problem,
    forget_devices,
    limit_devices,
)
from fairlead.runner.engines.devcontainer.layout import open_folder
from fairlead.runner.engines.devcontainer.settings import DiskLimits
from tests.harness.eventually import eventually
from tests.runner.harness.podman import IMAGE, Containers, list_groups
from tests.runner.harness.tasks import RecordedTask

UID = "d15c0000-0000-4000-8000-000000000001"
LIMITS = DiskLimits(bytes_per_second=8 << 20, operations_per_second=2000)
SPEC = WorkspaceSpec(UID, "project", "demo", "mallory", ImageSource(IMAGE))
MEBIBYTES = 24
LEAST_SECONDS = 2.0
"""For as much, with that limit; without one, less than half a second."""
COMMANDS = {
    "past the memory of the kernel": "dd if=/dev/zero of=file bs=1M count=24 oflag=direct",
    "later, from the memory of the kernel": "rm -f new; sync -f .; dd if=/dev/zero of=new bs=1M count=24; sync -f .",
    "reads": "dd if=file of=/dev/null bs=1M count=24 iflag=direct",
}
"""The second one needs a new file: what is written over one, the process that closes it writes at once."""


@pytest.fixture
def version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    monkeypatch.setattr(disk_limits, "LOOP_DEVICES", tmp_path / "block")
    for folder in (tmp_path / "blkio", tmp_path / "blkio/own"):
        folder.mkdir()
        for name in (*BYTES, *OPERATIONS):
            (folder / name).touch()
    return tmp_path


def test_version_1_limits_the_group_and_what_the_kernel_writes_later(version_1: Path) -> None:
    blkio = version_1 / "blkio"
    limit_devices(LIMITS, [str(blkio / "own")], own=["7:3"], others=[])
    for folder in (blkio, blkio / "own"):
        assert [(folder / name).read_text() for name in BYTES] == ["7:3 8388608"] * 2
        assert [(folder / name).read_text() for name in OPERATIONS] == ["7:3 2000"] * 2


def test_what_others_read_of_a_disk_counts_for_each_of_them(version_1: Path) -> None:
    """The kernel writes images later for the holder that pulls them, which has a limit at the top of its own."""
    blkio = version_1 / "blkio"
    limit_devices(LIMITS, [str(blkio / "own")], own=[], others=["7:4"])
    assert (blkio / "own" / BYTES[0]).read_text() == "7:4 8388608"
    assert (blkio / BYTES[0]).read_text() == ""


def test_limits_of_devices_that_other_programs_may_get_are_removed(version_1: Path) -> None:
    (version_1 / "block/loop1/loop").mkdir(parents=True)
    path = version_1 / "blkio" / BYTES[1]
    path.write_text("7:1 5000\n")
    forget_devices()
    assert path.read_text() == "7:1 5000\n"
    path.write_text("7:2 5000\n")
    forget_devices()
    assert path.read_text().startswith("7:2 0")


def test_version_2_has_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/io.max").touch()
    limit_devices(LIMITS, [str(tmp_path / "own")], own=["7:3"], others=[])
    assert (tmp_path / "own/io.max").read_text() == "7:3 rbps=8388608 wbps=8388608 riops=2000 wiops=2000"
    limit_devices(DiskLimits(0, 0), [str(tmp_path / "own")], own=["7:3"], others=[])
    assert (tmp_path / "own/io.max").read_text().startswith("7:3 rbps=max wbps=max riops=max wiops=max")


def test_a_machine_without_such_limits_is_named(version_1: Path) -> None:
    assert find_limit_problem() == ""
    (version_1 / "blkio" / OPERATIONS[0]).unlink()
    assert find_limit_problem() == f"there is no {version_1}/blkio/{OPERATIONS[0]}"
    limit_devices(LIMITS, [], own=["7:3"], others=[])  # a workspace starts all the same
    (version_1 / "cgroup.controllers").write_text("cpu memory pids\n")
    assert find_limit_problem() == "the machine has no control groups for io"


@pytest.mark.timeout(240)
async def test_a_workspace_reads_and_writes_no_faster_than_its_limit(containers: Containers) -> None:
    if problem := find_limit_problem():
        pytest.skip(problem)
    engine = containers.engine(disk_limits=LIMITS)
    await engine.up(SPEC, RecordedTask())
    disk = open_folder(containers.settings().state_folder, UID).disk
    with attach(disk) as device:
        number = f"7:{device.removeprefix('/dev/loop')}"
    for name, command in COMMANDS.items():
        script = f"cd /workspaces/demo && {command}"
        for inside in (("podman", "exec", "--user=0", "workspace"), ()):  # also for what has left its container
            began = time.monotonic()
            await asyncio.to_thread(containers.run, UID, *inside, "/bin/sh", "-c", script)
            taken = time.monotonic() - began
            assert taken >= LEAST_SECONDS, f"{name}: {MEBIBYTES} MiB in {taken:.1f} s"
    groups = containers.run(UID, "/bin/sh", "-c", "cat /proc/self/cgroup; ls /sys/fs/cgroup")
    assert "fairlead-" not in groups
    assert "blkio" not in containers.run(UID, "/bin/ls", "/sys/fs/cgroup")
    await engine.delete(UID, RecordedTask("task-2"))
    assert list_groups(UID) == []
    await eventually(lambda: not has_limit(number), seconds=30)


def has_limit(number: str) -> bool:
    """Whether a device still has the limit of the test at the top. The kernel gives a loop device back a little after
    the last process of a holder has ended."""
    forget_devices()
    path = cgroups.ROOT / "blkio" / BYTES[0]
    return path.exists() and f"{number} {LIMITS.bytes_per_second}" in path.read_text().splitlines()
