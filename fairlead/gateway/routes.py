"""The gateways: where a request through one of them goes, found in our own objects and nowhere else.

    /kubernetes/cluster/<cluster>/...                            the cluster
    /kubernetes/project/<project>/space/<name>/...               the cluster that it is in, one namespace of it
    /kubernetes/project/<project>/virtualcluster/<name>/...      the virtual cluster

`server/` calls this with what was routed and authorized; `proxy.py` does the rest.
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

# DOC-MERGED gateway/paths
# What of a request's path is asked of the cluster, exactly as it was sent.
#
# A path that two servers could read differently is refused before it goes anywhere: whatever was authorized here must be
# what happens there.


# What RFC 3986 allows within a step, of which the encoded forms of `%`, `.`, `/`, `\` and control characters are left
# out: names in Kubernetes have none of them, and somebody might decode twice.
_PLAIN = re.compile(r"(?:/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]++|%(?!0|1|2[5EFef]|5[Cc]|7[Ff])[0-9A-Fa-f]{2})*+)++")
_DETOURS = re.compile(r"//|/\.\.?(?:/|$)")
_QUERY = re.compile(r"[!\"$-~]*")

_REFUSED = (
    "the path cannot be handed on to a cluster: it has an empty, `.` or `..` step, or an encoded slash, backslash, "
    "dot, percent sign or control character; send the path that is meant, without detours"
)


def below(raw: str, steps: int) -> str:
    """The path and query that are left of `raw` when its first steps are taken away. Raises BadRequest for tricks."""
    path, mark, query = raw.partition("?")
    if not _PLAIN.fullmatch(path) or _DETOURS.search(path):
        raise BadRequest(_REFUSED)
    if not _QUERY.fullmatch(query):
        raise BadRequest("the query has characters that must be percent-encoded; encode them and try again")
    parts = path.split("/", steps + 1)
    rest = parts[steps + 1] if len(parts) > steps + 1 else ""
    return f"/{rest}{mark}{query}"


def plain_path(inner: str) -> str:
    """The path of what `below` gave, decoded."""
    path = inner.partition("?")[0]
    return unquote(path) if "%" in path else path


# DOC-MERGED gateway/confinement
# What may be asked through the gateway of a space: its namespace, and what everybody may know about the cluster.
#
# Kubernetes' own permissions decide inside; this keeps everything else out of sight. It looks at the path that is handed
# on and at nothing that was made of it, so there is no second reading to disagree with. `routes.py` calls.


READS = frozenset({"GET", "HEAD"})
NO_RESOURCES = frozenset({"", "status", "finalize", "namespaces"})
"""What below a namespace is about the namespace itself, or nothing at all."""


@dataclass(frozen=True, slots=True)
class Space:
    """A space as far as its gateway knows it: what people call it, and where it is."""

    title: str
    cluster: str
    namespace: str


def confine(method: str, inner: str, space: Space) -> None:
    """Raises Forbidden for what is not the space's. `inner` is a path, free of tricks, and perhaps a query."""
    path = plain_path(inner)
    if is_inside(method, path.strip("/").split("/"), space.namespace):
        return
    raise Forbidden(
        f'forbidden: {space.title} is the namespace "{space.namespace}" and nothing else of its cluster: {method} '
        f'{path} is outside. Name the namespace, as with "kubectl -n {space.namespace}", or go through the gateway of '
        f'the cluster, /kubernetes/cluster/{space.cluster}, if you may use cluster "{space.cluster}"'
    )


def is_inside(method: str, steps: Sequence[str], namespace: str) -> bool:
    match steps:
        case ["api", _, "namespaces", place, *rest] | ["apis", _, _, "namespaces", place, *rest]:
            return place == namespace and (method in READS if not rest else rest[0] not in NO_RESOURCES)
        case ["apis", group, _, question] if (group, question) in QUESTIONS:
            return method == "POST"
        case _:
            return method in READS and is_document(steps)


STEPS = {CLUSTER: 3, SPACE: 5, VIRTUAL_CLUSTER: 5}
"""How many steps of a path lead to each sort of entrance."""
MADE = "SpaceSynced"
"""The condition of a space that has its namespace. Without it, the namespace it names may be somebody else's."""
MAX_KEPT = 4096


class Gateways:
    def __init__(
        self, registry: Registry, api_group: str, namespace_prefix: str, connected: Connected, names: ClusterNames
    ) -> None:
        """`names` say what identities are called at clusters."""
        self._clusters = registry.resource(api_group, "clusters")
        self._spaces = registry.resource(api_group, "spaceinstances")
        self._virtual_clusters = registry.resource(api_group, "virtualclusterinstances")
        self._prefix = namespace_prefix
        self._connected = connected
        self._names = names
        self._kept: dict[tuple[str, str], tuple[int, Space]] = {}

    async def __call__(self, call: Call) -> Reply:
        """Hands on a call whose Target has a `via`, all of it authorized."""
        via = call.target.via
        if via is None or call.user is None:
            raise Unauthorized
        inner = below(call.raw_target, STEPS[via.root])
        if plain_path(inner) != call.target.path:  # what was authorized, and nothing else, is handed on
            raise BadRequest("the path can be read in two ways; send the one that is meant")
        what = self._title(via)
        try:
            upstream = self._upstream(call.method, via, inner)
        except UpstreamError as error:
            raise as_api_error(error, what) from error
        return await forward(upstream, call.user, self._names, call, inner, what)

    def _title(self, via: Target) -> str:
        if via.root == CLUSTER:
            return f'cluster "{via.name}"'
        sort = "space" if via.root == SPACE else "virtual cluster"
        return f'{sort} "{via.name}" of project "{via.namespace.removeprefix(self._prefix)}"'

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
        """Spaces are worked out once for each of their revisions: rendered templates make them large."""
        place = via.namespace, via.name
        entry = _existing(self._spaces, *place)
        kept = self._kept.get(place)
        if kept is not None and kept[0] == entry.revision:
            return kept[1]
        space = _space_of(decode(entry), self._title(via))
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[place] = entry.revision, space
        return space


def _existing(resource: Resource, namespace: str, name: str) -> Entry:
    entry = resource.peek(namespace, name)
    if entry is None:
        raise NotFound.of(resource.kind.plural, resource.kind.group, name)
    return entry


def _space_of(obj: Object, title: str) -> Space:
    cluster, namespace = dig(obj, "spec.clusterRef.cluster"), dig(obj, "spec.clusterRef.namespace")
    if "deletionTimestamp" in metadata(obj):
        raise Unavailable(f"{title} is being deleted; nothing can be reached in it any more")
    conditions = dig(obj, "status.conditions") or ()
    made = any(each.get("type") == MADE and each.get("status") == "True" for each in conditions)
    if not (cluster and namespace and made):
        raise Unavailable(f"{title} is not ready: its condition {MADE} says what it waits for; try again later")
    return Space(title, cluster, namespace)
