"""The result, as a table for people and as JSON for programs."""

from dataclasses import asdict
from typing import Any

from rich.table import Table

from bench.figures import Compared, Memory, Reading, middle
from bench.run import Result

MIB = 1024 * 1024


def table(result: Result) -> Table:
    pace = result.pace
    made = Table(title=f"{result.when:%Y-%m-%d}, {result.machine}", title_justify="left", caption_justify="left")
    made.caption = (
        f"medians of {pace.rounds} alternating rounds of {pace.seconds} s over TLS; objects have "
        f"{result.seeded.object_bytes} bytes\n"
        f"memory at the end: {result.finished.objects:,} objects and {result.finished.revision:,} revisions"
    )
    made.add_column("")
    for heading in ("fairlead", "ceiling", "of ceiling", "p99", "its ceiling", "CPU", "its ceiling", "CPU of ceiling"):
        made.add_column(heading, justify="right")
    for row in result.rows:
        made.add_row(*_cells(row))
    for cells in _memory_cells(result.memory):
        made.add_row(*cells)
    return made


def _cells(row: Compared) -> list[str]:
    ours, ceiling = middle(row.ours), middle(row.ceiling)
    shares = f"{percent(row.share)} ({percent(min(row.shares))} to {percent(max(row.shares))})"
    figures = [_figure(ours.figure), _figure(ceiling.figure), shares]
    times = [*map(_p99, (ours, ceiling)), *map(_cpu, (ours, ceiling))]
    return [f"{row.name}, {row.unit}", *figures, *times, percent(row.cpu_share)]


def percent(share: float) -> str:
    """Two digits that mean something: small shares are where there is most to win."""
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _p99(reading: Reading) -> str:
    return "" if reading.p99_ms is None else f"{reading.p99_ms:.1f} ms"


def _cpu(reading: Reading) -> str:
    return f"{reading.cpu_us:,.0f} µs"


def _memory_cells(memory: Memory) -> list[list[str]]:
    seeded, finished, ceiling = (f"{size / MIB:.0f}" for size in (memory.seeded, memory.finished, memory.ceiling))
    return [["memory with the seeded objects, MiB", seeded], ["memory at the end, MiB", finished, ceiling]]


def document(result: Result) -> dict[str, Any]:
    """All readings of all rounds, and the shares that follow from them."""
    rows = [asdict(row) | {"shares": row.shares, "share": row.share, "cpu_share": row.cpu_share} for row in result.rows]
    return asdict(result) | {"rows": rows}
