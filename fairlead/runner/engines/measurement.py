"""Measures what the processes of a workspace do: CPU time, terminals and writes.

All of it comes from files of the kernel on the host, and of the work folder only metadata is read. The workspace can
pretend to be active; it cannot make the host read or follow anything else.
"""

import asyncio
import os
import stat
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from fairlead.runner.engines.contract import TerminalSample

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
PTY_MAJOR = 136
MAX_PROCESSES = 4096
MAX_CGROUPS = 64
MAX_STATUS_BYTES = 1 << 20
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "tcsh", "csh"})
SKIPPED_FOLDERS = frozenset({".git", "node_modules"})
"""Editors refresh the first in the background; the second has most of the files, and changes with much CPU time."""
SCAN_SECONDS, SCAN_SHARE = 120.0, 100.0
CLOCK_SECONDS = 1.0
"""The times of files come from a clock that is a little behind."""
MAX_ENTRIES = 200_000
MAX_DEPTH = 40
MAX_THREADS = 4
"""For scans of one kind, whose cost a workspace controls. They are few, and not those of the event loop, in which other
parts of the runner would wait for them."""

Result = TypeVar("Result")


def _create_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, "scan")


@dataclass(frozen=True, slots=True)
class Scans(Generic[Result]):
    """Scans of one kind: of each workspace, one at a time."""

    _threads: ThreadPoolExecutor = field(default_factory=_create_threads)
    _pending: "dict[str, asyncio.Future[Result]]" = field(default_factory=dict)

    async def run(self, uid: str, scan: Callable[[], Result]) -> Result:
        """The result of the scan; of the one that is under way, if there is one."""
        pending = self._pending.get(uid)
        if pending is None:
            pending = asyncio.get_running_loop().run_in_executor(self._threads, scan)
            self._pending[uid] = pending
            pending.add_done_callback(lambda _: self._pending.pop(uid, None))
        return await asyncio.shield(pending)

    async def run_after(self, uid: str, scan: Callable[[], Result]) -> Result:
        """The result of a scan that begins when those of the workspace before it have ended."""
        while (pending := self._pending.get(uid)) is not None:
            await asyncio.wait([pending])
        return await self.run(uid, scan)


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """Fields of /proc/PID/stat. IDs are those of the host."""

    pid: int
    start_ticks: int
    """When it started: another process with the same pid has another value."""
    parent: int
    name: str
    group: int
    session: int
    terminal: int
    """Device number of its controlling terminal; 0 if it has none."""
    foreground: int
    """The process group in the foreground of that terminal."""
    cpu_seconds: float
    """Of the process and of its children that have ended."""

    @property
    def is_shell(self) -> bool:
        """Whether it is the shell of a session."""
        return self.pid == self.session and self.name.lstrip("-") in SHELLS


def read_process(pid: int) -> ProcessSample | None:
    """None if there is no such process, or only what is left until its parent has noticed."""
    name, fields = _read_stat(pid)
    if not fields or fields[0] in "ZX":
        return None
    group, session, terminal, foreground = (int(each) for each in fields[2:6])
    cpu_seconds = sum(int(each) for each in fields[11:15]) / CLOCK_TICKS
    return ProcessSample(
        pid=pid,
        start_ticks=int(fields[19]),
        parent=int(fields[1]),
        name=name,
        group=group,
        session=session,
        terminal=terminal,
        foreground=foreground,
        cpu_seconds=cpu_seconds,
    )


def read_start_ticks(pid: int) -> int:
    """When a process started: another one with the same pid has another value. 0 if there is none."""
    _, fields = _read_stat(pid)
    return 0 if not fields or fields[0] == "Z" else int(fields[19])


def read_boot_id() -> str:
    """Another one after each start of the machine, with which pids and the times of starts begin again."""
    return BOOT_ID_FILE.read_text().strip()


def read_parent(pid: int) -> int:
    """0 if there is no such process."""
    _, fields = _read_stat(pid)
    return int(fields[1]) if fields else 0


def _read_stat(pid: int) -> tuple[str, list[str]]:
    """The name of a process, and the fields of /proc/PID/stat after it; none if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "", []
    head, _, tail = text.rpartition(")")
    return head.partition("(")[2], tail.split()


def read_nested_pids(pid: int) -> list[int]:
    """The pids of a process, from that of the machine to that of its innermost namespace. Up to 65,536 groups of the
    process are listed before them: call this in a thread."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            status = file.read(MAX_STATUS_BYTES)
    except OSError:
        return []
    _, _, after = status.partition(b"\nNSpid:")
    return [int(each) for each in after.partition(b"\n")[0].split()]


def sample_terminals(processes: Iterable[ProcessSample]) -> dict[str, TerminalSample]:
    """The pseudo terminals of these processes, by a key that is stable for as long as one exists."""
    found: dict[str, TerminalSample] = {}
    by_terminal: dict[int, list[ProcessSample]] = {}
    for each in processes:
        if each.terminal:
            by_terminal.setdefault(each.terminal, []).append(each)
    for terminal, users in by_terminal.items():
        device = _find_device(users)
        if device is not None:
            key = f"{terminal}.{min(each.session for each in users)}"
            found[key] = TerminalSample(device.st_atime, device.st_mtime, any(_is_job(each) for each in users))
    return found


