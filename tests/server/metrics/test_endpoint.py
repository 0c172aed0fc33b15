"""server.metrics.endpoint: access to /metrics, its formats, and that parsers can read them."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from fairlead.core.call import Handler, Reply
from fairlead.features.metrics import GATEWAY_TYPES
from fairlead.server.api.routing import Router, routing_stage
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
from tests.server.metrics.routes import CATALOG, CORE, ROOTS

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.2"
)
UNAUTHORIZED = Reply(401)


def build_platform_metrics() -> PlatformMetrics:
    return PlatformMetrics(lambda: 1042, lambda: 7)


async def build_endpoint() -> MetricsEndpoint:
    """The endpoint of a server that has served one request."""
    requests = RequestMetrics(LabelResolver(CATALOG), GATEWAY_TYPES)
    await Pipeline((routing_stage(Router(ROOTS)),), always_reply(Reply(200, b"{}")), (requests.record,))(call(CORE))
    watchdog = Watchdog()
    sources = (
        lambda: request_families(requests),
        build_platform_metrics().families,
        lambda: event_loop_families(watchdog),
    )
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
async def test_the_format_follows_the_accept_header(accept: str, media_type: str) -> None:
    reply = await (await build_endpoint())(call("/metrics", headers={"accept": accept}))
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
    "fairlead_event_loop_blocked_max_seconds",
    "fairlead_event_loop_blocked_seconds",
    "fairlead_event_loop_lag_seconds",
    "fairlead_interpreter_held_max_seconds",
    "fairlead_interpreter_held_seconds",
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
"""As the parsers return them, without the suffix `_total`."""


async def test_both_formats_have_the_same_content() -> None:
    endpoint = await build_endpoint()
    text = (await endpoint(call("/metrics"))).body.decode()
    open_metrics = (await endpoint(call("/metrics", headers={"accept": OPEN_METRICS}))).body.decode()
    text_families, open_metrics_families = list(parse_text(text)), list(parse_open_metrics(open_metrics))
    assert {family.name for family in text_families} == {family.name for family in open_metrics_families} == NAMES
    assert {family.name: family.type for family in text_families} == {
        family.name: family.type for family in open_metrics_families
    }
    assert all(family.documentation for family in (*text_families, *open_metrics_families))
    assert _read_values(text_families) == _read_values(open_metrics_families)


async def test_the_name_parameter_selects_metrics() -> None:
    request = call("/metrics")
    request.query = {"name[]": ["fairlead_view_revision", "process_open_fds", "nothing"]}
    page = (await (await build_endpoint())(request)).body.decode()
    assert {family.name for family in parse_text(page)} == {"fairlead_view_revision", "process_open_fds"}


def _read_values(families: Iterable[Metric]) -> set[tuple[object, ...]]:
    """Series by name, with buckets as numbers; without the process metrics, which change all the time."""
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


def test_the_platform_has_its_revision_and_the_number_of_audit_events() -> None:
    families = {family.name: family for family in build_platform_metrics().families()}
    assert list(families["fairlead_view_revision"].series) == [((), 1042)]
    assert list(families["apiserver_audit_event_total"].series) == [((), 7)]


def test_commits_are_counted_by_duration() -> None:
    platform_metrics = build_platform_metrics()
    platform_metrics.commits.observe(0.002)
    platform_metrics.commits.observe(99)
    page = render_families(platform_metrics.families(), TEXT).decode()
    assert 'fairlead_store_commit_seconds_bucket{le="0.001"} 0.0\n' in page
    assert 'fairlead_store_commit_seconds_bucket{le="0.0025"} 1.0\n' in page
    assert 'fairlead_store_commit_seconds_bucket{le="10"} 1.0\n' in page
    assert 'fairlead_store_commit_seconds_bucket{le="+Inf"} 2.0\n' in page
    assert "fairlead_store_commit_seconds_count 2.0\n" in page


def test_collected_families_do_not_change_afterwards() -> None:
    platform_metrics = build_platform_metrics()
    families = list(platform_metrics.families())
    platform_metrics.commits.observe(1)
    assert b"fairlead_store_commit_seconds_count 0.0\n" in render_families(families, TEXT)


def test_the_two_formats_differ_as_specified() -> None:
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
    open_metrics = render_families(families, OPEN_METRICS).decode().splitlines()
    assert open_metrics[:3] == ["# HELP a A.", "# TYPE a counter", "a_total 3.0"]
    assert 'h_bucket{le="1.0",x="y"} 1.0' in open_metrics
    assert open_metrics[-1] == "# EOF"


def test_label_values_are_escaped() -> None:
    value = 'a"} 1\nb{c="\\'
    families = [Family("g", GAUGE, "G.", ("x",), [((value,), 1)])]
    for media_type, parse in ((TEXT, parse_text), (OPEN_METRICS, parse_open_metrics)):
        (family,) = parse(render_families(families, media_type).decode())
        assert [sample.labels for sample in family.samples] == [{"x": value}]


def test_merging_histograms_into_fewer_buckets_keeps_all_values() -> None:
    fine = Histogram((1.0, 2.0, 3.0))
    for value in (0.5, 1.0, 1.5, 2.5, 9.0):
        fine.observe(value)
    coarse = merge_histograms([fine, fine], (2.0,))
    assert (coarse.counts, coarse.sum) == ([6, 4], 29.0)


def test_process_metrics_are_positive() -> None:
    values = {family.name: next(iter(family.series))[1] for family in process_families()}
    assert all(value > 0 for value in values.values())
    assert {name.removesuffix("_total") for name in values} == {name for name in NAMES if name.startswith("process_")}


def test_process_metrics_are_read_from_proc_whatever_the_program_is_called(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    fields = [str(number) for number in range(3, 53)]  # each field holds its own number in proc(5)
    (tmp_path / "self" / "fd").mkdir(parents=True)
    (tmp_path / "self" / "fd" / "0").touch()
    (tmp_path / "self" / "stat").write_text(f"1 (a) b) {' '.join(fields)}\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1000\n")
    values = {family.name: next(iter(family.series))[1] for family in process_families(tmp_path)}
    assert values["process_virtual_memory_bytes"] == 23
    assert values["process_open_fds"] == 1
    assert values["process_start_time_seconds"] == 1000 + 22 / ticks
    assert values["process_cpu_seconds_total"] == (14 + 15) / ticks


def test_without_proc_there_are_no_process_metrics(tmp_path: Path) -> None:
    assert list(process_families(tmp_path)) == []


def build_public_pipeline(endpoint: MetricsEndpoint) -> Handler:
    return Pipeline((routing_stage(Router(ROOTS)), endpoint.serve_public), always_reply(UNAUTHORIZED))


@pytest.mark.parametrize("path", ["/metrics", "/kubernetes/management/metrics"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_public_metrics_need_no_authentication(method: str, path: str) -> None:
    reply = await build_public_pipeline(await build_endpoint())(call(path, method=method))
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
async def test_public_metrics_make_no_other_path_public(method: str, path: str, headers: dict[str, str]) -> None:
    reply = await build_public_pipeline(await build_endpoint())(call(path, method=method, headers=headers))
    assert reply is UNAUTHORIZED


async def test_metrics_are_served_at_one_path_for_one_verb() -> None:
    endpoint = await build_endpoint()
    assert endpoint.endpoints() == {("get", "/metrics"): endpoint}


async def test_other_tasks_run_while_the_page_is_rendered() -> None:
    endpoint = await build_endpoint()
    steps = 0

    async def count_steps() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    other_task = asyncio.create_task(count_steps())
    await endpoint(call("/metrics"))
    other_task.cancel()
    assert steps > 0
