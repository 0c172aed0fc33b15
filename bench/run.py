"""The whole run: starts servers, creates objects, measures every row, and stops the servers."""

import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from os import cpu_count
from pathlib import Path

from bench.compare import ServerSet, compare
from bench.fairness.run import measure_fairness, select_attacks
from bench.figures import Compared, Single
from bench.growth import GrowthResult, measure_at_rest, measure_growth
from bench.objects import create_objects, object_bytes, require_empty
from bench.rows import build_own_rows, build_rows
from bench.scale import Scale
from bench.servers import Server, run_ceiling, run_fairlead

ReportProgress = Callable[[str], None]


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


async def measure(options: RunOptions, report_progress: ReportProgress) -> Result:
    """Raises Failure if a single response was not as expected."""
    when = datetime.now(UTC)
    for peer in options.peers:
        await require_empty(peer)
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as name:
        folder = Path(name)
        singles: list[Single] = []
        if options.wants("start") or options.wants("memory"):
            report_progress("starts and memory")
            singles += await measure_at_rest(folder, options.scale)
        grown = GrowthResult((), ())
        found, size = await _measure_rows(folder, options, report_progress)
        if options.scale.many and options.wants("growth"):
            grown = await measure_growth(folder, options.scale, report_progress)
            singles += grown.singles
        attacks = select_attacks(options.wants)
        beside = await measure_fairness(folder, options.scale, attacks, report_progress) if attacks else []
    return Result(when, describe_machine(), options.scale, size, found, grown.rows, singles, beside)


async def _measure_rows(
    folder: Path, options: RunOptions, report_progress: ReportProgress
) -> tuple[list[Compared], int]:
    """The rows of requests and watches, and the size of an object; 0 where no row is selected."""
    if not any(options.wants(row.name) for row in (*build_own_rows(), *build_rows(options.scale))):
        return [], 0
    async with run_fairlead(folder) as ours, run_ceiling(ours, folder) as bare:
        server_set = ServerSet(ours, bare, options.scale, options.peers)
        for server in server_set.real:
            report_progress(f"creating {options.scale.objects:,} objects at {server.name}")
            await create_objects(server, options.scale.objects)
        size, found = await object_bytes(ours), []
        alone = replace(server_set, peers=())
        for row, servers in (
            *((row, alone) for row in build_own_rows()),
            *((row, server_set) for row in build_rows(options.scale)),
        ):
            if options.wants(row.name):
                report_progress(row.name)
                found.append(await compare(row, servers))
        return found, size


def describe_machine() -> str:
    """What figures depend on, without host names."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    kernel = platform.release().partition("-")[0]
    return f"{cpu_count()} cores ({_describe_processor()}), Linux {kernel}, {python}, granian {version('granian')}"


def _describe_processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
