"""Keeps one connection to the server open, over which the server opens streams to this runner.

The runner dials, because it may be behind a firewall. When the connection ends, it dials again after a random delay,
which grows up to half a minute: all runners of a server that restarts would otherwise dial at the same time. Nothing
else depends on the connection: tasks and workspaces go on without it.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)

MIN_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.5, 30.0
STABLE_SECONDS = 60.0
"""A connection that lasted this long was no failure: the delay starts over."""


class ConnectionLost(Exception):
    """A connection could not be established, or has ended. The message is for the log."""


class Dialer(Protocol):
    async def serve(self) -> None:
        """Connects and serves the streams that the server opens, until the connection ends. Raises ConnectionLost."""
        ...


def next_delay(failures: int, draw: Callable[[float, float], float] = random.uniform) -> float:
    """Seconds before the next attempt: from half a second up to a limit that doubles with each failure."""
    return draw(MIN_DELAY_SECONDS, min(MAX_DELAY_SECONDS, MIN_DELAY_SECONDS * 2 ** min(failures, 10)))


async def keep_connected(dialer: Dialer, draw: Callable[[float, float], float] = random.uniform) -> None:
    """Dials for ever."""
    failures, loop = 0, asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            await dialer.serve()
        except ConnectionLost as error:
            log.warning("the connection to the server is lost; what runs goes on running", error=str(error))
        failures = 1 if loop.time() - began >= STABLE_SECONDS else failures + 1
        await asyncio.sleep(next_delay(failures, draw))
