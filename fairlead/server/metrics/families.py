"""All metric families. Where Kubernetes has a metric, its name and labels are used, so that its dashboards work.

request_families     counted by `stage.py`
PlatformMetrics      what Kubernetes has no metrics for: commits, the view; `app` provides the sources
process_families     memory, CPU time and open files of this process, under the names of all Prometheus clients
flow_families        priority levels and flow schemas of flow control
event_loop_families  what the event loop's watchdog measured
"""

import os
import resource
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.server.flow.classify import FlowMetrics
from fairlead.server.flow.control import FlowControl
from fairlead.server.http.event_loop_watchdog import Watchdog
from fairlead.server.metrics.exposition import (
    COUNTER,
    GAUGE,
    MAXIMUM,
    PER_WORKER,
    Family,
    Histogram,
    HistogramFamily,
    MetricFamily,
    merge_histograms,
    single_histogram,
    single_value,
)
from fairlead.server.metrics.stage import DURATION_BUCKETS, WATCH, RequestLabels, RequestMetrics

SLI_DURATION_BUCKETS = DURATION_BUCKETS[2:]
"""Kubernetes uses coarser buckets for this metric."""


def request_families(requests: RequestMetrics) -> Iterator[MetricFamily]:
    """Request metrics. Copies the counters; the series are computed lazily, in the thread that renders them."""
    yield from _request_totals(requests)
    yield from _request_histograms(requests)
    yield from _open_requests(requests)
    yield from _gateway_families(requests)


def _request_totals(requests: RequestMetrics) -> Iterator[MetricFamily]:
    counts = [(*key, tally.count) for key, tally in requests.counters.items()]
    yield Family(
        "apiserver_request_total",
        COUNTER,
        "Requests by verb, resource and status code.",
        (*_REQUEST_LABELS, "dry_run", "code"),
        (((*_request_labels(labels), dry_run, code), count) for labels, dry_run, code, count in counts),
    )


def _request_histograms(requests: RequestMetrics) -> Iterator[MetricFamily]:
    durations = [(*key, each.copy()) for key, each in requests.durations.items()]
    sizes = [(labels, each.copy()) for labels, each in requests.sizes.items()]
    yield HistogramFamily(
        "apiserver_request_duration_seconds",
        "Seconds until the response, for all requests except watches and other streams.",
        (*_REQUEST_LABELS, "dry_run"),
        (((*_request_labels(labels), dry_run), each) for labels, dry_run, each in durations),
    )
    yield HistogramFamily(
        "apiserver_request_sli_duration_seconds",
        "Request duration without webhook calls. This server has no webhooks, so it includes everything.",
        _REQUEST_LABELS,
        _sli_series(durations),
    )
    yield HistogramFamily(
        "apiserver_response_sizes",
        "Response size in bytes of get and list requests, as sent.",
        _REQUEST_LABELS,
        ((_request_labels(labels), each) for labels, each in sizes),
    )


def _open_requests(requests: RequestMetrics) -> Iterator[MetricFamily]:
    reads, writes = requests.in_flight
    yield Family(
        "apiserver_current_inflight_requests",
        GAUGE,
        "Requests in flight.",
        ("request_kind",),
        [(("readOnly",), reads), (("mutating",), writes)],
    )
    yield Family(
        "apiserver_longrunning_requests",
        GAUGE,
        "Open watches, WebSockets and streamed responses of clusters.",
        _REQUEST_LABELS,
        [(_request_labels(labels), each.open) for labels, each in requests.open_streams.items()],
    )
    events: Counter[tuple[str, str, str]] = Counter()
    for labels, each in requests.open_streams.items():
        if labels.verb == WATCH:
            events[labels.group, labels.version, labels.resource] += each.events
    yield Family(
        "apiserver_watch_events_total",
        COUNTER,
        "Watch events sent, including bookmarks, counted for each watch.",
        ("group", "version", "resource"),
        list(events.items()),
    )
    yield Family(
        name="apiserver_requested_deprecated_apis",
        type=GAUGE,
        help="1 for each deprecated API that was requested. This server has none so far.",
        labels=(),
        series=(),
        aggregation=MAXIMUM,
    )


