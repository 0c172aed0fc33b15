"""What is counted of requests, under which labels, and that nobody can make more of them."""

import asyncio
import random
import string
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.core.call import Call, Handler, Reply, Upgrade, WebSocket
from fairlead.core.errors import Forbidden, NotFound
from fairlead.kinds import KINDS
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog
from fairlead.server.api.routing import RouteConfig, route, routing_stage
from fairlead.server.metrics.exposition import TEXT, render_families
from fairlead.server.metrics.families import request_families
from fairlead.server.metrics.stage import LabelResolver, RequestMetrics
from fairlead.server.pipeline import Pipeline, PipelineOptions
from tests.harness.calls import always_raise, always_reply, call, read_stream

MOUNT = "/kubernetes/management"
ROOTS = RouteConfig(MOUNT, MANAGEMENT_GROUP, "service-p-")
CORE = f"{MOUNT}/api/v1/namespaces/demo/configmaps"
CLUSTERS = f"{MOUNT}/apis/{MANAGEMENT_GROUP}/v1/clusters"
CATALOG = Catalog(KINDS)
PATHS = ("/healthz", "/metrics")

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Ticking:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def requests() -> RequestMetrics:
    return RequestMetrics(LabelResolver(CATALOG, PATHS))


def served(requests: RequestMetrics, end: Handler, clock: Callable[[], float] = time.perf_counter) -> Handler:
    options = PipelineOptions(60, requests.in_flight, clock=clock)
    return Pipeline((routing_stage(ROOTS),), end, (requests.record,), (), options)


async def ask(requests: RequestMetrics, asked: Call, reply: Reply | None = None) -> Reply:
    return await served(requests, always_reply(reply or Reply(200, b"{}")))(asked)


def series(requests: RequestMetrics) -> Series:
    """Everything that a scraper gets, read by a parser that is not ours."""
    page = render_families(request_families(requests), TEXT).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def samples(requests: RequestMetrics, name: str) -> Iterator[tuple[dict[str, str], float]]:
    return ((dict(labels), value) for (each, labels), value in series(requests).items() if each == name)


def only(requests: RequestMetrics, name: str) -> dict[str, str]:
    """The labels of the one series by that name, without the component, which is always the same."""
    ((labels, value),) = samples(requests, name)
    assert value == 1
    assert labels.pop("component") == "apiserver"
    return labels


def about(verb: str, group: str, resource: str, subresource: str, scope: str) -> dict[str, str]:
    version = "v1" if resource else ""
    told = {"verb": verb, "group": group, "version": version}
    return {**told, "resource": resource, "subresource": subresource, "scope": scope}


