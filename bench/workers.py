"""Servers with different numbers of workers: requests, and the processor time and memory of all their processes.

All servers run at the same time and get their rounds in turn. The ceiling of each is the first, with one worker.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.aims import PEER_MEMORY, at_most, times_cpu
from bench.figures import Compared, Reading, Single
from bench.objects import create_objects
from bench.requests import Requests
from bench.rows import CREATE, GET, PATCH, UPDATE
from bench.scale import Scale
from bench.servers import Server, run_fairlead

ROWS = (GET, CREATE, UPDATE, PATCH)
MAX_CPU = 1.1
MIB = 1024 * 1024
MEMORY_MIB = 190
"""The aim for one worker."""
WORKERS_BESIDE_PEERS = 2
"""The number of workers whose memory has an aim beside peers."""
SETTLE_SECONDS = 3.0
"""How long a server has to finish what the creation of its objects has caused."""


@dataclass(frozen=True, slots=True)
class WorkersResult:
    rows: Sequence[Compared] = ()
    singles: Sequence[Single] = ()


async def measure_workers(
    folder: Path,
    scale: Scale,
    rows: Sequence[Requests],
    peer_memory: Mapping[str, int],
    report_progress: Callable[[str], None],
) -> WorkersResult:
    """Measures memory, and these rows. `peer_memory` is the memory of peers with as many objects, in bytes."""
    async with _run_servers(folder, scale, report_progress) as servers:
        singles = [_measure_memory(server, count, scale.objects, peer_memory) for count, server in servers.items()]
        compared = []
        for requests in rows:
            report_progress(f"workers: {requests.name}")
            compared += await _measure_rows(requests, servers, scale)
        return WorkersResult(compared, singles)


@asynccontextmanager
async def _run_servers(
    folder: Path, scale: Scale, report_progress: Callable[[str], None]
) -> AsyncIterator[dict[int, Server]]:
    """Runs a server with objects for each number of workers."""
    async with AsyncExitStack() as stack:
        servers = {}
        for count in scale.workers:
            report_progress(f"workers: creating {scale.objects:,} objects at a server with {format_workers(count)}")
            folder_of_server = folder / f"workers-{count}"
            await asyncio.to_thread(folder_of_server.mkdir)
            servers[count] = await stack.enter_async_context(run_fairlead(folder_of_server, workers=count))
            await create_objects(servers[count], scale.objects)
        await asyncio.sleep(SETTLE_SECONDS)
        yield servers


async def _measure_rows(requests: Requests, servers: Mapping[int, Server], scale: Scale) -> list[Compared]:
    responses = {count: await requests.send_first(server) for count, server in servers.items()}
    readings: dict[int, list[Reading]] = {count: [] for count in servers}
    for _ in range(scale.rounds):
        for count, server in servers.items():
            load = requests.load(scale.seconds, scale.objects, responses[count])
            readings[count].append(await requests.round(server, load))
    first, *others = servers
    return [
        Compared(_name_row(requests, first), requests.unit, False, readings[first], ()),
        *(
            Compared(
                name=_name_row(requests, count),
                unit=requests.unit,
                falling=False,
                ours=readings[count],
                ceiling=readings[first],
                aim=times_cpu(MAX_CPU),
            )
            for count in others
        ),
    ]


def _name_row(requests: Requests, count: int) -> str:
    return f"{format_workers(count)}: {requests.name}"


def format_workers(count: int) -> str:
    return f"{count} worker" if count == 1 else f"{count} workers"


def _measure_memory(server: Server, count: int, objects: int, peer_memory: Mapping[str, int]) -> Single:
    return Single(
        name=f"memory with {objects:,} objects, {format_workers(count)}",
        unit="MiB",
        figure=(server.memory() or 0) / MIB,
        aim=at_most(MEMORY_MIB) if count == 1 else None,
        peers={name: memory / MIB for name, memory in peer_memory.items()},
        peer_aim=PEER_MEMORY if count == WORKERS_BESIDE_PEERS else None,
    )