def _gateway_families(requests: RequestMetrics) -> Iterator[MetricFamily]:
    types = requests.gateway_types
    yield Family(
        "fairlead_gateway_requests_total",
        COUNTER,
        "Requests through gateways, by gateway type and class of the status code.",
        ("gateway", "code"),
        [((types[root], code), count) for (root, code), count in requests.gateway_counts.items()],
    )
    yield HistogramFamily(
        "fairlead_gateway_request_duration_seconds",
        "Seconds until the response of a cluster starts.",
        ("gateway",),
        [((types[root],), each.copy()) for root, each in requests.gateway_durations.items()],
    )


def _sli_series(
    durations: Iterable[tuple[RequestLabels, str, Histogram]],
) -> Iterator[tuple[Sequence[str], Histogram]]:
    """With fewer buckets, and without the dry_run label."""
    by_labels: dict[RequestLabels, list[Histogram]] = {}
    for labels, _, each in durations:
        by_labels.setdefault(labels, []).append(each)
    for labels, histograms in by_labels.items():
        yield _request_labels(labels), merge_histograms(histograms, SLI_DURATION_BUCKETS)


_REQUEST_LABELS = ("verb", "group", "version", "resource", "subresource", "scope", "component")


def _request_labels(labels: RequestLabels) -> Sequence[str]:
    """The values of _REQUEST_LABELS."""
    return (
        labels.verb,
        labels.group,
        labels.version,
        labels.resource,
        labels.subresource,
        labels.scope,
        "apiserver",
    )


COMMIT_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def new_commit_histogram() -> Histogram:
    return Histogram(COMMIT_BUCKETS)


@dataclass(frozen=True, slots=True)
class PlatformMetrics:
    """Metrics of the platform. `revision` returns the revision of the view.

    The store observes the duration of each commit in `commits`.
    """

    revision: Callable[[], int]
    audit_events: Callable[[], int]
    commits: Histogram = field(default_factory=new_commit_histogram)

    def families(self) -> Iterator[MetricFamily]:
        yield single_histogram(
            "fairlead_store_commit_seconds",
            "Seconds that the store took for a commit, including rejected ones.",
            self.commits,
        )
        yield single_value(
            "fairlead_view_revision",
            GAUGE,
            "Revision of this replica's view of the store.",
            self.revision(),
            PER_WORKER,
        )
        yield single_value("apiserver_audit_event_total", COUNTER, "Audit events generated.", self.audit_events())


PROC_PATH = Path("/proc")


def process_families(proc: Path = PROC_PATH) -> Iterator[Family]:
    """Process metrics from Linux's /proc; none on other systems.

    Reading /proc blocks for milliseconds if many files are open: call this in a thread.
    """
    try:
        # The second field is the program name, which may contain spaces and parentheses.
        stat = (proc / "self" / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = _boot_time((proc / "stat").read_text(encoding="utf-8"))
        open_files = len(os.listdir(proc / "self" / "fd"))
    except OSError:
        return
    ticks = os.sysconf("SC_CLK_TCK")
    # Field numbers in proc(5): utime 14, stime 15, starttime 22, vsize 23, rss 24. `stat[0]` is field 3.
    cpu = int(stat[11]) + int(stat[12])
    start = int(stat[19])
    virtual = int(stat[20])
    resident = int(stat[21])
    max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name, type, help, value in (
        ("process_cpu_seconds_total", COUNTER, "User and system CPU time in seconds.", cpu / ticks),
        ("process_resident_memory_bytes", GAUGE, "Resident memory in bytes.", resident * resource.getpagesize()),
        ("process_virtual_memory_bytes", GAUGE, "Virtual memory in bytes.", virtual),
        (
            "process_start_time_seconds",
            GAUGE,
            "Start time of the process in seconds since the Unix epoch.",
            boot + start / ticks,
        ),
        ("process_open_fds", GAUGE, "Open file descriptors.", open_files),
        ("process_max_fds", GAUGE, "Maximum number of open file descriptors.", max_files),
    ):
        yield single_value(name, type, help, value, PER_WORKER)


def _boot_time(text: str) -> int:
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("btime ")), 0)


