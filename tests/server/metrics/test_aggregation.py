"""server.metrics.aggregation: the metrics of several worker processes as one page."""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from fairlead.core.clock import SystemClock
from fairlead.features.clusters import count_clusters
from fairlead.features.metrics import GATEWAY_TYPES
from fairlead.kinds import KINDS
from fairlead.registry.kind import Catalog
from fairlead.server.audit.agent_reports import AgentReports
from fairlead.server.audit.intake import AuditLogs
from fairlead.server.audit.log import AuditLog, DiskBudget
from fairlead.server.audit.log_file import LogRetention
from fairlead.server.audit.log_reader import AuditLogReader
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.server.audit.stage import AuditStage
from fairlead.server.flow.classify import ClientCache
from fairlead.server.flow.control import FlowControl
from fairlead.server.http.event_loop_watchdog import Watchdog
from fairlead.server.metrics.aggregation import encode_families, merge_ended, merge_pages
from fairlead.server.metrics.endpoint import MetricsEndpoint, WorkerPages
from fairlead.server.metrics.exposition import (
    COUNTER,
    GAUGE,
    MAXIMUM,
    MINIMUM,
    PER_WORKER,
    SUM,
    TEXT,
    Family,
    Histogram,
    HistogramFamily,
    MetricFamily,
    render_families,
    single_value,
)
from fairlead.server.metrics.families import (
    PlatformMetrics,
    event_loop_families,
    flow_families,
    process_families,
    request_families,
)
from fairlead.server.metrics.stage import LabelResolver, RequestMetrics
from tests.harness.audit import BASICS, MOUNT, MemoryLog
from tests.harness.calls import call

COUNTED = "requests_total"


def build_page(worker: str, *families: MetricFamily) -> bytes:
    return encode_families(worker, families)


def count_requests(**by_verb: int) -> Family:
    return Family(COUNTED, COUNTER, "Requests.", ("verb",), [((verb,), count) for verb, count in by_verb.items()])


def render(families: list[MetricFamily]) -> dict[str, float]:
    """The samples of a page, by name and labels as in the text."""
    text = render_families(families, TEXT).decode()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if not line.startswith("#")
    }


def test_counters_are_added_by_their_labels() -> None:
    pages = [build_page("0", count_requests(get=3, list=1)), build_page("1", count_requests(get=4, create=2))]
    assert render(merge_pages(pages, [])) == {
        'requests_total{verb="get"}': 7,
        'requests_total{verb="list"}': 1,
        'requests_total{verb="create"}': 2,
    }


def test_histograms_are_added_bucket_by_bucket() -> None:
    pages = []
    for worker, values in enumerate(((0.5, 1.5), (0.6, 9.0))):
        histogram = Histogram((1.0, 2.0))
        for value in values:
            histogram.observe(value)
        pages.append(build_page(str(worker), HistogramFamily("seconds", "Seconds.", (), [((), histogram)])))
    assert render(merge_pages(pages, [])) == {
        'seconds_bucket{le="1"}': 2,
        'seconds_bucket{le="2"}': 3,
        'seconds_bucket{le="+Inf"}': 4,
        "seconds_count": 4,
        "seconds_sum": 11.6,
    }


def test_gauges_are_combined_by_the_rule_of_their_family() -> None:
    pages = [
        build_page(
            str(worker),
            *(
                single_value(f"gauge_{rule.replace(' ', '_')}", GAUGE, "A gauge.", 10 + worker, rule)
                for rule in (SUM, MAXIMUM, MINIMUM, PER_WORKER)
            ),
        )
        for worker in range(2)
    ]
    assert render(merge_pages(pages, [])) == {
        "gauge_sum": 21,
        "gauge_maximum": 11,
        "gauge_minimum": 10,
        'gauge_per_worker{worker="0"}': 10,
        'gauge_per_worker{worker="1"}': 11,
    }


def test_counters_of_ended_workers_stay_and_their_gauges_do_not() -> None:
    gauge, own = single_value("open", GAUGE, "Open.", 5), single_value("cpu_total", COUNTER, "CPU.", 7, PER_WORKER)
    histogram = Histogram((1.0,))
    histogram.observe(0.5)
    durations = HistogramFamily("seconds", "Seconds.", (), [((), histogram)])
    ended = merge_ended([build_page("1", count_requests(get=3), gauge, own, durations) for _ in range(3)])
    ended = merge_ended([ended, build_page("0", count_requests(get=1))])
    running = build_page("1", count_requests(get=2), gauge, own)
    assert render(merge_pages([running], [ended])) == {
        'requests_total{verb="get"}': 12,
        "open": 5,
        'cpu_total{worker="1"}': 7,
        'seconds_bucket{le="1"}': 3,
        'seconds_bucket{le="+Inf"}': 3,
        "seconds_count": 3,
        "seconds_sum": 1.5,
    }


