"""Metric families as text, in the Prometheus format or OpenMetrics, and the histograms they contain."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache


class Histogram:
    """A histogram, filled on the event loop. `counts` has one entry for each bound, and one for values above them."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def copy(self) -> "Histogram":
        """A snapshot that another thread can read."""
        snapshot = Histogram(())
        snapshot.bounds, snapshot.counts, snapshot.sum = self.bounds, self.counts.copy(), self.sum
        return snapshot

    def rebucket(self, bounds: Sequence[float]) -> "Histogram":
        """The same values in fewer buckets. `bounds` must be a subset of the histogram's own."""
        result = Histogram(bounds)
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            result.counts[bisect_left(bounds, bound)] += count
        result.sum = self.sum
        return result


def merge_histograms(histograms: Iterable[Histogram], bounds: Sequence[float]) -> Histogram:
    """The sum of several histograms."""
    total = Histogram(bounds)
    for each in histograms:
        part = each.rebucket(bounds)
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
"""The labels as formatted by `format_labels`, and the value: a Histogram in families of that type."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with all its series. The name of a counter ends in `_total`."""

    name: str
    type: str
    help: str
    samples: Iterable[Sample]
    """Read once, in another thread: a finished list, or a generator over data that no longer changes."""


def format_labels(labels: Mapping[str, str]) -> str:
    """Labels as text, without the braces."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def render_families(families: Iterable[Family], media_type: str) -> bytes:
    """All families as one response body."""
    is_open = media_type == OPEN_METRICS
    lines = [line for family in families for line in _family_lines(family, is_open)]
    if is_open:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def _family_lines(family: Family, is_open_metrics: bool) -> Iterator[str]:
    # OpenMetrics omits the suffix of a counter in HELP and TYPE.
    title = family.name.removesuffix("_total") if is_open_metrics and family.type == COUNTER else family.name
    yield f"# HELP {title} {family.help}"
    yield f"# TYPE {title} {family.type}"
    for labels, value in family.samples:
        if isinstance(value, Histogram):
            yield from _histogram_lines(family.name, labels, value, is_open_metrics)
        else:
            yield f"{family.name}{{{labels}}} {value!r}" if labels else f"{family.name} {value!r}"


def _histogram_lines(name: str, labels: str, histogram: Histogram, is_open_metrics: bool) -> Iterator[str]:
    prefix = f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{"
    cumulative = 0
    for bound, count in zip(_format_bounds(tuple(histogram.bounds), is_open_metrics), histogram.counts, strict=True):
        cumulative += count
        yield f'{prefix}le="{bound}"}} {cumulative}'
    braces = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{braces} {histogram.sum!r}"
    yield f"{name}_count{braces} {cumulative}"


@lru_cache(maxsize=16)
def _format_bounds(bounds: tuple[float, ...], is_open_metrics: bool) -> tuple[str, ...]:
    """The `le` labels, formatted as Go does in each format: dashboards compare them as strings."""
    texts = [f"{bound:g}" for bound in bounds]
    if is_open_metrics:
        texts = [text if "." in text or "e" in text else f"{text}.0" for text in texts]
    return (*texts, "+Inf")