FLOW_PREFIX = "apiserver_flowcontrol_"
_FLOW_LABELS = ("priority_level", "flow_schema")


def flow_families(control: FlowControl, metrics: Mapping[tuple[str, str], FlowMetrics]) -> Iterator[MetricFamily]:
    """Flow control metrics by priority level and flow schema. Both are closed sets.

    The series are computed at once, because they change with every request.
    """
    yield from _flow_request_families(metrics.values())
    yield from _flow_seat_families(control)


def _flow_request_families(metrics: Collection[FlowMetrics]) -> Iterator[MetricFamily]:
    yield Family(
        f"{FLOW_PREFIX}rejected_requests_total",
        COUNTER,
        "Requests rejected by flow control, by reason.",
        (*_FLOW_LABELS, "reason"),
        [((each.level, each.schema, reason), count) for each in metrics for reason, count in each.rejected.items()],
    )
    yield Family(
        f"{FLOW_PREFIX}dispatched_requests_total",
        COUNTER,
        "Requests dispatched by flow control.",
        _FLOW_LABELS,
        [((each.level, each.schema), each.dispatched) for each in metrics],
    )
    yield Family(
        f"{FLOW_PREFIX}current_inqueue_requests",
        GAUGE,
        "Requests waiting in queues.",
        _FLOW_LABELS,
        [((each.level, each.schema), each.waiting) for each in metrics],
    )
    yield Family(
        f"{FLOW_PREFIX}current_executing_requests",
        GAUGE,
        "Requests being executed.",
        _FLOW_LABELS,
        [((each.level, each.schema), each.executing) for each in metrics],
    )
    yield HistogramFamily(
        f"{FLOW_PREFIX}request_wait_duration_seconds",
        "Seconds that requests waited in queues, by whether they were executed.",
        (*_FLOW_LABELS, "execute"),
        [
            ((each.level, each.schema, execute), waited.copy())
            for each in metrics
            for execute, waited in (("true", each.wait_seconds), ("false", each.rejected_wait_seconds))
        ],
    )
    yield HistogramFamily(
        f"{FLOW_PREFIX}request_execution_seconds",
        "Seconds from dispatch to response.",
        (*_FLOW_LABELS, "type"),
        [((each.level, each.schema, "regular"), each.execution_seconds.copy()) for each in metrics],
    )


def _flow_seat_families(control: FlowControl) -> Iterator[MetricFamily]:
    levels = control.levels.values()
    yield Family(
        f"{FLOW_PREFIX}nominal_limit_seats",
        GAUGE,
        "Nominal number of seats of a priority level.",
        ("priority_level",),
        [((each.config.name,), each.config.seats) for each in levels],
    )
    yield Family(
        f"{FLOW_PREFIX}current_executing_seats",
        GAUGE,
        "Seats in use by executing requests of a priority level.",
        ("priority_level",),
        [((each.config.name,), each.seats_in_use) for each in levels],
    )


def event_loop_families(watchdog: Watchdog) -> Iterator[MetricFamily]:
    watchdog.flush()
    yield single_histogram(
        "fairlead_event_loop_blocked_seconds",
        "CPU seconds that the event loop was blocked without a break, up to fifty samples per second.",
        watchdog.blocked,
    )
    yield single_value(
        "fairlead_event_loop_blocked_max_seconds",
        GAUGE,
        "The longest time that the event loop was blocked since the start, in seconds.",
        watchdog.longest_blocked,
        MAXIMUM,
    )
    yield single_histogram(
        "fairlead_interpreter_held_seconds",
        "Seconds that a thread held the interpreter without a break while the event loop waited for it.",
        watchdog.held,
    )
    yield single_value(
        "fairlead_interpreter_held_max_seconds",
        GAUGE,
        "The longest time that a thread held the interpreter since the start, in seconds.",
        watchdog.longest_held,
        MAXIMUM,
    )
    yield single_histogram(
        "fairlead_event_loop_lag_seconds",
        "Seconds of wall-clock time that a timer of the event loop was late.",
        watchdog.lags,
    )
