"""Metrics of several worker processes as one page: encoding for the way between processes, and merging.

A worker encodes its families (`encode_families`); the worker that serves `/metrics` merges those of all
(`merge_pages`). Each family has a rule for that (`Family.aggregation`), and histograms are always added.

A counter must never decrease, because Prometheus takes that for a restart and counts everything again. So the last
pages of workers that have ended stay part of the sums, merged into one by `merge_ended`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from fairlead.server.metrics.exposition import (
    GAUGE,
    MAXIMUM,
    MINIMUM,
    PER_WORKER,
    SUM,
    Family,
    Histogram,
    HistogramFamily,
    MetricFamily,
)

WORKER_LABEL = "worker"
HISTOGRAM = "histogram"

_COMBINE: Mapping[str, Callable[[float, float], float]] = {
    SUM: lambda one, other: one + other,
    MAXIMUM: max,
    MINIMUM: min,
}

Labels = tuple[str, ...]


def encode_families(worker: str, families: Iterable[MetricFamily]) -> bytes:
    """The families of one worker. Reads their series, so call it in the thread that would render them."""
    return orjson.dumps({"worker": worker, "families": [_encode_family(family) for family in families]})


def _encode_family(family: MetricFamily) -> list[Any]:
    if isinstance(family, HistogramFamily):
        series = [(labels, each.bounds, each.counts, each.sum) for labels, each in family.series]
        return [family.name, HISTOGRAM, family.help, family.labels, SUM, series]
    return [family.name, family.type, family.help, family.labels, family.aggregation, list(family.series)]


@dataclass(slots=True)
class _MergedFamily:
    """A family with the series of all workers so far."""

    name: str
    type: str
    help: str
    labels: Sequence[str]
    aggregation: str
    values: dict[Labels, float] = field(default_factory=dict)
    histograms: dict[Labels, Histogram] = field(default_factory=dict)

    def add(self, worker: str, series: Iterable[Sequence[Any]]) -> None:
        if self.type == HISTOGRAM:
            for labels, bounds, counts, total in series:
                self._add_histogram(tuple(labels), bounds, counts, total)
        elif self.aggregation == PER_WORKER:
            self.values.update({(worker, *labels): value for labels, value in series})
        else:
            combine, values = _COMBINE[self.aggregation], self.values
            for each, value in series:
                labels = tuple(each)
                values[labels] = combine(values[labels], value) if labels in values else value

    def _add_histogram(self, labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float) -> None:
        histogram = self.histograms.get(labels)
        if histogram is None:
            histogram = self.histograms[labels] = Histogram(bounds)
        histogram.counts = [one + other for one, other in zip(histogram.counts, counts, strict=True)]
        histogram.sum += total

    def build(self) -> MetricFamily:
        if self.type == HISTOGRAM:
            return HistogramFamily(self.name, self.help, self.labels, self.histograms.items())
        labels = (WORKER_LABEL, *self.labels) if self.aggregation == PER_WORKER else self.labels
        return Family(
            name=self.name,
            type=self.type,
            help=self.help,
            labels=labels,
            series=self.values.items(),
            aggregation=self.aggregation,
        )


def merge_pages(pages: Iterable[bytes], ended: Iterable[bytes]) -> list[MetricFamily]:
    """The families of all workers as one page. `ended` are the last pages of workers that no longer run."""
    merged: dict[str, _MergedFamily] = {}
    for page in pages:
        _add_page(merged, page, lambda type, aggregation: True)
    for page in ended:
        _add_page(merged, page, _outlives_worker)
    return [family.build() for family in merged.values()]


def merge_ended(pages: Iterable[bytes]) -> bytes:
    """The last pages of several workers as one, with what must not get lost."""
    merged: dict[str, _MergedFamily] = {}
    for page in pages:
        _add_page(merged, page, _outlives_worker)
    return encode_families("", [family.build() for family in merged.values()])


def _outlives_worker(type: str, aggregation: str) -> bool:
    return type != GAUGE and aggregation != PER_WORKER


def _add_page(merged: dict[str, _MergedFamily], page: bytes, is_included: Callable[[str, str], bool]) -> None:
    decoded = orjson.loads(page)
    for name, type, help, labels, aggregation, series in decoded["families"]:
        if is_included(type, aggregation):
            family = merged.get(name)
            if family is None:
                family = merged[name] = _MergedFamily(name, type, help, labels, aggregation)
            family.add(decoded["worker"], series)
