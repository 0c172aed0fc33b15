"""The gateways: where a request through one of them goes, found in our own objects and nowhere else.

    /kubernetes/cluster/<cluster>/...                            the cluster
    /kubernetes/project/<project>/space/<name>/...               the cluster that it is in, one namespace of it
    /kubernetes/project/<project>/virtualcluster/<name>/...      the virtual cluster

`server/` calls this with what was routed and authorized; `forward.py` does the rest.
"""

from fairlead.authz.scope.names import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import Call, Reply, Target
from fairlead.core.cluster_identity import ClusterNames
from fairlead.core.errors import BadRequest, NotFound, Unauthorized, Unavailable
from fairlead.core.objects import Object, dig, metadata
from fairlead.gateway.answers import as_api_error
from fairlead.gateway.confinement import Space, confine
from fairlead.gateway.forward import forward
from fairlead.gateway.paths import below, plain_path
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.storage.view import Entry
from fairlead.upstream.connected import Connected
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

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
