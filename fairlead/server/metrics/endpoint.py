"""The handler of `/metrics`, for users who may `get` that path.

It is served at the base URL and below the API root, where `kubectl get --raw /metrics` requests it. `app` registers
`endpoints` with the dispatcher. With `metrics_public`, the pipeline runs `serve_public` before authorization.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set

from fairlead.core.call import MANAGEMENT, Call, Handler, Reply
from fairlead.core.concurrency import COMPUTE_POOL
from fairlead.server.api.content import negotiate_media_type
from fairlead.server.auth.impersonation import HEADER_PREFIX
from fairlead.server.metrics.exposition import CONTENT_TYPES, OPEN_METRICS, TEXT, MetricFamily, render_families
from fairlead.server.metrics.families import process_families

METRICS_PATH = "/metrics"

FamilySource = Callable[[], Iterable[MetricFamily]]
"""Called on the event loop."""


class MetricsEndpoint:
    def __init__(self, sources: Sequence[FamilySource]) -> None:
        self._sources = sources
        self._page_bytes = 0
        """The size of the last page, as an estimate of the work that the next one takes."""

    def endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {("get", METRICS_PATH): self}

    async def __call__(self, call: Call) -> Reply:
        # Clients that accept neither format get text as well, as scrapers expect.
        media_type = negotiate_media_type(call.headers.get("accept", ""), (TEXT, OPEN_METRICS)) or TEXT
        names = call.query.get("name[]", ())
        families = [family for source in self._sources for family in source()]
        # Thousands of lines, at about 20 µs each: render them in a worker thread.
        size = 0 if names else self._page_bytes
        body = await COMPUTE_POOL.run(size, _render_page, families, media_type, frozenset(names))
        if not names:
            self._page_bytes = len(body)
        return Reply(200, body, CONTENT_TYPES[media_type], [("vary", "Accept")])

    def serve_public(self, call: Call) -> Awaitable[Reply] | None:
        """The stage that serves metrics without authentication. Impersonation still requires it."""
        target = call.target
        is_metrics = target.root in ("", MANAGEMENT) and (target.verb, target.path) == ("get", METRICS_PATH)
        if is_metrics and not call.headers.has_prefix(HEADER_PREFIX):
            return self(call)
        return None


def _render_page(families: Sequence[MetricFamily], media_type: str, names: Set[str]) -> bytes:
    """All families, or only those in the `name[]` query parameters, as in other Prometheus clients."""
    selected = [each for each in (*families, *process_families()) if not names or each.name in names]
    return render_families(selected, media_type)
