"""What the workspaces of a runner share, such as the number of them that come up at a time.

A workspace that the engine has nothing of is built; others are only started. Builds take more of the machine.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from fairlead.core.clock import Clock
from fairlead.runner.activity import ActivityLedger
from fairlead.runner.api import RunnerApi
from fairlead.runner.conditions import DiskGuard
from fairlead.runner.engines.contract import Engine
from fairlead.runner.heartbeat import Heartbeat
from fairlead.runner.journal import Journal
from fairlead.runner.task_log import TaskLogs


@dataclass(frozen=True, slots=True)
class Share:
    """How many slots there are, and how many of them one owner and one project can have. An `up` may take an hour, and
    is not interrupted for others: so some slots are left for them also while they do not need them."""

    total: int
    per_owner: int
    per_project: int


BUILDS = Share(total=3, per_owner=1, per_project=2)
STARTS = Share(total=6, per_owner=2, per_project=4)


@dataclass(frozen=True, slots=True)
class Claimant:
    """Whose slot it is: the owner of a workspace, and its project."""

    owner: str
    project: str


class Slots:
    """A number of slots, first come, first served among those that have not got their share."""

    def __init__(self, share: Share, what: str) -> None:
        self._share = share
        self._what = what
        self._held: list[Slot] = []
        self._waiting: list[Slot] = []

    def describe_wait(self, claimant: Claimant) -> str:
        """What a task waits for; empty if it gets a slot at once. It does not say whose workspaces the others are."""
        if self._may_have(claimant):
            return ""
        own = [each.claimant for each in self._held if each.claimant.owner == claimant.owner]
        project = [each.claimant for each in self._held if each.claimant.project == claimant.project]
        if len(own) >= self._share.per_owner:
            return f"waiting for other {self._what} of the same owner, who can have {self._share.per_owner} at a time"
        if len(project) >= self._share.per_project:
            count = self._share.per_project
            return f"waiting for other {self._what} of the same project, which can have {count} at a time"
        return f"waiting for {len(self._held)} other {self._what}"

    @asynccontextmanager
    async def hold(self, claimant: Claimant) -> "AsyncIterator[Slot]":
        slot = Slot(claimant, self._release)
        self._waiting.append(slot)
        self._admit()
        try:
            await slot.admitted.wait()
            yield slot
        finally:
            slot.release()

    def _may_have(self, claimant: Claimant) -> bool:
        held = [each.claimant for each in self._held]
        return (
            len(held) < self._share.total
            and sum(each.owner == claimant.owner for each in held) < self._share.per_owner
            and sum(each.project == claimant.project for each in held) < self._share.per_project
        )

    def _admit(self) -> None:
        for slot in list(self._waiting):
            if self._may_have(slot.claimant):
                self._waiting.remove(slot)
                self._held.append(slot)
                slot.admitted.set()

    def _release(self, slot: "Slot") -> None:
        for slots in (self._held, self._waiting):
            if slot in slots:
                slots.remove(slot)
        self._admit()


@dataclass(eq=False, slots=True)
class Slot:
    claimant: Claimant
    _release: "Callable[[Slot], None]"
    admitted: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Also before the end of the task, when what follows concerns the workspace alone."""
        self._release(self)


class TaskSlots:
    """The slots of a runner."""

    def __init__(self, builds: Share = BUILDS, starts: Share = STARTS) -> None:
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
