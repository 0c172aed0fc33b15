"""Routing: parses method, path and query into a request target, and dispatches it at the end of the pipeline.

The management API is a complete API root below a mount point. Beside it are the platform's own paths, and the roots
that features add: gateways, each with the API root of a cluster below it, and the console. Parsing is a pure function.
It does not check whether the resource exists; that follows after authorization.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import CONSOLE, MANAGEMENT, Call, Handler, Reply, RequestInfo
from fairlead.core.concurrency import COMPUTE_POOL
from fairlead.core.errors import ApiError, BadRequest, MethodNotAllowed, NotFound, quote_value
from fairlead.registry import limits
from fairlead.registry.names import path_segment_errors
from fairlead.server.discovery.document import Document, build_reply, find_document
from fairlead.server.discovery.documents import DEFAULT_PREFIX
from fairlead.server.discovery.health import HEALTH_PATHS, TEXT

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"get": "list", "delete": "deletecollection"}
_CONNECT_VERBS = {"exec": "create", "attach": "create", "portforward": "create", "proxy": "proxy"}
"""Subresources that connect to a pod, service or node, and the verb they require regardless of the method, as a GET is
not a read there."""
_is_simple_segment = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*").fullmatch
"""Matches nearly all names; these need no further check."""
_is_duration = re.compile(r"[+-]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII).fullmatch
"""Matches a duration of Go. The two signs for micro are different characters."""
COLLECTION_CACHE_SIZE, MAX_CACHED_PATH_LENGTH, MAX_CACHED_METHOD_LENGTH = 4_096, 256, 32
"""The number of cached collections, by method, and the lengths of paths and methods. All are bounded, as clients choose
them."""
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class MountedPath:
    """A path below a root other than the management API. The API root of a cluster has a `gateway`, which is the target
    that the user must be allowed to use."""

    root: str
    path: str
    gateway: RequestInfo | None = None


FindMount = Callable[[str], MountedPath | None]
"""Finds the root of a path; None if it is not below one."""


@dataclass(frozen=True, slots=True)
class RouteConfig:
    """The mount point of the management API, and the other roots."""

    mount: str
    mounts: Sequence[FindMount] = ()


class Router:
    """`route` with a cache of collection paths: requests for objects of one collection differ only in the name."""

    def __init__(self, config: RouteConfig) -> None:
        self._config = config
        self._mount_length = len(config.mount)
        self._targets: BoundedCache[tuple[str, str], RequestInfo] = BoundedCache(COLLECTION_CACHE_SIZE)
        """By method and path of the collection: a target without path and name."""

    def __call__(self, method: str, path: str, query: Mapping[str, list[str]]) -> RequestInfo:
        parent, _, name = (path, "", "") if method == "POST" else path.rpartition("/")
        if method == "POST" or _is_simple_segment(name):
            known = self._targets.get((method, parent)) or self._parse_collection(method, parent)
            if known is not None:
                target = RequestInfo(
                    verb=known.verb,
                    path=path[self._mount_length :],
                    root=MANAGEMENT,
                    group=known.group,
                    version=known.version,
                    resource=known.resource,
                    namespace=known.namespace,
                    name=name,
                )
                target.cached_shape = known.cached_shape
                return target
        return route(method, path, query, self._config)

    def _parse_collection(self, method: str, path: str) -> RequestInfo | None:
        """The target of all objects of a collection, or of the collection if `method` is POST. None if the path is not
        that of a collection.

        `namespaces` is excluded: `namespaces/x/...` may be an object or the path of another collection.
        """
        if len(path) > MAX_CACHED_PATH_LENGTH or len(method) > MAX_CACHED_METHOD_LENGTH:
            return None
        try:
            target = route("GET", path, {}, self._config)
        except BadRequest:  # the full path may still be valid
            return None
        is_collection = target.root == MANAGEMENT and target.resource and not target.name and not target.subresource
        if not is_collection or target.resource == "namespaces" or path.endswith("/"):
            return None
        known = replace(target, verb=_VERBS.get(method, ""), path="", name="" if method == "POST" else "any")
        known.cached_shape = known.compute_shape()
        self._targets[method, path] = known
        return known


def route(method: str, path: str, query: Mapping[str, list[str]], config: RouteConfig) -> RequestInfo:
    """Parses the target of a request."""
    if path == config.mount or path.startswith(config.mount + "/"):
        return parse_api_path(method, path[len(config.mount) :] or "/", query, MANAGEMENT)
    for find_mount in config.mounts:
        mounted = find_mount(path)
        if mounted is not None:
            return _parse_mounted_path(method, mounted, query)
    return RequestInfo(_nonresource_verb(method), path)


def _parse_mounted_path(method: str, mounted: MountedPath, query: Mapping[str, list[str]]) -> RequestInfo:
    gateway = mounted.gateway
    if gateway is None:
        return RequestInfo(_nonresource_verb(method), mounted.path, mounted.root)
    _check_segment(gateway.namespace)
    _check_segment(gateway.name)
    target = parse_api_path(method, mounted.path, query, mounted.root)
    target.gateway = gateway  # not shared yet, so it may be changed
    return target


def parse_api_path(method: str, path: str, query: Mapping[str, list[str]], root: str) -> RequestInfo:
    """Parses a path below the root of a Kubernetes API."""
    steps = path.removeprefix("/").removesuffix("/").split("/")
    if "" in steps:  # empty segments make it a non-resource path
        return RequestInfo(_nonresource_verb(method), path, root)
    if len(steps) > 2 and steps[0] == "api":
        group_version, steps = ("", steps[1]), steps[2:]
    elif len(steps) > 3 and steps[0] == "apis":
        group_version, steps = (steps[1], steps[2]), steps[3:]
    else:
        return RequestInfo(_nonresource_verb(method), path, root)
    has_watch_prefix = root != MANAGEMENT and steps[0] == "watch" and len(steps) > 1
    parsed = _parse_resource_path(group_version[0], steps[1:] if has_watch_prefix else steps)
    if parsed is None:
        return RequestInfo(_nonresource_verb(method), path, root)
    resource, subresource, namespace, name = parsed
    # `watch/` is the deprecated form of `?watch=true`, which clusters still support.
    verb = "watch" if has_watch_prefix else _resource_verb(method, name, query)
    if root != MANAGEMENT and name:
        verb = _CONNECT_VERBS.get(subresource.partition("/")[0], verb)
    return RequestInfo(verb, path, root, *group_version, resource, subresource, namespace, name)


def _nonresource_verb(method: str) -> str:
    """The lower-case method. Methods are upper case; anything else has no verb."""
    return "get" if method == "HEAD" else method.lower() if method.isupper() else ""


def _parse_resource_path(group: str, segments: list[str]) -> tuple[str, str, str, str] | None:
    """Resource, subresource, namespace and name; None if the path is not that of a resource."""
    namespace = ""
    if segments[0] == "namespaces" and len(segments) > 1:
        namespace = segments[1]
        if len(segments) > 2 and (group or segments[2] not in _NAMESPACE_SUBRESOURCES):
            segments = segments[2:]
            is_invalid = not group and segments[0] == "namespaces"  # namespaces are not nested
        else:
            is_invalid = bool(group)
        if is_invalid:
            return None
    resource = segments[0]
    name = segments[1] if len(segments) > 1 else ""
    subresource = "/".join(segments[2:])
    _check_segment(namespace)
    _check_segment(name)
    return resource, subresource, namespace, name


def _resource_verb(method: str, name: str, query: Mapping[str, list[str]]) -> str:
    verb = _VERBS.get(method, "")
    if name:
        return verb
    if verb == "get" and parse_bool_param((query.get("watch") or [""])[0], present="watch" in query):
        return "watch"
    return _COLLECTION_VERBS.get(verb, verb)


def read_flag(call: Call, name: str) -> bool:
    """A boolean parameter of the query."""
    return parse_bool_param(call.parameter(name), present=name in call.query)


def parse_bool_param(text: str, present: bool = True) -> bool:
    """A boolean query parameter as in Kubernetes: absent, `0` and `false` are false, anything else is true."""
    return present and text.lower() not in ("0", "false")


def _check_segment(segment: str) -> None:
    """Rejects names with a special meaning in paths, such as `..`, before they reach the registry."""
    if not segment or _is_simple_segment(segment):
        return
    for fault in path_segment_errors(segment):
        raise BadRequest(f'Name parameter invalid: "{segment}": {fault}')
    if "\x00" in segment:
        raise BadRequest("Name parameter invalid: it contains a NUL byte")


def routing_stage(router: Router) -> Callable[[Call], None]:
    """The stage that sets the target of a call. Errors are deferred, so that flow control covers such requests, too."""

    def route_call(call: Call) -> None:
        try:
            call.target = router(call.method, call.path, call.query)
            if call.query and call.target.gateway is None and call.target.root != CONSOLE:
                _check_query(call.query)
        except ApiError as error:
            call.defer_error(error)

    return route_call


def _check_query(query: Mapping[str, list[str]]) -> None:
    """Bounds the number of parameters, and checks what applies to all verbs. Not for gateways: an exec has one
    parameter for each word of its command."""
    if sum(map(len, query.values())) > limits.QUERY_PARAMETERS:
        raise BadRequest(f"the query has too many parameters; {limits.QUERY_PARAMETERS} is the limit")
    timeout = (query.get("timeout") or [""])[0]
    if timeout and not _is_duration(timeout):
        unit = "a number with a unit, such as 30s"
        raise BadRequest(f"invalid timeout specified in the request URL - {quote_value(timeout)} must be {unit}")


def endpoint_pattern(path: str) -> str:
    """The pattern of an endpoint with a name in its path: `/auth/okta/login` is registered as `/auth/*/login`."""
    match path.split("/"):
        case ["", first, name, last] if first and name and last:
            return f"/{first}/*/{last}"
    return path


def endpoint_name(path: str) -> str:
    """The name in a path of that form."""
    return path.split("/")[2]


API_PATHS = re.compile(r"(/kubernetes(/[^/]*)?)?/(apis?|openapi)(/|$)")
"""What clients request first, also with the URL of the server instead of that of its API."""


class Dispatcher:
    """The end of the pipeline: dispatches to the verbs, gateways, endpoints, documents or health checks.

    `roots` has the documents of the management API and of the platform, `endpoints` the handlers of other paths of
    each, by verb and path. `mounts` has the handlers of the other roots: gateways to clusters, and the web console.
    """

    def __init__(
        self,
        verbs: Handler,
        health: Handler,
        roots: Mapping[str, Mapping[str, Document]],
        endpoints: Mapping[str, Mapping[tuple[str, str], Handler]],
        mounts: Mapping[str, Handler],
    ) -> None:
        self._verbs = verbs
        self._health = health
        self._roots = roots
        self._endpoints = endpoints
        self._mounts = mounts

    def __call__(self, call: Call) -> Awaitable[Reply]:
        target = call.target
        if call.deferred_error is not None:
            raise call.pop_deferred_error()
        mounted = self._mounts.get(target.root)
        if mounted is not None:
            return mounted(call)
        if call.is_websocket and target.verb == "watch":
            raise BadRequest("watch over WebSocket is not supported; send the request without the Upgrade header")
        if target.resource:
            return self._verbs(call)
        endpoints = self._endpoints[target.root]
        endpoint = endpoints.get((target.verb, target.path))
        if endpoint is None:
            endpoint = endpoints.get((target.verb, endpoint_pattern(target.path)))
        if endpoint is not None:
            return endpoint(call)
        document = find_document(self._roots[target.root], target.path)
        if target.path.startswith(HEALTH_PATHS):
            return self._health(call)
        return self._serve_document(call, document)

    async def _serve_document(self, call: Call, document: Document | None) -> Reply:
        target = call.target
        is_lost = document is None and not target.root and target.verb == "get"
        if is_lost and (match := API_PATHS.match(target.path)):
            # kubectl shows no message of an error that ends discovery, but warnings.
            change = (
                f"replace {quote_value(match[1])} by {DEFAULT_PREFIX} in" if match[1] else f"add {DEFAULT_PREFIX} to"
            )
            call.warnings.append(f"{change} the URL of the server")
            raise NotFound(f"there is no API at {quote_value(target.path)}; {call.warnings[-1]}")
        if document is None and target.path.startswith("/api/"):
            raise NotFound("the server could not find the requested resource")
        if document is None:
            return Reply(404, b"404 page not found\n", TEXT)
        if target.verb not in ("get", "list"):
            raise MethodNotAllowed(f"{call.method} is not supported on {target.path}; it is read-only")
        if not document.is_built:
            await COMPUTE_POOL.run(0, document.build)
        return build_reply(document, call.headers.get("accept", ""), call.headers.get("if-none-match", ""), call.query)
