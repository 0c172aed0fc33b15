"""The end of the pipeline: resources go to the verbs, everything else is a document or a health check."""

from collections.abc import Awaitable, Callable, Iterator, Mapping

from fairlead.core.call import Call, Reply
from fairlead.core.errors import ApiError, BadRequest, MethodNotAllowed
from fairlead.core.workers import COMPUTE
from fairlead.registry import limits
from fairlead.server.document import Document, answer, find
from fairlead.server.health import HEALTH_PATHS, TEXT
from fairlead.server.pipeline import Proceed, Stage
from fairlead.server.route import Roots, Router, api_target

Handler = Callable[[Call], Awaitable[Reply]]


def routed(roots: Roots) -> Stage:
    """The stage that finds out what is being asked. What cannot be understood goes on, too, up to flow control."""

    route = Router(roots)

    def stage(call: Call, proceed: Proceed) -> Awaitable[Reply]:
        try:
            call.target = route(call.method, call.path, call.query)
            if call.query and call.target.via is None:
                _check_query(call.query)
        except ApiError as error:
            call.defer(error)
        return proceed(call)

    return stage


def _check_query(query: Mapping[str, list[str]]) -> None:
    """Refuses more parameters than anybody means. Behind a gateway each word of a command is one."""
    if sum(map(len, query.values())) > limits.QUERY_PARAMETERS:
        raise BadRequest(f"the query has too many parameters; {limits.QUERY_PARAMETERS} is the limit")


def _like_resources(roots: Mapping[str, Mapping[str, Document]]) -> Iterator[str]:
    """Where documents stand that look like resources: a few are there for clients that ask every server for them."""
    for root, documents in roots.items():
        for path in documents:
            if api_target("GET", path, {}, root).resource:
                yield from (path, f"{path}/")


class Serve:
    """Answers what has passed every stage.

    `roots` holds the documents of the management API and of the platform, `endpoints` what is done at other paths of
    each, by verb and path. `gateways` hands on what is for a cluster.
    """

    def __init__(
        self,
        verbs: Handler,
        health: Handler,
        roots: Mapping[str, Mapping[str, Document]],
        endpoints: Mapping[str, Mapping[tuple[str, str], Handler]],
        gateways: Handler,
    ) -> None:
        self._verbs = verbs
        self._health = health
        self._roots = roots
        self._endpoints = endpoints
        self._gateways = gateways
        self._like_resources = frozenset(_like_resources(roots))

    def __call__(self, call: Call) -> Awaitable[Reply]:
        target = call.target
        if call.failure is not None:
            raise call.take_failure()
        if target.via is not None:
            return self._gateways(call)
        if call.wants_socket and target.verb == "watch":
            raise BadRequest("a watch is not served as a WebSocket here; ask for it without the Upgrade header")
        if target.resource and target.path not in self._like_resources:
            return self._verbs(call)
        endpoint = self._endpoints[target.root].get((target.verb, target.path))
        if endpoint is not None:
            return endpoint(call)
        document = find(self._roots[target.root], target.path)
        if target.path.startswith(HEALTH_PATHS):
            return self._health(call)
        return self._document(call, document)

    async def _document(self, call: Call, document: Document | None) -> Reply:
        target = call.target
        if document is None:
            return Reply(404, b"404 page not found\n", TEXT)
        if target.verb not in ("get", "list"):
            raise MethodNotAllowed(f"{call.method} is not supported on {target.path}; it can only be read")
        if not document.is_made:
            await COMPUTE.run(0, document.make)
        return answer(document, call.headers.get("accept", ""), call.headers.get("if-none-match", ""), call.query)
