"""The free space of the runner's state folder: a condition of the Runner, and required to create workspaces.

Below the limit, no workspace is created, so that those that exist can go on: a full disk would stop all of them. Below
twice the limit, the condition says so in advance.
"""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from fairlead.client import ClientError
from fairlead.core.clock import Clock, timestamp
from fairlead.core.objects import Object
from fairlead.runner.api import RunnerApi
from fairlead.runner.settings import DEFAULT_DISK

DISK_AVAILABLE = "DiskAvailable"
AVAILABLE, LOW, FULL = "Available", "DiskLow", "DiskFull"
CHECK_SECONDS = 30.0
WARNING_FACTOR = 2

log = structlog.get_logger(__name__)


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
            return {"type": DISK_AVAILABLE, "status": "False", "severity": "Error", "reason": FULL, "message": shortage}
        if free < WARNING_FACTOR * self.min_free_bytes:
            limit = self.min_free_bytes >> 20
            message = f"only {free >> 20} MiB of disk are free; below {limit} MiB, no workspace is created"
            return {"type": DISK_AVAILABLE, "status": "True", "severity": "", "reason": LOW, "message": message}
        return {"type": DISK_AVAILABLE, "status": "True", "severity": "", "reason": AVAILABLE, "message": ""}


async def report_disk(api: RunnerApi, disk: DiskGuard, clock: Clock) -> None:
    """Reports the condition for ever, when its reason changes."""
    reported: Object = {}
    while True:
        condition = disk.build_condition()
        if condition["reason"] != reported.get("reason"):
            is_same = condition["status"] == reported.get("status")
            moment = reported["lastTransitionTime"] if is_same else timestamp(clock.now())
            condition = {**condition, "lastTransitionTime": moment}
            try:
                await api.report_runner({"conditions": [condition]})
            except ClientError as error:
                log.warning("the condition of the disk could not be reported", error=str(error))
            else:
                reported = condition
                if condition["message"]:
                    log.warning("the disk has little free space", reason=condition["message"])
        await asyncio.sleep(CHECK_SECONDS)
