"""A runner in the process of the test, on virtual time, which can be ended like a process that is killed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from fairlead.runner.activity import ActivityLedger
from fairlead.runner.activity_monitor import ActivityMonitor
from fairlead.runner.conditions import DiskGuard, report_orphans
from fairlead.runner.heartbeat import Heartbeat, RunnerIdentity
from fairlead.runner.journal import Journal, WorkspaceRecord
from fairlead.runner.reconcile import WorkspaceReconciler
from fairlead.runner.services import RunnerServices, TaskSlots
from fairlead.runner.task_log import TaskLogs
from fairlead.runner.workspaces import WorkspaceSet
from tests.harness.virtual_time import LoopClock
from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories
from tests.runner.fake_api import FakeApi
from tests.runner.fake_engine import FakeEngine

__all__ = ["pytest_asyncio_loop_factories"]


class RunnerFixture:
    """A runner with a fake engine and a fake server. `kill` ends it; `start` starts the next process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.api = FakeApi()
        self.engine = FakeEngine(folder / "engine")
        self.host_boot = "first"
        self.free_bytes = 1000
        self.retention: timedelta | None = None
        self.allowed_permissions = frozenset[str]()
        self._work: asyncio.Task[None] | None = None
        self._boots = 0

    def start(self, **engines: FakeEngine) -> None:
        clock, self._boots = LoopClock(), self._boots + 1
        self.heartbeat = Heartbeat(self.api, RunnerIdentity("r", "machine", str(self._boots)), clock)
        self.services = RunnerServices(
            api=self.api,
            fence=self.heartbeat,
            journal=Journal(self.folder / "workspaces"),
            logs=TaskLogs(self.folder / "logs"),
            engines=engines or {"fake": self.engine},
            slots=TaskSlots(),
            clock=clock,
            host_boot=self.host_boot,
            activity=ActivityLedger(clock),
            disk=DiskGuard(self.folder, 100, lambda folder: self.free_bytes),
            installation="one",
            orphan_retention=self.retention,
            allowed_permissions=self.allowed_permissions,
        )
        self.workspaces = WorkspaceSet(self.services)
        self.monitor = ActivityMonitor(self.services, self.workspaces)
        self._work = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.heartbeat.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.heartbeat.run())
            group.create_task(self.workspaces.run())
            group.create_task(self.monitor.run())
            group.create_task(
                report_orphans(self.api, self.services.journal, self.services.clock, self.services.orphan_retention)
            )

    async def kill(self) -> None:
        """Ends the process: what its tasks had done stays, and what they would have done next does not happen."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def raise_failure(self) -> None:
        assert self._work is not None
        if self._work.done() and not self._work.cancelled() and (error := self._work.exception()):
            raise error

    def get(self, uid: str = "u") -> WorkspaceReconciler:
        found = self.workspaces.find(uid)
        assert found is not None
        return found

    def record(self, uid: str = "u") -> WorkspaceRecord:
        found = self.services.journal.get(uid)
        assert found is not None
        return found

    def containers(self) -> list[str]:
        """The uids of all containers, one entry for each."""
        return sorted(path.name.partition(".")[0] for path in self.engine.containers.iterdir())

    def data(self, uid: str = "u") -> str:
        path = self.engine.volumes / uid
        return path.read_text() if path.exists() else ""


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[RunnerFixture]:
    fixture = RunnerFixture(tmp_path)
    fixture.start()
    try:
        yield fixture
        fixture.raise_failure()
    finally:
        await fixture.kill()
