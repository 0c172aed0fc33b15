"""The whole run: servers up, objects in, every row measured, servers down."""

import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from os import cpu_count
from pathlib import Path

from bench.compare import Lineup, compare
from bench.fairness.run import fairness, wanted_attacks
from bench.figures import Compared, Single
from bench.growth import Grown, at_rest, growth
from bench.objects import object_bytes, refuse_filled, seed
from bench.rows import own_rows, rows
from bench.scale import Scale
from bench.servers import Server, ceiling, fairlead

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted of a run. `only` is parts of the names of rows; none means all of them."""

    scale: Scale
    peers: Sequence[Server] = ()
    only: Sequence[str] = ()

    def wants(self, name: str) -> bool:
        return not self.only or any(part.lower() in name.lower() for part in self.only)


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that a run has found out."""

    when: datetime
    machine: str
    scale: Scale
    object_bytes: int
    rows: Sequence[Compared]
    grown: Sequence[Compared]
    """Rows with many objects; in the ceiling's place is the same server with few."""
    singles: Sequence[Single]
    beside: Sequence[Compared] = ()
    """Rows of a quiet user beside noisy ones; in the ceiling's place is the same user alone."""


async def measure(asked: Asked, say: Say) -> Result:
    """Raises Failure, and returns nothing, if a single request was not answered as it should have been."""
    when = datetime.now(UTC)
    for peer in asked.peers:
        await refuse_filled(peer)
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as name:
        folder = Path(name)
        singles: list[Single] = []
        if asked.wants("start") or asked.wants("memory"):
            say("starts and memory")
            singles += await at_rest(folder, asked.scale)
        grown = Grown((), ())
        found, size = await _compared(folder, asked, say)
        if asked.scale.many and asked.wants("growth"):
            grown = await growth(folder, asked.scale, say)
            singles += grown.singles
        attacks = wanted_attacks(asked.wants)
        beside = await fairness(folder, asked.scale, attacks, say) if attacks else []
    return Result(when, machine(), asked.scale, size, found, grown.rows, singles, beside)


async def _compared(folder: Path, asked: Asked, say: Say) -> tuple[list[Compared], int]:
    """The rows of requests and watches, and the size of an object; 0 where no row is wanted and nothing is started."""
    if not any(asked.wants(row.name) for row in (*own_rows(), *rows(asked.scale))):
        return [], 0
    async with fairlead(folder) as ours, ceiling(ours, folder) as bare:
        lineup = Lineup(ours, bare, asked.scale, asked.peers)
        for server in lineup.real:
            say(f"creating {asked.scale.objects:,} objects at {server.name}")
            await seed(server, asked.scale.objects)
        size, found = await object_bytes(ours), []
        alone = replace(lineup, peers=())
        for row, who in (*((row, alone) for row in own_rows()), *((row, lineup) for row in rows(asked.scale))):
            if asked.wants(row.name):
                say(row.name)
                found.append(await compare(row, who))
        return found, size


def machine() -> str:
    """What figures depend on, without the names of anything."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    kernel = platform.release().partition("-")[0]
    return f"{cpu_count()} cores ({_processor()}), Linux {kernel}, {python}, granian {version('granian')}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