def _is_job(process: ProcessSample) -> bool:
    """Whether the process is in the foreground, and is not a shell at its prompt."""
    return process.group == process.foreground and not process.is_shell


def _find_device(users: list[ProcessSample]) -> os.stat_result | None:
    """The device of the terminal, through an open file of a process: the kernel leads there without any path."""
    for each in users:
        for descriptor in (0, 1, 2):
            try:
                found = os.stat(f"/proc/{each.pid}/fd/{descriptor}")
            except OSError:
                continue
            if stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == PTY_MAJOR:
                return found
    return None


# --- cgroups ----------------------------------------------------------------------------------------------------------


def read_cgroup_cpu(folder: Path) -> float | None:
    """CPU seconds of the cgroup and those below it; None if they are not counted."""
    try:
        return int((folder / "cpuacct.usage").read_text()) / 1e9
    except (OSError, ValueError):
        pass
    try:
        lines = (folder / "cpu.stat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1e6 for line in lines if line.startswith("usage_usec ")), None)


def list_cgroups(folder: Path) -> list[Path]:
    """The cgroup and those below it, up to a limit: in version 1, a workspace can have any number of them in one
    folder."""
    found: list[Path] = []
    pending = [str(folder)]
    while pending and len(found) < MAX_CGROUPS:
        path = pending.pop(0)
        found.append(Path(path))
        try:
            with os.scandir(path) as entries:
                folders = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
                pending += islice(folders, MAX_CGROUPS - len(found) - len(pending))
        except OSError:
            continue
    return found


def list_cgroup_pids(folder: Path) -> list[int]:
    """Processes in the cgroup and those below it, up to a limit."""
    found: list[int] = []
    for path in list_cgroups(folder):
        if len(found) >= MAX_PROCESSES:
            break
        try:
            with (path / "cgroup.procs").open() as lines:
                found += (int(line) for line in islice(lines, MAX_PROCESSES - len(found)))
        except OSError:
            continue
    return found


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class WriteScanner:
    """Notices writes below the work folders of workspaces. A large tree is read less often, so that this needs at most
    a hundredth of a core."""

    _scans: dict[str, "_Scan"] = field(default_factory=dict)
    _threads: Scans[bool] = field(default_factory=Scans)

    async def find_newest(self, uid: str, root: Path) -> float:
        """When writes were last noticed; 0 if they never were."""
        now = time.monotonic()
        scan = self._scans.get(uid)
        if scan is not None and now < scan.next_at:
            return scan.newest
        began = time.time()
        is_changed = False
        if scan is not None:
            is_changed = await self._threads.run(uid, partial(has_writes_since, root, scan.began - CLOCK_SECONDS))
        seconds = max(SCAN_SECONDS, SCAN_SHARE * (time.monotonic() - now))
        newest = began if is_changed else scan.newest if scan is not None else 0.0
        self._scans[uid] = _Scan(began, time.monotonic() + seconds, newest)
        return newest

    def forget(self, uid: str) -> None:
        self._scans.pop(uid, None)


@dataclass(frozen=True, slots=True)
class _Scan:
    """`began` and `newest` are times of the wall clock, as those of files are; `next_at` is monotonic."""

    began: float
    next_at: float
    newest: float


def has_writes_since(root: Path, moment: float) -> bool:
    """Whether an inode below a folder has changed since then: the workspace cannot set that time. Links are not
    followed, and very large or deep trees are not read to their end."""
    stack: list[tuple[int, list[str]]] = []
    remaining = MAX_ENTRIES
    try:
        pending: list[str] = [str(root)]
        parent: int | None = None
        while True:
            if not pending:
                if not stack:
                    return False
                os.close(stack.pop()[0])
                parent, pending = stack[-1] if stack else (None, [])
                continue
            try:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                opened = os.open(pending.pop(), flags, dir_fd=parent)
            except OSError:
                continue
            stack.append((opened, []))
            is_changed, count = _scan_folder(opened, moment, stack[-1][1])
            remaining -= count
            if is_changed or remaining <= 0:
                return is_changed
            if len(stack) > MAX_DEPTH:
                stack[-1][1].clear()
            parent, pending = stack[-1]
    finally:
        for descriptor, _ in stack:
            os.close(descriptor)


def _scan_folder(descriptor: int, moment: float, folders: list[str]) -> tuple[bool, int]:
    """Whether something in one folder has changed since then, and how many entries were read. Adds its folders."""
    count = 0
    with os.scandir(descriptor) as entries:
        for entry in entries:
            count += 1
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode) and entry.name in SKIPPED_FOLDERS:
                continue
            if found.st_ctime > moment or count >= MAX_ENTRIES:
                return found.st_ctime > moment, count
            if stat.S_ISDIR(found.st_mode):
                folders.append(entry.name)
    return os.fstat(descriptor).st_ctime > moment, count
