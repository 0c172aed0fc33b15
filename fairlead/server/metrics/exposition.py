"""Families of metrics as text: Prometheus' own format, and OpenMetrics for those who ask for it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from fairlead.server.metrics.histogram import Histogram

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
