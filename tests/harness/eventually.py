"""Waiting for a condition that has no event of its own: in a coroutine, or in code without an event loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Found = TypeVar("Found")

INTERVAL_SECONDS = 0.05
TIMEOUT_SECONDS = 40.0
"""Long enough for a busy machine: a condition that does not hold by then is not going to."""


BUSY_SECONDS = 15.0
"""How much longer than guaranteed something may take on a busy machine, where a process may not run for seconds."""


async def eventually(check: Callable[[], Found], seconds: float = 300) -> Found:
    """Returns the first true result of `check`; on virtual time, waiting costs nothing.

    The default is longer than the longest backoff of a controller with its jitter.
    """
    async with asyncio.timeout(seconds):
        while not (found := check()):  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(INTERVAL_SECONDS)
    return found


async def poll_until_found(
    poll: Callable[[], Awaitable[Found | None]], what: str, seconds: float, ignored: type[Exception]
) -> Found:
    """Returns the first result of `poll` that is not None. Errors of the type `ignored` are tried again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if (found := await poll()) is not None:
                return found
        except ignored:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        await asyncio.sleep(INTERVAL_SECONDS)


def wait_until(
    check: Callable[[], Found | None], seconds: float = TIMEOUT_SECONDS, what: str = "the condition holds"
) -> Found:
    """Returns the first true result of `check`, in code without an event loop. `what` describes it in the error."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(INTERVAL_SECONDS)
    return found


def seconds_until(
    check: Callable[[], object], seconds: float = TIMEOUT_SECONDS, what: str = "the condition holds"
) -> float:
    """Waits like `wait_until` and returns how long it took."""
    began = time.monotonic()
    wait_until(check, seconds, what)
    return time.monotonic() - began
