"""Threads for scans whose cost a workspace controls.

They are few, and not those of the event loop, in which other parts of the runner would wait for them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MAX_THREADS = 2
Result = TypeVar("Result")


def _create_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, "scan")


@dataclass(frozen=True, slots=True)
class Scans(Generic[Result]):
    """Scans of one kind: of each workspace, one at a time."""

    _threads: ThreadPoolExecutor = field(default_factory=_create_threads)
    _pending: "dict[str, asyncio.Future[Result]]" = field(default_factory=dict)

    async def run(self, uid: str, scan: Callable[[], Result]) -> Result:
        """The result of the scan; of the one that is under way, if there is one."""
        pending = self._pending.get(uid)
        if pending is None:
            pending = asyncio.get_running_loop().run_in_executor(self._threads, scan)
            self._pending[uid] = pending
            pending.add_done_callback(lambda _: self._pending.pop(uid, None))
        return await asyncio.shield(pending)
