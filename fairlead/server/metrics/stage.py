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

from fairlead.authz.scope.names import CLUSTER, GATEWAYS, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import Call, Reply, Socket, Target, Upgrade
from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Kind
from fairlead.server.api.content import media_type_of
from fairlead.server.http.pipeline import Proceed
from fairlead.server.http.step_timer import NOTICEABLE, Note, timed_steps
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
ENTRANCES = {CLUSTER: "cluster", SPACE: "space", VIRTUAL_CLUSTER: "virtualcluster"}


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of a request. A request for an unknown resource or path has only a verb."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""


class Known:
    """The closed set of labels: the catalog's resources and subresources, and the non-resource `paths`."""

    def __init__(self, catalog: Catalog, paths: Iterable[str] = ()) -> None:
        self._places = frozenset(key for kind in catalog.kinds for key in _places(kind))
        self._paths = frozenset(paths)

    def labels(self, call: Call, verb: str, scope: str) -> Labels | None:
        """The labels of a request; None if its resource, path or verb is unknown."""
        target = call.target
        if not target.resource:
            verb_label = METHODS.get(call.method)
            return Labels(verb_label, subresource=target.path) if verb_label and target.path in self._paths else None
        verb_label = VERBS.get(verb)
        key = target.group, target.version, target.resource, target.subresource
        return Labels(verb_label, *key, scope) if verb_label and key in self._places else None


def unknown_verb(call: Call, verb: str) -> str:
    """The only label of a request for an unknown resource or path."""
    return VERBS.get(verb, OTHER) if call.target.resource else METHODS.get(call.method, OTHER)


def entrance(via: Target) -> Labels:
    """The labels of streams through a gateway. Without its name, because names are not a closed set."""
    return Labels(CONNECT, via.group, via.version, via.resource, scope="resource")


def code_label(status: int) -> str:
    return str(status) if status in CODES else OTHER


def code_class(status: int) -> str:
    """The class of a cluster's status code, which can be any number."""
    return f"{status // 100}xx" if 100 <= status < 600 else OTHER


def dry_run_label(values: Iterable[str]) -> str:
    return "All" if set(values) == {"All"} else "invalid"


def _places(kind: Kind) -> Iterator[tuple[str, str, str, str]]:
    for below in ("", *kind.subresources, *(action.name for action in kind.actions)):
        yield kind.group, kind.version, kind.plural, below


