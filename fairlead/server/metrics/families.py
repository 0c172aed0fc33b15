"""What the stage has counted, under the names that Kubernetes has for it, so that its dashboards and alerts work."""

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


# DOC-MERGED server/metrics/platform
# What Kubernetes has no names for. `app` says where the numbers are; this page only names them.


PHASES = {"": "Pending", "Initialized": "Initialized", "Failed": "Failed"}
"""A cluster that is being set up, or is offline, has no phase; a label needs a word for that."""
COMMITS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def new_commits() -> Histogram:
    return Histogram(COMMITS)


@dataclass(frozen=True, slots=True)
class Platform:
    """`phases` are those of all clusters, `revision` is what the view shows, `audit_events` how many were written.

    Whoever commits lets `commits` observe how many seconds it took.
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
            "Seconds that the store took for a commit, those that were refused included.",
            [("", self.commits.copy())],
        )
        revision = [("", self.revision())]
        yield Family("fairlead_view_revision", GAUGE, "The revision that this replica shows.", revision)
        events = [("", self.audit_events())]
        yield Family("apiserver_audit_event_total", COUNTER, "Events handed to the audit log.", events)


# DOC-MERGED server/metrics/process
# Memory, time and open files of this process, under the names that all Prometheus clients have for them.
#
# Read from Linux's /proc. Where there is none, these are missing and everything else is not.


PROC = Path("/proc")


def process_families(proc: Path = PROC) -> Iterator[Family]:
    """Blocks for as long as /proc takes, which with many open files is milliseconds: call it in a thread."""
    try:
        # The second field is the name of the program, which may have spaces and parentheses.
        stat = (proc / "self" / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = _boot_time((proc / "stat").read_text(encoding="utf-8"))
        open_files = len(os.listdir(proc / "self" / "fd"))
    except OSError:
        return
    ticks = os.sysconf("SC_CLK_TCK")
    # As proc(5) counts them, utime is 14, stime 15, starttime 22, vsize 23, rss 24; the first one left here is 3.
    cpu, start, virtual, resident = int(stat[11]) + int(stat[12]), int(stat[19]), int(stat[20]), int(stat[21])
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name, type, help, value in (
        ("process_cpu_seconds_total", COUNTER, "Seconds of processor time, the system's included.", cpu / ticks),
        ("process_resident_memory_bytes", GAUGE, "Memory in use.", resident * resource.getpagesize()),
        ("process_virtual_memory_bytes", GAUGE, "Memory reserved.", virtual),
        ("process_start_time_seconds", GAUGE, "When the process began, since 1970.", boot + start / ticks),
        ("process_open_fds", GAUGE, "Open files and connections.", open_files),
        ("process_max_fds", GAUGE, "Most files and connections that may be open.", most_files),
    ):
        yield Family(name, type, help, [("", value)])


def _boot_time(text: str) -> int:
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("btime ")), 0)


# DOC-MERGED server/metrics/flow
# What flow control has counted, under the names that Kubernetes has for it.


PREFIX = "apiserver_flowcontrol_"


def flow_families(control: FlowControl, tallies: Mapping[tuple[str, str], Tally]) -> Iterator[Family]:
    """All about priority levels and flow schemas, of which there is a closed set of both."""
    yield from _requests(tallies.values())
    yield from _seats(control)


def _requests(tallies: Collection[Tally]) -> Iterator[Family]:
    yield _family(
        "rejected_requests_total",
        COUNTER,
        "Requests that flow control has refused, by why.",
        ((_labels(each, reason=reason), count) for each in tallies for reason, count in each.rejected.items()),
    )
    yield _family(
        "dispatched_requests_total",
        COUNTER,
        "Requests that flow control has let in.",
        ((_labels(each), each.dispatched) for each in tallies),
    )
    yield _family(
        "current_inqueue_requests",
        GAUGE,
        "Requests that wait for their turn at the moment.",
        ((_labels(each), each.waiting) for each in tallies),
    )
    yield _family(
        "current_executing_requests",
        GAUGE,
        "Requests that were let in and are not answered yet.",
        ((_labels(each), each.executing) for each in tallies),
    )
    yield _family(
        "request_wait_duration_seconds",
        HISTOGRAM,
        "Seconds that requests waited for their turn, by whether it came.",
        (
            (_labels(each, execute=execute), waited.copy())
            for each in tallies
            for execute, waited in (("true", each.waited), ("false", each.waited_in_vain))
        ),
    )
    yield _family(
        "request_execution_seconds",
        HISTOGRAM,
        "Seconds from the turn of a request to its answer.",
        ((_labels(each, type="regular"), each.took.copy()) for each in tallies),
    )


def _seats(control: FlowControl) -> Iterator[Family]:
    levels = control.levels.values()
    yield _family(
        "nominal_limit_seats",
        GAUGE,
        "Seats that a priority level has of its own.",
        ((labelled({"priority_level": each.priority.name}), each.priority.seats) for each in levels),
    )
    yield _family(
        "current_executing_seats",
        GAUGE,
        "Seats that requests of a priority level hold at the moment.",
        ((labelled({"priority_level": each.priority.name}), each.held) for each in levels),
    )


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Family:
    """Worked out at once: all of it changes with every request."""
    return Family(PREFIX + name, kind, text, list(samples))


def _labels(tally: Tally, **further: str) -> str:
    return labelled({"priority_level": tally.level, "flow_schema": tally.schema, **further})


# DOC-MERGED server/metrics/event_loop
# What the event loop's watchdog has measured, as metrics.


def event_loop_families(watchdog: Watchdog) -> Iterator[Family]:
    watchdog.settle()
    yield Family(
        "fairlead_event_loop_hold_seconds",
        HISTOGRAM,
        "Seconds of processor time that the event loop was held without a break, up to fifty samples a second.",
        [("", watchdog.holds.copy())],
    )
    yield Family(
        "fairlead_event_loop_hold_max_seconds",
        GAUGE,
        "The longest hold of the event loop since the start.",
        [("", watchdog.longest)],
    )
    yield Family(
        "fairlead_event_loop_lag_seconds",
        HISTOGRAM,
        "Seconds that a timer was late by the wall clock, whatever the reason.",
        [("", watchdog.lags.copy())],
    )