@pytest.mark.parametrize(
    ("method", "path", "labels"),
    [
        ("GET", f"{CORE}/a", about("GET", "", "configmaps", "", "resource")),
        ("HEAD", f"{CORE}/a", about("GET", "", "configmaps", "", "resource")),
        ("GET", CORE, about("LIST", "", "configmaps", "", "namespace")),
        ("GET", f"{MOUNT}/api/v1/configmaps", about("LIST", "", "configmaps", "", "cluster")),
        ("POST", CORE, about("POST", "", "configmaps", "", "resource")),
        ("PUT", f"{CORE}/a", about("PUT", "", "configmaps", "", "resource")),
        ("DELETE", f"{CORE}/a", about("DELETE", "", "configmaps", "", "resource")),
        ("DELETE", CORE, about("DELETECOLLECTION", "", "configmaps", "", "namespace")),
        ("GET", CLUSTERS, about("LIST", MANAGEMENT_GROUP, "clusters", "", "cluster")),
        ("PUT", f"{CLUSTERS}/c/status", about("PUT", MANAGEMENT_GROUP, "clusters", "status", "resource")),
        ("GET", "/healthz", about("GET", "", "", "/healthz", "")),
        ("GET", f"{MOUNT}/healthz", about("GET", "", "", "/healthz", "")),
        ("GET", "/nowhere", about("GET", "", "", "", "")),
        ("OPTIONS", "/nowhere", about("OPTIONS", "", "", "", "")),
        ("BREW", "/nowhere", about("other", "", "", "", "")),
        ("BREW", "/healthz", about("other", "", "", "", "")),
        ("get", "/healthz", about("other", "", "", "", "")),
        ("BREW", CORE, about("other", "", "", "", "")),
        ("GET", f"{MOUNT}/apis/made.up/v1/clusters", about("LIST", "", "", "", "")),
        ("GET", f"{MOUNT}/apis/{MANAGEMENT_GROUP}/v9/clusters", about("LIST", "", "", "", "")),
        ("GET", f"{CLUSTERS}/c/madeup", about("GET", "", "", "", "")),
        ("GET", f"{CLUSTERS}/..", about("GET", "", "", "", "")),
    ],
)
async def test_labels_are_those_of_kubernetes_and_empty_for_what_is_not_served(
    requests: RequestMetrics, method: str, path: str, labels: dict[str, str]
) -> None:
    for _ in range(2):  # once as something new, once as something known
        reply = await ask(requests, call(path, method=method))
    ((found, count),) = samples(requests, "apiserver_request_total")
    assert found == {**labels, "component": "apiserver", "dry_run": "", "code": str(reply.status)}
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
async def test_applying_is_told_apart_from_patching(requests: RequestMetrics, content_type: str, verb: str) -> None:
    await ask(requests, call(f"{CORE}/a", method="PATCH", headers={"content-type": content_type}))
    assert only(requests, "apiserver_request_total")["verb"] == verb


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
async def test_dry_runs_are_told_apart(requests: RequestMetrics, query: str, label: str) -> None:
    await ask(requests, call(CORE, query, method="POST"))
    assert only(requests, "apiserver_request_total")["dry_run"] == label
    assert only(requests, "apiserver_request_duration_seconds_count")["dry_run"] == label
    assert "dry_run" not in only(requests, "apiserver_request_sli_duration_seconds_count")


@pytest.mark.parametrize(
    ("error", "code"), [(NotFound("no"), "404"), (Forbidden("no"), "403"), (RuntimeError("oh"), "500")]
)
async def test_whatever_went_wrong_is_counted_by_its_code(
    requests: RequestMetrics, error: Exception, code: str
) -> None:
    await served(requests, always_raise(error))(call(CORE))
    assert only(requests, "apiserver_request_total")["code"] == code


async def test_a_code_that_does_not_exist_shares_its_series_with_all_others(requests: RequestMetrics) -> None:
    for status in (299, 512, 999):
        await ask(requests, call(CORE), Reply(status))
    ((labels, count),) = samples(requests, "apiserver_request_total")
    assert (labels["code"], count) == ("other", 3)


async def test_a_request_given_up_is_neither_counted_nor_under_way(requests: RequestMetrics) -> None:
    with pytest.raises(asyncio.CancelledError):
        await served(requests, always_raise(asyncio.CancelledError()))(call(CORE))
    assert requests.in_flight == [0, 0]
    assert not list(samples(requests, "apiserver_request_total"))


async def test_what_waits_for_its_answer_is_under_way(requests: RequestMetrics) -> None:
    seen: list[dict[str, float]] = []

    async def look(asked: Call) -> Reply:
        await asyncio.sleep(0)
        found = samples(requests, "apiserver_current_inflight_requests")
        seen.append({labels["request_kind"]: value for labels, value in found})
        return Reply(200)

    for method in ("GET", "DELETE"):
        await served(requests, look)(call(CORE, method=method))
    assert seen == [{"readOnly": 1, "mutating": 0}, {"readOnly": 0, "mutating": 1}]
    assert requests.in_flight == [0, 0]


async def test_durations_are_counted_by_kubernetes_bounds(requests: RequestMetrics, clock: Ticking) -> None:
    async def take(asked: Call) -> Reply:
        clock.seconds += float(asked.query["seconds"][0])
        return Reply(200)

    for seconds in ("0.0625", "0.5", "100"):
        await served(requests, take, clock)(call(CORE, f"seconds={seconds}"))
    for name in ("apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds"):
        buckets = {labels["le"]: value for labels, value in samples(requests, f"{name}_bucket")}
        expected = {"0.05": 0, "0.1": 1, "0.4": 1, "0.6": 2, "1.25": 2, "60": 2, "+Inf": 3}
        assert {bound: buckets[bound] for bound in expected} == expected
        assert ("0.005" in buckets) == ("sli" not in name)
        assert [value for _, value in samples(requests, f"{name}_sum")] == [100.5625]
        assert [value for _, value in samples(requests, f"{name}_count")] == [3]