DURATIONS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0),
    *(3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
_SIZED = frozenset({"GET", "LIST"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_APPLY = "application/apply-patch+yaml"


class Tally:
    """Counts the responses with one status code. Counters with the same labels share histograms; some have none."""

    __slots__ = ("count", "durations", "sizes")

    def __init__(self, durations: Histogram | None, sizes: Histogram | None) -> None:
        self.count = 0
        self.durations = durations
        self.sizes = sizes


class Lasting:
    """The number of open streams, and of watch events sent since the start."""

    __slots__ = ("events", "open")

    def __init__(self) -> None:
        self.open = 0
        self.events = 0


def _ignore(call: Call, seconds: float) -> None:
    return None


class Requests:
    """Counters of all requests since the start. `now` is a monotonic clock in seconds.

    `on_slow_step` is called with the seconds that a request ran on the event loop between two awaits, if noticeable.
    """

    def __init__(self, known: Known, now: Callable[[], float] = time.perf_counter, note: Note = _ignore) -> None:
        self._known = known
        self._now = now
        self._note = note
        self._kept: dict[tuple[str | int, ...], Tally] = {}
        self.under_way = [0, 0]
        """Number of reads and of writes in flight. Requests that complete without awaiting are not included."""
        self.tallies: dict[tuple[Labels, str, str], Tally] = {}
        """By labels, dry run and status code."""
        self.durations: dict[tuple[Labels, str], Histogram] = {}
        self.sizes: dict[Labels, Histogram] = {}
        self.lasting: dict[Labels, Lasting] = {}
        self.gateways: dict[tuple[str, str], int] = {}
        """By gateway type and class of the status code."""
        self.gateway_durations = {root: Histogram(DURATIONS) for root in sorted(GATEWAYS)}

    def measured(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        started = self._now()
        answer = proceed(call)
        seconds = self._now() - started
        if seconds > NOTICEABLE:
            self._note(call, seconds)
        return self._count(call, answer, seconds) if isinstance(answer, Reply) else self._later(call, answer, started)

    async def _later(self, call: Call, answer: Awaitable[Reply], begun: float) -> Reply:
        in_flight, is_write = self.under_way, call.method not in _READS
        in_flight[is_write] += 1
        try:
            reply = await timed_steps(answer, call, self._note)
        finally:
            in_flight[is_write] -= 1
        return self._count(call, reply, self._now() - begun)

    def _count(self, call: Call, reply: Reply, seconds: float) -> Reply:
        target, status, query = call.target, reply.status, call.query
        if target.via is not None:
            return self._through(call, target.via, reply, seconds)
        dry_run = dry_run_label(query["dryRun"]) if query and "dryRun" in query else ""
        verb, scope = target.verb, ""
        key: tuple[str | int, ...]
        if target.resource:
            if verb == "patch" and media_type_of(call) == _APPLY:
                verb = "apply"
            scope = "resource" if target.name or verb == "create" else "namespace" if target.namespace else "cluster"
            key = verb, target.group, target.version, target.resource, target.subresource, scope, dry_run, status
        else:
            key = call.method, target.path, dry_run, status
        counter = self._kept.get(key) or self._found(key, call, verb, scope)
        counter.count += 1
        if reply.stream is not None or reply.upgrade is not None:
            return self._last(self._known.labels(call, verb, scope) or Labels(unknown_verb(call, verb)), call, reply)
        if (histogram := counter.durations) is not None:
            histogram.counts[bisect_left(DURATIONS, seconds)] += 1
            histogram.sum += seconds
        if (histogram := counter.sizes) is not None:
            size = len(reply.body)
            histogram.counts[bisect_left(SIZES, size)] += 1
            histogram.sum += size
        return reply

    def _found(self, key: tuple[str | int, ...], call: Call, verb: str, scope: str) -> Tally:
        """The counter of a key that is not in the cache. Adds it to the cache if its labels are known."""
        *_, dry_run, status = key
        labels, code = self._known.labels(call, verb, scope), code_label(int(status))
        if labels is None:
            key = unknown_verb(call, verb), dry_run, code  # again from closed sets, so these can be cached too
            counter = self._kept.get(key)
            if counter is not None:
                return counter
        counter = self._tally(labels or Labels(unknown_verb(call, verb)), str(dry_run), code)
        if labels is None or code != OTHER:
            self._kept[key] = counter
        return counter

    def _tally(self, labels: Labels, dry_run: str, code: str) -> Tally:
        counter = self.tallies.get((labels, dry_run, code))
        if counter is None:
            timed = labels.verb != WATCH
            durations = self.durations.setdefault((labels, dry_run), Histogram(DURATIONS)) if timed else None
            sizes = self.sizes.setdefault(labels, Histogram(SIZES)) if labels.verb in _SIZED else None
            counter = self.tallies[labels, dry_run, code] = Tally(durations, sizes)
        return counter

    def _through(self, call: Call, via: Target, reply: Reply, seconds: float) -> Reply:
        """Counts a request through a gateway. Its duration is the time until the response starts."""
        key = via.root, code_class(reply.status)
        self.gateways[key] = self.gateways.get(key, 0) + 1
        self.gateway_durations[via.root].observe(seconds)
        lasts = reply.stream is not None or reply.upgrade is not None
        return self._last(entrance(via), call, reply) if lasts else reply

    def _last(self, labels: Labels, call: Call, reply: Reply) -> Reply:
        """Counts a stream or WebSocket while it is open. A HEAD response has no stream."""
        if reply.upgrade is not None:
            reply.upgrade = _accompanied(self._lasting(labels), reply.upgrade)
        elif reply.stream is not None and call.method != "HEAD":
            reply.stream = _followed(self._lasting(labels), reply.stream, labels.verb == WATCH)
        return reply

    def _lasting(self, labels: Labels) -> Lasting:
        return self.lasting.setdefault(labels, Lasting())


async def _followed(lasting: Lasting, chunks: AsyncIterator[bytes], has_events: bool) -> AsyncIterator[bytes]:
    """Counts from the first iteration on: a generator that is never started never runs its `finally`."""
    lasting.open += 1
    try:
        async for chunk in chunks:
            if has_events:
                lasting.events += _count_lines(chunk)
            yield chunk
    finally:
        lasting.open -= 1
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def _count_lines(chunk: bytes) -> int:
    """The number of watch events, one per line. Lines are long, so repeated `find` is faster than `count`."""
    lines, at = 0, chunk.find(b"\n")
    while at >= 0:
        lines, at = lines + 1, chunk.find(b"\n", at + 1)
    return lines


def _accompanied(lasting: Lasting, upgrade: Upgrade) -> Upgrade:
    async def run(socket: Socket) -> None:
        lasting.open += 1
        try:
            await upgrade.run(socket)
        finally:
            lasting.open -= 1

    return Upgrade(upgrade.protocol, run)
