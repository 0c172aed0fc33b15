"""Readings of single rounds, and the arithmetic on them. Pure functions, so that tests can look at each.

A round of ours and the round of the ceiling right after it saw nearly the same machine, so the share is taken from each
such pair, and the median of these counts. A neighbour on the machine then spoils a pair and not the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median


@dataclass(frozen=True, slots=True)
class Reading:
    """One round at one server."""

    figure: float
    """What the row is about, in its own unit."""
    p99_ms: float | None
    """All but the slowest percent took no longer, where answers are timed one by one."""
    cpu_us: float
    """Processor time of the server for each answer or event, in microseconds."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A row's rounds, ours and the ceiling's, in pairs. `falling` figures (delays) are better when they are small."""

    name: str
    unit: str
    falling: bool
    ours: Sequence[Reading]
    ceiling: Sequence[Reading]

    @property
    def shares(self) -> list[float]:
        """How much of the ceiling each round reached: 1.0 is all of it, whichever way the figure runs."""
        pairs = zip(self.ours, self.ceiling, strict=True)
        return [share(ours.figure, ceiling.figure, self.falling) for ours, ceiling in pairs]

    @property
    def share(self) -> float:
        return median(self.shares)

    @property
    def cpu_share(self) -> float:
        """How much of the server's work the ceiling has to do as well. Neighbours on the machine disturb it little."""
        pairs = zip(self.ours, self.ceiling, strict=True)
        return median(share(ours.cpu_us, ceiling.cpu_us, falling=True) for ours, ceiling in pairs)


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory in bytes: with the seeded objects alone, and after everything that the run did."""

    seeded: int
    finished: int
    ceiling: int


def share(ours: float, ceiling: float, falling: bool = False) -> float:
    return ceiling / ours if falling else ours / ceiling


def middle(readings: Sequence[Reading]) -> Reading:
    """Each figure's own median."""
    timed = [reading.p99_ms for reading in readings if reading.p99_ms is not None]
    return Reading(
        figure=median(reading.figure for reading in readings),
        p99_ms=median(timed) if timed else None,
        cpu_us=median(reading.cpu_us for reading in readings),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that at least so many percent of them do not exceed."""
    if not values:
        raise ValueError("a percentile of nothing")
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]
