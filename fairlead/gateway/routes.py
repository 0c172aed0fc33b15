"""Gateway routes: resolves a gateway request to the Upstream of a cluster, from our own objects only.

    /kubernetes/cluster/<cluster>/...                            the cluster
    /kubernetes/project/<project>/space/<name>/...               one namespace of the space's cluster
    /kubernetes/project/<project>/virtualcluster/<name>/...      the virtual cluster

`GatewayPaths` parses these paths. `server/` calls `GatewayHandler` with authorized requests; `proxy.py` forwards them.

The path is forwarded exactly as sent. A path that two servers could parse differently is rejected, so that the
authorized path is the one that the cluster serves. The gateway of a space allows requests to its namespace and the
general documents of the cluster (discovery, OpenAPI, version); within that, the cluster's RBAC decides. The check uses
the forwarded path itself, not a parsed form of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from fairlead.authn.credentials import bearer_token
from fairlead.authz.scope.gateway_requests import (
    CLUSTER,
    SELF_REVIEWS,
    SPACE,
    VIRTUAL_CLUSTER,
    gateway_target,
    is_discovery_path,
)
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.errors import BadRequest, Forbidden, NotFound, Unauthorized, Unavailable
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.domain.typed_objects import SPACE_SYNCED, SpaceInstance
from fairlead.gateway.activity import ActivityTracker, SleepStates
from fairlead.gateway.headers import as_api_error
from fairlead.gateway.proxy import forward, forward_with_token
from fairlead.gateway.waking import WARNING_HEADER, InstanceWaker
from fairlead.kinds.instances import remote_instances
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.storage.view.view import Entry
from fairlead.upstream.clusters import CLUSTERS, UpstreamRegistry
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

# What RFC 3986 allows in a path segment, except percent-encoded `%`, `.`, `/`, `\` and control characters: names in
# Kubernetes contain none of them, and a server might decode twice.
_SAFE_PATH = re.compile(r"(?:/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%(?!0|1|2[5EFef]|5[Cc]|7[Ff])[0-9A-Fa-f]{2})*)+")
_DOT_OR_EMPTY_SEGMENT = re.compile(r"//|/\.\.?(?:/|$)")
_SAFE_QUERY = re.compile(r"[!\"$-~]*")

_UNSAFE_PATH_MESSAGE = (
    "the path cannot be forwarded to a cluster: it has an empty, `.` or `..` segment, or a percent-encoded slash, "
    "backslash, dot, percent sign or control character; send the normalized path"
)
READ_METHODS = frozenset({"GET", "HEAD"})
NAMESPACE_SUBRESOURCES = frozenset({"", "status", "finalize", "namespaces"})
"""Path segments after a namespace that address the Namespace object itself, or nothing."""
GATEWAY_PREFIX_SEGMENTS = {CLUSTER: 3, SPACE: 5, VIRTUAL_CLUSTER: 5}
"""Number of path segments before the forwarded path, by type of gateway."""
SPACE_CACHE_SIZE = 4096


@dataclass(frozen=True, slots=True)
class GatewayPaths:
    """Parses the paths of gateways. Projects have namespaces with the prefix."""

    api_group: str
    namespace_prefix: str

    def split(self, path: str) -> tuple[RequestInfo, str] | None:
        """The authorization target of the gateway, and the path below it; None if the path is not below a gateway."""
        segments = path.split("/")
        match segments[1:6]:
            case ["kubernetes", "cluster", name, *_] if name:
                gateway = gateway_target(CLUSTER, name)
                gateway.resource = CLUSTERS
            case ["kubernetes", "project", project, "space", name] if project and name:
                gateway = gateway_target(SPACE, name, self.namespace_prefix + project)
                gateway.resource = remote_instances.SPACE.plural
            case ["kubernetes", "project", project, "virtualcluster", name] if project and name:
                gateway = gateway_target(VIRTUAL_CLUSTER, name, self.namespace_prefix + project)
                gateway.resource = remote_instances.VIRTUAL_CLUSTER.plural
            case _:
                return None
        gateway.group = self.api_group
        gateway.version = "v1"
        return gateway, "/" + "/".join(segments[GATEWAY_PREFIX_SEGMENTS[gateway.root] + 1 :])


def strip_prefix(raw_target: str, segments: int) -> str:
    """Removes the first path segments of `raw_target`. Raises BadRequest for an ambiguous path or an invalid query."""
    path, mark, query = raw_target.partition("?")
    if not _SAFE_PATH.fullmatch(path) or _DOT_OR_EMPTY_SEGMENT.search(path):
        raise BadRequest(_UNSAFE_PATH_MESSAGE)
    if not _SAFE_QUERY.fullmatch(query):
        raise BadRequest("the query has characters that must be percent-encoded; encode them and try again")
    parts = path.split("/", segments + 1)
    rest = parts[segments + 1] if len(parts) > segments + 1 else ""
    return f"/{rest}{mark}{query}"


def decoded_path(request_target: str) -> str:
    """The percent-decoded path of a request target from `strip_prefix`."""
    path = request_target.partition("?")[0]
    return unquote(path) if "%" in path else path


@dataclass(frozen=True, slots=True)
class NamespaceScope:
    """The cluster and namespace of a space. `title` names the space in messages."""

    title: str
    cluster: str
    namespace: str


def check_in_namespace(method: str, request_target: str, space: NamespaceScope) -> None:
    """Raises Forbidden for a request outside the space's namespace. `request_target` comes from `strip_prefix`."""
    path = decoded_path(request_target)
    if is_in_namespace(method, path.strip("/").split("/"), space.namespace):
        return
    raise Forbidden(
        f'forbidden: {space.title} gives access to the namespace "{space.namespace}" only: {method} {path} is outside '
        f'of it. Specify the namespace, as with "kubectl -n {space.namespace}", or use the gateway of the cluster, '
        f'/kubernetes/cluster/{space.cluster}, if you may use cluster "{space.cluster}"'
    )


