"""All metric families. Where Kubernetes has a metric, its name and labels are used, so that its dashboards work.

request_families     counted by `stage.py`
PlatformMetrics      what Kubernetes has no metrics for: clusters, commits, the view; `app` provides the sources
process_families     memory, CPU time and open files of this process, under the names of all Prometheus clients
flow_families        priority levels and flow schemas of flow control
event_loop_families  what the event loop's watchdog measured
"""

import os
import resource
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.server.flow.classify import Tally
from fairlead.server.flow.control import FlowControl
from fairlead.server.http.event_loop_watchdog import Watchdog
from fairlead.server.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Family, Histogram, Sample, labelled, merged
from fairlead.server.metrics.stage import DURATIONS, ENTRANCES, WATCH, Labels, Requests

SLI_DURATIONS = DURATIONS[2:]
"""Kubernetes uses coarser buckets for this metric."""
_COMPONENT = {"component": "apiserver"}


def request_families(requests: Requests) -> Iterator[Family]:
    """Request metrics. Copies the counters; the samples are computed lazily, in the thread that renders them."""
    yield from _answers(requests)
    yield from _sizes_and_times(requests)
    yield from _open(requests)
    yield from _gateways(requests)


def _answers(requests: Requests) -> Iterator[Family]:
    counts = [(*key, tally.count) for key, tally in requests.tallies.items()]
    yield Family(
        "apiserver_request_total",
        COUNTER,
        "Requests by verb, resource and status code.",
        (
            (labelled({**_about(labels), "dry_run": dry_run, "code": code}), count)
            for labels, dry_run, code, count in counts
        ),
    )


def _sizes_and_times(requests: Requests) -> Iterator[Family]:
    durations = [(*key, each.copy()) for key, each in requests.durations.items()]
    sizes = [(labels, each.copy()) for labels, each in requests.sizes.items()]
    yield Family(
        "apiserver_request_duration_seconds",
        HISTOGRAM,
        "Seconds until the response, for all requests except watches and other streams.",
        ((labelled({**_about(labels), "dry_run": dry_run}), each) for labels, dry_run, each in durations),
    )
    yield Family(
        "apiserver_request_sli_duration_seconds",
        HISTOGRAM,
        "Request duration without webhook calls. This server has no webhooks, so it includes everything.",
        _service_level(durations),
    )
    yield Family(
        "apiserver_response_sizes",
        HISTOGRAM,
        "Response size in bytes of get and list requests, as sent.",
        ((labelled(_about(labels)), each) for labels, each in sizes),
    )


def _open(requests: Requests) -> Iterator[Family]:
    reads, writes = requests.under_way
    yield Family(
        "apiserver_current_inflight_requests",
        GAUGE,
        "Requests in flight.",
        [('request_kind="readOnly"', reads), ('request_kind="mutating"', writes)],
    )
    yield Family(
        "apiserver_longrunning_requests",
        GAUGE,
        "Open watches, WebSockets and streamed responses of clusters.",
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
        "Watch events sent, including bookmarks, counted for each watch.",
        list(events.items()),
    )
    yield Family(
        "apiserver_requested_deprecated_apis",
        GAUGE,
        "1 for each deprecated API that was requested. This server has none so far.",
        (),
    )


def _gateways(requests: Requests) -> Iterator[Family]:
    yield Family(
        "fairlead_gateway_requests_total",
        COUNTER,
        "Requests through gateways, by gateway type and class of the status code.",
        [
            (labelled({"entrance": ENTRANCES[root], "code": code}), count)
            for (root, code), count in requests.gateways.items()
        ],
    )
    yield Family(
        "fairlead_gateway_request_duration_seconds",
        HISTOGRAM,
        "Seconds until the response of a cluster starts.",
        [(labelled({"entrance": ENTRANCES[root]}), each.copy()) for root, each in requests.gateway_durations.items()],
    )


def _service_level(durations: Iterable[tuple[Labels, str, Histogram]]) -> Iterator[Sample]:
    """With fewer buckets, and without the dry_run label."""
    by_labels: dict[Labels, list[Histogram]] = {}
    for labels, _, each in durations:
        by_labels.setdefault(labels, []).append(each)
    for labels, histograms in by_labels.items():
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


PHASES = {"": "Pending", "Initialized": "Initialized", "Failed": "Failed"}
"""Cluster phases and their label values. A cluster that is being set up, or is offline, has an empty phase."""
COMMITS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def new_commits() -> Histogram:
    return Histogram(COMMITS)


