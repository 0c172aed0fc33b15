"""Metric families, the histograms they contain, and their exposition as text by prometheus-client.

The library renders the two text formats. Requests are not counted by it but by `stage.py`, which is cheaper.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import Metric, Sample
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector


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
CONTENT_TYPES = {TEXT: CONTENT_TYPE_PLAIN_0_0_4, OPEN_METRICS: openmetrics.CONTENT_TYPE_LATEST}
COUNTER, GAUGE = "counter", "gauge"
SUM, MAXIMUM, MINIMUM, PER_WORKER = "sum", "maximum", "minimum", "per worker"
"""How the values of several worker processes become one page: as one series, or with a label of the worker."""

# All our names are valid in every escaping scheme. The default one of OpenMetrics is slow: it checks each character.
_RENDERERS: Mapping[str, Callable[[Collector], bytes]] = {
    TEXT: generate_latest,
    OPEN_METRICS: partial(openmetrics.generate_latest, escaping=openmetrics.ALLOWUTF8),
}


@dataclass(frozen=True, slots=True)
class Family:
    """A counter or gauge with all its series. The name of a counter ends in `_total`."""

    name: str
    type: str
    help: str
    labels: Sequence[str]
    """The names of the labels."""
    series: Iterable[tuple[Sequence[str], float]]
    """The values of the labels, and the value of the series.

    Read once, in another thread: a finished list, or a generator over data that no longer changes.
    """
    aggregation: str = SUM
    """How the values of several worker processes are combined."""


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    """A histogram with all its series. The fields are those of Family."""

    name: str
    help: str
    labels: Sequence[str]
    series: Iterable[tuple[Sequence[str], Histogram]]


MetricFamily = Family | HistogramFamily


def single_value(name: str, type: str, help: str, value: float, aggregation: str = SUM) -> Family:
    """A counter or gauge without labels."""
    return Family(name=name, type=type, help=help, labels=(), series=[((), value)], aggregation=aggregation)


def single_histogram(name: str, help: str, histogram: Histogram) -> HistogramFamily:
    """A histogram without labels. Its content is copied."""
    return HistogramFamily(name, help, (), [((), histogram.copy())])


def render_families(families: Iterable[MetricFamily], media_type: str) -> bytes:
    """All families as one response body."""
    return _RENDERERS[media_type](_Families(families, media_type == OPEN_METRICS))


class _Families(Collector):
    """The families as the library's renderers read them."""

    def __init__(self, families: Iterable[MetricFamily], is_open_metrics: bool) -> None:
        self._families = families
        self._is_open_metrics = is_open_metrics

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            if isinstance(family, HistogramFamily):
                metric = Metric(family.name, family.help, "histogram")
                samples = _histogram_samples(family, self._is_open_metrics)
            else:
                metric = Metric(family.name.removesuffix("_total"), family.help, family.type)
                samples = _samples(family)
            # The renderers read it once. A list of all samples of a large family would take tens of megabytes.
            metric.samples = samples  # type: ignore[assignment]
            yield metric


def _samples(family: Family) -> Iterator[Sample]:
    for labels, value in family.series:
        yield Sample(family.name, dict(zip(family.labels, labels, strict=True)), value)


def _histogram_samples(family: HistogramFamily, is_open_metrics: bool) -> Iterator[Sample]:
    name = family.name
    for label_values, histogram in family.series:
        labels = dict(zip(family.labels, label_values, strict=True))
        bounds = _format_bounds(tuple(histogram.bounds), is_open_metrics)
        for bound, count in zip(bounds, accumulate(histogram.counts), strict=True):
            yield Sample(f"{name}_bucket", {**labels, "le": bound}, count)
        yield Sample(f"{name}_count", labels, sum(histogram.counts))
        yield Sample(f"{name}_sum", labels, histogram.sum)


@lru_cache(maxsize=16)
def _format_bounds(bounds: tuple[float, ...], is_open_metrics: bool) -> tuple[str, ...]:
    """The `le` labels, formatted as Go does in each format: dashboards compare them as strings."""
    texts = [f"{bound:g}" for bound in bounds]
    if is_open_metrics:
        texts = [text if "." in text or "e" in text else f"{text}.0" for text in texts]
    return (*texts, "+Inf")
