"""The tables of the result: one beside the ceiling, and one beside each peer, for terminals and for documents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from bench.lines import Line, PeerFigures, format_number, format_percent
from bench.run import Result

HEADINGS = (
    *("", "fairlead", "ceiling", "of ceiling", "aim", "is", "met"),
    *("p50", "p99", "max", "CPU", "CPU of ceiling"),
)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of texts. The first column has the names of the rows."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def build_tables(result: Result, lines: Sequence[Line]) -> Iterator[Table]:
    """Builds the tables for terminals."""
    yield _render(build_grid(lines), f"{result.when:%Y-%m-%d}, {result.machine}", _caption(result, lines))
    for name in list_peers(lines):
        yield _render(build_peer_grid(lines, name), f"beside {name}, in the same run", "")


def list_peers(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(name for line in lines for name in line.peers))


def build_grid(lines: Sequence[Line]) -> Grid:
    """Every line beside its ceiling and its aim."""
    return Grid(HEADINGS, [_build_cells(line) for line in lines])


def build_peer_grid(lines: Sequence[Line], name: str) -> Grid:
    """The lines that were measured at this peer, too."""
    ours = ("fairlead p50", "fairlead p99", f"{name} p50", f"{name} p99", "fairlead CPU", f"{name} CPU")
    headings = ("", "fairlead", name, "times", *ours, "times less CPU", "aim", "met")
    return Grid(headings, [_build_peer_cells(line, line.peers[name]) for line in lines if name in line.peers])


def _render(grid: Grid, title: str, caption: str) -> Table:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for heading in grid.headings:
        table.add_column(heading, justify="right" if heading else "left")
    for row in grid.rows:
        table.add_row(*row)
    return table


def _caption(result: Result, lines: Sequence[Line]) -> str:
    scale = result.scale
    size = f"; {result.object_bytes} bytes an object" if result.object_bytes else ""
    caption = [f"medians of {scale.rounds} rounds of {scale.seconds} s in turn over TLS{size}"]
    if scale.quick:
        caption.append("quick: it shows that the benchmark works; none of its figures count")
    if any(line.limited for line in lines):
        caption.append("* the load generator was busy all the time: the true ceiling may be higher")
    return "\n".join(caption)


def _build_cells(line: Line) -> list[str]:
    mark = "*" if line.limited else ""
    spread = f" ({format_percent(line.spread[0])} to {format_percent(line.spread[1])})" if line.spread else ""
    return [
        _name_line(line),
        format_number(line.figure),
        "" if line.ceiling is None else f"{format_number(line.ceiling)}{mark}",
        "" if line.share is None else f"{format_percent(line.share)}{spread}",
        line.aim,
        "" if line.target is None else format_number(line.target),
        _format_verdict(line.met),
        _format_ms(line.p50_ms),
        _format_ms(line.p99_ms),
        _format_ms(line.max_ms),
        _format_us(line.cpu_us),
        "" if line.cpu_share is None else format_percent(line.cpu_share),
    ]


def _build_peer_cells(line: Line, peer: PeerFigures) -> list[str]:
    return [
        _name_line(line),
        format_number(line.figure),
        format_number(peer.figure),
        f"{peer.times:.1f}",
        *(_format_ms(latency) for latency in (line.p50_ms, line.p99_ms, peer.p50_ms, peer.p99_ms)),
        _format_us(line.cpu_us),
        _format_us(peer.cpu_us),
        "" if peer.cpu_times is None else f"{peer.cpu_times:.1f}",
        line.peer_aim,
        _format_verdict(peer.met),
    ]


def _name_line(line: Line) -> str:
    return f"{line.name}, {line.unit}"


def _format_verdict(met: bool | None) -> str:
    return "" if met is None else "yes" if met else "NO"


def _format_ms(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:.1f} ms"


def _format_us(microseconds: float | None) -> str:
    return "" if microseconds is None else f"{microseconds:,.0f} µs"
