"""The control groups of a workspace, which root sets the limits of.

One contains everything in its holder, the tools included. Below it is `box`, for the container and for builds, with the
limits of the template. It belongs to the root user of the holder, so that podman can start containers in it: that user
can divide the limits, and not raise them. Both versions of cgroups are supported. In version 2, a group with processes
cannot limit those below it, so the tools have a group of their own beside the box.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlead.runner.engines.devcontainer.grant import BOX, Grant

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "cpu", "cpuacct", "pids", "devices", "freezer")
"""In version 1. runc does not start without the last two."""
TOOLS = "tools"
DELEGATED = ("", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks")
PERIOD = 100_000
TOOLS_MEMORY_BYTES, TOOLS_PROCESSES = 1 << 30, 512
"""What podman and the dev container CLI may use at most, beside what the template gives to the workspace."""
MAX_GROUPS = 512
"""Which a workspace may have below its own: the kernel has 65,535 with memory limits for the whole machine. Version 1
has no such limit."""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Folders of the control groups of a holder: one in version 2, one for each controller in version 1."""

    roots: tuple[str, ...]
    """What the holder sees as the root."""
    tools: tuple[str, ...]
    """Where its programs start."""


def ensure_cgroups(grant: Grant) -> Cgroups:
    """Creates the groups, and sets their limits. Memory is without swap: a limit that swap extends is none."""
    roots = list(list_roots(grant.uid))
    outer = (grant.memory_bytes + TOOLS_MEMORY_BYTES, grant.processes + TOOLS_PROCESSES)
    for root in roots:
        (root / BOX).mkdir(parents=True, exist_ok=True)
    if is_unified():
        (roots[0] / TOOLS).mkdir(exist_ok=True)
        _write(ROOT / "cgroup.subtree_control", "+memory +cpu +pids")
        _write(roots[0] / "cgroup.subtree_control", "+memory +cpu +pids")
    for root in roots:
        if (root / BOX / "cpu.cfs_quota_us").exists():  # else the one around it cannot become lower
            _write(root / BOX / "cpu.cfs_quota_us", "-1")
    for folder, (memory, processes) in (("", outer), (BOX, (grant.memory_bytes, grant.processes))):
        for root in roots:
            _limit(root / folder, memory, processes, int(grant.cpus * PERIOD))
    for root in roots:
        for name in DELEGATED:
            _give(root / BOX / name, grant.first_uid)
        if is_unified():  # to move a process to the box needs this, too; processes cannot stay there
            _give(root / "cgroup.procs", grant.first_uid)
    tools = [str(root / TOOLS) if is_unified() else str(root) for root in roots]
    return Cgroups(tuple(map(str, roots)), tuple(tools))


def find_box(uid: str, controller: str) -> Path:
    """The folder of a controller for the container and builds of a workspace."""
    parent = ROOT if is_unified() else ROOT / controller
    return parent / cgroup_name(uid) / BOX


def remove_cgroups(uid: str) -> None:
    """Ends what is left in them. The kernel removes processes a little later; the next removal tries again."""
    for root in list_roots(uid):
        for path in _list_below(root):
            for pid in read_pids(path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                path.rmdir()


def list_roots(uid: str) -> Iterator[Path]:
    if is_unified():
        yield ROOT / cgroup_name(uid)
    else:
        yield from (ROOT / each / cgroup_name(uid) for each in CONTROLLERS if (ROOT / each).is_dir())


def read_pids(folder: Path) -> list[int]:
    try:
        return [int(each) for each in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def cgroup_name(uid: str) -> str:
    return f"fairlead-{uid}"


def is_unified() -> bool:
    """Whether the machine has version 2 only."""
    return (ROOT / "cgroup.controllers").exists()


def _list_below(root: Path) -> list[Path]:
    """The folder and all below it, the deepest first."""
    return [Path(path) for path, _, _ in os.walk(root, topdown=False)]


def _limit(folder: Path, memory: int, processes: int, quota: int) -> None:
    """Sets those of the limits that this folder has files for."""
    if (folder / "memory.memsw.limit_in_bytes").exists():  # it must never be below the other limit
        _write(folder / "memory.memsw.limit_in_bytes", "-1")
    values = {
        "memory.limit_in_bytes": memory,
        "memory.memsw.limit_in_bytes": memory,
        "memory.max": memory,
        "memory.swap.max": 0,
        "cpu.cfs_period_us": PERIOD,
        "cpu.cfs_quota_us": quota,
        "cpu.max": f"{quota} {PERIOD}",
        "pids.max": processes,
        "cgroup.max.descendants": MAX_GROUPS,
    }
    for name, value in values.items():
        if (folder / name).exists():
            _write(folder / name, str(value))


def _give(path: Path, owner: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # files of the other version
        os.chown(path, owner, owner)


def _write(path: Path, value: str) -> None:
    path.write_text(value)
