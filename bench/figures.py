"""Readings of single rounds, and the arithmetic on them. Pure functions, so that tests can look at each.

A round of ours and the round of the ceiling right after it saw nearly the same machine, so the share is taken from each
such pair, and the median of these counts. Other load on the machine then affects a pair and not the result.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median

from bench.aims import Aim, PairMedians, PeerAim


@dataclass(frozen=True, slots=True)
class Reading:
    """One round at one server."""

    figure: float
    """The value in the row's unit."""
    p99_ms: float | None
    """The 99th percentile of latencies, where responses are timed individually."""
    cpu_us: float | None
    """Processor time of the server per response or event in microseconds, where it is known."""
    load_busy: float | None = None
    """The share of time in which the load generator was busy. Near 1, the generator limits the figure."""
    p50_ms: float | None = None
    """The median of latencies."""
    max_ms: float | None = None
    """The longest latency."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A row's rounds, ours and the ceiling's, in pairs. `falling` figures (delays) are better when they are small."""

    name: str
    unit: str
    falling: bool
    ours: Sequence[Reading]
    ceiling: Sequence[Reading]
    """Empty for a row that is the ceiling of others."""
    aim: Aim | None = None
    peers: Mapping[str, Sequence[Reading]] = field(default_factory=dict)
    peer_aim: PeerAim | None = None

    @property
    def shares(self) -> list[float]:
        """How much of the ceiling each round reached: 1.0 is all of it, whichever way the figure runs."""
        return compute_shares(self.ours, self.ceiling, self.falling) if self.ceiling else []

    @property
    def share(self) -> float | None:
        return _median(self.shares)

    @property
    def cpu_share(self) -> float | None:
        """How much of the server's work the ceiling does as well. Other load on the machine affects it little."""
        return compute_cpu_share(self.ours, self.ceiling) if self.ceiling else None

    @property
    def pair_medians(self) -> PairMedians:
        pairs = zip(self.ours, self.ceiling, strict=True) if self.ceiling else ()
        difference = _median(ours.figure - ceiling.figure for ours, ceiling in pairs)
        return PairMedians(self.share, self.cpu_share, difference)


@dataclass(frozen=True, slots=True)
class Single:
    """A figure without a ceiling: memory, and the duration of a start."""

    name: str
    unit: str
    figure: float
    aim: Aim | None = None
    peers: Mapping[str, float] = field(default_factory=dict)
    peer_aim: PeerAim | None = None


def share(ours: float, ceiling: float, falling: bool = False) -> float:
    return ceiling / ours if falling else ours / ceiling


def compute_shares(ours: Sequence[Reading], others: Sequence[Reading], falling: bool) -> list[float]:
    """The share of each pair of rounds."""
    pairs = zip(ours, others, strict=True)
    return [share(mine.figure, other.figure, falling) for mine, other in pairs]


def compute_cpu_share(ours: Sequence[Reading], others: Sequence[Reading]) -> float | None:
    """The processor time of the others' rounds divided by that of ours: the median of the pairs."""
    pairs = [(mine.cpu_us, other.cpu_us) for mine, other in zip(ours, others, strict=True)]
    # A short round may be over before the system's clock of processor time has ticked.
    return _median(share(mine, other, falling=True) for mine, other in pairs if mine and other is not None)


def compute_median(readings: Sequence[Reading]) -> Reading:
    """Each figure's own median, and the longest of all latencies."""
    return Reading(
        figure=median(reading.figure for reading in readings),
        p99_ms=_median(reading.p99_ms for reading in readings),
        cpu_us=_median(reading.cpu_us for reading in readings),
        load_busy=_median(reading.load_busy for reading in readings),
        p50_ms=_median(reading.p50_ms for reading in readings),
        max_ms=max((reading.max_ms for reading in readings if reading.max_ms is not None), default=None),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least this percentage of the values do not exceed."""
    if not values:
        raise ValueError("no values for a percentile")
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]
