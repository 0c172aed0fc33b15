"""server.metrics.stage: request metrics, their labels, and that clients cannot add series."""

import asyncio
import random
import string
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.core.call import Call, Handler, Reply, Upgrade, WebSocket
from fairlead.core.errors import Forbidden, NotFound
from fairlead.features.metrics import GATEWAY_TYPES
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.server.api.routing import Router, route, routing_stage
from fairlead.server.metrics.exposition import TEXT, render_families
from fairlead.server.metrics.families import request_families
from fairlead.server.metrics.stage import LabelResolver, RequestMetrics
from fairlead.server.pipeline import Pipeline, PipelineOptions
from tests.harness.calls import always_raise, always_reply, call, read_stream
from tests.server.metrics.routes import CATALOG, CORE, MOUNT, ROOTS

CLUSTERS = f"{MOUNT}/apis/{MANAGEMENT_GROUP}/v1/clusters"
PATHS = ("/healthz", "/metrics")

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class FakeClock:
    """A clock that advances only when a test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def metrics() -> RequestMetrics:
    return RequestMetrics(LabelResolver(CATALOG, PATHS), GATEWAY_TYPES)


def build_pipeline(metrics: RequestMetrics, serve: Handler, clock: Callable[[], float] = time.perf_counter) -> Handler:
    options = PipelineOptions(60, metrics.in_flight, clock=clock)
    return Pipeline((routing_stage(Router(ROOTS)),), serve, (metrics.record,), (), options)


async def send_request(metrics: RequestMetrics, request: Call, reply: Reply | None = None) -> Reply:
    return await build_pipeline(metrics, always_reply(reply or Reply(200, b"{}")))(request)


def read_series(metrics: RequestMetrics) -> Series:
    """All series of the metrics page, read by the parser of prometheus-client."""
    page = render_families(request_families(metrics), TEXT).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def read_samples(metrics: RequestMetrics, name: str) -> Iterator[tuple[dict[str, str], float]]:
    return (
        (dict(labels), value) for (series_name, labels), value in read_series(metrics).items() if series_name == name
    )


def read_only_labels(metrics: RequestMetrics, name: str) -> dict[str, str]:
    """The labels of the only series of that name, without the component, which is always the same."""
    ((labels, value),) = read_samples(metrics, name)
    assert value == 1
    assert labels.pop("component") == "apiserver"
    return labels


def build_labels(verb: str, group: str, resource: str, subresource: str, scope: str) -> dict[str, str]:
    version = "v1" if resource else ""
    labels = {"verb": verb, "group": group, "version": version}
    return {**labels, "resource": resource, "subresource": subresource, "scope": scope}


@pytest.mark.parametrize(
    ("method", "path", "labels"),
    [
        ("GET", f"{CORE}/a", build_labels("GET", "", "configmaps", "", "resource")),
        ("HEAD", f"{CORE}/a", build_labels("GET", "", "configmaps", "", "resource")),
        ("GET", CORE, build_labels("LIST", "", "configmaps", "", "namespace")),
        ("GET", f"{MOUNT}/api/v1/configmaps", build_labels("LIST", "", "configmaps", "", "cluster")),
        ("POST", CORE, build_labels("POST", "", "configmaps", "", "resource")),
        ("PUT", f"{CORE}/a", build_labels("PUT", "", "configmaps", "", "resource")),
        ("DELETE", f"{CORE}/a", build_labels("DELETE", "", "configmaps", "", "resource")),
        ("DELETE", CORE, build_labels("DELETECOLLECTION", "", "configmaps", "", "namespace")),
        ("GET", CLUSTERS, build_labels("LIST", MANAGEMENT_GROUP, "clusters", "", "cluster")),
        ("PUT", f"{CLUSTERS}/c/status", build_labels("PUT", MANAGEMENT_GROUP, "clusters", "status", "resource")),
        ("GET", "/healthz", build_labels("GET", "", "", "/healthz", "")),
        ("GET", f"{MOUNT}/healthz", build_labels("GET", "", "", "/healthz", "")),
        ("GET", "/nowhere", build_labels("GET", "", "", "", "")),
        ("OPTIONS", "/nowhere", build_labels("OPTIONS", "", "", "", "")),
        ("BREW", "/nowhere", build_labels("other", "", "", "", "")),
        ("BREW", "/healthz", build_labels("other", "", "", "", "")),
        ("get", "/healthz", build_labels("other", "", "", "", "")),
        ("BREW", CORE, build_labels("other", "", "", "", "")),
        ("GET", f"{MOUNT}/apis/made.up/v1/clusters", build_labels("LIST", "", "", "", "")),
        ("GET", f"{MOUNT}/apis/{MANAGEMENT_GROUP}/v9/clusters", build_labels("LIST", "", "", "", "")),
        ("GET", f"{CLUSTERS}/c/madeup", build_labels("GET", "", "", "", "")),
        ("GET", f"{CLUSTERS}/..", build_labels("GET", "", "", "", "")),
    ],
)
async def test_labels_are_those_of_kubernetes_and_empty_for_paths_that_are_not_served(
    metrics: RequestMetrics, method: str, path: str, labels: dict[str, str]
) -> None:
    for _ in range(2):  # once as a new series, once as a known one
        reply = await send_request(metrics, call(path, method=method))
    ((labels_found, count),) = read_samples(metrics, "apiserver_request_total")
    assert labels_found == {**labels, "component": "apiserver", "dry_run": "", "code": str(reply.status)}
    assert count == 2


@pytest.mark.parametrize(
    ("content_type", "verb"),
    [
        ("application/apply-patch+yaml", "APPLY"),
        ("application/apply-patch+yaml; charset=utf-8", "APPLY"),
        ("application/merge-patch+json", "PATCH"),
        ("application/apply-patch+made-up", "PATCH"),
        ("", "PATCH"),
    ],
)
async def test_apply_has_its_own_verb(metrics: RequestMetrics, content_type: str, verb: str) -> None:
    await send_request(metrics, call(f"{CORE}/a", method="PATCH", headers={"content-type": content_type}))
    assert read_only_labels(metrics, "apiserver_request_total")["verb"] == verb


@pytest.mark.parametrize(
    ("query", "label"),
    [
        ("", ""),
        ("dryRun=All", "All"),
        ("dryRun=All&dryRun=All", "All"),
        ("dryRun=x", "invalid"),
        ("dryRun=", "invalid"),
    ],
)
async def test_dry_runs_have_their_own_label(metrics: RequestMetrics, query: str, label: str) -> None:
    await send_request(metrics, call(CORE, query, method="POST"))
    assert read_only_labels(metrics, "apiserver_request_total")["dry_run"] == label
    assert read_only_labels(metrics, "apiserver_request_duration_seconds_count")["dry_run"] == label
    assert "dry_run" not in read_only_labels(metrics, "apiserver_request_sli_duration_seconds_count")


@pytest.mark.parametrize(
    ("error", "code"), [(NotFound("no"), "404"), (Forbidden("no"), "403"), (RuntimeError("oh"), "500")]
)
async def test_errors_are_counted_by_their_status_code(metrics: RequestMetrics, error: Exception, code: str) -> None:
    await build_pipeline(metrics, always_raise(error))(call(CORE))
    assert read_only_labels(metrics, "apiserver_request_total")["code"] == code


async def test_unknown_status_codes_share_one_series(metrics: RequestMetrics) -> None:
    for status in (299, 512, 999):
        await send_request(metrics, call(CORE), Reply(status))
    ((labels, count),) = read_samples(metrics, "apiserver_request_total")
    assert (labels["code"], count) == ("other", 3)


async def test_a_cancelled_request_is_neither_counted_nor_in_flight(metrics: RequestMetrics) -> None:
    with pytest.raises(asyncio.CancelledError):
        await build_pipeline(metrics, always_raise(asyncio.CancelledError()))(call(CORE))
    assert metrics.in_flight == [0, 0]
    assert not list(read_samples(metrics, "apiserver_request_total"))


async def test_a_waiting_request_is_in_flight(metrics: RequestMetrics) -> None:
    in_flight: list[dict[str, float]] = []

    async def read_in_flight(request: Call) -> Reply:
        await asyncio.sleep(0)
        samples = read_samples(metrics, "apiserver_current_inflight_requests")
        in_flight.append({labels["request_kind"]: value for labels, value in samples})
        return Reply(200)

    for method in ("GET", "DELETE"):
        await build_pipeline(metrics, read_in_flight)(call(CORE, method=method))
    assert in_flight == [{"readOnly": 1, "mutating": 0}, {"readOnly": 0, "mutating": 1}]
    assert metrics.in_flight == [0, 0]


async def test_durations_use_the_buckets_of_kubernetes(metrics: RequestMetrics, clock: FakeClock) -> None:
    async def advance_clock(request: Call) -> Reply:
        clock.seconds += float(request.query["seconds"][0])
        return Reply(200)

    for seconds in ("0.0625", "0.5", "100"):
        await build_pipeline(metrics, advance_clock, clock)(call(CORE, f"seconds={seconds}"))
    for name in ("apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds"):
        buckets = {labels["le"]: value for labels, value in read_samples(metrics, f"{name}_bucket")}
        expected = {"0.05": 0, "0.1": 1, "0.4": 1, "0.6": 2, "1.25": 2, "60": 2, "+Inf": 3}
        assert {bound: buckets[bound] for bound in expected} == expected
        assert ("0.005" in buckets) == ("sli" not in name)
        assert [value for _, value in read_samples(metrics, f"{name}_sum")] == [100.5625]
        assert [value for _, value in read_samples(metrics, f"{name}_count")] == [3]


async def test_dry_runs_and_other_requests_share_the_sli_series(metrics: RequestMetrics) -> None:
    for query in ("", "dryRun=All", "dryRun=All"):
        await send_request(metrics, call(CORE, query, method="POST"))
    assert sorted(value for _, value in read_samples(metrics, "apiserver_request_duration_seconds_count")) == [1, 2]
    assert [value for _, value in read_samples(metrics, "apiserver_request_sli_duration_seconds_count")] == [3]


async def test_response_sizes_are_recorded_for_reads_only(metrics: RequestMetrics) -> None:
    await send_request(metrics, call(CORE), Reply(200, b"x" * 1000))
    await send_request(metrics, call(CORE), Reply(200, b"x" * 1001))
    await send_request(metrics, call(CORE, method="POST"), Reply(201, b"x"))
    buckets = {labels["le"]: value for labels, value in read_samples(metrics, "apiserver_response_sizes_bucket")}
    assert buckets == {"1000": 1, "10000": 2, "100000": 2, "1e+06": 2, "1e+07": 2, "1e+08": 2, "1e+09": 2, "+Inf": 2}
    assert [value for _, value in read_samples(metrics, "apiserver_response_sizes_sum")] == [2001]


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def read_open_requests(metrics: RequestMetrics) -> list[tuple[str, str, float]]:
    samples = read_samples(metrics, "apiserver_longrunning_requests")
    return [(labels["verb"], labels["resource"], value) for labels, value in samples]


async def test_a_watch_is_long_running_until_it_ends_and_has_no_duration(metrics: RequestMetrics) -> None:
    reply = await send_request(metrics, call(CORE, "watch=1"), Reply(200, stream=chunks(b"{}\n{}\n", b"{}\n")))
    assert read_only_labels(metrics, "apiserver_request_total")["verb"] == "WATCH"
    assert read_open_requests(metrics) == [("WATCH", "configmaps", 1)]
    assert [chunk async for chunk in read_stream(reply)] == [b"{}\n{}\n", b"{}\n"]
    assert read_open_requests(metrics) == [("WATCH", "configmaps", 0)]
    events = {"group": "", "version": "v1", "resource": "configmaps"}
    assert list(read_samples(metrics, "apiserver_watch_events_total")) == [(events, 3)]
    assert not list(read_samples(metrics, "apiserver_request_duration_seconds_count"))


async def test_a_head_request_is_not_long_running(metrics: RequestMetrics) -> None:
    stream = chunks(b"{}\n")
    reply = await send_request(metrics, call(CORE, "watch=1", method="HEAD"), Reply(200, stream=stream))
    assert reply.stream is stream
    assert not read_open_requests(metrics)


async def test_a_websocket_is_long_running_until_it_is_closed(metrics: RequestMetrics) -> None:
    async def run(socket: WebSocket) -> None:
        return None

    path = "/kubernetes/cluster/c/api/v1/namespaces/n/pods/p/exec"
    reply = await send_request(metrics, call(path), Reply(101, upgrade=Upgrade("v5", run)))
    assert read_open_requests(metrics) == [("CONNECT", "clusters", 1)]
    for close in reply.on_close:
        close()
    assert read_open_requests(metrics) == [("CONNECT", "clusters", 0)]


async def test_gateway_requests_are_counted_by_type_and_status_class_not_by_name(metrics: RequestMetrics) -> None:
    responses = (
        ("cluster/c1", 200),
        ("cluster/c2", 204),
        ("project/p/space/s", 404),
        ("project/p/virtualcluster/v", 777),
    )
    for path, status in responses:
        await send_request(metrics, call(f"/kubernetes/{path}/api/v1/pods"), Reply(status))
    samples = read_samples(metrics, "fairlead_gateway_requests_total")
    assert {(labels["gateway"], labels["code"]): value for labels, value in samples} == {
        ("cluster", "2xx"): 2,
        ("space", "4xx"): 1,
        ("virtualcluster", "other"): 1,
    }
    durations = read_samples(metrics, "fairlead_gateway_request_duration_seconds_count")
    assert {labels["gateway"]: value for labels, value in durations} == {"cluster": 2, "space": 1, "virtualcluster": 1}
    assert not list(read_samples(metrics, "apiserver_request_total"))


async def test_lines_of_gateway_streams_are_not_counted_as_watch_events(metrics: RequestMetrics) -> None:
    request = call("/kubernetes/cluster/c/api/v1/pods", "watch=1")
    reply = await send_request(metrics, request, Reply(200, stream=chunks(b"{}\n")))
    assert [chunk async for chunk in read_stream(reply)] == [b"{}\n"]
    assert not list(read_samples(metrics, "apiserver_watch_events_total"))


async def test_every_resource_of_the_catalog_has_its_own_labels(metrics: RequestMetrics) -> None:
    expected = set()
    for kind in CATALOG.kinds:
        prefix = f"{MOUNT}/apis/{kind.group}" if kind.group else f"{MOUNT}/api"
        namespace = "/namespaces/n" if kind.namespaced else ""
        for subresource in ("", *kind.subresources, *(action.name for action in kind.actions)):
            await send_request(metrics, call(f"{prefix}/{kind.version}{namespace}/{kind.plural}/x/{subresource}"))
            expected.add((kind.group, kind.version, kind.plural, subresource))
    samples = read_samples(metrics, "apiserver_request_total")
    assert {
        (labels["group"], labels["version"], labels["resource"], labels["subresource"]) for labels, _ in samples
    } == expected


async def reply_not_served(request: Call) -> Reply:
    """The response to requests for paths that are not served."""
    return Reply(404 if request.method in ("GET", "POST") else 405)


ROOT_PATHS = (
    "/",
    f"{MOUNT}/",
    f"{MOUNT}/apis/",
    f"{CLUSTERS}/c/",
    "/kubernetes/cluster/",
    "/kubernetes/project/p/space/",
)


def build_random_request(rng: random.Random) -> Call:
    word = "".join(rng.choices(string.ascii_letters, k=12))
    path = rng.choice((*ROOT_PATHS, f"{MOUNT}/apis/{word}/v1/", f"{MOUNT}/api/v1/namespaces/{word}/"))
    method = rng.choice(("GET", "POST", word.upper(), word))
    query = rng.choice(("", f"dryRun={word}", f"watch={word}"))
    headers = {"user-agent": word, "content-type": f"application/{word}"}
    return call(f"{path}{word}{rng.choice(('', '/a', '/a/b'))}", query, method=method, headers=headers)


def count_entries(metrics: RequestMetrics) -> list[int]:
    """The number of entries of each dictionary of the metrics."""
    return [len(value) for value in vars(metrics).values() if isinstance(value, dict)]


async def test_a_hundred_thousand_random_paths_user_agents_and_verbs_add_no_series(metrics: RequestMetrics) -> None:
    rng, serve = random.Random(37), build_pipeline(metrics, reply_not_served)
    for _ in range(2_000):  # so that every possible series exists
        await serve(build_random_request(rng))
    before, sizes = read_series(metrics), count_entries(metrics)
    for _ in range(100_000):
        await serve(build_random_request(rng))
    assert count_entries(metrics) == sizes  # before the page is rendered, which could be large
    after = read_series(metrics)
    assert set(after) == set(before)
    totals = ("apiserver_request_total", "fairlead_gateway_requests_total")
    assert sum(value for (name, _), value in after.items() if name in totals) == 102_000


async def test_names_of_objects_and_clients_are_not_in_any_label(metrics: RequestMetrics) -> None:
    for path in (
        f"{CORE}/secret-name",
        f"{CLUSTERS}/secret-name",
        "/secret-name",
        "/kubernetes/cluster/secret-name/api/v1/pods/secret-name",
    ):
        await send_request(metrics, call(path, "labelSelector=secret-name", headers={"user-agent": "secret-name"}))
    assert b"secret-name" not in render_families(request_families(metrics), TEXT)


def test_the_resources_of_gateways_are_in_the_catalog() -> None:
    """Their plurals become labels, too."""
    for path in ("cluster/c", "project/p/space/s", "project/p/virtualcluster/v"):
        gateway = route("GET", f"/kubernetes/{path}/api", {}, ROOTS).gateway
        assert gateway is not None
        assert CATALOG.find(gateway.group, gateway.version, gateway.resource) is not None
