"""What the workspaces of a runner share."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from fairlead.core.clock import Clock
from fairlead.runner.activity.ledger import ActivityLedger
from fairlead.runner.api import RunnerApi
from fairlead.runner.disk import DiskGuard
from fairlead.runner.engines.contract import Engine
from fairlead.runner.journal import Journal
from fairlead.runner.queue import TaskSlots
from fairlead.runner.task_log import TaskLogs


class Fence(Protocol):
    async def require_current(self) -> None:
        """Raises Replaced if another process has taken over this runner."""
        ...


@dataclass(frozen=True, slots=True)
class RunnerServices:
    """`host_boot` identifies the boot of the machine. `allowed_permissions` are those of templates that the operator of
    the runner honours."""

    api: RunnerApi
    fence: Fence
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
