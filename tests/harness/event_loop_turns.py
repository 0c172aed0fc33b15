"""Counts the turns that other tasks get on the event loop while some work runs, without a clock."""

import asyncio


class TurnCounter:
    """A task that takes each turn it gets. `async with Turns() as turns: ...; assert turns.count >= ...`"""

    def __init__(self) -> None:
        self.count = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "TurnCounter":
        self._task = asyncio.create_task(self._count_turns())
        await asyncio.sleep(0)
        self.count = 0
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _count_turns(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)
