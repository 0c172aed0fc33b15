"""Counts by size. Filled on the event loop, read when somebody asks for metrics."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence


class Histogram:
    """How many values were how large. `counts` has one place for each bound, and one for what is above all of them."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def copy(self) -> "Histogram":
        """One that stays as it is, for whoever reads it in another thread."""
        found = Histogram(())
        found.bounds, found.counts, found.sum = self.bounds, self.counts.copy(), self.sum
        return found

    def within(self, bounds: Sequence[float]) -> "Histogram":
        """The same values by fewer bounds, each of which is one of these."""
        found = Histogram(bounds)
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            found.counts[bisect_left(bounds, bound)] += count
        found.sum = self.sum
        return found


def merged(histograms: Iterable[Histogram], bounds: Sequence[float]) -> Histogram:
    """The values of all of them together."""
    total = Histogram(bounds)
    for each in histograms:
        part = each.within(bounds)
        total.counts = [one + other for one, other in zip(total.counts, part.counts, strict=True)]
        total.sum += part.sum
    return total
