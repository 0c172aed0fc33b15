"""What the workspaces of a runner share, such as the number of them that come up at a time.

A workspace that the engine has nothing of is built; others are only started. Builds take more of the machine.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from fairlead.core.clock import Clock
from fairlead.runner.activity import ActivityLedger
from fairlead.runner.api import RunnerApi
from fairlead.runner.conditions import DiskGuard
from fairlead.runner.engines.contract import Engine
from fairlead.runner.heartbeat import Heartbeat
from fairlead.runner.journal import Journal
from fairlead.runner.task_log import TaskLogs

BUILDS_AT_A_TIME = 2
STARTS_AT_A_TIME = 4


class Slots:
    """A number of slots, first come, first served."""

    def __init__(self, count: int, what: str) -> None:
        self._free = asyncio.Semaphore(count)
        self._what = what
        self._holders: list[str] = []

    def describe_wait(self) -> str:
        """What a task waits for; empty if there is a free slot."""
        if not self._free.locked():
            return ""
        return f"waiting for {len(self._holders)} other {self._what}: {', '.join(self._holders)}"

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        async with self._free:
            self._holders.append(name)
            try:
                yield
            finally:
                self._holders.remove(name)


class TaskSlots:
    """The slots of a runner."""

    def __init__(self, builds: int = BUILDS_AT_A_TIME, starts: int = STARTS_AT_A_TIME) -> None:
        self.builds = Slots(builds, "builds")
        self.starts = Slots(starts, "starts")


@dataclass(frozen=True, slots=True)
class RunnerServices:
    """`host_boot` identifies the boot of the machine. `allowed_permissions` are those of templates that the operator of
    the runner honours."""

    api: RunnerApi
    fence: Heartbeat
    journal: Journal
    logs: TaskLogs
    engines: Mapping[str, Engine]
    slots: TaskSlots
    clock: Clock
    host_boot: str
    activity: ActivityLedger
    disk: DiskGuard
    installation: str = ""
    """The ID of the server's installation."""
    orphan_retention: timedelta | None = None
    """How long the data of workspaces is kept that the server does not have. None: the default."""
    allowed_permissions: frozenset[str] = frozenset()
