"""The stage that counts. It stands outside of all others, so that it sees what everybody is answered in the end.

Every request pays for what is done here, so it is little: one look into a dict, and a few additions. The key is what
the request and its answer were; what it leads to has its labels already. Only keys made of known things are kept
(`stage.py`), so neither the dict nor the series grow with what people make up. Names, texts and sums are worked out in
`families.py`, when somebody asks.

What goes on after its answer has begun (watches, WebSockets, long answers of clusters) is counted while it lasts and
not timed: how long somebody watches says nothing about the server.
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

# DOC-MERGED server/metrics/labels
# Where labels come from: closed sets, all of them. What is in none of them shares one series with all its like.
#
# Anybody can make up paths, methods and names, also without signing in. Each label that could hold one of these would be
# a way to fill the memory of this server, and of everything that collects from it.


OTHER = "other"
"""Stands for every verb and code that is not known."""

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
"""What metrics call the verbs of resources: for most of them Kubernetes takes the method."""
METHODS = {"HEAD": "GET", **{method: method for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}}
CODES = frozenset(map(int, HTTPStatus))
ENTRANCES = {CLUSTER: "cluster", SPACE: "space", VIRTUAL_CLUSTER: "virtualcluster"}


@dataclass(frozen=True, slots=True)
class Labels:
    """What a request was about, as far as metrics tell. What is not served has a verb only."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""


class Known:
    """All that can be asked for: the catalog's resources with what stands below them, and `paths` beside them."""

    def __init__(self, catalog: Catalog, paths: Iterable[str] = ()) -> None:
        self._places = frozenset(place for kind in catalog.kinds for place in _places(kind))
        self._paths = frozenset(paths)

    def labels(self, call: Call, verb: str, scope: str) -> Labels | None:
        """None for what is not served, or not by that name."""
        target = call.target
        if not target.resource:
            known = METHODS.get(call.method)
            return Labels(known, subresource=target.path) if known and target.path in self._paths else None
        known = VERBS.get(verb)
        place = target.group, target.version, target.resource, target.subresource
        return Labels(known, *place, scope) if known and place in self._places else None


def unknown_verb(call: Call, verb: str) -> str:
    """All that is told of what is not served."""
    return VERBS.get(verb, OTHER) if call.target.resource else METHODS.get(call.method, OTHER)


def entrance(via: Target) -> Labels:
    """A gateway, for what stays open through it. Which one of its sort is left out: names are no closed set."""
    return Labels(CONNECT, via.group, via.version, via.resource, scope="resource")


def code_label(status: int) -> str:
    return str(status) if status in CODES else OTHER


def code_class(status: int) -> str:
    """For the answers of clusters, who may answer with any number."""
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
    """What was answered with one code. Those of the same labels share their histograms; some have none."""

    __slots__ = ("count", "durations", "sizes")

    def __init__(self, durations: Histogram | None, sizes: Histogram | None) -> None:
        self.count = 0
        self.durations = durations
        self.sizes = sizes


class Lasting:
    """What is open at the moment, and how many events were sent through it since the start."""

    __slots__ = ("events", "open")

    def __init__(self) -> None:
        self.open = 0
        self.events = 0


def _ignore(call: Call, seconds: float) -> None:
    return None


