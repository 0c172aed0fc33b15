"""What the stage has counted, under the names that Kubernetes has for it, so that its dashboards and alerts work."""

from collections import Counter
from collections.abc import Iterable, Iterator

from fairlead.server.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Family, Sample, labelled
from fairlead.server.metrics.histogram import Histogram, merged
from fairlead.server.metrics.labels import ENTRANCES, WATCH, Labels
from fairlead.server.metrics.stage import DURATIONS, Requests

SLI_DURATIONS = DURATIONS[2:]
"""Kubernetes has coarser bounds for these."""
_COMPONENT = {"component": "apiserver"}


def request_families(requests: Requests) -> Iterator[Family]:
    """All about requests. What they are made of is copied here; texts and sums are left to whoever renders them."""
    yield from _answers(requests)
    yield from _sizes_and_times(requests)
    yield from _open(requests)
    yield from _gateways(requests)


def _answers(requests: Requests) -> Iterator[Family]:
    counts = [(*place, tally.count) for place, tally in requests.tallies.items()]
    yield Family(
        "apiserver_request_total",
        COUNTER,
        "Requests by what was asked and the code of the answer.",
        (
            (labelled({**_about(labels), "dry_run": dry_run, "code": code}), count)
            for labels, dry_run, code, count in counts
        ),
    )


def _sizes_and_times(requests: Requests) -> Iterator[Family]:
    durations = [(*place, each.copy()) for place, each in requests.durations.items()]
    sizes = [(labels, each.copy()) for labels, each in requests.sizes.items()]
    yield Family(
        "apiserver_request_duration_seconds",
        HISTOGRAM,
        "Seconds until the answer, of all requests but those that go on after it has begun.",
        ((labelled({**_about(labels), "dry_run": dry_run}), each) for labels, dry_run, each in durations),
    )
    yield Family(
        "apiserver_request_sli_duration_seconds",
        HISTOGRAM,
        "The same without waiting for webhooks, of which there are none here.",
        _service_level(durations),
    )
    yield Family(
        "apiserver_response_sizes",
        HISTOGRAM,
        "Bytes of the answers to get and list, as they are sent.",
        ((labelled(_about(labels)), each) for labels, each in sizes),
    )


def _open(requests: Requests) -> Iterator[Family]:
    reads, writes = requests.under_way
    yield Family(
        "apiserver_current_inflight_requests",
        GAUGE,
        "Requests that wait for their answer at the moment.",
        [('request_kind="readOnly"', reads), ('request_kind="mutating"', writes)],
    )
    yield Family(
        "apiserver_longrunning_requests",
        GAUGE,
        "Watches, WebSockets and long answers of clusters that are open at the moment.",
        [(labelled(_about(labels)), each.open) for labels, each in requests.lasting.items()],
    )
    events: Counter[str] = Counter()
    for labels, each in requests.lasting.items():
        if labels.verb == WATCH:
            kind = {"group": labels.group, "version": labels.version, "resource": labels.resource}
            events[labelled(kind)] += each.events
    yield Family(
        "apiserver_watch_events_total",
        COUNTER,
        "Events sent to watchers, bookmarks included, counted for each watcher.",
        list(events.items()),
    )
    yield Family(
        "apiserver_requested_deprecated_apis",
        GAUGE,
        "1 for each deprecated API that was asked for. This server has none so far.",
        (),
    )


def _gateways(requests: Requests) -> Iterator[Family]:
    yield Family(
        "fairlead_gateway_requests_total",
        COUNTER,
        "Requests through gateways, by the sort of entrance and the class of the code.",
        [
            (labelled({"entrance": ENTRANCES[root], "code": code}), count)
            for (root, code), count in requests.gateways.items()
        ],
    )
    yield Family(
        "fairlead_gateway_request_duration_seconds",
        HISTOGRAM,
        "Seconds until the answer of a cluster begins.",
        [(labelled({"entrance": ENTRANCES[root]}), each.copy()) for root, each in requests.gateway_durations.items()],
    )


def _service_level(durations: Iterable[tuple[Labels, str, Histogram]]) -> Iterator[Sample]:
    """By fewer bounds, and without telling dry runs apart."""
    found: dict[Labels, list[Histogram]] = {}
    for labels, _, each in durations:
        found.setdefault(labels, []).append(each)
    for labels, histograms in found.items():
        yield labelled(_about(labels)), merged(histograms, SLI_DURATIONS)


def _about(labels: Labels) -> dict[str, str]:
    return {
        "verb": labels.verb,
        "group": labels.group,
        "version": labels.version,
        "resource": labels.resource,
        "subresource": labels.subresource,
        "scope": labels.scope,
        **_COMPONENT,
    }