@dataclass(frozen=True, slots=True)
class Platform:
    """Metrics of the platform. `phases` returns the phase of each cluster, `revision` the revision of the view.

    The store observes the duration of each commit in `commits`.
    """

    phases: Callable[[], Iterable[str]]
    revision: Callable[[], int]
    audit_events: Callable[[], int]
    commits: Histogram = field(default_factory=new_commits)

    def families(self) -> Iterator[Family]:
        counted = Counter(PHASES.get(phase, "Other") for phase in self.phases())
        yield Family(
            "fairlead_clusters",
            GAUGE,
            "Connected clusters by phase.",
            [(labelled({"phase": phase}), counted[phase]) for phase in (*PHASES.values(), "Other")],
        )
        yield Family(
            "fairlead_store_commit_seconds",
            HISTOGRAM,
            "Seconds that the store took for a commit, including rejected ones.",
            [("", self.commits.copy())],
        )
        revision = [("", self.revision())]
        yield Family("fairlead_view_revision", GAUGE, "Revision of this replica's view of the store.", revision)
        events = [("", self.audit_events())]
        yield Family("apiserver_audit_event_total", COUNTER, "Audit events generated.", events)


PROC = Path("/proc")


def process_families(proc: Path = PROC) -> Iterator[Family]:
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
    cpu, start, virtual, resident = int(stat[11]) + int(stat[12]), int(stat[19]), int(stat[20]), int(stat[21])
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
        yield Family(name, type, help, [("", value)])


def _boot_time(text: str) -> int:
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("btime ")), 0)


PREFIX = "apiserver_flowcontrol_"


def flow_families(control: FlowControl, tallies: Mapping[tuple[str, str], Tally]) -> Iterator[Family]:
    """Flow control metrics by priority level and flow schema. Both are closed sets."""
    yield from _requests(tallies.values())
    yield from _seats(control)


def _requests(tallies: Collection[Tally]) -> Iterator[Family]:
    yield _family(
        "rejected_requests_total",
        COUNTER,
        "Requests rejected by flow control, by reason.",
        ((_labels(each, reason=reason), count) for each in tallies for reason, count in each.rejected.items()),
    )
    yield _family(
        "dispatched_requests_total",
        COUNTER,
        "Requests dispatched by flow control.",
        ((_labels(each), each.dispatched) for each in tallies),
    )
    yield _family(
        "current_inqueue_requests",
        GAUGE,
        "Requests waiting in queues.",
        ((_labels(each), each.waiting) for each in tallies),
    )
    yield _family(
        "current_executing_requests",
        GAUGE,
        "Requests being executed.",
        ((_labels(each), each.executing) for each in tallies),
    )
    yield _family(
        "request_wait_duration_seconds",
        HISTOGRAM,
        "Seconds that requests waited in queues, by whether they were executed.",
        (
            (_labels(each, execute=execute), waited.copy())
            for each in tallies
            for execute, waited in (("true", each.waited), ("false", each.waited_in_vain))
        ),
    )
    yield _family(
        "request_execution_seconds",
        HISTOGRAM,
        "Seconds from dispatch to response.",
        ((_labels(each, type="regular"), each.took.copy()) for each in tallies),
    )


def _seats(control: FlowControl) -> Iterator[Family]:
    levels = control.levels.values()
    yield _family(
        "nominal_limit_seats",
        GAUGE,
        "Nominal number of seats of a priority level.",
        ((labelled({"priority_level": each.priority.name}), each.priority.seats) for each in levels),
    )
    yield _family(
        "current_executing_seats",
        GAUGE,
        "Seats in use by executing requests of a priority level.",
        ((labelled({"priority_level": each.priority.name}), each.held) for each in levels),
    )


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Family:
    """A family whose samples are computed at once, because they change with every request."""
    return Family(PREFIX + name, kind, text, list(samples))


def _labels(tally: Tally, **further: str) -> str:
    return labelled({"priority_level": tally.level, "flow_schema": tally.schema, **further})


def event_loop_families(watchdog: Watchdog) -> Iterator[Family]:
    watchdog.settle()
    yield Family(
        "fairlead_event_loop_hold_seconds",
        HISTOGRAM,
        "CPU seconds that the event loop was blocked without a break, up to fifty samples per second.",
        [("", watchdog.holds.copy())],
    )
    yield Family(
        "fairlead_event_loop_hold_max_seconds",
        GAUGE,
        "The longest time that the event loop was blocked since the start, in seconds.",
        [("", watchdog.longest)],
    )
    yield Family(
        "fairlead_event_loop_lag_seconds",
        HISTOGRAM,
        "Seconds of wall-clock time that a timer of the event loop was late.",
        [("", watchdog.lags.copy())],
    )
