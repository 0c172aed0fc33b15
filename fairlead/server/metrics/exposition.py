"""Families of metrics as text: Prometheus' own format, and OpenMetrics for those who ask for it."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

# DOC-MERGED server/metrics/histogram
# Counts by size. Filled on the event loop, read when somebody asks for metrics.


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


TEXT, OPEN_METRICS = "text/plain", "application/openmetrics-text"
CONTENT_TYPES = {
    TEXT: f"{TEXT}; version=0.0.4; charset=utf-8",
    OPEN_METRICS: f"{OPEN_METRICS}; version=1.0.0; charset=utf-8",
}
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[str, float | Histogram]
"""What `labelled` makes of labels, and the value: a Histogram in families of that type."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series. The name of a counter ends in `_total`."""

    name: str
    type: str
    help: str
    samples: Iterable[Sample]
    """Read once, and in another thread: either finished, or worked out from what does not change any more."""


def labelled(labels: Mapping[str, str]) -> str:
    """Labels as they stand between braces."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def rendered(families: Iterable[Family], media_type: str) -> bytes:
    """All of them as one page."""
    is_open = media_type == OPEN_METRICS
    lines = [line for family in families for line in _lines(family, is_open)]
    if is_open:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def _lines(family: Family, is_open: bool) -> Iterator[str]:
    # OpenMetrics names a counter without its suffix.
    title = family.name.removesuffix("_total") if is_open and family.type == COUNTER else family.name
    yield f"# HELP {title} {family.help}"
    yield f"# TYPE {title} {family.type}"
    for labels, value in family.samples:
        if isinstance(value, Histogram):
            yield from _histogram_lines(family.name, labels, value, is_open)
        else:
            yield f"{family.name}{{{labels}}} {value!r}" if labels else f"{family.name} {value!r}"


def _histogram_lines(name: str, labels: str, histogram: Histogram, is_open: bool) -> Iterator[str]:
    before = f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{"
    so_far = 0
    for bound, count in zip(_bounds(tuple(histogram.bounds), is_open), histogram.counts, strict=True):
        so_far += count
        yield f'{before}le="{bound}"}} {so_far}'
    braces = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{braces} {histogram.sum!r}"
    yield f"{name}_count{braces} {so_far}"


@lru_cache(maxsize=16)
def _bounds(bounds: tuple[float, ...], is_open: bool) -> tuple[str, ...]:
    """As Go writes them in each of the formats: dashboards compare the texts."""
    texts = [f"{bound:g}" for bound in bounds]
    if is_open:
        texts = [text if "." in text or "e" in text else f"{text}.0" for text in texts]
    return (*texts, "+Inf")
