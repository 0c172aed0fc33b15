"""The whole run: both servers up, objects in, every row measured, both servers down."""

import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from os import cpu_count
from pathlib import Path

from bench.compare import Pace, compare
from bench.connection import Connection
from bench.figures import Compared, Memory
from bench.objects import APPS, OBJECTS, count, name_of, revision, seed
from bench.rows import ROWS
from bench.servers import Server, ceiling, fairlead


@dataclass(frozen=True, slots=True)
class Filled:
    """What a server holds: objects, the size of one of them as it is served, and the newest revision."""

    objects: int
    object_bytes: int
    revision: int


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that a run has found out."""

    when: datetime
    machine: str
    pace: Pace
    rows: Sequence[Compared]
    memory: Memory
    seeded: Filled
    finished: Filled


async def measure(pace: Pace, say: Callable[[str], None]) -> Result:
    """Raises Failure, and returns nothing, if a single request was not answered as it should have been."""
    when = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as name:
        folder = Path(name)
        async with fairlead(folder) as ours, ceiling(ours, folder) as bare:
            say(f"creating {OBJECTS:,} objects")
            await seed(ours)
            seeded, memory = await _look_into(ours), ours.memory()
            rows = []
            for row in ROWS:
                say(row.name)
                rows.append(await compare(row, ours, bare, pace))
            finished = await _look_into(ours)
            return Result(when, machine(), pace, rows, Memory(memory, ours.memory(), bare.memory()), seeded, finished)


async def _look_into(server: Server) -> Filled:
    async with Connection.to(server) as connection:
        one = await connection.ask("GET", f"{APPS}/{name_of(0)}")
        return Filled(await count(connection), len(one), await revision(connection))


def machine() -> str:
    """What figures depend on, without the names of anything."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    kernel = platform.release().partition("-")[0]
    return f"{cpu_count()} cores ({_processor()}), Linux {kernel}, {python}, granian {version('granian')}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
