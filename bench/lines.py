"""The result line by line, each beside its aim: what the table prints, the file keeps and the chart draws."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bench.aims import ENOUGH_MS, Aim, Of
from bench.figures import Compared, Single, middle
from bench.rows import GET
from bench.run import Result

BUSY = 0.9
"""A load generator that is busy more of the time than this may be what a figure shows."""


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
    """Whether what stands in the ceiling's place is the bare handler."""
    peers: Mapping[str, float] = field(default_factory=dict)


def lines(result: Result) -> list[Line]:
    get_ceiling = next((middle(row.ceiling).figure for row in result.rows if row.name == GET.name), None)
    compared = [_compared(row, get_ceiling) for row in result.rows]
    grown = [replace(_compared(row, None), bare=False) for row in result.grown]
    beside = [replace(_compared(row, None), bare=False) for row in result.beside]
    return [*compared, *grown, *beside, *map(_single, result.singles)]


def missed_fairness(result: Result, found: Sequence[Line]) -> list[str]:
    """The rows of neighbours whose bound was missed; none in a run whose figures do not count."""
    names = {row.name for row in result.beside}
    return [] if result.scale.quick else [line.name for line in found if line.name in names and line.met is False]


def _compared(row: Compared, get_ceiling: float | None) -> Line:
    ours, ceiling = middle(row.ours), middle(row.ceiling)
    target = row.aim.target(ceiling.figure, get_ceiling) if row.aim else None
    return Line(
        name=row.name,
        unit=row.unit,
        figure=ours.figure,
        aim=_told(row.aim),
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
        peers={name: middle(readings).figure for name, readings in row.peers.items()},
    )


def _single(found: Single) -> Line:
    target = found.aim.target(None, None) if found.aim else None
    met = found.aim.met(found.figure, None, target) if found.aim else None
    return Line(found.name, found.unit, found.figure, _told(found.aim), target, met, falling=True)


def _told(aim: Aim | None) -> str:
    if aim is None:
        return ""
    if aim.of in (Of.CEILING, Of.GET_CEILING):
        return f"{percent(aim.value)} {aim.of.value}"
    if aim.of is Of.ALONE:
        return f"{aim.value:.0f} {aim.of.value}, or {ENOUGH_MS:.0f} ms"
    return f"{aim.of.value} {number(aim.value)}"


def percent(share: float) -> str:
    """Two digits that mean something: small shares are where there is most to win."""
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"


def number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def document(result: Result, found: Sequence[Line]) -> dict[str, Any]:
    """All readings of all rounds, and the lines that follow from them."""
    return asdict(result) | {"lines": [asdict(line) for line in found]}
