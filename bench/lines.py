"""The lines of the result with their aims, for the table, the file and the chart."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from bench.aims import ENOUGH_MS, Aim, Of, PairMedians, PeerAim
from bench.figures import Compared, Reading, Single, compute_cpu_share, compute_median, compute_shares, share
from bench.rows import GET
from bench.run import Result

BUSY = 0.9
"""A load generator that is busier than this may limit a figure."""


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """The figures of a peer. `times`: how many times better ours are, as the medians of the pairs of rounds."""

    figure: float
    times: float
    met: bool | None = None
    """Whether we reach the aim beside this peer."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    cpu_us: float | None = None
    cpu_times: float | None = None


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
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    cpu_us: float | None = None
    cpu_share: float | None = None
    limited: bool = False
    falling: bool = False
    bare: bool = True
    """Whether the ceiling is the bare handler."""
    peer_aim: str = ""
    peers: Mapping[str, PeerFigures] = field(default_factory=dict)


def lines(result: Result) -> list[Line]:
    get_ceiling = next((compute_median(row.ceiling).figure for row in result.rows if row.name == GET.name), None)
    compared = [_build_compared_line(row, get_ceiling) for row in result.rows]
    own_rows = (*result.workers, *result.grown, *result.beside)
    own = [replace(_build_compared_line(row, None), bare=False) for row in own_rows]
    return [*compared, *own, *map(_build_single_line, result.singles)]


def list_missed_fairness(result: Result, result_lines: Sequence[Line]) -> list[str]:
    """The fairness rows that missed their aim; none in a quick run."""
    names = {row.name for row in result.beside}
    return (
        [] if result.scale.quick else [line.name for line in result_lines if line.name in names and line.met is False]
    )


def _build_compared_line(row: Compared, get_ceiling: float | None) -> Line:
    ours = compute_median(row.ours)
    ceiling = compute_median(row.ceiling) if row.ceiling else None
    ceiling_figure = ceiling.figure if ceiling else None
    target = row.aim.target(ceiling_figure, get_ceiling) if row.aim else None
    return Line(
        name=row.name,
        unit=row.unit,
        figure=ours.figure,
        aim=_format_aim(row.aim),
        target=target,
        met=row.aim.met(ours.figure, target, row.pair_medians) if row.aim else None,
        ceiling=ceiling_figure,
        share=row.share,
        spread=(min(row.shares), max(row.shares)) if row.shares else None,
        p50_ms=ours.p50_ms,
        p99_ms=ours.p99_ms,
        max_ms=ours.max_ms,
        cpu_us=ours.cpu_us,
        cpu_share=row.cpu_share,
        limited=ceiling is not None and (ceiling.load_busy or 0) > BUSY,
        falling=row.falling,
        peer_aim=_format_peer_aim(row.peer_aim, row.falling),
        peers={name: _build_peer_figures(row, readings) for name, readings in row.peers.items()},
    )


def _build_peer_figures(row: Compared, readings: Sequence[Reading]) -> PeerFigures:
    peer = compute_median(readings)
    times = median(compute_shares(row.ours, readings, row.falling))
    cpu_times = compute_cpu_share(row.ours, readings)
    met = row.peer_aim.met(times, cpu_times) if row.peer_aim else None
    return PeerFigures(
        figure=peer.figure,
        times=times,
        met=met,
        p50_ms=peer.p50_ms,
        p99_ms=peer.p99_ms,
        max_ms=peer.max_ms,
        cpu_us=peer.cpu_us,
        cpu_times=cpu_times,
    )


def _build_single_line(single: Single) -> Line:
    target = single.aim.target(None, None) if single.aim else None
    return Line(
        name=single.name,
        unit=single.unit,
        figure=single.figure,
        aim=_format_aim(single.aim),
        target=target,
        met=single.aim.met(single.figure, target, PairMedians()) if single.aim else None,
        falling=True,
        peer_aim=_format_peer_aim(single.peer_aim, falling=True),
        peers={name: _compare_with_peer(single, figure) for name, figure in single.peers.items()},
    )


def _compare_with_peer(single: Single, figure: float) -> PeerFigures:
    times = share(single.figure, figure, falling=True)
    return PeerFigures(figure, times, single.peer_aim.met(times, None) if single.peer_aim else None)


def _format_aim(aim: Aim | None) -> str:
    if aim is None:
        return ""
    if aim.of in (Of.CEILING, Of.GET_CEILING):
        return f"{format_percent(aim.value)} {aim.of.value}"
    if aim.of is Of.ALONE:
        return f"{aim.value:.0f} {aim.of.value}, or {ENOUGH_MS:.0f} ms"
    if aim.of is Of.ABOVE:
        return f"at most {aim.value:.0f} {aim.of.value} it"
    if aim.of is Of.CPU:
        return f"at most {aim.value:.1f} {aim.of.value}"
    return f"{aim.of.value} {format_number(aim.value)}"


def _format_peer_aim(aim: PeerAim | None, falling: bool) -> str:
    if aim is None:
        return ""
    by_figure = "" if aim.figure is None else f"1/{aim.figure:.0f}" if falling else f"{aim.figure:.0f} times"
    by_cpu = "" if aim.cpu is None else f"1/{aim.cpu:.0f} of its CPU"
    return " or ".join(filter(None, (by_figure, by_cpu)))


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
