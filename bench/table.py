"""Formats the result as a table for terminals."""

from collections.abc import Sequence

from rich.table import Table

from bench.lines import Line, format_number, format_percent
from bench.run import Result

HEADINGS = ("fairlead", "ceiling", "of ceiling", "aim", "is", "met", "p99", "CPU", "CPU of ceiling")


def build_table(result: Result, lines: Sequence[Line]) -> Table:
    built = Table(title=f"{result.when:%Y-%m-%d}, {result.machine}", title_justify="left", caption_justify="left")
    built.caption = _caption(result, lines)
    peers = list(dict.fromkeys(name for line in lines for name in line.peers))
    built.add_column("")
    for heading in (*HEADINGS, *(heading for name in peers for heading in (name, "times"))):
        built.add_column(heading, justify="right")
    for line in lines:
        built.add_row(*_cells(line), *(cell for name in peers for cell in _peer_cells(line, name)))
    return built


def _caption(result: Result, lines: Sequence[Line]) -> str:
    scale = result.scale
    size = f"; {result.object_bytes} bytes an object" if result.object_bytes else ""
    caption = [f"medians of {scale.rounds} rounds of {scale.seconds} s in turn over TLS{size}"]
    if scale.quick:
        caption.append("quick: it shows that the benchmark works; none of its figures count")
    if any(line.limited for line in lines):
        caption.append("* the load generator was busy all the time: the true ceiling may be higher")
    return "\n".join(caption)


def _cells(line: Line) -> list[str]:
    mark = "*" if line.limited else ""
    spread = f" ({format_percent(line.spread[0])} to {format_percent(line.spread[1])})" if line.spread else ""
    return [
        f"{line.name}, {line.unit}",
        format_number(line.figure),
        "" if line.ceiling is None else f"{format_number(line.ceiling)}{mark}",
        "" if line.share is None else f"{format_percent(line.share)}{spread}",
        line.aim,
        "" if line.target is None else format_number(line.target),
        "" if line.met is None else "yes" if line.met else "NO",
        "" if line.p99_ms is None else f"{line.p99_ms:.1f} ms",
        "" if line.cpu_us is None else f"{line.cpu_us:,.0f} µs",
        "" if line.cpu_share is None else format_percent(line.cpu_share),
    ]


def _peer_cells(line: Line, name: str) -> list[str]:
    """The peer's figure, and the ratio to ours."""
    if name not in line.peers:
        return ["", ""]
    peer_figure = line.peers[name]
    times = peer_figure / line.figure if line.falling else line.figure / peer_figure
    return [format_number(peer_figure), f"{times:.1f}"]
