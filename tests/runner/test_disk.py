"""Free disk: the condition of the Runner, and workspaces that are not created without it."""

import asyncio
from pathlib import Path

import pytest

from fairlead.runner.conditions import CHECK_SECONDS, DiskGuard, report_disk
from tests.harness.virtual_time import LoopClock
from tests.runner.fake_api import FakeApi

MIB = 1 << 20


class Disk:
    def __init__(self) -> None:
        self.free = 1000 * MIB

    def read(self, folder: Path) -> int:
        return self.free


@pytest.mark.parametrize(
    ("free", "status", "reason"),
    [(200, "True", "Available"), (199, "True", "DiskLow"), (100, "True", "DiskLow"), (99, "False", "DiskFull")],
)
def test_the_condition_warns_at_twice_the_limit_and_is_false_below_it(free: int, status: str, reason: str) -> None:
    guard = DiskGuard(Path("/"), 100 * MIB, lambda folder: free * MIB)
    found = guard.build_condition()
    assert (found["status"], found["reason"]) == (status, reason)
    assert bool(guard.find_shortage()) == (reason == "DiskFull")
    assert (str(free) in found["message"]) == (reason != "Available")


def test_without_a_limit_nothing_is_refused() -> None:
    assert DiskGuard(Path("/"), 0, lambda folder: 0).find_shortage() == ""


async def test_the_condition_is_reported_when_it_changes_and_recovers_by_itself() -> None:
    api, disk = FakeApi(), Disk()
    guard = DiskGuard(Path("/"), 100 * MIB, disk.read)
    reporting = asyncio.create_task(report_disk(api, guard, LoopClock()))
    try:
        seen = []
        for free in (1000, 150, 50, 60, 1000):
            disk.free = free * MIB
            await asyncio.sleep(CHECK_SECONDS + 1)
            (condition,) = api.runner["status"]["conditions"]
            seen.append((condition["status"], condition["reason"], condition["lastTransitionTime"]))
        assert [each[:2] for each in seen] == [
            ("True", "Available"),
            ("True", "DiskLow"),
            ("False", "DiskFull"),
            ("False", "DiskFull"),
            ("True", "Available"),
        ]
        assert seen[0][2] == seen[1][2] < seen[2][2] == seen[3][2] < seen[4][2]
        api.is_reachable = False
        disk.free = 0
        await asyncio.sleep(CHECK_SECONDS + 1)
        api.reconnect()
        await asyncio.sleep(CHECK_SECONDS + 1)
        assert api.runner["status"]["conditions"][0]["reason"] == "DiskFull"
    finally:
        reporting.cancel()
