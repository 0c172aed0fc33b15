"""The aims of figures, and whether they are met. Rows name their aims; `lines.py` evaluates them.

An aim is a share of the ceiling of this machine in the same run wherever there is such a figure, so that
it means the same on every machine.
"""

from dataclasses import dataclass
from enum import StrEnum


class Of(StrEnum):
    CEILING = "of its ceiling"
    GET_CEILING = "of the ceiling of GET"
    AT_LEAST = "at least"
    AT_MOST = "at most"
    ALONE = "times alone"
    ABOVE = "ms above"
    CPU = "times the CPU"


ENOUGH_MS = 50.0
"""Not noticeable: a latency under attack below this is fine, whatever it is alone."""


@dataclass(frozen=True, slots=True)
class Aim:
    """A value, and what it refers to."""

    of: Of
    value: float

    def target(self, ceiling: float | None, get_ceiling: float | None) -> float | None:
        """The aim in the row's own unit; None where the run has not measured what it is a share of."""
        if self.of is Of.CEILING:
            return None if ceiling is None else self.value * ceiling
        if self.of is Of.GET_CEILING:
            return None if get_ceiling is None else self.value * get_ceiling
        if self.of is Of.ALONE:
            return None if ceiling is None else max(self.value * ceiling, ENOUGH_MS)
        if self.of is Of.ABOVE:
            return None if ceiling is None else ceiling + self.value
        return None if self.of is Of.CPU else self.value

    def met(self, figure: float, target: float | None, pairs: "PairMedians") -> bool | None:
        """None where it is unknown."""
        if self.of is Of.CEILING:
            return None if pairs.share is None else pairs.share >= self.value
        if self.of is Of.CPU:
            return None if pairs.cpu_share is None else pairs.cpu_share * self.value >= 1
        if self.of is Of.ABOVE:
            return None if pairs.difference is None else pairs.difference <= self.value
        if target is None:
            return None
        return figure <= target if self.of in (Of.AT_MOST, Of.ALONE) else figure >= target


@dataclass(frozen=True, slots=True)
class PairMedians:
    """Medians of pairs of rounds, ours and the ceiling's: other load of the machine affects both of a pair."""

    share: float | None = None
    cpu_share: float | None = None
    difference: float | None = None
    """Our figure minus the ceiling's."""


@dataclass(frozen=True, slots=True)
class PeerAim:
    """How many times better than a peer a row should be: by its figure or by its processor time. None: not by that."""

    figure: float | None
    cpu: float | None

    def met(self, times: float, cpu_times: float | None) -> bool | None:
        """Whether either is reached. None where it is unknown."""
        pairs = [(wanted, value) for wanted, value in ((self.figure, times), (self.cpu, cpu_times)) if wanted]
        if any(value is not None and value >= wanted for wanted, value in pairs):
            return True
        return None if any(value is None for _, value in pairs) else False


PEER_RATE = PeerAim(figure=10, cpu=10)
PEER_CPU = PeerAim(figure=None, cpu=12)
"""For the most frequent requests. It implies the other."""
PEER_MEMORY = PeerAim(figure=5, cpu=None)


def at_least(value: float) -> Aim:
    return Aim(Of.AT_LEAST, value)


def at_most(value: float) -> Aim:
    return Aim(Of.AT_MOST, value)


def of_ceiling(share: float) -> Aim:
    return Aim(Of.CEILING, share)


def of_get_ceiling(share: float) -> Aim:
    return Aim(Of.GET_CEILING, share)


def times_alone(times: float = 3.0) -> Aim:
    """At most this many times the value alone, or not noticeable."""
    return Aim(Of.ALONE, times)


def above_ceiling(milliseconds: float) -> Aim:
    """At most this many milliseconds more than the ceiling, which is the same without the load."""
    return Aim(Of.ABOVE, milliseconds)


def times_cpu(times: float) -> Aim:
    """At most this many times the processor time of the ceiling, which is another server of ours."""
    return Aim(Of.CPU, times)