async def list_all_families(folder: Path) -> list[MetricFamily]:
    """Every family of a server."""
    requests, control = RequestMetrics(LabelResolver(Catalog(KINDS)), GATEWAY_TYPES), FlowControl()
    clients = ClientCache(control.levels)
    clients.for_call(call("/"))
    writer, clock = AuditLogWriter(MemoryLog()), SystemClock()
    stage = AuditStage(BASICS, AuditLogs.single(writer), Catalog(KINDS), clock, MOUNT)
    disk = DiskBudget({"authenticated": LogRetention(folder / "audit.log", 0, 0, compress=False)}, 0)
    audit = AuditLog(stage, AuditLogs.single(writer), AgentReports(writer, clock), disk, clock, AuditLogReader(()))

    def iterate() -> Iterator[MetricFamily]:
        yield from request_families(requests)
        yield from PlatformMetrics(lambda: 1, lambda: 1).families()
        yield count_clusters(())
        yield from process_families()
        yield from flow_families(control, clients.metrics)
        yield from event_loop_families(Watchdog())
        yield from audit.families()

    try:
        return list(iterate())
    finally:
        await writer.close()


async def test_every_gauge_has_the_rule_that_fits_its_meaning(tmp_path: Path) -> None:
    """A new gauge has to be added here, after a decision on how to combine it."""
    families = [each for each in await list_all_families(tmp_path) if isinstance(each, Family)]
    assert {each.name: each.aggregation for each in families if each.type == GAUGE} == {
        "apiserver_current_inflight_requests": SUM,
        "apiserver_longrunning_requests": SUM,
        "apiserver_requested_deprecated_apis": MAXIMUM,
        "apiserver_flowcontrol_current_inqueue_requests": SUM,
        "apiserver_flowcontrol_current_executing_requests": SUM,
        "apiserver_flowcontrol_nominal_limit_seats": SUM,
        "apiserver_flowcontrol_current_executing_seats": SUM,
        "fairlead_clusters": MAXIMUM,
        "fairlead_view_revision": PER_WORKER,
        "fairlead_event_loop_blocked_max_seconds": MAXIMUM,
        "fairlead_interpreter_held_max_seconds": MAXIMUM,
        "fairlead_audit_retention_met": MINIMUM,
        "process_resident_memory_bytes": PER_WORKER,
        "process_virtual_memory_bytes": PER_WORKER,
        "process_start_time_seconds": PER_WORKER,
        "process_open_fds": PER_WORKER,
        "process_max_fds": PER_WORKER,
    }
    counters = {each.name: each.aggregation for each in families if each.type == COUNTER}
    assert {name for name, rule in counters.items() if rule != SUM} == {"process_cpu_seconds_total"}


async def test_every_family_of_a_server_survives_the_way_to_another_worker(tmp_path: Path) -> None:
    families = await list_all_families(tmp_path)
    page = build_page("0", *families)
    merged = {family.name: family for family in merge_pages([page], [])}
    assert merged.keys() == {family.name for family in families}
    text = render_families(merged.values(), TEXT).decode()
    assert {metric.name for metric in text_string_to_metric_families(text)} == {
        family.name.removesuffix("_total") for family in families
    }


class TwoWorkers:
    """A second worker that has served five requests, and an ended one that had served two."""

    def __init__(self) -> None:
        self.endpoint: MetricsEndpoint | None = None

    async def collect_metrics(self) -> WorkerPages:
        assert self.endpoint is not None
        own = await self.endpoint.encode_page("0")
        return WorkerPages([own, build_page("1", count_requests(get=5))], [build_page("", count_requests(get=2))])


async def test_any_worker_serves_the_metrics_of_all() -> None:
    workers = TwoWorkers()
    workers.endpoint = MetricsEndpoint([lambda: [count_requests(get=1)]], workers)
    reply = await workers.endpoint(call("/metrics"))
    metrics: dict[str, Metric] = {each.name: each for each in text_string_to_metric_families(reply.body.decode())}
    assert [(sample.labels, sample.value) for sample in metrics["requests"].samples] == [({"verb": "get"}, 8.0)]
    assert {sample.labels["worker"] for sample in metrics["process_resident_memory_bytes"].samples} == {"0"}