def is_in_namespace(method: str, segments: Sequence[str], namespace: str) -> bool:
    match segments:
        case ["api", _, "namespaces", name, *rest] | ["apis", _, _, "namespaces", name, *rest]:
            return name == namespace and (method in READ_METHODS if not rest else rest[0] not in NAMESPACE_SUBRESOURCES)
        case ["apis", group, _, resource] if (group, resource) in SELF_REVIEWS:
            return method == "POST"
        case _:
            return method in READ_METHODS and is_discovery_path(segments)


class GatewayHandler:
    def __init__(
        self,
        registry: Registry,
        api_group: str,
        namespace_prefix: str,
        upstreams: UpstreamRegistry,
        names: ClusterIdentityMapper,
    ) -> None:
        """`names` maps users to their identities in clusters."""
        self._clusters = registry.resource(api_group, "clusters")
        self._spaces = registry.resource(api_group, "spaceinstances")
        self._virtual_clusters = registry.resource(api_group, "virtualclusterinstances")
        self._namespace_prefix = namespace_prefix
        self._upstreams = upstreams
        self._names = names
        self._sleep_states = SleepStates(registry, api_group)
        self.activity = ActivityTracker(registry, api_group, self._sleep_states)
        """Its `run` has to be started."""
        self._waker = InstanceWaker(registry, api_group, namespace_prefix, self._sleep_states, self.activity)
        self._space_cache: BoundedCache[tuple[str, str], tuple[int, NamespaceScope]] = BoundedCache(SPACE_CACHE_SIZE)

    async def __call__(self, call: Call) -> Reply:
        """Forwards an authorized call whose request info has a `gateway`."""
        gateway = call.target.gateway
        if gateway is None or call.user is None:
            raise Unauthorized
        request_target = strip_prefix(call.raw_target, GATEWAY_PREFIX_SEGMENTS[gateway.root])
        if decoded_path(request_target) != call.target.path:  # forward only the path that was authorized
            raise BadRequest("the path is ambiguous; send the normalized path")
        title = self._title(gateway)
        if gateway.root == CLUSTER:
            return await self._forward(call, call.user, gateway, request_target)
        instances = self._spaces if gateway.root == SPACE else self._virtual_clusters
        _get_entry(instances, gateway.namespace, gateway.name)
        id = (instances.kind.plural, gateway.namespace, gateway.name)
        state = self._sleep_states.find(id)
        was_asleep = False
        if not state.is_awake:
            if gateway.root == SPACE:  # what is not forwarded wakes nothing
                check_in_namespace(call.method, request_target, self._resolve_space(gateway))
            was_asleep = await self._waker.ensure_awake(id, state, call, gateway, title)
            call.recheck()
        reply = await self._forward(call, call.user, gateway, request_target)
        self.activity.note(id, state, call, call.user, reply)
        self._waker.note_watch(state, call, call.user)
        if was_asleep:
            reply.headers.append(WARNING_HEADER)
        return reply

    async def _forward(self, call: Call, user: User, gateway: RequestInfo, request_target: str) -> Reply:
        title = self._title(gateway)
        try:
            upstream = self._resolve_upstream(call.method, gateway, request_target)
            if (token := forwardable_token(call, user)) and (forwarding := self._find_forwarding_upstream(gateway)):
                return await forward_with_token(forwarding, user, token, call, request_target, title)
        except UpstreamError as error:
            raise as_api_error(error, title) from error
        return await forward(upstream, user, self._names, call, request_target, title)

    def _title(self, gateway: RequestInfo) -> str:
        if gateway.root == CLUSTER:
            return f'cluster "{gateway.name}"'
        kind = "space" if gateway.root == SPACE else "virtual cluster"
        return f'{kind} "{gateway.name}" of project "{gateway.namespace.removeprefix(self._namespace_prefix)}"'

    def _resolve_upstream(self, method: str, gateway: RequestInfo, request_target: str) -> Upstream:
        if gateway.root == CLUSTER:
            _get_entry(self._clusters, "", gateway.name)
            return self._upstreams.cluster_upstream(gateway.name)
        if gateway.root == VIRTUAL_CLUSTER:
            _get_entry(self._virtual_clusters, gateway.namespace, gateway.name)
            return self._upstreams.virtual_cluster_upstream(gateway.namespace, gateway.name)
        space = self._resolve_space(gateway)
        check_in_namespace(method, request_target, space)
        return self._upstreams.cluster_upstream(space.cluster)

    def _find_forwarding_upstream(self, gateway: RequestInfo) -> Upstream | None:
        if gateway.root != VIRTUAL_CLUSTER:
            return None
        return self._upstreams.virtual_cluster_forwarding_upstream(gateway.namespace, gateway.name)

    def _resolve_space(self, gateway: RequestInfo) -> NamespaceScope:
        """Cached by revision, because spaces with rendered templates are large to decode."""
        key = gateway.namespace, gateway.name
        entry = _get_entry(self._spaces, *key)
        cached = self._space_cache.get(key)
        if cached is not None and cached[0] == entry.revision:
            return cached[1]
        space = _namespace_scope(SpaceInstance(decode(entry)), self._title(gateway))
        self._space_cache[key] = entry.revision, space
        return space


def forwardable_token(call: Call, user: User) -> str:
    """The user's own token; empty if there is none, as in a browser, or if it is another's: that of an impersonator."""
    return bearer_token(call) or "" if user.impersonator is None else ""


def _get_entry(resource: Resource, namespace: str, name: str) -> Entry:
    entry = resource.get_cached(namespace, name)
    if entry is None:
        raise NotFound.of(resource.kind.plural, resource.kind.group, name)
    return entry


def _namespace_scope(space: SpaceInstance, title: str) -> NamespaceScope:
    if space.is_deleting:
        raise Unavailable(f"{title} is being deleted and no longer accessible")
    if not space.cluster or not space.is_usable():
        raise Unavailable(f"{title} is not ready; see its condition {SPACE_SYNCED} for the reason, and try again later")
    return NamespaceScope(title, space.cluster, space.remote_namespace)
