"""The lines of the result with their aims, for the table, the file and the chart."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bench.aims import ENOUGH_MS, Aim, Of
from bench.figures import Compared, Single, compute_median
from bench.rows import GET
from bench.run import Result

BUSY = 0.9
"""A load generator that is busier than this may limit a figure."""


@dataclass(frozen=True, slots=True)
class Line:
    """`target` is the aim in the line's own unit. `limited`: the ceiling may be the load generator's."""

    name: str
    unit: str
    figure: float
    aim: str = ""
    target: float | None = None
    met: bool | None = None
    ceiling: float | None = None
    share: float | None = None
    spread: tuple[float, float] | None = None
    p99_ms: float | None = None
    cpu_us: float | None = None
    cpu_share: float | None = None
    limited: bool = False
    falling: bool = False
    bare: bool = True
    """Whether the ceiling is the bare handler."""
    peers: Mapping[str, float] = field(default_factory=dict)


def lines(result: Result) -> list[Line]:
    get_ceiling = next((compute_median(row.ceiling).figure for row in result.rows if row.name == GET.name), None)
    compared = [_build_compared_line(row, get_ceiling) for row in result.rows]
    grown = [replace(_build_compared_line(row, None), bare=False) for row in result.grown]
    beside = [replace(_build_compared_line(row, None), bare=False) for row in result.beside]
    return [*compared, *grown, *beside, *map(_build_single_line, result.singles)]


def list_missed_fairness(result: Result, result_lines: Sequence[Line]) -> list[str]:
    """The fairness rows that missed their aim; none in a quick run."""
    names = {row.name for row in result.beside}
    return (
        [] if result.scale.quick else [line.name for line in result_lines if line.name in names and line.met is False]
    )


def _build_compared_line(row: Compared, get_ceiling: float | None) -> Line:
    ours, ceiling = compute_median(row.ours), compute_median(row.ceiling)
    target = row.aim.target(ceiling.figure, get_ceiling) if row.aim else None
    return Line(
        name=row.name,
        unit=row.unit,
        figure=ours.figure,
        aim=_format_aim(row.aim),
        target=target,
        met=row.aim.met(ours.figure, row.share, target) if row.aim else None,
        ceiling=ceiling.figure,
        share=row.share,
        spread=(min(row.shares), max(row.shares)),
        p99_ms=ours.p99_ms,
        cpu_us=ours.cpu_us,
        cpu_share=row.cpu_share,
        limited=(ceiling.load_busy or 0) > BUSY,
        falling=row.falling,
        peers={name: compute_median(readings).figure for name, readings in row.peers.items()},
    )


def _build_single_line(result_lines: Single) -> Line:
    target = result_lines.aim.target(None, None) if result_lines.aim else None
    met = result_lines.aim.met(result_lines.figure, None, target) if result_lines.aim else None
    return Line(
        result_lines.name,
        result_lines.unit,
        result_lines.figure,
        _format_aim(result_lines.aim),
        target,
        met,
        falling=True,
    )


def _format_aim(aim: Aim | None) -> str:
    if aim is None:
        return ""
    if aim.of in (Of.CEILING, Of.GET_CEILING):
        return f"{format_percent(aim.value)} {aim.of.value}"
    if aim.of is Of.ALONE:
        return f"{aim.value:.0f} {aim.of.value}, or {ENOUGH_MS:.0f} ms"
    return f"{aim.of.value} {format_number(aim.value)}"


def format_percent(share: float) -> str:
    """Formats a share with two significant digits."""
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"


def format_number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def build_document(result: Result, result_lines: Sequence[Line]) -> dict[str, Any]:
    """All readings of all rounds, and the lines that follow from them."""
    return asdict(result) | {"lines": [asdict(line) for line in result_lines]}
