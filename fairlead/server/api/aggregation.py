"""The API as an APIService of another kube-apiserver: at the root, and with the management group only.

The aggregation layer of kube-apiserver forwards requests with their paths unchanged, so the API has to be served
without the path prefix that it has otherwise. It merges discovery and OpenAPI into its own, and takes `/openapi/v3` as
it is: a group in it that the host serves itself would replace that of the host. So all of them only list the management
group. It turns redirects into errors, so there are none.

The garbage collector of the host watches the metadata of all objects. It would delete those whose owner it does not
find in the host, such as a Secret of this server, and remove finalizers of deletions that this server's garbage
collector is processing. So it sees neither owners nor finalizers.

This only applies to connections of front proxies, which have a port of their own.
"""

from collections.abc import Awaitable, Callable, Mapping

from fairlead.core.call import FRONT_PROXY, MANAGEMENT, Call, Handler, Reply
from fairlead.core.concurrency import COMPUTE_POOL
from fairlead.core.errors import NotFound
from fairlead.server.discovery.document import Document, build_reply, find_document


def is_aggregated(call: Call) -> bool:
    return call.peer is not None and call.peer.purpose == FRONT_PROXY


def mount_at_root(route: Callable[[Call], None], mount: str, group: str) -> Callable[[Call], None]:
    """The routing stage, for paths with and without the prefix `mount`."""
    exact = frozenset({"/apis", "/apis/", f"/apis/{group}", "/openapi/v2", "/openapi/v3"})
    prefixes = f"/apis/{group}/", "/openapi/v3/"

    def route_call(call: Call) -> None:
        if is_aggregated(call) and (call.path in exact or call.path.startswith(prefixes)):
            call.path, call.raw_target, call.hides_owners = mount + call.path, mount + call.raw_target, True
        route(call)

    return route_call


def serve_aggregated(dispatch: Handler, documents: Mapping[str, Document]) -> Handler:
    """The dispatcher, with other discovery documents for front proxies."""

    def serve(call: Call) -> Awaitable[Reply]:
        target = call.target
        is_document = target.root == MANAGEMENT and not target.resource and call.deferred_error is None
        if not is_document or not is_aggregated(call) or not target.path.startswith(("/apis", "/openapi/")):
            return dispatch(call)
        return _serve_document(call, find_document(documents, target.path))

    return serve


async def _serve_document(call: Call, document: Document | None) -> Reply:
    if document is None or call.target.verb != "get":
        raise NotFound("the server could not find the requested resource")
    if not document.is_built:
        await COMPUTE_POOL.run(0, document.build)
    # Without the query: for an outdated hash in it, the response would be a redirect.
    return build_reply(document, call.headers.get("accept", ""), call.headers.get("if-none-match", ""))
