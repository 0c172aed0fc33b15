"""The conditions of the Runner: the free space of its state folder, and workspaces that the server does not have.

Below a limit of free space, no workspace is created, so that those that exist can go on: a full disk would stop all of
them. Below twice the limit, the condition says so in advance.

The runner may record Events only where it has workspaces, so the server records those about others from the condition.
"""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import structlog

from fairlead.client import ClientError
from fairlead.core.clock import Clock, timestamp
from fairlead.core.objects import Object
from fairlead.runner.api import RunnerApi
from fairlead.runner.decisions import retention_end
from fairlead.runner.journal import Journal
from fairlead.runner.settings import DEFAULT_DISK

DISK_AVAILABLE = "DiskAvailable"
AVAILABLE, LOW, FULL = "Available", "DiskLow", "DiskFull"
WARNING_FACTOR = 2
WORKSPACES_KNOWN, KNOWN, ORPHANED = "WorkspacesKnown", "Known", "Orphaned"
MAX_NAMED = 10
CHECK_SECONDS = 30.0

log = structlog.get_logger(__name__)


async def report_disk(api: RunnerApi, disk: "DiskGuard", clock: Clock) -> None:
    """Reports the condition of the disk for ever, when its reason changes."""

    def note(condition: Object) -> None:
        if condition["message"]:
            log.warning("the disk has little free space", reason=condition["message"])

    await _report_changes(api, clock, disk.build_condition, "reason", {}, note)


async def report_orphans(api: RunnerApi, journal: Journal, clock: Clock, retention: timedelta | None) -> None:
    """Reports the condition of orphans for ever, when it changes. Nothing is reported before the first orphan."""

    def note(condition: Object) -> None:
        log.warning(condition["message"] or "this runner has no workspace any more that the server does not have")

    build = partial(describe_orphans, journal, retention)
    await _report_changes(api, clock, build, "message", {"status": "True", "message": ""}, note)


async def _report_changes(
    api: RunnerApi,
    clock: Clock,
    build: Callable[[], Object],
    field: str,
    reported: Object,
    note: Callable[[Object], None],
) -> None:
    """Reports a condition whenever this field of it changes, and notes what was reported. `reported` is what the server
    knows at first."""
    while True:
        condition = build()
        if condition[field] != reported.get(field):
            is_same = condition["status"] == reported.get("status")
            moment = reported["lastTransitionTime"] if is_same else timestamp(clock.now())
            condition = {**condition, "lastTransitionTime": moment}
            try:
                await api.report_runner({"conditions": [condition]})
            except ClientError as error:
                log.warning("a condition of the runner could not be reported", type=condition["type"], error=str(error))
            else:
                reported = condition
                note(condition)
        await asyncio.sleep(CHECK_SECONDS)


# --- the disk ---------------------------------------------------------------------------------------------------------


def read_free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


@dataclass(frozen=True, slots=True)
class DiskGuard:
    """`min_free_bytes` of 0 turns it off."""

    folder: Path
    min_free_bytes: int = DEFAULT_DISK.min_free_bytes
    read_free: Callable[[Path], int] = read_free_bytes

    def find_shortage(self) -> str:
        """Why no workspace can be created; empty if there is enough space."""
        free = self.read_free(self.folder)
        if free >= self.min_free_bytes:
            return ""
        needed = f"{self.min_free_bytes >> 20} MiB to create a workspace"
        return f"the runner has {free >> 20} MiB of free disk, and needs {needed}; delete workspaces or images there"

    def build_condition(self) -> Object:
        free = self.read_free(self.folder)
        if shortage := self.find_shortage():
            return _condition(DISK_AVAILABLE, "False", FULL, shortage, severity="Error")
        if free < WARNING_FACTOR * self.min_free_bytes:
            limit = self.min_free_bytes >> 20
            message = f"only {free >> 20} MiB of disk are free; below {limit} MiB, no workspace is created"
            return _condition(DISK_AVAILABLE, "True", LOW, message)
        return _condition(DISK_AVAILABLE, "True", AVAILABLE)


# --- orphans ----------------------------------------------------------------------------------------------------------


def describe_orphans(journal: Journal, retention: timedelta | None) -> Object:
    """The condition, which is false while there are orphans, with what happens to each."""
    ends = ((retention_end(each, retention), each.uid, each) for each in journal.records())
    orphans = sorted((end, uid, each) for end, uid, each in ends if end is not None)
    if not orphans:
        return _condition(WORKSPACES_KNOWN, "True", KNOWN)
    named = [
        f"{f'{each.namespace}/{each.name}' if each.name else 'without a name'} (uid {uid}) on {timestamp(end)}"
        for end, uid, each in orphans[:MAX_NAMED]
    ]
    more = f", and {len(orphans) - MAX_NAMED} more" if len(orphans) > MAX_NAMED else ""
    message = (
        f"this runner has {len(orphans)} workspaces that the server does not have; they are stopped, and removed with "
        f"their data unless they appear again: {', '.join(named)}{more}"
    )
    return _condition(WORKSPACES_KNOWN, "False", ORPHANED, message, severity="Warning")


def _condition(type: str, status: str, reason: str, message: str = "", severity: str = "") -> Object:
    return {"type": type, "status": status, "severity": severity, "reason": reason, "message": message}
