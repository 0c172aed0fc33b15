"""The handler of `/metrics`, for users who may `get` that path.

It is served at the base URL and below the API root, where `kubectl get --raw /metrics` requests it. `app` registers
`endpoints` with the dispatcher. With `metrics_public`, `app` also puts `public_stage` before authentication.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set

from fairlead.core.call import MANAGEMENT, Call, Reply
from fairlead.core.concurrency import COMPUTE
from fairlead.server.api.content import accepted
from fairlead.server.auth.impersonation import asks_to_impersonate
from fairlead.server.http.pipeline import Proceed
from fairlead.server.metrics.exposition import CONTENT_TYPES, OPEN_METRICS, TEXT, Family, rendered
from fairlead.server.metrics.families import process_families

PATH = "/metrics"

Source = Callable[[], Iterable[Family]]
"""Called on the event loop."""


class Metrics:
    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def endpoints(self) -> Mapping[tuple[str, str], Callable[[Call], Awaitable[Reply]]]:
        return {("get", PATH): self}

    async def __call__(self, call: Call) -> Reply:
        # Clients that accept neither format get text as well, as scrapers expect.
        media_type = accepted(call.headers.get("accept", ""), (TEXT, OPEN_METRICS)) or TEXT
        names = call.query.get("name[]", ())
        families = [family for source in self._sources for family in source()]
        # Thousands of lines: render them in a worker thread.
        body = await COMPUTE.run(0, _page, families, media_type, frozenset(names))
        return Reply(200, body, CONTENT_TYPES[media_type], [("vary", "Accept")])

    def in_public(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        """The stage that serves metrics without authentication. Impersonation still requires it."""
        target = call.target
        is_metrics = target.root in ("", MANAGEMENT) and (target.verb, target.path) == ("get", PATH)
        if is_metrics and not asks_to_impersonate(call.headers):
            return self(call)
        return proceed(call)


def _page(families: Sequence[Family], media_type: str, names: Set[str]) -> bytes:
    """All families, or only those in the `name[]` query parameters, as in other Prometheus clients."""
    selected = [each for each in (*families, *process_families()) if not names or each.name in names]
    return rendered(selected, media_type)
