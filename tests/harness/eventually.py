"""Waiting for a condition that has no event of its own: in a coroutine, or in a thread of a real client."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

INTERVAL_SECONDS = 0.05


async def eventually(check: Callable[[], Found], seconds: float = 120) -> Found:
    """Returns the first true result of `check`; on virtual time, waiting costs nothing."""
    async with asyncio.timeout(seconds):
        while not (found := check()):  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(INTERVAL_SECONDS)
    return found


def wait_until(check: Callable[[], Found], seconds: float) -> Found:
    """The same for code without an event loop."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, f"the condition does not hold within {seconds} s"
        time.sleep(INTERVAL_SECONDS)
    return found
