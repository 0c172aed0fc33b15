"""What a workspace is doing, and what it uses.

Podman needs a tenth of a second to answer, and status is read often. A container whose first process is alive runs, so
podman is only called when that process is unknown or gone.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairlead.runner.engines.contract import ContainerState, EngineStatus
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.grant import RECOVERY_LABEL, TASK_LABEL, TEMPLATE_LABEL
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, open_folder, read_json
from fairlead.runner.engines.devcontainer.podman import Podman, run_program

DISK_SECONDS = 300.0
"""How often the disk usage of a workspace is measured: it means reading its whole tree."""
MEASURE_SECONDS = 60.0
KILLED = 137


@dataclass(frozen=True, slots=True)
class Container:
    """A container, as podman described it."""

    id: str
    pid: int
    start_ticks: int
    """When the first process started: another process with the same pid has another value."""
    started_at: datetime | None
    status: str
    exit_code: int
    is_out_of_memory: bool
    labels: dict[str, str]
    layers: tuple[str, ...]
    """Folders with what the container wrote, apart from its work folder: its own layer, and volumes."""

    def is_alive(self) -> bool:
        return self.pid > 0 and read_start_ticks(self.pid) == self.start_ticks


@dataclass(slots=True)
class Observer:
    podman: Podman
    _containers: dict[str, Container] = field(default_factory=dict)
    _disk: dict[str, tuple[float, int | None]] = field(default_factory=dict)
    _measurement: asyncio.Lock = field(default_factory=asyncio.Lock)
    _measuring: set[asyncio.Task[None]] = field(default_factory=set)

    async def find_container(self, uid: str) -> Container | None:
        """The container of a workspace, running or not."""
        known = self._containers.get(uid)
        if known is not None and known.is_alive():
            return known
        self._containers.pop(uid, None)
        described = await self.podman.inspect(f"fairlead-{uid}")
        if described is None:
            return None
        container = parse_container(described)
        self._containers[uid] = container
        return container

    def forget(self, uid: str) -> None:
        self._containers.pop(uid, None)
        self._disk.pop(uid, None)

    async def observe(self, uid: str) -> EngineStatus:
        folder = open_folder(self.podman.settings.state_folder, uid)
        container = await self.find_container(uid)
        command = DetachedCommand(folder.task)
        is_busy = command.find_leader() is not None
        if container is None:
            if is_busy:
                return EngineStatus(ContainerState.BUSY, task_id=command.read_task_id())
            # Without a container there may still be files, which `up` uses again.
            state = ContainerState.STOPPED if (folder.root / "fetched.json").exists() else ContainerState.NOT_FOUND
            return EngineStatus(state, disk_bytes=self._read_disk(folder, None))
        session = read_json(folder.root / "session.json") or {}
        is_running = container.is_alive()
        state = ContainerState.RUNNING if is_running else ContainerState.STOPPED
        return EngineStatus(
            state=ContainerState.BUSY if is_busy else state,
            cause=describe_kills(container.pid) if is_running else describe_end(container, folder.stopped.exists()),
            started_at=container.started_at if is_running else None,
            memory_bytes=read_memory(container.pid) if is_running else None,
            disk_bytes=self._read_disk(folder, container),
            user=session.get("user", ""),
            folder=session.get("folder", ""),
            is_recovery=container.labels.get(RECOVERY_LABEL) == "true",
            template_hash=container.labels.get(TEMPLATE_LABEL, ""),
            task_id=command.read_task_id() if is_busy else container.labels.get(TASK_LABEL, ""),
        )

    def _read_disk(self, folder: WorkspaceFolder, container: Container | None) -> int | None:
        """The last measurement; a new one is made in the background when it is old. One runs at a time."""
        measured_at, size = self._disk.get(folder.uid, (-DISK_SECONDS, None))
        if time.monotonic() - measured_at >= DISK_SECONDS and folder.work.exists():
            self._disk[folder.uid] = (time.monotonic(), size)
            layers = container.layers if container is not None else ()
            measuring = asyncio.create_task(self._measure(folder.uid, [str(folder.work), *layers]))
            self._measuring.add(measuring)
            measuring.add_done_callback(self._measuring.discard)
        return size

    async def _measure(self, uid: str, folders: Sequence[str]) -> None:
        async with self._measurement:
            size = await measure_disk(folders)
        if uid in self._disk and size is not None:
            self._disk[uid] = (self._disk[uid][0], size)


def parse_container(described: dict[str, Any]) -> Container:
    state = described["State"]
    pid = int(state.get("Pid") or 0)
    return Container(
        id=described["Id"],
        pid=pid,
        start_ticks=read_start_ticks(pid) if pid else 0,
        started_at=_parse_time(state.get("StartedAt", "")),
        status=str(state.get("Status", "")),
        exit_code=int(state.get("ExitCode") or 0),
        is_out_of_memory=bool(state.get("OOMKilled")),
        labels=dict(described["Config"].get("Labels") or {}),
        layers=(*_find_upper_layer(described), *_find_volumes(described)),
    )


def _find_upper_layer(described: dict[str, Any]) -> list[str]:
    data = (described.get("GraphDriver") or {}).get("Data") or {}
    return [str(data["UpperDir"])] if data.get("UpperDir") else []


def _find_volumes(described: dict[str, Any]) -> list[str]:
    return [str(each["Source"]) for each in described.get("Mounts") or () if each.get("Type") == "volume"]


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


def describe_kills(pid: int) -> str:
    """What the kernel did to the container of this process, in both versions of cgroups."""
    for name in ("memory.events", "memory.oom_control"):
        try:
            lines = (find_memory_folder(pid) / name).read_text().splitlines()
        except OSError:
            continue
        killed = next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
        if killed:
            return f"OutOfMemory: processes killed because the workspace reached its memory limit: {killed}"
    return ""


def read_start_ticks(pid: int) -> int:
    """0 if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] == "Z" else int(fields[19])


def read_memory(pid: int) -> int | None:
    """Memory of the cgroup of a process, in both versions of cgroups."""
    path = find_memory_folder(pid)
    for name in ("memory.current", "memory.usage_in_bytes"):
        try:
            return int((path / name).read_text())
        except (FileNotFoundError, ValueError):
            continue
    return None


def find_memory_folder(pid: int) -> Path:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return Path("/nonexistent")
    unified = ""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path(f"/sys/fs/cgroup/memory{path}")
        if not controllers:
            unified = path
    return Path(f"/sys/fs/cgroup{unified}")


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
