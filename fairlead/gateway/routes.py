"""Gateway routes: resolves a gateway request to the Upstream of a cluster, from our own objects only.

    /kubernetes/cluster/<cluster>/...                            the cluster
    /kubernetes/project/<project>/space/<name>/...               one namespace of the space's cluster
    /kubernetes/project/<project>/virtualcluster/<name>/...      the virtual cluster

`server/` calls `GatewayHandler` with routed and authorized requests; `proxy.py` forwards them.

The path is forwarded exactly as sent. A path that two servers could parse differently is rejected, so that the
authorized path is the one that the cluster serves. The gateway of a space allows requests to its namespace and the
general documents of the cluster (discovery, OpenAPI, version); within that, the cluster's RBAC decides. The check uses
the forwarded path itself, not a parsed form of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from fairlead.authz.scope.names import CLUSTER, QUESTIONS, SPACE, VIRTUAL_CLUSTER, is_document
from fairlead.core.call import Call, Reply, Target
from fairlead.core.cluster_identity import ClusterNames
from fairlead.core.errors import BadRequest, Forbidden, NotFound, Unauthorized, Unavailable
from fairlead.core.objects import Object, dig, metadata
from fairlead.gateway.headers import as_api_error
from fairlead.gateway.proxy import forward
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.storage.view.view import Entry
from fairlead.upstream.clusters import Connected
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

# What RFC 3986 allows in a path segment, except percent-encoded `%`, `.`, `/`, `\` and control characters: names in
# Kubernetes contain none of them, and a server might decode twice.
_PLAIN = re.compile(r"(?:/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]++|%(?!0|1|2[5EFef]|5[Cc]|7[Ff])[0-9A-Fa-f]{2})*+)++")
_DETOURS = re.compile(r"//|/\.\.?(?:/|$)")
_QUERY = re.compile(r"[!\"$-~]*")

_REFUSED = (
    "the path cannot be forwarded to a cluster: it has an empty, `.` or `..` segment, or a percent-encoded slash, "
    "backslash, dot, percent sign or control character; send the normalized path"
)
READS = frozenset({"GET", "HEAD"})
NO_RESOURCES = frozenset({"", "status", "finalize", "namespaces"})
"""Path segments after a namespace that address the Namespace object itself, or nothing."""
STEPS = {CLUSTER: 3, SPACE: 5, VIRTUAL_CLUSTER: 5}
"""Number of path segments before the forwarded path, by type of gateway."""
MADE = "SpaceSynced"
"""Condition of a space whose namespace exists. Without it, the namespace in its spec may belong to another owner."""
MAX_KEPT = 4096


def below(raw: str, steps: int) -> str:
    """Removes the first path segments of `raw_target`. Raises BadRequest for an ambiguous path or an invalid query."""
    path, mark, query = raw.partition("?")
    if not _PLAIN.fullmatch(path) or _DETOURS.search(path):
        raise BadRequest(_REFUSED)
    if not _QUERY.fullmatch(query):
        raise BadRequest("the query has characters that must be percent-encoded; encode them and try again")
    parts = path.split("/", steps + 1)
    rest = parts[steps + 1] if len(parts) > steps + 1 else ""
    return f"/{rest}{mark}{query}"


def plain_path(inner: str) -> str:
    """The percent-decoded path of a request target from `strip_prefix`."""
    path = inner.partition("?")[0]
    return unquote(path) if "%" in path else path


@dataclass(frozen=True, slots=True)
class Space:
    """The cluster and namespace of a space. `title` names the space in messages."""

    title: str
    cluster: str
    namespace: str


def confine(method: str, inner: str, space: Space) -> None:
    """Raises Forbidden for a request outside the space's namespace. `request_target` comes from `strip_prefix`."""
    path = plain_path(inner)
    if is_inside(method, path.strip("/").split("/"), space.namespace):
        return
    raise Forbidden(
        f'forbidden: {space.title} gives access to the namespace "{space.namespace}" only: {method} {path} is outside '
        f'of it. Specify the namespace, as with "kubectl -n {space.namespace}", or use the gateway of the cluster, '
        f'/kubernetes/cluster/{space.cluster}, if you may use cluster "{space.cluster}"'
    )


