"""The quiet user: one request after the other, with pauses, over a connection for reads and another for
writes. A rejected request ends the run: a quiet user must never be rejected for what others do."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count

from bench.connection import Connection
from bench.figures import percentile
from bench.objects import APPS, build_app, name_object
from bench.servers import Server
from bench.task_groups import run_together

PAUSE_SECONDS = 0.003
MIN_REQUESTS, TIMEOUT_SECONDS = 20, 15.0
"""The minimum of requests for a figure, unless they take this many seconds more."""

_numbers = count()


@dataclass(frozen=True, slots=True)
class Latencies:
    """The 99th percentiles of the requests in milliseconds."""

    get: float
    create: float


async def measure_latencies(server: Server, seconds: float) -> Latencies:
    """Measures the latencies at `server`, which has the quiet user's key."""
    latencies: dict[str, float] = {}

    async def read() -> None:
        async with Connection.to(server) as connection:
            latencies["get"] = await _measure_p99(
                lambda: connection.request("GET", f"{APPS}/{name_object(0)}"), seconds
            )

    async def write() -> None:
        async with Connection.to(server) as connection:
            latencies["create"] = await _measure_p99(
                lambda: connection.request("POST", APPS, build_app(f"quiet-{next(_numbers)}")), seconds
            )

    await run_together((read(), write()))
    return Latencies(latencies["get"], latencies["create"])


async def _measure_p99(send: Callable[[], Awaitable[bytes]], seconds: float) -> float:
    durations: list[float] = []
    end = time.monotonic() + seconds
    while (current_time := time.monotonic()) < end or (
        len(durations) < MIN_REQUESTS and current_time < end + TIMEOUT_SECONDS
    ):
        start = time.perf_counter()
        await send()
        durations.append((time.perf_counter() - start) * 1e3)
        await asyncio.sleep(PAUSE_SECONDS)
    return percentile(durations, 99)
