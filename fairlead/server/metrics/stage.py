"""The stage that counts and times requests. It runs last, so it sees the final response.

It runs for every request, so it does little: one dict lookup and a few additions. The key describes the request and its
status code; the counter it maps to already has its labels. All labels come from closed sets: clients can send any path,
method or name without signing in, and each would otherwise become a new series here and in Prometheus. Requests outside
these sets share one series. `families.py` computes names, texts and sums when `/metrics` is scraped.

Watches, WebSockets and other streams are counted while they are open, but not timed: how long a client watches says
nothing about the server.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from fairlead.console.build import ASSETS_PATH, PAGES_PATH
from fairlead.core.call import CONSOLE, Call, Reply, RequestInfo, RequestShape
from fairlead.registry.kind import Catalog, Kind
from fairlead.server.api.content import media_type_of
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

    def resolve(self, call: Call, is_apply: bool) -> RequestLabels | None:
        """The labels of a request; None if its resource, path or verb is unknown."""
        target = call.target
        if not target.resource:
            verb_label = METHODS.get(call.method)
            path = labelled_path(target)
            return RequestLabels(verb_label, subresource=path) if verb_label and path in self._paths else None
        verb = "apply" if is_apply else target.verb
        scope = "resource" if target.name or verb == "create" else "namespace" if target.namespace else "cluster"
        verb_label = VERBS.get(verb)
        key = target.group, target.version, target.resource, target.subresource
        return RequestLabels(verb_label, *key, scope) if verb_label and key in self._resources else None


def labelled_path(target: RequestInfo) -> str:
    """The path in labels of a non-resource request. All pages of the console share one, and so do all its assets."""
    if target.root != CONSOLE:
        return target.path
    return ASSETS_PATH if target.path.startswith(ASSETS_PATH) else PAGES_PATH


def fallback_labels(call: Call, is_apply: bool) -> RequestLabels:
    """The labels of a request for an unknown resource or path: only a verb."""
    if not call.target.resource:
        return RequestLabels(METHODS.get(call.method, OTHER))
    return RequestLabels(VERBS.get("apply" if is_apply else call.target.verb, OTHER))


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
_APPLY_PATCH = "application/apply-patch+yaml"


CounterKey = tuple[RequestShape | tuple[str, str], bool, str, int]
"""The shape of a resource request, or method and path of another; whether it is an apply; dry run; status code."""


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

    def close_stream(self) -> None:
        self.open -= 1

    def count_events(self, chunk: bytes) -> None:
        """Adds the watch events of a chunk, one per line. Lines are long, so repeated `find` is faster than `count`."""
        at = chunk.find(b"\n")
        while at >= 0:
            self.events += 1
            at = chunk.find(b"\n", at + 1)


class RequestMetrics:
    """Counters of all requests since the start."""

    def __init__(self, labels: LabelResolver, gateway_types: Mapping[str, str] | None = None) -> None:
        """`gateway_types` are the label values of gateways, by `RequestInfo.root`."""
        self._labels = labels
        self.gateway_types = gateway_types or {}
        self._counter_cache: dict[CounterKey, RequestCounter] = {}
        self.in_flight = [0, 0]
        """Number of reads and of writes in flight, counted by the pipeline. Requests that complete without waiting are
        not included."""
        self.counters: dict[tuple[RequestLabels, str, str], RequestCounter] = {}
        """By labels, dry run and status code."""
        self.durations: dict[tuple[RequestLabels, str], Histogram] = {}
        self.sizes: dict[RequestLabels, Histogram] = {}
        self.open_streams: dict[RequestLabels, OpenStreams] = {}
        self.gateway_counts: dict[tuple[str, str], int] = {}
        """By gateway type and class of the status code."""
        self.gateway_durations = {root: Histogram(DURATION_BUCKETS) for root in sorted(self.gateway_types)}

    def record(self, call: Call, reply: Reply) -> None:
        target, query = call.target, call.query
        if target.gateway is not None:
            self._record_gateway(call, target.gateway, reply)
            return
        dry_run = dry_run_label(query["dryRun"]) if query and "dryRun" in query else ""
        is_apply = target.verb == "patch" and media_type_of(call) == _APPLY_PATCH
        key: CounterKey
        if target.resource:
            key = target.cached_shape or target.compute_shape(), is_apply, dry_run, reply.status
        else:
            key = (call.method, labelled_path(target)), is_apply, dry_run, reply.status
        counter = self._counter_cache.get(key) or self._resolve_counter(key, call)
        counter.count += 1
        if reply.stream is not None or reply.upgrade is not None:
            self._track_open(self._labels.resolve(call, is_apply) or fallback_labels(call, is_apply), call, reply)
            return
        if (histogram := counter.durations) is not None:
            seconds = call.seconds
            histogram.counts[bisect_left(DURATION_BUCKETS, seconds)] += 1
            histogram.sum += seconds
        if (histogram := counter.sizes) is not None:
            size = len(reply.body)
            histogram.counts[bisect_left(SIZE_BUCKETS, size)] += 1
            histogram.sum += size

    def _resolve_counter(self, key: CounterKey, call: Call) -> RequestCounter:
        """The counter of a key that is not in the cache. Adds it to the cache if its labels are known."""
        _, is_apply, dry_run, status = key
        labels = self._labels.resolve(call, is_apply)
        code = code_label(status)
        if labels is None:
            return self._counter_for(fallback_labels(call, is_apply), dry_run, code)
        counter = self._counter_for(labels, dry_run, code)
        if code != OTHER:
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

    def _record_gateway(self, call: Call, gateway: RequestInfo, reply: Reply) -> None:
        """Counts a request through a gateway. Its duration is the time until the response starts."""
        key = gateway.root, code_class(reply.status)
        self.gateway_counts[key] = self.gateway_counts.get(key, 0) + 1
        self.gateway_durations[gateway.root].observe(call.seconds)
        if reply.stream is not None or reply.upgrade is not None:
            self._track_open(gateway_labels(gateway), call, reply)

    def _track_open(self, labels: RequestLabels, call: Call, reply: Reply) -> None:
        """Counts a stream or WebSocket while it is open. A HEAD response has no stream."""
        if reply.upgrade is None and call.method == "HEAD":
            return
        streams = self.open_streams.setdefault(labels, OpenStreams())
        streams.open += 1
        reply.on_close += (streams.close_stream,)
        if labels.verb == WATCH:
            reply.on_chunk += (streams.count_events,)
