"""Method, path and query to what is being asked: a pure function, so that a table can test it.

The management API is a whole API root below a mount point; beside it stand the platform's own paths, and the gateways,
behind each of which is the API root of a cluster. What the path names need not exist: that is asked later, when it is
known who asks.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

from fairlead.authz.scope import gateway_target
from fairlead.authz.scope.names import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import MANAGEMENT, Call, Reply, Target
from fairlead.core.concurrency import COMPUTE
from fairlead.core.errors import ApiError, BadRequest, MethodNotAllowed
from fairlead.registry import limits
from fairlead.registry.names import path_segment_faults
from fairlead.server.discovery.document import Document, answer, find
from fairlead.server.discovery.health import HEALTH_PATHS, TEXT
from fairlead.server.http.pipeline import Proceed, Stage

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"get": "list", "delete": "deletecollection"}
_STEPS = {CLUSTER: 4, SPACE: 6, VIRTUAL_CLUSTER: 6}
"""How many parts of a path lead to a gateway's entrance, the empty one before the first slash included."""
_TUNNELS = {"exec": "create", "attach": "create", "portforward": "create", "proxy": "proxy"}
"""What leads on into a pod, a service or a node, by the verb that it takes whatever the method: it is no reading."""
_is_plain = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]*").fullmatch
"""Nearly every name: it cannot mean anything else as a path."""
COLLECTIONS, LONGEST_PLACE = 1_024, 256
"""How many paths of collections are remembered, and of what length: anybody can make up more."""
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the management API hangs, such as `/kubernetes/management`, and what things are called that lead on."""

    mount: str
    api_group: str = ""
    namespace_prefix: str = ""


class Router:
    """`route` below the same roots, again and again: where an object is, the last one was, too, but for its name."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._collections: dict[str, tuple[str, str, str, str]] = {}

    def __call__(self, method: str, path: str, query: Mapping[str, list[str]]) -> Target:
        place, _, name = (path, "", "") if method == "POST" else path.rpartition("/")
        if len(place) <= LONGEST_PLACE and (method == "POST" or _is_plain(name)):
            collection = self._collections.get(place) or self._as_collection(place)
            if collection is not None:
                group, version, resource, namespace = collection
                below = path[len(self._roots.mount) :]
                return Target(_VERBS.get(method, ""), below, MANAGEMENT, group, version, resource, "", namespace, name)
        return route(method, path, query, self._roots)

    def _as_collection(self, place: str) -> tuple[str, str, str, str] | None:
        """Group, version, resource and namespace, if this is the path of a collection.

        A namespace is a place and an object at once, so what follows it may be anything.
        """
        try:
            target = route("GET", place, {}, self._roots)
        except BadRequest:  # what is wrong with a part need not be wrong with the whole
            return None
        whole = target.root == MANAGEMENT and target.resource and not target.name and not target.subresource
        if not whole or target.resource == "namespaces" or place.endswith("/"):
            return None
        if len(self._collections) >= COLLECTIONS:
            self._collections.clear()
        found = target.group, target.version, target.resource, target.namespace
        self._collections[place] = found
        return found


def route(method: str, path: str, query: Mapping[str, list[str]], roots: Roots) -> Target:
    """The Target of a request."""
    if path == roots.mount or path.startswith(roots.mount + "/"):
        return api_target(method, path[len(roots.mount) :] or "/", query, MANAGEMENT)
    if path.startswith("/kubernetes/") and (entrance := _entrance(path, roots)):
        inner = "/" + "/".join(path.split("/")[_STEPS[entrance.root] :])
        target = api_target(method, inner, query, entrance.root)
        target.via = entrance  # nobody else has seen it yet
        return target
    return Target(_plain_verb(method), path)


def _entrance(path: str, roots: Roots) -> Target | None:
    """The gateway that a path goes through."""
    match path.split("/", 6)[2:6]:
        case ["cluster", name, *_] if name:
            entrance, plural = gateway_target(CLUSTER, name), "clusters"
        case ["project", project, "space", name] if project and name:
            entrance, plural = gateway_target(SPACE, name, roots.namespace_prefix + project), "spaceinstances"
        case ["project", project, "virtualcluster", name] if project and name:
            entrance = gateway_target(VIRTUAL_CLUSTER, name, roots.namespace_prefix + project)
            plural = "virtualclusterinstances"
        case _:
            return None
    _refuse_tricks(entrance.namespace)
    _refuse_tricks(entrance.name)
    entrance.group, entrance.version, entrance.resource = roots.api_group, "v1", plural
    return entrance


def api_target(method: str, path: str, query: Mapping[str, list[str]], root: str) -> Target:
    """What is being asked of a Kubernetes API, by a path below its root."""
    steps = path.removeprefix("/").removesuffix("/").split("/")
    if "" in steps:  # two slashes in a row name nothing
        return Target(_plain_verb(method), path, root)
    if len(steps) > 2 and steps[0] == "api":
        group_version, steps = ("", steps[1]), steps[2:]
    elif len(steps) > 3 and steps[0] == "apis":
        group_version, steps = (steps[1], steps[2]), steps[3:]
    else:
        return Target(_plain_verb(method), path, root)
    watched = root != MANAGEMENT and steps[0] == "watch" and len(steps) > 1
    found = _place(group_version[0], steps[1:] if watched else steps)
    if found is None:
        return Target(_plain_verb(method), path, root)
    resource, subresource, namespace, name = found
    # `watch/` is an old way to say it, which clusters still understand.
    verb = "watch" if watched else _verb(method, name, query)
    if root != MANAGEMENT and name:
        verb = _TUNNELS.get(subresource.partition("/")[0], verb)
    return Target(verb, path, root, *group_version, resource, subresource, namespace, name)


def _plain_verb(method: str) -> str:
    """Methods are upper case; whatever else was sent is no verb at all."""
    return "get" if method == "HEAD" else method.lower() if method.isupper() else ""


def _place(group: str, steps: list[str]) -> tuple[str, str, str, str] | None:
    """Resource, subresource, namespace and name; None for a path that names no resource, although it looks like one."""
    namespace = ""
    if steps[0] == "namespaces" and len(steps) > 1:
        namespace = steps[1]
        if len(steps) > 2 and (group or steps[2] not in _NAMESPACE_SUBRESOURCES):
            steps = steps[2:]
            nowhere = not group and steps[0] == "namespaces"  # there are none inside one
        else:
            nowhere = bool(group)
        if nowhere:
            return None
    resource, name, subresource = steps[0], steps[1] if len(steps) > 1 else "", "/".join(steps[2:])
    _refuse_tricks(namespace)
    _refuse_tricks(name)
    return resource, subresource, namespace, name


def _verb(method: str, name: str, query: Mapping[str, list[str]]) -> str:
    verb = _VERBS.get(method, "")
    if name:
        return verb
    if verb == "get" and truthy((query.get("watch") or [""])[0], present="watch" in query):
        return "watch"
    return _COLLECTION_VERBS.get(verb, verb)


def truthy(text: str, present: bool = True) -> bool:
    """A flag in a query as Kubernetes reads it: absent, `0` and `false` are no, everything else is yes."""
    return present and text.lower() not in ("0", "false")


def _refuse_tricks(step: str) -> None:
    """Names that would mean something else as a path never reach the registry."""
    if not step or _is_plain(step):
        return
    for fault in path_segment_faults(step):
        raise BadRequest(f'Name parameter invalid: "{step}": {fault}')
    if "\x00" in step:
        raise BadRequest("Name parameter invalid: it contains a NUL byte")


# DOC-MERGED server/serve
# The end of the pipeline: resources go to the verbs, everything else is a document or a health check.


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
