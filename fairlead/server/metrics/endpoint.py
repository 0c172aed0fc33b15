"""The handler of `/metrics`, for users who may `get` that path.

It is served at the base URL and below the API root, where `kubectl get --raw /metrics` requests it. `app` registers
`endpoints` with the dispatcher. With `metrics_public`, the pipeline runs `serve_public` before authorization.

With several worker processes, any of them serves the metrics of all: it asks `Workers` for their pages, and each of
them encodes its own (`encode_page`).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from fairlead.core.call import MANAGEMENT, Call, Handler, Reply
from fairlead.core.concurrency import COMPUTE_POOL
from fairlead.server.api.content import negotiate_media_type
from fairlead.server.auth.impersonation import HEADER_PREFIX
from fairlead.server.metrics.aggregation import encode_families, merge_pages
from fairlead.server.metrics.exposition import CONTENT_TYPES, OPEN_METRICS, TEXT, MetricFamily, render_families
from fairlead.server.metrics.families import process_families

METRICS_PATH = "/metrics"

FamilySource = Callable[[], Iterable[MetricFamily]]
"""Called on the event loop."""


@dataclass(frozen=True, slots=True)
class WorkerPages:
    """The encoded families of all workers, and the last ones of workers that have ended."""

    running: Sequence[bytes]
    ended: Sequence[bytes]


class Workers(Protocol):
    """All worker processes of this server."""

    async def collect_metrics(self) -> WorkerPages: ...


class MetricsEndpoint:
    """Serves the metrics of this process; if there are several `workers`, those of all of them."""

    def __init__(self, sources: Sequence[FamilySource], workers: Workers | None = None) -> None:
        self._sources = sources
        self._workers = workers
        self._page_bytes = 0
        """The size of the last page, as an estimate of the work that the next one takes."""

    def endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {("get", METRICS_PATH): self}

    async def __call__(self, call: Call) -> Reply:
        # Clients that accept neither format get text as well, as scrapers expect.
        media_type = negotiate_media_type(call.headers.get("accept", ""), (TEXT, OPEN_METRICS)) or TEXT
        names = frozenset(call.query.get("name[]", ()))
        # Thousands of lines, at about 20 µs each: render them in a worker thread.
        size = 0 if names else self._page_bytes
        if self._workers is None:
            body = await COMPUTE_POOL.run(size, _render_page, self._families(), media_type, names)
        else:
            pages = await self._workers.collect_metrics()
            body = await COMPUTE_POOL.run(size, _render_pages, pages, media_type, names)
        if not names:
            self._page_bytes = len(body)
        return Reply(200, body, CONTENT_TYPES[media_type], [("vary", "Accept")])

    async def encode_page(self, worker: str) -> bytes:
        """The families of this process, for the worker that serves `/metrics`."""
        return await COMPUTE_POOL.run(self._page_bytes, _encode_page, worker, self._families())

    def _families(self) -> list[MetricFamily]:
        return [family for source in self._sources for family in source()]

    def serve_public(self, call: Call) -> Awaitable[Reply] | None:
        """The stage that serves metrics without authentication. Impersonation still requires it."""
        target = call.target
        is_metrics = target.root in ("", MANAGEMENT) and (target.verb, target.path) == ("get", METRICS_PATH)
        if is_metrics and not call.headers.has_prefix(HEADER_PREFIX):
            return self(call)
        return None


def _render_page(families: Sequence[MetricFamily], media_type: str, names: Set[str]) -> bytes:
    return _render_selected((*families, *process_families()), media_type, names)


def _render_pages(pages: WorkerPages, media_type: str, names: Set[str]) -> bytes:
    return _render_selected(merge_pages(pages.running, pages.ended), media_type, names)


def _render_selected(families: Iterable[MetricFamily], media_type: str, names: Set[str]) -> bytes:
    """All families, or only those in the `name[]` query parameters, as in other Prometheus clients."""
    return render_families([each for each in families if not names or each.name in names], media_type)


def _encode_page(worker: str, families: Sequence[MetricFamily]) -> bytes:
    return encode_families(worker, (*families, *process_families()))