async def test_dry_runs_and_others_are_one_service_level(requests: RequestMetrics) -> None:
    for query in ("", "dryRun=All", "dryRun=All"):
        await ask(requests, call(CORE, query, method="POST"))
    assert sorted(value for _, value in samples(requests, "apiserver_request_duration_seconds_count")) == [1, 2]
    assert [value for _, value in samples(requests, "apiserver_request_sli_duration_seconds_count")] == [3]


async def test_sizes_are_those_of_answers_to_reads(requests: RequestMetrics) -> None:
    await ask(requests, call(CORE), Reply(200, b"x" * 1000))
    await ask(requests, call(CORE), Reply(200, b"x" * 1001))
    await ask(requests, call(CORE, method="POST"), Reply(201, b"x"))
    buckets = {labels["le"]: value for labels, value in samples(requests, "apiserver_response_sizes_bucket")}
    assert buckets == {"1000": 1, "10000": 2, "100000": 2, "1e+06": 2, "1e+07": 2, "1e+08": 2, "1e+09": 2, "+Inf": 2}
    assert [value for _, value in samples(requests, "apiserver_response_sizes_sum")] == [2001]


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def open_now(requests: RequestMetrics) -> list[tuple[str, str, float]]:
    found = samples(requests, "apiserver_longrunning_requests")
    return [(labels["verb"], labels["resource"], value) for labels, value in found]


async def test_a_watch_is_open_until_its_end_and_never_timed(requests: RequestMetrics) -> None:
    reply = await ask(requests, call(CORE, "watch=1"), Reply(200, stream=chunks(b"{}\n{}\n", b"{}\n")))
    assert only(requests, "apiserver_request_total")["verb"] == "WATCH"
    assert open_now(requests) == [("WATCH", "configmaps", 1)]
    assert [chunk async for chunk in read_stream(reply)] == [b"{}\n{}\n", b"{}\n"]
    assert open_now(requests) == [("WATCH", "configmaps", 0)]
    events = {"group": "", "version": "v1", "resource": "configmaps"}
    assert list(samples(requests, "apiserver_watch_events_total")) == [(events, 3)]
    assert not list(samples(requests, "apiserver_request_duration_seconds_count"))


async def test_a_head_opens_nothing(requests: RequestMetrics) -> None:
    stream = chunks(b"{}\n")
    reply = await ask(requests, call(CORE, "watch=1", method="HEAD"), Reply(200, stream=stream))
    assert reply.stream is stream
    assert not open_now(requests)


async def test_a_websocket_is_open_until_it_is_closed(requests: RequestMetrics) -> None:
    async def run(socket: WebSocket) -> None:
        return None

    path = "/kubernetes/cluster/c/api/v1/namespaces/n/pods/p/exec"
    reply = await ask(requests, call(path), Reply(101, upgrade=Upgrade("v5", run)))
    assert open_now(requests) == [("CONNECT", "clusters", 1)]
    for close in reply.on_close:
        close()
    assert open_now(requests) == [("CONNECT", "clusters", 0)]


async def test_gateways_are_counted_by_sort_and_class_and_never_by_name(requests: RequestMetrics) -> None:
    answers = (
        ("cluster/c1", 200),
        ("cluster/c2", 204),
        ("project/p/space/s", 404),
        ("project/p/virtualcluster/v", 777),
    )
    for path, status in answers:
        await ask(requests, call(f"/kubernetes/{path}/api/v1/pods"), Reply(status))
    found = samples(requests, "fairlead_gateway_requests_total")
    assert {(labels["gateway"], labels["code"]): value for labels, value in found} == {
        ("cluster", "2xx"): 2,
        ("space", "4xx"): 1,
        ("virtualcluster", "other"): 1,
    }
    timed = samples(requests, "fairlead_gateway_request_duration_seconds_count")
    assert {labels["gateway"]: value for labels, value in timed} == {"cluster": 2, "space": 1, "virtualcluster": 1}
    assert not list(samples(requests, "apiserver_request_total"))