class Requests:
    """All requests that this server was ever asked. `now` tells seconds that never go backwards.

    `note` is handed what each request took on the event loop between two awaits, where that is noticeable.
    """

    def __init__(self, known: Known, now: Callable[[], float] = time.perf_counter, note: Note = _ignore) -> None:
        self._known = known
        self._now = now
        self._note = note
        self._kept: dict[tuple[str | int, ...], Tally] = {}
        self.under_way = [0, 0]
        """Reads, and writes, of those that are not answered at once."""
        self.tallies: dict[tuple[Labels, str, str], Tally] = {}
        """By labels, dry run and code."""
        self.durations: dict[tuple[Labels, str], Histogram] = {}
        self.sizes: dict[Labels, Histogram] = {}
        self.lasting: dict[Labels, Lasting] = {}
        self.gateways: dict[tuple[str, str], int] = {}
        """By the sort of entrance, and the class of the code."""
        self.gateway_durations = {root: Histogram(DURATIONS) for root in sorted(GATEWAYS)}

    def measured(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        begun = self._now()
        answer = proceed(call)
        seconds = self._now() - begun
        if seconds > NOTICEABLE:
            self._note(call, seconds)
        return self._count(call, answer, seconds) if isinstance(answer, Reply) else self._later(call, answer, begun)

    async def _later(self, call: Call, answer: Awaitable[Reply], begun: float) -> Reply:
        under_way, writes = self.under_way, call.method not in _READS
        under_way[writes] += 1
        try:
            reply = await timed_steps(answer, call, self._note)
        finally:
            under_way[writes] -= 1
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
        tally = self._kept.get(key) or self._found(key, call, verb, scope)
        tally.count += 1
        if reply.stream is not None or reply.upgrade is not None:
            return self._last(self._known.labels(call, verb, scope) or Labels(unknown_verb(call, verb)), call, reply)
        if (histogram := tally.durations) is not None:
            histogram.counts[bisect_left(DURATIONS, seconds)] += 1
            histogram.sum += seconds
        if (histogram := tally.sizes) is not None:
            size = len(reply.body)
            histogram.counts[bisect_left(SIZES, size)] += 1
            histogram.sum += size
        return reply

    def _found(self, key: tuple[str | int, ...], call: Call, verb: str, scope: str) -> Tally:
        """The tally of a key that is not kept, and perhaps is from now on."""
        *_, dry_run, status = key
        labels, code = self._known.labels(call, verb, scope), code_label(int(status))
        if labels is None:
            key = unknown_verb(call, verb), dry_run, code  # of known things again, and so few that they are kept, too
            tally = self._kept.get(key)
            if tally is not None:
                return tally
        tally = self._tally(labels or Labels(unknown_verb(call, verb)), str(dry_run), code)
        if labels is None or code != OTHER:
            self._kept[key] = tally
        return tally

    def _tally(self, labels: Labels, dry_run: str, code: str) -> Tally:
        tally = self.tallies.get((labels, dry_run, code))
        if tally is None:
            timed = labels.verb != WATCH
            durations = self.durations.setdefault((labels, dry_run), Histogram(DURATIONS)) if timed else None
            sizes = self.sizes.setdefault(labels, Histogram(SIZES)) if labels.verb in _SIZED else None
            tally = self.tallies[labels, dry_run, code] = Tally(durations, sizes)
        return tally

    def _through(self, call: Call, via: Target, reply: Reply, seconds: float) -> Reply:
        """Counts what a cluster was asked. Its answer takes as long as it takes to begin."""
        place = via.root, code_class(reply.status)
        self.gateways[place] = self.gateways.get(place, 0) + 1
        self.gateway_durations[via.root].observe(seconds)
        lasts = reply.stream is not None or reply.upgrade is not None
        return self._last(entrance(via), call, reply) if lasts else reply

    def _last(self, labels: Labels, call: Call, reply: Reply) -> Reply:
        """Follows what goes on. To a HEAD, nothing is sent of it."""
        if reply.upgrade is not None:
            reply.upgrade = _accompanied(self._lasting(labels), reply.upgrade)
        elif reply.stream is not None and call.method != "HEAD":
            reply.stream = _followed(self._lasting(labels), reply.stream, labels.verb == WATCH)
        return reply

    def _lasting(self, labels: Labels) -> Lasting:
        return self.lasting.setdefault(labels, Lasting())


async def _followed(lasting: Lasting, chunks: AsyncIterator[bytes], has_events: bool) -> AsyncIterator[bytes]:
    """Counted from its first step, not before: one that is never begun would never end either."""
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
    """Events: one a line, and JSON has no others. Lines are long, and `find` passes over them faster than `count`."""
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