def is_inside(method: str, steps: Sequence[str], namespace: str) -> bool:
    match steps:
        case ["api", _, "namespaces", name, *rest] | ["apis", _, _, "namespaces", name, *rest]:
            return name == namespace and (method in READS if not rest else rest[0] not in NO_RESOURCES)
        case ["apis", group, _, resource] if (group, resource) in QUESTIONS:
            return method == "POST"
        case _:
            return method in READS and is_document(steps)


class Gateways:
    def __init__(
        self, registry: Registry, api_group: str, namespace_prefix: str, connected: Connected, names: ClusterNames
    ) -> None:
        """`names` maps users to their identities in clusters."""
        self._clusters = registry.resource(api_group, "clusters")
        self._spaces = registry.resource(api_group, "spaceinstances")
        self._virtual_clusters = registry.resource(api_group, "virtualclusterinstances")
        self._prefix = namespace_prefix
        self._connected = connected
        self._names = names
        self._kept: dict[tuple[str, str], tuple[int, Space]] = {}

    async def __call__(self, call: Call) -> Reply:
        """Forwards an authorized call whose request info has a `gateway`."""
        gateway = call.target.via
        if gateway is None or call.user is None:
            raise Unauthorized
        request_target = below(call.raw_target, STEPS[gateway.root])
        if plain_path(request_target) != call.target.path:  # forward only the path that was authorized
            raise BadRequest("the path is ambiguous; send the normalized path")
        title = self._title(gateway)
        try:
            upstream = self._upstream(call.method, gateway, request_target)
        except UpstreamError as error:
            raise as_api_error(error, title) from error
        return await forward(upstream, call.user, self._names, call, request_target, title)

    def _title(self, via: Target) -> str:
        if via.root == CLUSTER:
            return f'cluster "{via.name}"'
        kind = "space" if via.root == SPACE else "virtual cluster"
        return f'{kind} "{via.name}" of project "{via.namespace.removeprefix(self._prefix)}"'

    def _upstream(self, method: str, via: Target, inner: str) -> Upstream:
        if via.root == CLUSTER:
            _existing(self._clusters, "", via.name)
            return self._connected.cluster(via.name)
        if via.root == VIRTUAL_CLUSTER:
            _existing(self._virtual_clusters, via.namespace, via.name)
            return self._connected.virtual_cluster(via.namespace, via.name)
        space = self._space(via)
        confine(method, inner, space)
        return self._connected.cluster(space.cluster)

    def _space(self, via: Target) -> Space:
        """Cached by revision, because spaces with rendered templates are large to decode."""
        key = via.namespace, via.name
        entry = _existing(self._spaces, *key)
        cached = self._kept.get(key)
        if cached is not None and cached[0] == entry.revision:
            return cached[1]
        space = _space_of(decode(entry), self._title(via))
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = entry.revision, space
        return space


def _existing(resource: Resource, namespace: str, name: str) -> Entry:
    entry = resource.peek(namespace, name)
    if entry is None:
        raise NotFound.of(resource.kind.plural, resource.kind.group, name)
    return entry


def _space_of(obj: Object, title: str) -> Space:
    cluster, namespace = dig(obj, "spec.clusterRef.cluster"), dig(obj, "spec.clusterRef.namespace")
    if "deletionTimestamp" in metadata(obj):
        raise Unavailable(f"{title} is being deleted and no longer accessible")
    conditions = dig(obj, "status.conditions") or ()
    is_synced = any(each.get("type") == MADE and each.get("status") == "True" for each in conditions)
    if not (cluster and namespace and is_synced):
        raise Unavailable(f"{title} is not ready; see its condition {MADE} for the reason, and try again later")
    return Space(title, cluster, namespace)
