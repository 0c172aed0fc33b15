"""The stage that counts and times requests. It runs outside all other stages, so it sees the final response.

It runs for every request, so it does little: one dict lookup and a few additions. The key describes the request and its
status code; the counter it maps to already has its labels. All labels come from closed sets: clients can send any path,
method or name without signing in, and each would otherwise become a new series here and in Prometheus. Requests outside
these sets share one series. `families.py` computes names, texts and sums when `/metrics` is scraped.

Watches, WebSockets and other streams are counted while they are open, but not timed: how long a client watches says
nothing about the server.
"""

import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus

from fairlead.authz.scope.gateway_requests import CLUSTER, GATEWAY_ROOTS, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import Call, Reply, RequestInfo, Upgrade, WebSocket
from fairlead.registry.kind import Catalog, Kind
from fairlead.server.api.content import media_type_of
from fairlead.server.http.pipeline import Handler
from fairlead.server.http.step_timer import MIN_REPORTED_SECONDS, StepObserver, await_and_time
from fairlead.server.metrics.exposition import Histogram

OTHER = "other"
"""The label for every unknown verb and status code."""

WATCH, CONNECT, APPLY = "WATCH", "CONNECT", "APPLY"
VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": WATCH,
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "apply": APPLY,
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}
"""The verb labels of resource requests, as in Kubernetes: mostly the HTTP method."""
METHODS = {"HEAD": "GET", **{method: method for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}}
CODES = frozenset(map(int, HTTPStatus))
GATEWAY_TYPES = {CLUSTER: "cluster", SPACE: "space", VIRTUAL_CLUSTER: "virtualcluster"}


@dataclass(frozen=True, slots=True)
class RequestLabels:
    """The labels of a request. A request for an unknown resource or path has only a verb."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""


class LabelResolver:
    """The closed set of labels: the catalog's resources and subresources, and the non-resource `paths`."""

    def __init__(self, catalog: Catalog, paths: Iterable[str] = ()) -> None:
        self._resources = frozenset(key for kind in catalog.kinds for key in _resource_keys(kind))
        self._paths = frozenset(paths)

    def resolve(self, call: Call, verb: str, scope: str) -> RequestLabels | None:
        """The labels of a request; None if its resource, path or verb is unknown."""
        target = call.target
        if not target.resource:
            verb_label = METHODS.get(call.method)
            return (
                RequestLabels(verb_label, subresource=target.path)
                if verb_label and target.path in self._paths
                else None
            )
        verb_label = VERBS.get(verb)
        key = target.group, target.version, target.resource, target.subresource
        return RequestLabels(verb_label, *key, scope) if verb_label and key in self._resources else None


def fallback_verb(call: Call, verb: str) -> str:
    """The only label of a request for an unknown resource or path."""
    return VERBS.get(verb, OTHER) if call.target.resource else METHODS.get(call.method, OTHER)


def gateway_labels(gateway: RequestInfo) -> RequestLabels:
    """The labels of streams through a gateway. Without its name, because names are not a closed set."""
    return RequestLabels(CONNECT, gateway.group, gateway.version, gateway.resource, scope="resource")


def code_label(status: int) -> str:
    return str(status) if status in CODES else OTHER


def code_class(status: int) -> str:
    """The class of a cluster's status code, which can be any number."""
    return f"{status // 100}xx" if 100 <= status < 600 else OTHER


def dry_run_label(values: Iterable[str]) -> str:
    return "All" if set(values) == {"All"} else "invalid"


def _resource_keys(kind: Kind) -> Iterator[tuple[str, str, str, str]]:
    for below in ("", *kind.subresources, *(action.name for action in kind.actions)):
        yield kind.group, kind.version, kind.plural, below


