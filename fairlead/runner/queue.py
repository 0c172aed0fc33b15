"""How many workspaces come up at a time on this machine, and what one that has to wait waits for.

A workspace that the engine has nothing of is built; others are only started. Builds take more of the machine.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
