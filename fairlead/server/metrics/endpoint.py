"""`/metrics`: everything that is counted, for those who have signed in and may `get` that path.

It is served at the base URL and below the API root, where `kubectl get --raw /metrics` looks for it.

`app` gives `endpoints` to `Serve`. Where metrics are to be public, it also puts `in_public` before the stage that asks
who somebody is.
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
"""Asked on the event loop."""


class Metrics:
    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def endpoints(self) -> Mapping[tuple[str, str], Callable[[Call], Awaitable[Reply]]]:
        return {("get", PATH): self}

    async def __call__(self, call: Call) -> Reply:
        # What asks for neither gets text, too: that is what scrapers make of what they cannot ask for.
        media_type = accepted(call.headers.get("accept", ""), (TEXT, OPEN_METRICS)) or TEXT
        names = call.query.get("name[]", ())
        families = [family for source in self._sources for family in source()]
        # Thousands of lines: other requests go on meanwhile.
        body = await COMPUTE.run(0, _page, families, media_type, frozenset(names))
        return Reply(200, body, CONTENT_TYPES[media_type], [("vary", "Accept")])

    def in_public(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        """The stage that answers without asking who it is. Who acts as somebody else must say who they are."""
        target = call.target
        here = target.root in ("", MANAGEMENT) and (target.verb, target.path) == ("get", PATH)
        if here and not asks_to_impersonate(call.headers):
            return self(call)
        return proceed(call)


def _page(families: Sequence[Family], media_type: str, names: Set[str]) -> bytes:
    """All of them, or those that are named: as other Prometheus clients do, who ask for few get few."""
    found = [each for each in (*families, *process_families()) if not names or each.name in names]
    return rendered(found, media_type)
