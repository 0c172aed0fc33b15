"""An engine without containers: what it would run are files in a folder, so that they survive its process.

Each act is one file operation, between waits, so that a process can be killed between any two acts. `create_engine`
makes it usable by a real `fairlead runner start --engine tests.runner.fake_engine:create_engine`.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from fairlead.core.machine.findings import Finding
from fairlead.runner.engines.contract import (
    ActivitySample,
    ByteStream,
    ContainerState,
    EngineError,
    EngineStatus,
    ExecOptions,
    ListeningPort,
    Process,
    Reason,
    TaskContext,
    WorkspaceSpec,
)
from fairlead.runner.registry import EngineSettings

STEPS = ("Clone", "Build", "Start")
COMMANDS_STEP = "LifecycleCommands"
SECONDS_VARIABLE = "FAKE_ENGINE_SECONDS"


class FakeEngine:
    """`volumes/<uid>` holds the data of a workspace, `containers/<uid>.<id>` is a container: `running` or `stopped`.
    `drafts/<uid>` is what an `up` makes first, and what counts for nothing: the hash of the template."""

    name = "fake"

    def __init__(self, folder: Path, seconds: float = 1.0) -> None:
        self.volumes, self.containers, self.drafts = folder / "volumes", folder / "containers", folder / "drafts"
        for path in (self.volumes, self.containers, self.drafts):
            path.mkdir(parents=True, exist_ok=True)
        self.seconds = seconds
        self.deadline = 60.0
        self.calls: list[tuple[str, str]] = []
        self.specs: list[WorkspaceSpec] = []
        self.failures: dict[str, EngineError | Exception] = {}
        """By the name of a step: what it raises."""
        self.hanging = ""
        """A step that does not end."""
        self.is_adopting = False
        """Whether `adopt` goes on with what an earlier process began."""
        self.findings: Sequence[Finding] = (Finding("fake"),)
        self.measured: ActivitySample | EngineError = ActivitySample()
        """What `measure` returns for a running workspace, or raises."""
        self.memory_bytes: int | None = None
        self.disk_bytes: int | None = None
        self.installations: dict[str, str] = {}
        """By uid: the installation in the labels of what the state folder does not know."""
        self.has_commands = False
        self.active = 0
        self.most_active = 0

    async def check(self) -> Sequence[Finding]:
        return self.findings

    async def up(self, spec: WorkspaceSpec, task: TaskContext) -> None:
        self.calls.append(("up", spec.uid))
        self.specs.append(spec)
        if spec.reset:
            (self.volumes / spec.uid).unlink(missing_ok=True)
        before = self._read_hash(spec.uid)
        if not spec.accepts(before):
            for path in self._find(spec.uid):
                path.unlink()
        (self.drafts / spec.uid).write_text(before if spec.accepts(before) else spec.template_hash)
        await self._bring_up(spec.uid, task)

    async def _bring_up(self, uid: str, task: TaskContext) -> None:
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            for step in (*STEPS, *([COMMANDS_STEP] if self.has_commands else [])):
                async with task.step(step, self.deadline):
                    task.log(f"{step} of {uid}\n".encode())
                    await self._wait(step)
                    self._act(step, uid)
        finally:
            self.active -= 1

    async def _wait(self, step: str) -> None:
        if step in self.failures:
            raise self.failures[step]
        await (asyncio.sleep(3600) if step == self.hanging else asyncio.sleep(self.seconds))

    def _act(self, step: str, uid: str) -> None:
        if step == "Clone" and not (self.volumes / uid).exists():
            (self.volumes / uid).write_text(uuid4().hex)
        elif step == "Build" and not self._find(uid):
            (self.containers / f"{uid}.{uuid4().hex}").write_text("stopped")
        elif step == "Start":
            self._find(uid)[0].write_text("running")

    async def stop(self, uid: str, task: TaskContext) -> None:
        self.calls.append(("stop", uid))
        async with task.step("Stop", self.deadline):
            await self._wait("Stop")
            for path in self._find(uid):
                path.write_text("stopped")

    async def delete(self, uid: str, task: TaskContext) -> None:
        self.calls.append(("delete", uid))
        async with task.step("Delete", self.deadline):
            for path in self._find(uid):
                await self._wait("Delete")
                path.unlink()
            await self._wait("Remove")
            (self.volumes / uid).unlink(missing_ok=True)
            (self.drafts / uid).unlink(missing_ok=True)

    async def status(self, uid: str) -> EngineStatus:
        found = self._find(uid)
        if not found:
            exists = (self.volumes / uid).exists()
            return EngineStatus(ContainerState.STOPPED if exists else ContainerState.NOT_FOUND)
        is_running = found[0].read_text() == "running"
        return EngineStatus(
            ContainerState.RUNNING if is_running else ContainerState.STOPPED,
            memory_bytes=self.memory_bytes if is_running else None,
            disk_bytes=self.disk_bytes,
            template_hash=self._read_hash(uid),
        )

    async def measure(self, uid: str) -> ActivitySample | None:
        if isinstance(self.measured, EngineError):
            raise self.measured
        is_running = (await self.status(uid)).state is ContainerState.RUNNING
        return self.measured if is_running else None

    async def list_workspaces(self) -> Mapping[str, EngineStatus]:
        folders = (self.containers, self.volumes, self.drafts)
        uids = {path.name.partition(".")[0] for folder in folders for path in folder.iterdir()}
        return {
            uid: replace(await self.status(uid), installation=self.installations.get(uid, "")) for uid in sorted(uids)
        }

    async def close(self) -> None:
        self.calls.append(("close", ""))

    async def adopt(self, uid: str, task: TaskContext) -> bool:
        self.calls.append(("adopt", uid))
        if self.is_adopting:
            await self._bring_up(uid, task)
        return self.is_adopting

    async def exec(self, uid: str, command: Sequence[str], options: ExecOptions) -> Process:
        raise EngineError(Reason.NOT_RUNNING, "nothing runs here")

    async def list_ports(self, uid: str) -> Sequence[ListeningPort]:
        return ()

    async def open_port(self, uid: str, port: int) -> ByteStream:
        raise EngineError(Reason.NOT_RUNNING, "nothing runs here")

    def _read_hash(self, uid: str) -> str:
        path = self.drafts / uid
        return path.read_text() if path.exists() else ""

    def _find(self, uid: str) -> list[Path]:
        return sorted(self.containers.glob(f"{uid}.*"))


def create_engine(settings: EngineSettings) -> FakeEngine:
    return FakeEngine(settings.state_folder, float(os.environ.get(SECONDS_VARIABLE, "1")))