DURATION_BUCKETS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0),
    *(3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
SIZE_BUCKETS = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
_SIZED_VERBS = frozenset({"GET", "LIST"})
_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_APPLY_PATCH = "application/apply-patch+yaml"


class RequestCounter:
    """Counts the responses with one status code. Counters with the same labels share histograms; some have none."""

    __slots__ = ("count", "durations", "sizes")

    def __init__(self, durations: Histogram | None, sizes: Histogram | None) -> None:
        self.count = 0
        self.durations = durations
        self.sizes = sizes


class OpenStreams:
    """The number of open streams, and of watch events sent since the start."""

    __slots__ = ("events", "open")

    def __init__(self) -> None:
        self.open = 0
        self.events = 0


def _ignore(call: Call, seconds: float) -> None:
    return None


class RequestMetrics:
    """Counters of all requests since the start. `now` is a monotonic clock in seconds.

    `on_slow_step` is called with the seconds that a request ran on the event loop between two awaits, if noticeable.
    """

    def __init__(
        self, labels: LabelResolver, now: Callable[[], float] = time.perf_counter, on_slow_step: StepObserver = _ignore
    ) -> None:
        self._labels = labels
        self._now = now
        self._on_slow_step = on_slow_step
        self._counter_cache: dict[tuple[str | int, ...], RequestCounter] = {}
        self.in_flight = [0, 0]
        """Number of reads and of writes in flight. Requests that complete without awaiting are not included."""
        self.counters: dict[tuple[RequestLabels, str, str], RequestCounter] = {}
        """By labels, dry run and status code."""
        self.durations: dict[tuple[RequestLabels, str], Histogram] = {}
        self.sizes: dict[RequestLabels, Histogram] = {}
        self.open_streams: dict[RequestLabels, OpenStreams] = {}
        self.gateway_counts: dict[tuple[str, str], int] = {}
        """By gateway type and class of the status code."""
        self.gateway_durations = {root: Histogram(DURATION_BUCKETS) for root in sorted(GATEWAY_ROOTS)}

    def measure(self, call: Call, proceed: Handler) -> Awaitable[Reply]:
        started = self._now()
        answer = proceed(call)
        seconds = self._now() - started
        if seconds > MIN_REPORTED_SECONDS:
            self._on_slow_step(call, seconds)
        return (
            self._record(call, answer, seconds)
            if isinstance(answer, Reply)
            else self._measure_async(call, answer, started)
        )

    async def _measure_async(self, call: Call, pending_reply: Awaitable[Reply], started: float) -> Reply:
        in_flight, is_write = self.in_flight, call.method not in _READ_METHODS
        in_flight[is_write] += 1
        try:
            reply = await await_and_time(pending_reply, call, self._on_slow_step)
        finally:
            in_flight[is_write] -= 1
        return self._record(call, reply, self._now() - started)

    def _record(self, call: Call, reply: Reply, seconds: float) -> Reply:
        target, status, query = call.target, reply.status, call.query
        if target.gateway is not None:
            return self._record_gateway(call, target.gateway, reply, seconds)
        dry_run = dry_run_label(query["dryRun"]) if query and "dryRun" in query else ""
        verb, scope = target.verb, ""
        key: tuple[str | int, ...]
        if target.resource:
            if verb == "patch" and media_type_of(call) == _APPLY_PATCH:
                verb = "apply"
            scope = "resource" if target.name or verb == "create" else "namespace" if target.namespace else "cluster"
            key = verb, target.group, target.version, target.resource, target.subresource, scope, dry_run, status
        else:
            key = call.method, target.path, dry_run, status
        counter = self._counter_cache.get(key) or self._resolve_counter(key, call, verb, scope)
        counter.count += 1
        if reply.stream is not None or reply.upgrade is not None:
            return self._track_open(
                self._labels.resolve(call, verb, scope) or RequestLabels(fallback_verb(call, verb)), call, reply
            )
        if (histogram := counter.durations) is not None:
            histogram.counts[bisect_left(DURATION_BUCKETS, seconds)] += 1
            histogram.sum += seconds
        if (histogram := counter.sizes) is not None:
            size = len(reply.body)
            histogram.counts[bisect_left(SIZE_BUCKETS, size)] += 1
            histogram.sum += size
        return reply

    def _resolve_counter(self, key: tuple[str | int, ...], call: Call, verb: str, scope: str) -> RequestCounter:
        """The counter of a key that is not in the cache. Adds it to the cache if its labels are known."""
        *_, dry_run, status = key
        labels, code = self._labels.resolve(call, verb, scope), code_label(int(status))
        if labels is None:
            key = fallback_verb(call, verb), dry_run, code  # again from closed sets, so these can be cached too
            counter = self._counter_cache.get(key)
            if counter is not None:
                return counter
        counter = self._counter_for(labels or RequestLabels(fallback_verb(call, verb)), str(dry_run), code)
        if labels is None or code != OTHER:
            self._counter_cache[key] = counter
        return counter

    def _counter_for(self, labels: RequestLabels, dry_run: str, code: str) -> RequestCounter:
        counter = self.counters.get((labels, dry_run, code))
        if counter is None:
            timed = labels.verb != WATCH
            durations = self.durations.setdefault((labels, dry_run), Histogram(DURATION_BUCKETS)) if timed else None
            sizes = self.sizes.setdefault(labels, Histogram(SIZE_BUCKETS)) if labels.verb in _SIZED_VERBS else None
            counter = self.counters[labels, dry_run, code] = RequestCounter(durations, sizes)
        return counter

    def _record_gateway(self, call: Call, gateway: RequestInfo, reply: Reply, seconds: float) -> Reply:
        """Counts a request through a gateway. Its duration is the time until the response starts."""
        key = gateway.root, code_class(reply.status)
        self.gateway_counts[key] = self.gateway_counts.get(key, 0) + 1
        self.gateway_durations[gateway.root].observe(seconds)
        lasts = reply.stream is not None or reply.upgrade is not None
        return self._track_open(gateway_labels(gateway), call, reply) if lasts else reply

    def _track_open(self, labels: RequestLabels, call: Call, reply: Reply) -> Reply:
        """Counts a stream or WebSocket while it is open. A HEAD response has no stream."""
        if reply.upgrade is not None:
            reply.upgrade = _track_upgrade(self._streams_for(labels), reply.upgrade)
        elif reply.stream is not None and call.method != "HEAD":
            reply.stream = _track_stream(self._streams_for(labels), reply.stream, labels.verb == WATCH)
        return reply

    def _streams_for(self, labels: RequestLabels) -> OpenStreams:
        return self.open_streams.setdefault(labels, OpenStreams())


async def _track_stream(streams: OpenStreams, chunks: AsyncIterator[bytes], has_events: bool) -> AsyncIterator[bytes]:
    """Counts from the first iteration on: a generator that is never started never runs its `finally`."""
    streams.open += 1
    try:
        async for chunk in chunks:
            if has_events:
                streams.events += _count_lines(chunk)
            yield chunk
    finally:
        streams.open -= 1
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def _count_lines(chunk: bytes) -> int:
    """The number of watch events, one per line. Lines are long, so repeated `find` is faster than `count`."""
    lines, at = 0, chunk.find(b"\n")
    while at >= 0:
        lines, at = lines + 1, chunk.find(b"\n", at + 1)
    return lines


def _track_upgrade(streams: OpenStreams, upgrade: Upgrade) -> Upgrade:
    async def run(socket: WebSocket) -> None:
        streams.open += 1
        try:
            await upgrade.run(socket)
        finally:
            streams.open -= 1

    return Upgrade(upgrade.subprotocol, run)
