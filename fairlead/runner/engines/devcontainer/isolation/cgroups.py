"""The control groups of a workspace, which root sets the limits of.

One contains everything in its holder, the tools included. Below it is `box`, for the container and for builds, with the
limits of the template. It belongs to the root user of the holder, so that podman can start containers in it: that user
can divide the limits, and not raise them. Both versions of cgroups are supported.

In version 2, a group that limits those below it has no processes of its own. So the tools have a group beside the box,
and the limits of the box follow once the holder has begun: it has to be in the outer group when that becomes the root
of its cgroup namespace. For the same reason each holder has new groups.
"""

import asyncio
import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.grant import BOX, Grant
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.process_trees import read_members, send

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "cpu", "cpuacct", "pids", "devices", "freezer")
"""In version 1. runc does not start without the last two."""
CONTROLLERS_2 = ("memory", "cpu", "pids")
BLKIO, IO = "blkio", "io"
"""Which limits disks, in each version (`disk_limits.py`). Workspaces start without it, too."""
TOOLS = "tools"
DELEGATED = ("", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks")
PERIOD = 100_000
TOOLS_MEMORY_BYTES, TOOLS_PROCESSES = 1 << 30, 512
"""What podman and the dev container CLI may use at most, beside what the template gives to the workspace."""
REMOVAL_SECONDS = 30.0
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
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
    disk: tuple[str, ...] = ()
    """Where the limits of disks are. In version 1, the holder is in this group, and does not see it."""
    settings: tuple[tuple[str, str], ...] = ()
    """Files, and what is written to them when the holder has left its root."""


async def renew_cgroups(folder: WorkspaceFolder, grant: Grant) -> Cgroups:
    """The groups of a new holder. What is left of an earlier one ends."""
    await end_cgroups(folder)
    return create_cgroups(folder, grant)


async def end_cgroups(folder: WorkspaceFolder) -> None:
    """Ends everything in them, and waits until it is gone."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    await asyncio.to_thread(remove_cgroups, folder)
    while left := [root for root in _list_all(folder) if root.exists()]:
        if time.monotonic() > deadline:
            pids = await asyncio.to_thread(_list_pids, left)
            raise EngineError(
                Reason.ENGINE_UNAVAILABLE,
                f"the control group {left[0]} of an earlier start cannot be removed; processes there that do not end: "
                f"{', '.join(map(str, pids)) or 'none'}",
            )
        await asyncio.sleep(0.02)
        await asyncio.to_thread(remove_cgroups, folder)


def create_cgroups(folder: WorkspaceFolder, grant: Grant) -> Cgroups:
    """Creates the groups, and sets their limits. Memory is without swap: a limit that swap extends is none."""
    if is_unified():
        _offer_controllers()
    roots = list(list_roots(folder))
    quota = int(grant.cpus * PERIOD)
    outer = describe_limits(grant.memory_bytes + TOOLS_MEMORY_BYTES, grant.processes + TOOLS_PROCESSES, quota)
    inner = describe_limits(grant.memory_bytes, grant.processes, quota)
    for root in roots:
        (root / BOX).mkdir(parents=True)
        for path, value in _choose(root, outer, root):
            _write(path, value)
        for name in DELEGATED:
            _give(root / BOX / name, grant.first_uid)
    if not is_unified():
        for root in roots:
            for path, value in _choose(root / BOX, inner, root):
                _write(path, value)
        folders = tuple(map(str, roots))
        disk = _create_unseen(folder)
        return Cgroups(roots=folders, tools=(*folders, *disk), disk=disk)
    root = roots[0]
    (root / TOOLS).mkdir()
    _give(root / "cgroup.procs", grant.first_uid)  # to move a process to the box needs this, too; none can stay here
    settings = [(root / "cgroup.subtree_control", _enable()), *_choose(root / BOX, inner, root)]
    return Cgroups(
        roots=(str(root),),
        tools=(str(root / TOOLS),),
        disk=(str(root),),
        settings=tuple((str(path), value) for path, value in settings),
    )


def find_box(folder: WorkspaceFolder, controller: str) -> Path:
    """The folder of a controller for the container and builds of a workspace."""
    parent = ROOT if is_unified() else ROOT / controller
    return parent / cgroup_name(folder) / BOX


def remove_cgroups(folder: WorkspaceFolder) -> None:
    """Ends what is left in them. The kernel removes processes a little later; the next removal tries again.

    In version 1, a workspace may have made any number of groups: call this, and `thaw_groups`, in a thread."""
    thaw_groups(list_roots(folder))
    for root in _list_all(folder):
        if (root / "cgroup.kill").exists():  # of version 2 only; there, none can escape by starting another
            _write(root / "cgroup.kill", "1")
        _visit_groups(root, _kill_processes, is_removed=True)


def thaw_groups(roots: Iterable[Path]) -> None:
    """In version 1, what a workspace has frozen in groups of its own cannot be killed."""
    for root in roots:
        if (root / "freezer.state").exists():
            _visit_groups(root, _thaw)


def list_roots(folder: WorkspaceFolder) -> Iterator[Path]:
    yield from (parent / cgroup_name(folder) for parent in _list_parents())


def _list_all(folder: WorkspaceFolder) -> Iterator[Path]:
    """Also the one that the holder does not see."""
    yield from list_roots(folder)
    if not is_unified():
        yield ROOT / BLKIO / cgroup_name(folder)


def _create_unseen(folder: WorkspaceFolder) -> tuple[str, ...]:
    """The group for the limits of disks in version 1; none on a machine without them."""
    if not (ROOT / BLKIO).is_dir():
        return ()
    group = ROOT / BLKIO / cgroup_name(folder)
    group.mkdir()
    return (str(group),)


def _list_parents() -> list[Path]:
    if is_unified():
        return [ROOT]
    # Some controllers have one folder for both, and links with their names.
    return list(dict.fromkeys((ROOT / each).resolve() for each in CONTROLLERS if (ROOT / each).is_dir()))


# --- groups without any below them ------------------------------------------------------------------------------------


def create_group(name: str, limits: dict[str, str]) -> tuple[str, ...]:
    """The folders of a new group with these limits, for processes of the machine. Raises OSError or EngineError where
    there is none to be had."""
    if is_unified():
        _offer_controllers()
    folders = [parent / name for parent in _list_parents()]
    for folder in folders:
        folder.mkdir()
        for path, value in _choose(folder, limits, folder):
            _write(path, value)
    return tuple(map(str, folders))


def remove_group(name: str) -> None:
    """If nothing is in it."""
    for parent in _list_parents():
        with contextlib.suppress(OSError):
            (parent / name).rmdir()


def list_groups(prefix: str) -> list[str]:
    """The names of groups that begin like this."""
    return sorted({path.name for parent in _list_parents() for path in parent.glob(f"{prefix}-*")})


def cgroup_name(folder: WorkspaceFolder) -> str:
    """Another runner on this machine may have a workspace with the same uid, of a copied server for example."""
    place = hashlib.sha256(str(folder.root).encode()).hexdigest()[:8]
    return f"fairlead-{folder.uid}-{place}"


def is_unified() -> bool:
    """Whether the machine has version 2 only."""
    return (ROOT / "cgroup.controllers").exists()


def list_missing_controllers() -> list[str]:
    """What the machine cannot limit, or the runtimes need."""
    if is_unified():
        offered = (ROOT / "cgroup.controllers").read_text().split()
        return [each for each in CONTROLLERS_2 if each not in offered]
    return [each for each in CONTROLLERS if not (ROOT / each).is_dir()]


def _visit_groups(root: Path, visit: Callable[[int], None], is_removed: bool = False) -> None:
    """Calls the function with a descriptor of each group, the deepest first, and removes it then, if nothing is in it.

    A workspace can nest groups until their paths are longer than the kernel takes, and there may be more levels than
    files that can be open: so one is open at a time. What changes meanwhile is left to the next visit."""
    with contextlib.suppress(OSError):
        _visit_below(root, visit, is_removed)
        if is_removed:
            root.rmdir()


def _visit_below(root: Path, visit: Callable[[int], None], is_removed: bool) -> None:
    folder = os.open(root, FOLDER_FLAGS)
    try:
        names: list[str] = []
        unvisited = [_list_children(folder)]
        while True:
            if unvisited[-1]:
                names.append(unvisited[-1].pop())
                folder = _move(folder, names[-1])
                unvisited.append(_list_children(folder))
                continue
            visit(folder)
            unvisited.pop()
            if not names:
                return
            folder = _move(folder, "..")
            name = names.pop()
            if is_removed:
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=folder)
    finally:
        os.close(folder)


def _move(folder: int, name: str) -> int:
    """A descriptor of a folder beside this one, which is closed."""
    moved = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    os.close(folder)
    return moved


def _list_children(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _kill_processes(folder: int) -> None:
    for each in read_members(lambda: _read_pids(folder)).values():
        send(each, signal.SIGKILL)


def _thaw(folder: int) -> None:
    with contextlib.suppress(OSError), _open_in(folder, "freezer.state", os.O_WRONLY) as file:
        file.write("THAWED")


def _list_pids(roots: Iterable[Path]) -> list[int]:
    found: set[int] = set()
    for root in roots:
        _visit_groups(root, lambda folder: found.update(_read_pids(folder)))
    return sorted(found)


def _read_pids(folder: int) -> list[int]:
    try:
        with _open_in(folder, "cgroup.procs", os.O_RDONLY) as file:
            return [int(each) for each in file.read().split()]
    except OSError:
        return []


def _open_in(folder: int, name: str, flags: int) -> TextIO:
    descriptor = os.open(name, flags, dir_fd=folder)
    return os.fdopen(descriptor, "w" if flags & os.O_WRONLY else "r")


def describe_limits(memory: int, processes: int, quota: int) -> dict[str, str]:
    """Values by name of file, of both versions. In version 1, the limit with swap is never below the one without."""
    return {
        "memory.limit_in_bytes": str(memory),
        "memory.memsw.limit_in_bytes": str(memory),
        "memory.max": str(memory),
        "memory.swap.max": "0",
        "cpu.cfs_period_us": str(PERIOD),
        "cpu.cfs_quota_us": str(quota),
        "cpu.max": f"{quota} {PERIOD}",
        "pids.max": str(processes),
        "cgroup.max.descendants": str(MAX_GROUPS),
    }


def _choose(folder: Path, limits: dict[str, str], known: Path) -> list[tuple[Path, str]]:
    """Those of the limits that the kernel has files for, as the folder `known` shows."""
    return [(folder / name, value) for name, value in limits.items() if (known / name).exists()]


def _enable() -> str:
    return " ".join(f"+{each}" for each in CONTROLLERS_2)


def _offer_controllers() -> None:
    """Lets groups at the top have limits. Systemd does so for some controllers only."""
    with contextlib.suppress(OSError):
        _write(ROOT / "cgroup.subtree_control", f"+{IO}")
    try:
        _write(ROOT / "cgroup.subtree_control", _enable())
    except OSError as error:
        raise EngineError(
            Reason.ENGINE_UNAVAILABLE,
            f"the control groups at {ROOT} cannot have limits of {', '.join(CONTROLLERS_2)} ({error.strerror}); "
            "start the runner on the machine itself, not in a container, with a kernel that has these controllers",
        ) from error


def _give(path: Path, owner: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # files of the other version
        os.chown(path, owner, owner)


def _write(path: Path, value: str) -> None:
    path.write_text(value)
