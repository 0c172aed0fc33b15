"""The quiet user: one request after the other, with a pause between them, over a connection for reads and another for
writes. Whatever is refused is the end of the run: a quiet user must never be refused for what others do."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count

from bench.connection import Connection
from bench.figures import percentile
from bench.objects import APPS, app, name_of
from bench.servers import Server
from bench.together import together

PAUSE_SECONDS = 0.003
FEWEST, PATIENCE = 20, 15.0
"""Requests that a figure is made of at least, unless they take so many seconds more."""

_numbers = count()


@dataclass(frozen=True, slots=True)
class Felt:
    """What all but the slowest percent of the requests took at most, in milliseconds."""

    get: float
    create: float


async def feel(server: Server, seconds: float) -> Felt:
    """`server` with the quiet user's key."""
    found: dict[str, float] = {}

    async def read() -> None:
        async with Connection.to(server) as connection:
            found["get"] = await _p99(lambda: connection.ask("GET", f"{APPS}/{name_of(0)}"), seconds)

    async def write() -> None:
        async with Connection.to(server) as connection:
            found["create"] = await _p99(lambda: connection.ask("POST", APPS, app(f"quiet-{next(_numbers)}")), seconds)

    await together((read(), write()))
    return Felt(found["get"], found["create"])


async def _p99(ask: Callable[[], Awaitable[bytes]], seconds: float) -> float:
    taken: list[float] = []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end or (len(taken) < FEWEST and now < end + PATIENCE):
        begun = time.perf_counter()
        await ask()
        taken.append((time.perf_counter() - begun) * 1e3)
        await asyncio.sleep(PAUSE_SECONDS)
    return percentile(taken, 99)
