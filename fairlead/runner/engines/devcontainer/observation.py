"""What a workspace is doing, and what it uses.

Podman needs a tenth of a second to answer, and status is read often. A container whose first process is alive runs, so
podman is only called when that process is unknown or gone. Without a holder nothing runs, and podman cannot be called:
then it counts what was last seen.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fairlead.core.waiting import start_task
from fairlead.runner.engines.contract import ContainerState, EngineError, EngineStatus, Reason
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.grant import CONTAINER, RECOVERY_LABEL, TASK_LABEL, TEMPLATE_LABEL
from fairlead.runner.engines.devcontainer.isolation.cgroups import find_box
from fairlead.runner.engines.devcontainer.isolation.disk import describe_full_disk, read_usage
from fairlead.runner.engines.devcontainer.isolation.holder import Holder, find_holder
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, open_folder, read_json, write_file
from fairlead.runner.engines.devcontainer.programs import run_program
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.measurement import (
    Scans,
    list_cgroup_pids,
    list_cgroups,
    read_nested_pids,
    read_start_ticks,
)
from fairlead.runner.engines.process_trees import TimeLimit

DISK_SECONDS = 300.0
"""How often the disk usage of a workspace without a disk is measured: it means reading its whole tree."""
MEASURE_SECONDS = 60.0
INSPECT_SECONDS = 60.0
OWN_LABELS = (RECOVERY_LABEL, TEMPLATE_LABEL, TASK_LABEL)
INSPECT_FORMAT = (
    '{"Id":{{json .ID}},"State":{{json .State}},"Labels":{'
    + ",".join(f'"{each}":{{{{json (index .Config.Labels "{each}")}}}}' for each in OWN_LABELS)
    + "}}"
)
"""Of the container, and not all of the variables and labels of its image: those may be hundreds of thousands, to be
parsed with each status."""
MAX_INSPECTED = 1 << 16
KILLED = 137


@dataclass(frozen=True, slots=True)
class Container:
    """A container, as podman described it."""

    id: str
    pid: int
    """Of its first process, on the machine; 0 if it does not run."""
    start_ticks: int
    started_at: datetime | None
    status: str
    exit_code: int
    is_out_of_memory: bool
    labels: Mapping[str, str]

    def is_alive(self) -> bool:
        return self.pid > 0 and read_start_ticks(self.pid) == self.start_ticks


@dataclass(slots=True)
class Observer:
    settings: Settings
    _containers: dict[str, Container] = field(default_factory=dict)
    _disk: dict[str, tuple[float, int | None]] = field(default_factory=dict)
    _measurement: asyncio.Lock = field(default_factory=asyncio.Lock)
    _measuring: set[asyncio.Task[None]] = field(default_factory=set)
    _pid_scans: Scans[int] = field(default_factory=Scans)
    _problem_scans: Scans[str] = field(default_factory=Scans)

    def find_holder(self, uid: str) -> Holder | None:
        return find_holder(open_folder(self.settings.state_folder, uid).holder)

    async def find_container(self, uid: str) -> Container | None:
        """The container of a workspace, running or not. Raises EngineError if podman does not say: its store belongs to
        the workspace."""
        known = self._containers.get(uid)
        if known is not None and known.is_alive():
            return known
        self._containers.pop(uid, None)
        folder = open_folder(self.settings.state_folder, uid)
        holder = self.find_holder(uid)
        if holder is None:
            return load_container(folder.container)
        container = await self._inspect(holder, folder)
        if container is None:
            return None
        self._containers[uid] = container
        save_container(folder.container, container)
        return container

    def forget(self, uid: str) -> None:
        self._containers.pop(uid, None)
        self._disk.pop(uid, None)

    async def _inspect(self, holder: Holder, folder: WorkspaceFolder) -> Container | None:
        try:
            async with asyncio.timeout(INSPECT_SECONDS):
                inspected = await holder.run(
                    "/usr/bin/podman",
                    "container",
                    "inspect",
                    f"--format={INSPECT_FORMAT}",
                    CONTAINER,
                    max_output_bytes=2 * MAX_INSPECTED,
                )
        except TimeoutError as error:
            raise EngineError(
                Reason.ENGINE_UNAVAILABLE, f"podman does not answer within {INSPECT_SECONDS:g} s"
            ) from error
        try:
            if len(inspected.output) > MAX_INSPECTED:
                raise ValueError("too long")
            if inspected.code != 0:
                return None
            described = json.loads(inspected.output)
            inner = int(described["State"].get("Pid") or 0)
            pid = await self._pid_scans.run_after(folder.uid, partial(find_machine_pid, folder, inner)) if inner else 0
            return parse_container(described, pid)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise EngineError(
                Reason.ENGINE_UNAVAILABLE, "what podman says of the container is not understood"
            ) from error

    async def observe(self, uid: str) -> EngineStatus:
        folder = open_folder(self.settings.state_folder, uid)
        container = await self.find_container(uid)
        command = DetachedCommand(folder.task)
        is_busy = command.find_leader() is not None
        if container is None:
            if is_busy:
                return EngineStatus(ContainerState.BUSY, task_id=command.read_task_id())
            # Without a container there may still be files, which `up` uses again.
            state = ContainerState.STOPPED if (folder.root / "fetched.json").exists() else ContainerState.NOT_FOUND
            return EngineStatus(state, cause=describe_overuse(folder), disk_bytes=self._read_disk(folder))
        session = read_json(folder.root / "session.json") or {}
        is_running = container.is_alive()
        state = ContainerState.RUNNING if is_running else ContainerState.STOPPED
        return EngineStatus(
            state=ContainerState.BUSY if is_busy else state,
            cause=await self._describe_cause(folder, container, is_running),
            started_at=container.started_at if is_running else None,
            memory_bytes=read_memory(folder) if is_running else None,
            disk_bytes=self._read_disk(folder),
            user=session.get("user", ""),
            folder=session.get("folder", ""),
            is_recovery=container.labels.get(RECOVERY_LABEL) == "true",
            template_hash=container.labels.get(TEMPLATE_LABEL, ""),
            task_id=command.read_task_id() if is_busy else container.labels.get(TASK_LABEL, ""),
        )

    async def _describe_cause(self, folder: WorkspaceFolder, container: Container, is_running: bool) -> str:
        if not is_running:
            return describe_overuse(folder) or describe_end(container, folder.stopped.exists())
        return await self._problem_scans.run(folder.uid, partial(self._describe_problem, folder))

    def _describe_problem(self, folder: WorkspaceFolder) -> str:
        """In a thread: the workspace has any number of control groups, and chooses what is mounted on its disk."""
        holder = self.find_holder(folder.uid)
        usage = read_usage(holder.pid) if holder is not None and folder.disk.exists() else None
        if usage is not None and (shortage := usage.describe_shortage()):
            return f"{Reason.WORKSPACE_DISK_FULL}: {describe_full_disk(shortage)}"
        return describe_kills(folder)

    def _read_disk(self, folder: WorkspaceFolder) -> int | None:
        """What a disk takes up on the machine. Without one, the last measurement; a new one is made in the background
        when it is old. One runs at a time."""
        if folder.disk.exists():
            return folder.disk.stat().st_blocks * 512
        measured_at, size = self._disk.get(folder.uid, (-DISK_SECONDS, None))
        if time.monotonic() - measured_at >= DISK_SECONDS and folder.work.exists():
            self._disk[folder.uid] = (time.monotonic(), size)
            folders = [str(each) for each in (folder.work, folder.store, folder.var) if each.exists()]
            start_task(self._measuring, self._measure(folder.uid, folders))
        return size

    async def _measure(self, uid: str, folders: Sequence[str]) -> None:
        async with self._measurement:
            size = await measure_disk(folders)
        if uid in self._disk and size is not None:
            self._disk[uid] = (self._disk[uid][0], size)


def parse_container(described: Mapping[str, Any], pid: int) -> Container:
    """`pid` is that of its first process, on the machine."""
    state = described["State"]
    return Container(
        id=str(described["Id"]),
        pid=pid,
        start_ticks=read_start_ticks(pid) if pid else 0,
        started_at=_parse_time(state.get("StartedAt", "")),
        status=str(state.get("Status", "")),
        exit_code=int(state.get("ExitCode") or 0),
        is_out_of_memory=bool(state.get("OOMKilled")),
        labels={name: str(described["Labels"].get(name) or "") for name in OWN_LABELS},
    )


def find_machine_pid(folder: WorkspaceFolder, inner: int) -> int:
    """The pid on the machine of a process that has this one in the holder; 0 if there is none, or if it is not found in
    time. Only processes of the workspace count: it chooses how many there are, and what it takes to look at each."""
    limit = TimeLimit()
    for pid in list_cgroup_pids(find_box(folder, "pids")):
        if limit.is_over():
            break
        if read_nested_pids(pid)[1:2] == [inner]:
            return pid
    return 0


def save_container(path: Path, container: Container) -> None:
    """For when there is no holder."""
    fields = asdict(replace(container, pid=0, start_ticks=0, started_at=None))
    if read_json(path) != fields:
        write_file(path, json.dumps(fields).encode())


def load_container(path: Path) -> Container | None:
    fields: dict[str, Any] | None = read_json(path)
    return Container(**fields) if fields is not None else None


def describe_overuse(folder: WorkspaceFolder) -> str:
    """Why the engine has ended the workspace; empty if it has not."""
    try:
        problem = folder.overuse.read_text()
    except OSError:
        return ""
    return f"OutOfMemory: the workspace was ended: {problem}, which is memory of the machine that no limit counts"


def describe_end(container: Container, is_stopped: bool) -> str:
    """`is_stopped`: the engine stopped it. Nothing inside can kill the first process, and podman does not always notice
    that the kernel did."""
    if container.status in ("created", "configured", "initialized"):
        return "NotStarted: the container was created, but not started"
    if is_stopped:
        return "Stopped"
    if container.is_out_of_memory or container.exit_code == KILLED:
        return "OutOfMemory: the main process was killed, as the kernel does when a workspace reaches its memory limit"
    return f"Exited: the main process ended with code {container.exit_code}"


def describe_kills(folder: WorkspaceFolder) -> str:
    """What the kernel did to processes of the workspace. In version 1 of cgroups, each group counts for itself."""
    if killed := sum(_count_kills(each) for each in list_cgroups(find_box(folder, "memory"))):
        return f"OutOfMemory: processes killed because the workspace reached its memory limit: {killed}"
    return ""


def _count_kills(folder: Path) -> int:
    for name in ("memory.events.local", "memory.oom_control"):
        try:
            lines = (folder / name).read_text().splitlines()
        except OSError:
            continue
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    return 0


def read_memory(folder: WorkspaceFolder) -> int | None:
    """Memory of all processes of the workspace, in both versions of cgroups."""
    for name in ("memory.current", "memory.usage_in_bytes"):
        try:
            return int((find_box(folder, "memory") / name).read_text())
        except (FileNotFoundError, ValueError):
            continue
    return None


async def measure_disk(folders: Sequence[str]) -> int | None:
    """Bytes on disk, by a program of low priority: trees of workspaces are large, or hostile. It follows no links and
    does not keep a folder open for each level. None if it does not end in time."""
    program = ("/usr/bin/nice", "-n19", "/usr/bin/du", "--summarize", "--total", "--one-file-system", "--block-size=1")
    try:
        result = await asyncio.wait_for(run_program([*program, "--", *folders], {}), MEASURE_SECONDS)
    except TimeoutError:
        return None
    lines = result.output.splitlines()
    return int(lines[-1].split()[0]) if lines and lines[-1].endswith("total") else None


def _parse_time(text: str) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(text[:19] + "+00:00") if text.endswith("Z") else datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed.astimezone(UTC) if parsed.year > 1 else None
