"""Metric families of certificates that are read again when their files change."""

from collections.abc import Iterator

from fairlead.server.http.certificate_watch import ReloadCounter
from fairlead.server.metrics.exposition import COUNTER, Family, MetricFamily


def reload_families(reloads: ReloadCounter) -> Iterator[MetricFamily]:
    yield Family(
        "fairlead_certificate_reloads_total",
        COUNTER,
        "Attempts to use changed files of certificates, by port and result.",
        ("port", "result"),
        list(reloads.results.items()),
    )
