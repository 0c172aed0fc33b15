"""Rows of tail latency: single GETs with pauses, alone and beside other clients that send requests without a pause.

Both are clients of wrk, so that neither waits for an interpreter. The others have a lower priority: the rows measure
what the server does for the quiet client, not how processes share the cores of the machine.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from bench import wrk
from bench.aims import Aim, PeerAim, above_ceiling
from bench.compare import Measure, ServerSet
from bench.figures import Reading
from bench.requests import Requests
from bench.servers import Server

PAUSE_MS, NICENESS = 3, 10
WARM_SECONDS, EXTRA_SECONDS = 0.5, 2
"""How long the others send requests before the measurement, and how much longer than it."""
MAX_DELAY_MS = 5.0


@dataclass(frozen=True, slots=True)
class Beside:
    """The 99th percentile of a quiet client's GETs beside others. The ceiling is the same client alone."""

    gets: Requests
    others: Requests
    peer_aim: PeerAim | None = None
    unit: str = "ms, p99"
    falling: bool = True

    @property
    def name(self) -> str:
        return f"{self.gets.name} beside {self.others.name}"

    @property
    def aim(self) -> Aim:
        return above_ceiling(MAX_DELAY_MS)

    @asynccontextmanager
    async def session(self, server_set: ServerSet) -> AsyncIterator[Measure]:
        seconds, objects = server_set.scale.seconds, server_set.scale.objects

        async def measure(server: Server) -> Reading:
            if server is server_set.ceiling:
                return await measure_gets(server_set.ours, self.gets, seconds, objects)
            async with send_requests(server, self.others, seconds, objects):
                return await measure_gets(server, self.gets, seconds, objects)

        yield measure


async def measure_gets(server: Server, gets: Requests, seconds: int, objects: int) -> Reading:
    """Measures the latencies of a client that pauses before each request."""
    load = replace(gets.load(seconds, objects, b""), connections=1, pause_ms=PAUSE_MS)
    summary = await wrk.run(server, gets.request, load)
    p99_ms = summary.p99_us / 1e3
    return Reading(
        figure=p99_ms,
        p99_ms=p99_ms,
        cpu_us=None,
        load_busy=None,
        p50_ms=summary.p50_us / 1e3,
        max_ms=summary.max_us / 1e3,
    )


@asynccontextmanager
async def send_requests(server: Server, requests: Requests, seconds: int, objects: int) -> AsyncIterator[None]:
    """Sends requests without a pause during a measurement of so many seconds."""
    load = replace(requests.load(seconds + EXTRA_SECONDS, objects, b""), niceness=NICENESS)
    task = asyncio.create_task(wrk.run(server, requests.request, load))
    try:
        await asyncio.sleep(WARM_SECONDS)
        yield
        await task
    finally:
        task.cancel()