async def test_lines_that_clusters_send_are_no_events_of_ours(requests: RequestMetrics) -> None:
    asked = call("/kubernetes/cluster/c/api/v1/pods", "watch=1")
    reply = await ask(requests, asked, Reply(200, stream=chunks(b"{}\n")))
    assert [chunk async for chunk in read_stream(reply)] == [b"{}\n"]
    assert not list(samples(requests, "apiserver_watch_events_total"))


async def test_everything_in_the_catalog_is_known_by_its_name(requests: RequestMetrics) -> None:
    expected = set()
    for kind in CATALOG.kinds:
        prefix = f"{MOUNT}/apis/{kind.group}" if kind.group else f"{MOUNT}/api"
        within = "/namespaces/n" if kind.namespaced else ""
        for below in ("", *kind.subresources, *(action.name for action in kind.actions)):
            await ask(requests, call(f"{prefix}/{kind.version}{within}/{kind.plural}/x/{below}"))
            expected.add((kind.group, kind.version, kind.plural, below))
    found = samples(requests, "apiserver_request_total")
    assert {(each["group"], each["version"], each["resource"], each["subresource"]) for each, _ in found} == expected


async def not_served(asked: Call) -> Reply:
    """What those are told in the end who make things up."""
    return Reply(404 if asked.method in ("GET", "POST") else 405)


PLACES = ("/", f"{MOUNT}/", f"{MOUNT}/apis/", f"{CLUSTERS}/c/", "/kubernetes/cluster/", "/kubernetes/project/p/space/")


def made_up(chance: random.Random) -> Call:
    word = "".join(chance.choices(string.ascii_letters, k=12))
    path = chance.choice((*PLACES, f"{MOUNT}/apis/{word}/v1/", f"{MOUNT}/api/v1/namespaces/{word}/"))
    method = chance.choice(("GET", "POST", word.upper(), word))
    query = chance.choice(("", f"dryRun={word}", f"watch={word}"))
    headers = {"user-agent": word, "content-type": f"application/{word}"}
    return call(f"{path}{word}{chance.choice(('', '/a', '/a/b'))}", query, method=method, headers=headers)


def held(requests: RequestMetrics) -> list[int]:
    """How much is kept of each sort of thing."""
    return [len(each) for each in vars(requests).values() if isinstance(each, dict)]


async def test_a_hundred_thousand_random_paths_user_agents_and_verbs_add_no_series(requests: RequestMetrics) -> None:
    chance, serve = random.Random(37), served(requests, not_served)
    for _ in range(2_000):  # so that everything has its series that can have one
        await serve(made_up(chance))
    before, sizes = series(requests), held(requests)
    for _ in range(100_000):
        await serve(made_up(chance))
    assert held(requests) == sizes  # before the page is made, which could be a huge one
    after = series(requests)
    assert set(after) == set(before)
    totals = ("apiserver_request_total", "fairlead_gateway_requests_total")
    assert sum(value for (name, _), value in after.items() if name in totals) == 102_000


async def test_names_that_people_give_are_in_no_label(requests: RequestMetrics) -> None:
    for path in (f"{CORE}/geheim", f"{CLUSTERS}/geheim", "/geheim", "/kubernetes/cluster/geheim/api/v1/pods/geheim"):
        await ask(requests, call(path, "labelSelector=geheim", headers={"user-agent": "geheim"}))
    assert b"geheim" not in render_families(request_families(requests), TEXT)


def test_gateways_lead_through_resources_that_are_served() -> None:
    """Their plurals become labels, too."""
    for path in ("cluster/c", "project/p/space/s", "project/p/virtualcluster/v"):
        via = route("GET", f"/kubernetes/{path}/api", {}, ROOTS).gateway
        assert via is not None
        assert CATALOG.find(via.group, via.version, via.resource) is not None
