"""The whole run: starts servers, creates objects, measures every row, and stops the servers."""

import asyncio
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from os import cpu_count
from pathlib import Path

from bench.compare import ServerSet, compare
from bench.fairness.run import measure_fairness, select_attacks
from bench.figures import Compared, Single
from bench.growth import GrowthResult, measure_empty_start, measure_growth
from bench.objects import create_objects, object_bytes, require_empty
from bench.rows import build_own_rows, build_rows
from bench.scale import Scale
from bench.servers import Server, run_ceiling, run_fairlead
from bench.workers import ROWS, SETTLE_SECONDS, WorkersResult, measure_workers

ReportProgress = Callable[[str], None]
MEMORY, WORKERS = "memory", "workers"
"""Words that select rows, as growth and fairness do."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run. `only` are parts of the names of rows; empty means all rows."""

    scale: Scale
    peers: Sequence[Server] = ()
    only: Sequence[str] = ()

    def wants(self, name: str) -> bool:
        return not self.only or any(part.lower() in name.lower() for part in self.only)


@dataclass(frozen=True, slots=True)
class Result:
    """All results of a run."""

    when: datetime
    machine: str
    scale: Scale
    object_bytes: int
    rows: Sequence[Compared]
    grown: Sequence[Compared]
    """Rows with many objects; the ceiling is the same server with few."""
    singles: Sequence[Single]
    beside: Sequence[Compared] = ()
    """Rows of a quiet user during attacks; the ceiling is the same user alone."""
    workers: Sequence[Compared] = ()
    """Rows of several workers; the ceiling is a server with one."""


@dataclass(frozen=True, slots=True)
class MainResult:
    """The rows of requests and watches, the size of an object, and the memory of peers with all objects in bytes."""

    rows: Sequence[Compared] = ()
    object_bytes: int = 0
    peer_memory: Mapping[str, int] = field(default_factory=dict)


async def measure(options: RunOptions, report_progress: ReportProgress) -> Result:
    """Raises Failure if a single response was not as expected."""
    when = datetime.now(UTC)
    for peer in options.peers:
        await require_empty(peer)
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as name:
        folder = Path(name)
        singles: list[Single] = []
        if options.wants("start"):
            report_progress("starts")
            singles.append(await measure_empty_start(folder))
        main = await _measure_rows(folder, options, report_progress)
        workers = await _measure_workers(folder, options, main.peer_memory, report_progress)
        grown = GrowthResult((), ())
        if options.scale.many and options.wants("growth"):
            grown = await measure_growth(folder, options.scale, report_progress)
        attacks = select_attacks(options.wants)
        beside = await measure_fairness(folder, options.scale, attacks, report_progress) if attacks else []
    singles += [*workers.singles, *grown.singles]
    machine, scale = describe_machine(), options.scale
    return Result(
        when=when,
        machine=machine,
        scale=scale,
        object_bytes=main.object_bytes,
        rows=main.rows,
        grown=grown.rows,
        singles=singles,
        beside=beside,
        workers=workers.rows,
    )


async def _measure_rows(folder: Path, options: RunOptions, report_progress: ReportProgress) -> MainResult:
    own_rows = [row for row in build_own_rows() if options.wants(row.name)]
    rows = [row for row in build_rows(options.scale) if options.wants(row.name)]
    if not own_rows and not rows and not (options.peers and options.wants(MEMORY)):
        return MainResult()
    async with run_fairlead(folder) as ours, run_ceiling(ours, folder) as bare:
        server_set = ServerSet(ours, bare, options.scale, options.peers)
        for server in server_set.real:
            report_progress(f"creating {options.scale.objects:,} objects at {server.name}")
            await create_objects(server, options.scale.objects)
        peer_memory = await _measure_peer_memory(options.peers)
        size, compared = await object_bytes(ours), []
        alone = replace(server_set, peers=())
        for row, servers in (*((row, alone) for row in own_rows), *((row, server_set) for row in rows)):
            report_progress(row.name)
            compared.append(await compare(row, servers, report_progress))
        return MainResult(compared, size, peer_memory)


async def _measure_peer_memory(peers: Sequence[Server]) -> dict[str, int]:
    """The memory of the peers whose processes are known."""
    await asyncio.sleep(SETTLE_SECONDS if peers else 0)
    return {peer.name: memory for peer in peers if (memory := peer.memory()) is not None}


async def _measure_workers(
    folder: Path, options: RunOptions, peer_memory: Mapping[str, int], report_progress: ReportProgress
) -> WorkersResult:
    rows = ROWS if options.wants(WORKERS) else ()
    if not rows and not options.wants(MEMORY):
        return WorkersResult()
    return await measure_workers(folder, options.scale, rows, peer_memory, report_progress)


def describe_machine() -> str:
    """What figures depend on, without host names."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    kernel = platform.release().partition("-")[0]
    return f"{cpu_count()} cores ({_describe_processor()}), Linux {kernel}, {python}, granian {version('granian')}"


def _describe_processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
