"""The result as a table for people."""

from collections.abc import Sequence

from rich.table import Table

from bench.lines import Line, number, percent
from bench.run import Result

HEADINGS = ("fairlead", "ceiling", "of ceiling", "aim", "is", "met", "p99", "CPU", "CPU of ceiling")


def table(result: Result, lines: Sequence[Line]) -> Table:
    made = Table(title=f"{result.when:%Y-%m-%d}, {result.machine}", title_justify="left", caption_justify="left")
    made.caption = _caption(result, lines)
    peers = list(dict.fromkeys(name for line in lines for name in line.peers))
    made.add_column("")
    for heading in (*HEADINGS, *(heading for name in peers for heading in (name, "times"))):
        made.add_column(heading, justify="right")
    for line in lines:
        made.add_row(*_cells(line), *(cell for name in peers for cell in _peer_cells(line, name)))
    return made


def _caption(result: Result, lines: Sequence[Line]) -> str:
    scale = result.scale
    size = f"; {result.object_bytes} bytes an object" if result.object_bytes else ""
    told = [f"medians of {scale.rounds} rounds of {scale.seconds} s in turn over TLS{size}"]
    if scale.quick:
        told.append("quick: it shows that the benchmark works; none of its figures count")
    if any(line.limited for line in lines):
        told.append("* the load generator was busy all the time: the true ceiling may be higher")
    return "\n".join(told)


def _cells(line: Line) -> list[str]:
    mark = "*" if line.limited else ""
    spread = f" ({percent(line.spread[0])} to {percent(line.spread[1])})" if line.spread else ""
    return [
        f"{line.name}, {line.unit}",
        number(line.figure),
        "" if line.ceiling is None else f"{number(line.ceiling)}{mark}",
        "" if line.share is None else f"{percent(line.share)}{spread}",
        line.aim,
        "" if line.target is None else number(line.target),
        "" if line.met is None else "yes" if line.met else "NO",
        "" if line.p99_ms is None else f"{line.p99_ms:.1f} ms",
        "" if line.cpu_us is None else f"{line.cpu_us:,.0f} µs",
        "" if line.cpu_share is None else percent(line.cpu_share),
    ]


def _peer_cells(line: Line, name: str) -> list[str]:
    """The peer's figure, and how many times as good ours is."""
    if name not in line.peers:
        return ["", ""]
    theirs = line.peers[name]
    times = theirs / line.figure if line.falling else line.figure / theirs
    return [number(theirs), f"{times:.1f}"]
