"""/metrics: who gets it, in which format, and that those who read these formats can."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_text

from fairlead.core.call import Handler, Reply
from fairlead.server.api.routing import routing_stage
from fairlead.server.http.event_loop_watchdog import Watchdog
from fairlead.server.metrics.endpoint import MetricsEndpoint
from fairlead.server.metrics.exposition import (
    COUNTER,
    GAUGE,
    OPEN_METRICS,
    TEXT,
    Family,
    Histogram,
    HistogramFamily,
    MetricFamily,
    merge_histograms,
    render_families,
)
from fairlead.server.metrics.families import PlatformMetrics, event_loop_families, process_families, request_families
from fairlead.server.metrics.stage import LabelResolver, RequestMetrics
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import always_reply, call
from tests.server.metrics.test_stage import CATALOG, CORE, ROOTS

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.2"
)
NOBODY = Reply(401)


def platform(phases: Iterable[str] = ()) -> PlatformMetrics:
    return PlatformMetrics(lambda: phases, lambda: 1042, lambda: 7)


async def metrics() -> MetricsEndpoint:
    """Of a server that has been asked for one thing."""
    requests = RequestMetrics(LabelResolver(CATALOG))
    await Pipeline((routing_stage(ROOTS),), always_reply(Reply(200, b"{}")), (requests.record,))(call(CORE))
    watchdog = Watchdog()
    sources = (lambda: request_families(requests), platform(["Failed"]).families, lambda: event_loop_families(watchdog))
    return MetricsEndpoint(sources)


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain", TEXT),
        ("text/html, */*;q=0.1", TEXT),
        ("application/vnd.google.protobuf", TEXT),
        ("application/openmetrics-text; version=1.0.0", OPEN_METRICS),
        (PROMETHEUS, OPEN_METRICS),
    ],
)
async def test_the_format_is_the_one_that_is_asked_for(accept: str, media_type: str) -> None:
    reply = await (await metrics())(call("/metrics", headers={"accept": accept}))
    assert reply.status == 200
    assert reply.content_type.startswith(f"{media_type}; version=")
    assert reply.body.endswith(b"# EOF\n") == (media_type == OPEN_METRICS)


NAMES = {
    "apiserver_request",
    "apiserver_request_duration_seconds",
    "apiserver_request_sli_duration_seconds",
    "apiserver_response_sizes",
    "apiserver_longrunning_requests",
    "apiserver_current_inflight_requests",
    "apiserver_watch_events",
    "apiserver_requested_deprecated_apis",
    "apiserver_audit_event",
    "fairlead_clusters",
    "fairlead_event_loop_blocked_max_seconds",
    "fairlead_event_loop_blocked_seconds",
    "fairlead_event_loop_lag_seconds",
    "fairlead_gateway_requests",
    "fairlead_gateway_request_duration_seconds",
    "fairlead_store_commit_seconds",
    "fairlead_view_revision",
    "process_cpu_seconds",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
}
"""As the parsers tell them, who take `_total` off."""


async def test_both_formats_tell_the_same_to_those_who_read_them() -> None:
    asked = await metrics()
    text = (await asked(call("/metrics"))).body.decode()
    opened = (await asked(call("/metrics", headers={"accept": OPEN_METRICS}))).body.decode()
    one, other = list(read_text(text)), list(read_open(opened))
    assert {family.name for family in one} == {family.name for family in other} == NAMES
    assert {family.name: family.type for family in one} == {family.name: family.type for family in other}
    assert all(family.documentation for family in (*one, *other))
    assert _numbers(one) == _numbers(other)


async def test_only_the_metrics_that_are_named_are_given() -> None:
    asked = call("/metrics")
    asked.query = {"name[]": ["fairlead_view_revision", "process_open_fds", "nothing"]}
    page = (await (await metrics())(asked)).body.decode()
    assert {family.name for family in read_text(page)} == {"fairlead_view_revision", "process_open_fds"}


def _numbers(families: Iterable[Metric]) -> set[tuple[object, ...]]:
    """Series by name, labels as numbers where they are bounds; the process, which goes on meanwhile, left out."""
    return {
        (sample.name, sample.value, *((name, float(text) if name == "le" else text) for name, text in labels))
        for family in families
        if not family.name.startswith("process_")
        for sample in family.samples
        for labels in [sorted(sample.labels.items())]
    }


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_metric_is_in_the_documentation(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page or f"`{name}_total`" in page


async def test_clusters_are_counted_by_phase_and_an_empty_one_has_a_word() -> None:
    families = {family.name: family for family in platform(["", "", "Failed", "MadeUp"]).families()}
    assert families["fairlead_clusters"].labels == ("phase",)
    assert list(families["fairlead_clusters"].series) == [
        (("Pending",), 2),
        (("Initialized",), 0),
        (("Failed",), 1),
        (("Other",), 1),
    ]
    assert list(families["fairlead_view_revision"].series) == [((), 1042)]
    assert list(families["apiserver_audit_event_total"].series) == [((), 7)]


def test_commits_are_counted_by_how_long_they_took() -> None:
    about = platform()
    about.commits.observe(0.002)
    about.commits.observe(99)
    page = render_families(about.families(), TEXT).decode()
    assert 'fairlead_store_commit_seconds_bucket{le="0.001"} 0.0\n' in page
    assert 'fairlead_store_commit_seconds_bucket{le="0.0025"} 1.0\n' in page
    assert 'fairlead_store_commit_seconds_bucket{le="10"} 1.0\n' in page
    assert 'fairlead_store_commit_seconds_bucket{le="+Inf"} 2.0\n' in page
    assert "fairlead_store_commit_seconds_count 2.0\n" in page


def test_what_is_handed_out_does_not_change_any_more() -> None:
    about = platform()
    families = list(about.families())
    about.commits.observe(1)
    assert b"fairlead_store_commit_seconds_count 0.0\n" in render_families(families, TEXT)


def test_the_two_formats_differ_where_they_must() -> None:
    histogram = Histogram((0.5, 1.0, 1e6))
    histogram.observe(1.0)
    families: list[MetricFamily] = [
        Family("a_total", COUNTER, "A.", (), [((), 3)]),
        HistogramFamily("h", "H.", ("x",), [(("y",), histogram)]),
    ]
    assert render_families(families, TEXT).decode().splitlines() == [
        "# HELP a_total A.",
        "# TYPE a_total counter",
        "a_total 3.0",
        "# HELP h H.",
        "# TYPE h histogram",
        'h_bucket{le="0.5",x="y"} 0.0',
        'h_bucket{le="1",x="y"} 1.0',
        'h_bucket{le="1e+06",x="y"} 1.0',
        'h_bucket{le="+Inf",x="y"} 1.0',
        'h_count{x="y"} 1.0',
        'h_sum{x="y"} 1.0',
    ]
    opened = render_families(families, OPEN_METRICS).decode().splitlines()
    assert opened[:3] == ["# HELP a A.", "# TYPE a counter", "a_total 3.0"]
    assert 'h_bucket{le="1.0",x="y"} 1.0' in opened
    assert opened[-1] == "# EOF"


def test_no_label_can_pretend_to_be_two() -> None:
    value = 'a"} 1\nb{c="\\'
    families = [Family("g", GAUGE, "G.", ("x",), [((value,), 1)])]
    for media_type, read in ((TEXT, read_text), (OPEN_METRICS, read_open)):
        (family,) = read(render_families(families, media_type).decode())
        assert [sample.labels for sample in family.samples] == [{"x": value}]


def test_histograms_with_fewer_bounds_lose_no_value() -> None:
    fine = Histogram((1.0, 2.0, 3.0))
    for value in (0.5, 1.0, 1.5, 2.5, 9.0):
        fine.observe(value)
    coarse = merge_histograms([fine, fine], (2.0,))
    assert (coarse.counts, coarse.sum) == ([6, 4], 29.0)


def test_the_process_tells_how_it_is() -> None:
    values = {family.name: next(iter(family.series))[1] for family in process_families()}
    assert all(value > 0 for value in values.values())
    assert {name.removesuffix("_total") for name in values} == {name for name in NAMES if name.startswith("process_")}


def test_the_process_is_read_by_the_fields_of_proc_whatever_the_program_is_called(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    fields = [str(number) for number in range(3, 53)]  # each holds its own number, as proc(5) counts
    (tmp_path / "self" / "fd").mkdir(parents=True)
    (tmp_path / "self" / "fd" / "0").touch()
    (tmp_path / "self" / "stat").write_text(f"1 (a) b) {' '.join(fields)}\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1000\n")
    values = {family.name: next(iter(family.series))[1] for family in process_families(tmp_path)}
    assert values["process_virtual_memory_bytes"] == 23
    assert values["process_open_fds"] == 1
    assert values["process_start_time_seconds"] == 1000 + 22 / ticks
    assert values["process_cpu_seconds_total"] == (14 + 15) / ticks


def test_without_proc_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert list(process_families(tmp_path)) == []


def in_public(asked: MetricsEndpoint) -> Handler:
    return Pipeline((routing_stage(ROOTS), asked.serve_public), always_reply(NOBODY))


@pytest.mark.parametrize("path", ["/metrics", "/kubernetes/management/metrics"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_public_metrics_ask_nobody_who_they_are(method: str, path: str) -> None:
    reply = await in_public(await metrics())(call(path, method=method))
    assert reply.status == 200


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/metrics", {}),
        ("GET", "/metrics/", {}),
        ("GET", "/metrics/x", {}),
        ("GET", "/", {}),
        ("GET", "/kubernetes/management/metrics/x", {}),
        ("GET", "/kubernetes/cluster/c/metrics", {}),
        ("GET", "/metrics", {"impersonate-user": "admin"}),
    ],
)
async def test_nothing_else_is_public_with_them(method: str, path: str, headers: dict[str, str]) -> None:
    reply = await in_public(await metrics())(call(path, method=method, headers=headers))
    assert reply is NOBODY


async def test_they_are_served_at_one_path_for_one_verb() -> None:
    asked = await metrics()
    assert asked.endpoints() == {("get", "/metrics"): asked}


async def test_other_requests_go_on_while_the_page_is_made() -> None:
    asked = await metrics()
    steps = 0

    async def meanwhile() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(meanwhile())
    await asked(call("/metrics"))
    other.cancel()
    assert steps > 0
