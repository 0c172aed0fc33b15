"""The Upstreams of connected clusters and virtual clusters, derived from the object and its kubeconfig secret only.

Gateways and controllers look up an Upstream for every request, so it is cached until the object or its secret changes.
Cache entries belong to the object's uid: a recreated object gets new connections. When the secret changes, the old
Upstream is closed once it is idle; when the object is deleted, or may no longer be reached by a tunnel, immediately.
Failures are cached, too, so that a request for an object with an invalid secret is cheap.
"""

import asyncio
import hashlib
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol
from urllib.parse import quote

from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.waiting import end_tasks
from fairlead.domain.cluster_identity import IDENTITY_PREFIX_TAKEN, find_identity_conflict
from fairlead.domain.typed_objects import VirtualClusterInstance
from fairlead.kinds.core.server_objects import cluster_agent_secret_name, is_generated_kubeconfig
from fairlead.kinds.instances.templates import forwards_token
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.access import CONTROLLER_AGENT, ClusterEndpoint, HttpProxy, Request
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.dial import Dialer, DirectDialer
from fairlead.upstream.errors import FailureNotifier, TlsError, UpstreamError
from fairlead.upstream.kube_client import KubeClient
from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig
from fairlead.upstream.linked import LinkExchanges, OpenStream, refuse_stream
from fairlead.upstream.port_forward import SUBPROTOCOL
from fairlead.upstream.tunnel import TunnelDialer, UnreadBytes
from fairlead.upstream.tunnel_pods import PodFinder, PodTarget, TunnelPlace, find_route
from fairlead.upstream.upstream import Limits, Upstream, dialled_upstream
from fairlead.upstream.websocket import UpstreamWebSocket

CLUSTERS, VIRTUAL_CLUSTERS = "clusters", "virtualclusterinstances"
DEFAULT_KUBECONFIG_KEY: Final = "config"
"""Key of the secret that holds the kubeconfig, unless the object names another one."""
SYSTEM_LIMITS = Limits(max_requests=8, max_websockets=1, max_queued=8, connect_seconds=3, response_header_seconds=10)
"""For requests of the controllers. A separate pool, so they never queue behind requests of users."""
HEALTH_PROBE_LIMITS = Limits(
    max_requests=2, max_websockets=1, max_queued=2, connect_seconds=3, response_header_seconds=10
)
"""For health probes. A separate pool, so they never queue behind other requests."""
TUNNEL_LIMITS = Limits(
    max_requests=1, max_websockets=2048, max_queued=256, connect_seconds=3, response_header_seconds=10
)
"""For port-forwards to the virtual clusters in a cluster (`tunnel.py`). A separate pool: they never take the slots of
users' exec. Each virtual cluster has limits of its own."""
HELM_LIMITS = Limits(max_websockets=1)
"""For one run of Helm, which asks an older cluster for all its groups at once, and may hold a
watch for each kind in a chart."""
WATCH_LIMITS = Limits(max_requests=80, max_websockets=1, max_queued=80, connect_seconds=5, response_header_seconds=30)
"""For watches of the controllers. A separate pool, so long-lived watches do not block short requests."""
IDLE_CHECK_SECONDS = 1.0
POD_LOOKUP_SECONDS = 3.0
"""Timeout of each request for the pod of a virtual cluster."""


class NotConnected(UpstreamError):
    """The object has no usable kubeconfig, or is deleted. `reason` says which, for conditions and Events."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class KubeconfigRef:
    """The secret and key that hold an object's kubeconfig.

    `owner_uid`: uid of the virtual cluster that the server must have created the secret for; empty if any will do.
    """

    namespace: str
    name: str
    key: str
    owner_uid: str = ""


@dataclass(frozen=True, slots=True)
class AgentRef:
    """A cluster that its agent connects to this server, and the Secret with the identity of that agent."""

    namespace: str
    name: str
    cluster: str


TransportRef = KubeconfigRef | AgentRef
"""How a cluster is reached."""


def kubeconfig_secret_name(instance_name: str) -> str:
    """Name of the secret, in the instance's namespace, with the kubeconfig of a virtual cluster created by us."""
    return f"vc-{instance_name}-kubeconfig"


def cluster_kubeconfig_ref(cluster: Object, system_namespace: str) -> KubeconfigRef | None:
    config = get_path(cluster, "spec.config") or {}
    if not config.get("secretName"):
        return None
    return KubeconfigRef(
        config.get("secretNamespace") or system_namespace,
        config["secretName"],
        config.get("key") or DEFAULT_KUBECONFIG_KEY,
    )


def cluster_transport_ref(cluster: Object, system_namespace: str) -> TransportRef | None:
    """With `spec.networkPeer`, the cluster is reached through its agent and never dialled, whatever else is set."""
    if get_path(cluster, "spec.networkPeer"):
        name = name_of(cluster)
        return AgentRef(system_namespace, cluster_agent_secret_name(name), name)
    return cluster_kubeconfig_ref(cluster, system_namespace)


def virtual_cluster_kubeconfig_ref(instance: Object) -> KubeconfigRef:
    """The secret of an imported virtual cluster, or the generated one, which must be owned by this very instance."""
    meta = metadata(instance)
    config = get_path(instance, "spec.config") or {}
    if config.get("secretName"):
        return KubeconfigRef(meta["namespace"], config["secretName"], config.get("key") or DEFAULT_KUBECONFIG_KEY)
    return KubeconfigRef(meta["namespace"], kubeconfig_secret_name(meta["name"]), DEFAULT_KUBECONFIG_KEY, meta["uid"])


def kubeconfig_digest(kubeconfig: bytes) -> str:
    """As in `status.importedFrom`, which counts for the kubeconfig with this digest only."""
    return hashlib.sha256(kubeconfig).hexdigest()


def tunnel_place(instance: Object) -> TunnelPlace | None:
    """Where a chart has created the virtual cluster: for this server, or, if it was imported by the Secret that the
    chart wrote, for others. None for one that was imported with a kubeconfig of its user. The place of an import counts
    for the kubeconfig that was compared: see `UpstreamRegistry`."""
    source = get_path(instance, "status.importedFrom") or {}
    release = source.get("name")
    if not get_path(instance, "spec.config.secretName"):
        source = get_path(instance, "spec.clusterRef") or {}
        release = source.get("virtualCluster")
    if not (source.get("cluster") and source.get("namespace") and release):
        return None
    return TunnelPlace(source["cluster"], source["namespace"], release)


@dataclass(frozen=True, slots=True)
class _UpstreamSet:
    """The Upstreams of one cluster, by purpose. Each has its own connections and limits."""

    user: Upstream
    system: Upstream
    health: Upstream
    watch: Upstream
    tunnel: Upstream
    forwarding: Upstream | None
    """For requests with the token of their user, to a virtual cluster that authenticates it itself. None for others."""
    dialer: Dialer | None
    """None if the cluster is reached through its agent."""

    def all(self) -> Sequence[Upstream]:
        forwarding = (self.forwarding,) if self.forwarding is not None else ()
        return (self.user, self.system, self.health, self.watch, self.tunnel, *forwarding)


@dataclass(frozen=True, slots=True)
class _CachedUpstreams:
    """Upstreams, or the error, for a revision of the object and of its secret (0: the secret does not exist)."""

    uid: str
    revision: int
    ref: TransportRef
    secret_revision: int
    place: TunnelPlace | None
    forwards_token: bool
    result: _UpstreamSet | NotConnected
    identity_conflict: str = ""
    """Why no requests of users are sent to the cluster."""

    @property
    def basis(self) -> object:
        """What the connections depend on."""
        return self.uid, self.ref, self.secret_revision, self.place, self.forwards_token


class UpstreamRegistry:
    """Looks up, caches and closes the Upstreams of clusters and virtual clusters."""

    def __init__(
        self,
        registry: Registry,
        api_group: str,
        system_namespace: str,
        policy: AddressPolicy,
        limits: Limits,
        open_stream: OpenStream = refuse_stream,
    ) -> None:
        """`open_stream` opens streams to the agents of clusters."""
        self._registry = registry
        self._group = api_group
        self._system_namespace = system_namespace
        self._policy = policy
        self._open_stream = open_stream
        self._limits = limits
        self._secrets = registry.resource("", "secrets")
        self.failures = FailureNotifier()
        """Notified of failed requests, except those of health probes."""
        self._cache: dict[Key, _CachedUpstreams] = {}
        self._unread = UnreadBytes()
        self._retired: dict[_Closable, asyncio.Task[None]] = {}

    def cluster_upstream(self, name: str) -> Upstream:
        """The Upstream for requests of users. Raises NotConnected, also if users of another installation have their
        names in the cluster."""
        upstreams = self._cluster_upstreams(name)
        if message := self._cache[self._group, CLUSTERS, "", name].identity_conflict:
            raise NotConnected(IDENTITY_PREFIX_TAKEN, message)
        return upstreams.user

    def system_upstream(self, name: str) -> Upstream:
        """The Upstream for requests of controllers. Raises NotConnected."""
        return self._cluster_upstreams(name).system

    def health_upstream(self, name: str) -> Upstream:
        """The Upstream for health probes. Raises NotConnected."""
        return self._cluster_upstreams(name).health

    def watch_upstream(self, name: str) -> Upstream:
        """The Upstream for watches of controllers, closed as soon as the credential changes. Raises NotConnected."""
        return self._cluster_upstreams(name).watch

    def tunnel_upstream(self, name: str) -> Upstream:
        """The Upstream for port-forwards to the virtual clusters in a cluster, closed as soon as the credential
        changes. Raises NotConnected."""
        return self._cluster_upstreams(name).tunnel

    def open_cleanup_upstream(self, name: str) -> Upstream:
        """Opens an Upstream for cleanup in a cluster whose object is being deleted. The caller closes it.

        Raises NotConnected.
        """
        return self._open_cluster(name, HEALTH_PROBE_LIMITS, CONTROLLER_AGENT)

    @asynccontextmanager
    async def open_helm_upstream(self, name: str) -> AsyncIterator[Upstream]:
        """Opens an Upstream to a cluster for one run of Helm. Raises NotConnected."""
        upstream = self._open_cluster(name, HELM_LIMITS)
        try:
            yield upstream
        finally:
            await upstream.close()

    def _open_cluster(self, name: str, limits: Limits, user_agent: str = "") -> Upstream:
        entry = self._registry.view.get((self._group, CLUSTERS, "", name))
        ref = cluster_transport_ref(decode(entry), self._system_namespace) if entry is not None else None
        if ref is None:
            raise NotConnected("KubeconfigNotSet", _not_connected(name))
        if isinstance(ref, AgentRef):
            self._require_agent(ref)
            return Upstream(self._link(ref, limits, user_agent), limits)
        return self._open_endpoint(self.load_endpoint(ref), limits, user_agent)

    def open_trial_upstream(self, ref: KubeconfigRef, kubeconfig: bytes) -> Upstream:
        """Opens an Upstream for a kubeconfig that is to be stored at `ref`. The caller closes it. Raises
        NotConnected."""
        return self._open_endpoint(self._parse_endpoint(ref, kubeconfig), HEALTH_PROBE_LIMITS, CONTROLLER_AGENT)

    def _open_endpoint(self, endpoint: ClusterEndpoint, limits: Limits, user_agent: str) -> Upstream:
        try:
            dialer = DirectDialer(endpoint, self._policy.resolve)
            return dialled_upstream(endpoint, dialer, limits, user_agent=user_agent)
        except TlsError as error:
            raise NotConnected("InvalidKubeconfig", error.message) from error

    def _cluster_upstreams(self, name: str) -> _UpstreamSet:
        key = (self._group, CLUSTERS, "", name)
        return self._get_upstreams(key, lambda obj: cluster_transport_ref(obj, self._system_namespace))

    def virtual_cluster_upstream(self, namespace: str, name: str) -> Upstream:
        """The Upstream for requests of users. `namespace` is that of the project. Raises NotConnected."""
        return self._get_upstreams(
            (self._group, VIRTUAL_CLUSTERS, namespace, name), virtual_cluster_kubeconfig_ref
        ).user

    def virtual_cluster_forwarding_upstream(self, namespace: str, name: str) -> Upstream | None:
        """The Upstream for requests of users with their own token; None if the virtual cluster does not authenticate
        it. Raises NotConnected."""
        return self._get_upstreams(
            (self._group, VIRTUAL_CLUSTERS, namespace, name), virtual_cluster_kubeconfig_ref
        ).forwarding

    def virtual_cluster_system_upstream(self, namespace: str, name: str) -> Upstream:
        """The Upstream for requests of controllers. Raises NotConnected."""
        return self._get_upstreams(
            (self._group, VIRTUAL_CLUSTERS, namespace, name), virtual_cluster_kubeconfig_ref
        ).system

    def virtual_cluster_tunnel(self, namespace: str, name: str) -> TunnelDialer | None:
        """The tunnel to a virtual cluster; None if it is reached directly. Raises NotConnected."""
        found = self._get_upstreams((self._group, VIRTUAL_CLUSTERS, namespace, name), virtual_cluster_kubeconfig_ref)
        return found.dialer if isinstance(found.dialer, TunnelDialer) else None

    @asynccontextmanager
    async def open_virtual_cluster_helm_upstream(self, namespace: str, name: str) -> AsyncIterator[Upstream]:
        """Opens an Upstream to a virtual cluster for one run of Helm. Raises NotConnected."""
        self.virtual_cluster_system_upstream(namespace, name)  # it is neither gone nor being deleted
        async with self._open_virtual_cluster(namespace, name, HELM_LIMITS) as upstream:
            yield upstream

    @asynccontextmanager
    async def open_virtual_cluster_cleanup(self, namespace: str, name: str) -> AsyncIterator[Upstream]:
        """Opens an Upstream to a virtual cluster whose object is being deleted. Raises NotConnected."""
        async with self._open_virtual_cluster(namespace, name, SYSTEM_LIMITS, CONTROLLER_AGENT) as upstream:
            yield upstream

    @asynccontextmanager
    async def _open_virtual_cluster(
        self, namespace: str, name: str, limits: Limits, user_agent: str = ""
    ) -> AsyncIterator[Upstream]:
        entry = self._registry.view.get((self._group, VIRTUAL_CLUSTERS, namespace, name))
        if entry is None:
            raise NotConnected("NotFound", f'"{name}" no longer exists')
        instance = decode(entry)
        endpoint = self.load_endpoint(virtual_cluster_kubeconfig_ref(instance))
        dialer = self._build_dialer(endpoint, self._find_place(instance))
        upstream = dialled_upstream(endpoint, dialer, limits, user_agent=user_agent)
        try:
            yield upstream
        finally:
            await upstream.close()
            if isinstance(dialer, TunnelDialer):
                await dialer.close()

    def close_withdrawn_virtual_cluster(self, namespace: str, name: str) -> None:
        """Closes the connections to a virtual cluster whose object is deleted or being deleted, or whose tunnel may no
        longer be used."""
        key = (self._group, VIRTUAL_CLUSTERS, namespace, name)
        cached = self._cache.get(key)
        entry = self._registry.view.get(key)
        if cached is None:
            return
        instance = decode(entry) if entry is not None else {}
        current = metadata(instance) if entry is not None else {}
        is_gone = current.get("uid") != cached.uid or "deletionTimestamp" in current
        if is_gone or _is_place_withdrawn(cached, self._find_place(instance)):
            self._evict(key)

    async def close_all(self) -> None:
        """Closes all connections, on shutdown."""
        for key in list(self._cache):
            self._evict(key)
        retired = dict(self._retired)
        await end_tasks(*retired.values())
        for upstream in retired:
            await upstream.close()
        self._retired.clear()

    def _get_upstreams(self, key: Key, get_ref: Callable[[Object], TransportRef | None]) -> _UpstreamSet:
        entry = self._registry.view.get(key)
        cached = self._cache.get(key)
        if entry is None or cached is None or not self._is_current(cached, entry):
            try:
                cached = self._resolve(key, entry, cached, get_ref)
            except NotConnected:
                self._evict(key)
                raise
            self._cache[key] = cached
        if isinstance(cached.result, NotConnected):
            # A new exception each time: raising the cached one again would extend its traceback.
            raise NotConnected(cached.result.reason, cached.result.message)
        return cached.result

    def _is_current(self, cached: _CachedUpstreams, entry: Entry) -> bool:
        return cached.revision == entry.revision and cached.secret_revision == self._secret_revision(cached.ref)

    def _secret_revision(self, ref: TransportRef) -> int:
        """Changes when the connections are to be replaced: an agent that replaces its key keeps them."""
        secret = self._secrets.get_cached(ref.namespace, ref.name)
        if isinstance(ref, AgentRef):
            return int(secret is not None)
        return secret.revision if secret is not None else 0

    def _resolve(
        self,
        key: Key,
        entry: Entry | None,
        cached: _CachedUpstreams | None,
        get_ref: Callable[[Object], TransportRef | None],
    ) -> _CachedUpstreams:
        """Builds the current cache entry. Keeps the connections if the kubeconfig has not changed."""
        if entry is None:
            raise NotConnected("NotFound", f'"{key[3]}" no longer exists')
        obj = decode(entry)
        ref = get_ref(obj)
        if "deletionTimestamp" in metadata(obj):
            raise NotConnected("Terminating", f'"{key[3]}" is being deleted')
        if ref is None:
            raise NotConnected("KubeconfigNotSet", _not_connected(key[3]))
        uid = metadata(obj)["uid"]
        revision = self._secret_revision(ref)
        place = self._find_place(obj) if key[1] == VIRTUAL_CLUSTERS else None
        conflict = find_identity_conflict(obj)
        forwards = key[1] == VIRTUAL_CLUSTERS and forwards_token(VirtualClusterInstance(obj))
        basis = (uid, ref, revision, place, forwards)
        if cached is not None and cached.basis == basis:
            return replace(cached, revision=entry.revision, identity_conflict=conflict)
        if cached is not None and cached.uid == uid:
            self._retire(cached, immediately=_is_place_withdrawn(cached, place))
        else:
            self._evict(key)
        self._evict_deleted()
        return _CachedUpstreams(
            uid=uid,
            revision=entry.revision,
            ref=ref,
            secret_revision=revision,
            place=place,
            forwards_token=forwards,
            result=self._build(key, ref, place, forwards=forwards),
            identity_conflict=conflict,
        )

    def _find_place(self, instance: Object) -> TunnelPlace | None:
        """Where the tunnel to a virtual cluster leads. Those who may write the Secret of an import could name any
        Service of the namespace in it, so its place counts for the kubeconfig that the server has compared only."""
        place = tunnel_place(instance)
        if place is None or not get_path(instance, "spec.config.secretName"):
            return place
        try:
            kubeconfig = self.read_kubeconfig(virtual_cluster_kubeconfig_ref(instance))
        except NotConnected:  # reported to the caller that connects
            return None
        compared = get_path(instance, "status.importedFrom.kubeconfigDigest")
        return place if kubeconfig_digest(kubeconfig) == compared else None

    def _build(
        self, key: Key, ref: TransportRef, place: TunnelPlace | None, *, forwards: bool
    ) -> _UpstreamSet | NotConnected:
        try:
            if isinstance(ref, AgentRef):
                return self._build_linked(key, ref)
            endpoint = self.load_endpoint(ref)
            dialer = self._build_dialer(endpoint, place)
            on_failure = partial(self.failures.notify, key)
            without_credential = endpoint.without_credential()
            return _UpstreamSet(
                user=dialled_upstream(endpoint, dialer, self._limits, on_failure),
                system=dialled_upstream(endpoint, dialer, SYSTEM_LIMITS, on_failure, CONTROLLER_AGENT),
                health=dialled_upstream(endpoint, dialer, HEALTH_PROBE_LIMITS, user_agent=CONTROLLER_AGENT),
                watch=dialled_upstream(endpoint, dialer, WATCH_LIMITS, on_failure, CONTROLLER_AGENT),
                tunnel=dialled_upstream(endpoint, dialer, TUNNEL_LIMITS, on_failure, CONTROLLER_AGENT),
                forwarding=dialled_upstream(without_credential, dialer, self._limits) if forwards else None,
                dialer=dialer,
            )
        except NotConnected as error:
            return error
        except TlsError as error:  # well-formed PEM that OpenSSL rejects
            return NotConnected("InvalidKubeconfig", error.message)

    def _require_agent(self, ref: AgentRef) -> None:
        """Raises NotConnected if the agent of a cluster has not joined yet."""
        if self._secrets.get_cached(ref.namespace, ref.name) is None:
            advice = f"run `fairlead cluster add {ref.cluster} --agent`, and apply what it prints in the cluster"
            raise NotConnected("AgentNotJoined", f'the agent of "{ref.cluster}" has not joined yet; {advice}')

    def _build_linked(self, key: Key, ref: AgentRef) -> _UpstreamSet:
        self._require_agent(ref)
        on_failure = partial(self.failures.notify, key)

        def build(limits: Limits, user_agent: str = "", *, notify: bool = True) -> Upstream:
            exchanges = self._link(ref, limits, user_agent)
            return Upstream(exchanges, limits, on_failure) if notify else Upstream(exchanges, limits)

        return _UpstreamSet(
            user=build(self._limits),
            system=build(SYSTEM_LIMITS, CONTROLLER_AGENT),
            health=build(HEALTH_PROBE_LIMITS, CONTROLLER_AGENT, notify=False),
            watch=build(WATCH_LIMITS, CONTROLLER_AGENT),
            tunnel=build(TUNNEL_LIMITS, CONTROLLER_AGENT),
            forwarding=None,
            dialer=None,
        )

    def _link(self, ref: AgentRef, limits: Limits, user_agent: str = "") -> LinkExchanges:
        return LinkExchanges(ref.cluster, self._open_stream, limits, user_agent)

    def _build_dialer(self, endpoint: ClusterEndpoint, place: TunnelPlace | None) -> Dialer:
        direct = DirectDialer(endpoint, self._policy.resolve)
        route = find_route(place, endpoint)
        if route is None:
            return direct
        finder = PodFinder(route, lambda: KubeClient(self.system_upstream(route.cluster), POD_LOOKUP_SECONDS))

        async def open_websocket(target: PodTarget) -> UpstreamWebSocket:
            path = f"/api/v1/namespaces/{quote(route.namespace)}/pods/{quote(target.pod)}/portforward"
            request = Request("GET", f"{path}?ports={target.port}")
            return await self.tunnel_upstream(route.cluster).open_websocket(request, (SUBPROTOCOL,))

        return TunnelDialer(route, finder, open_websocket, direct, UnreadBytes(self._unread))

    def load_endpoint(self, ref: KubeconfigRef) -> ClusterEndpoint:
        """Raises NotConnected."""
        return self._parse_endpoint(ref, self.read_kubeconfig(ref))

    def _parse_endpoint(self, ref: KubeconfigRef, kubeconfig: bytes) -> ClusterEndpoint:
        if not self._policy.dials_clusters:
            message = "this server connects to no clusters (setting cluster_connections); start it without that setting"
            raise NotConnected("ConnectionsOff", message)
        try:
            endpoint = parse_kubeconfig(kubeconfig)
        except InvalidKubeconfig as error:
            message = f"the kubeconfig cannot be used: {'; '.join(error.problems)}"
            raise NotConnected("InvalidKubeconfig", message) from error
        if endpoint.proxy is not None:
            self._check_proxy(ref, endpoint.proxy)
        return endpoint

    def _check_proxy(self, ref: KubeconfigRef, proxy: HttpProxy) -> None:
        """A proxy resolves names itself, and reaches what this server does not. So the operator lists it, and only
        administrators name it: those who may write Secrets of the system namespace. Raises NotConnected."""
        if str(proxy) not in self._policy.proxies:
            message = (
                "the kubeconfig names a proxy (proxy-url) that is not in the setting cluster_proxies; have it listed "
                "there, or use an address that this server can reach directly"
            )
            raise NotConnected("ProxyNotAllowed", message)
        if ref.namespace != self._system_namespace:
            message = (
                f"the kubeconfig names a proxy (proxy-url), but its secret is not in the namespace "
                f"{self._system_namespace}; have an administrator store it there"
            )
            raise NotConnected("ProxyNotAllowed", message)

    def read_kubeconfig(self, ref: KubeconfigRef) -> bytes:
        """Reads the kubeconfig from its secret. Raises NotConnected."""
        where = f'"{ref.name}" in namespace "{ref.namespace}"'
        entry = self._secrets.get_cached(ref.namespace, ref.name)
        secret = decode(entry) if entry is not None else {}
        if entry is None or (ref.owner_uid and not is_generated_kubeconfig(secret, ref.owner_uid)):
            raise NotConnected("SecretNotFound", f"secret {where} not found; create it with the kubeconfig")
        content = (secret.get("data") or {}).get(ref.key)
        if not content:
            raise NotConnected(
                "KeyNotFound", f'secret {where} has no key "{ref.key}"; store the kubeconfig under that key'
            )
        return b64decode(content)

    def _evict_deleted(self) -> None:
        """Evicts entries of deleted objects, which no request would look up again."""
        for key in [key for key in self._cache if self._registry.view.get(key) is None]:
            self._evict(key)

    def _evict(self, key: Key) -> None:
        """Removes the entry and closes its connections immediately."""
        if cached := self._cache.pop(key, None):
            self._retire(cached, immediately=True)

    def _retire(self, cached: _CachedUpstreams, immediately: bool) -> None:
        """Closes the entry's connections, `immediately` or once they are idle. Watches and port-forwards are closed
        immediately."""
        if not isinstance(cached.result, _UpstreamSet):
            return
        upstreams = cached.result
        retired: list[_Closable] = list(upstreams.all())
        if isinstance(upstreams.dialer, TunnelDialer):
            retired.append(upstreams.dialer)
        for each in retired:
            is_immediate = immediately or each in (upstreams.watch, upstreams.tunnel)
            task = asyncio.create_task(_close_when_idle(each, is_immediate), name="closing a cluster's connections")
            self._retired[each] = task
            task.add_done_callback(partial(self._on_closed, each))

    def _on_closed(self, closed: "_Closable", task: "asyncio.Task[None]") -> None:
        self._retired.pop(closed, None)


def _not_connected(name: str) -> str:
    return f'"{name}" is not connected; set spec.config.secretName, or spec.networkPeer for one with an agent'


def _is_place_withdrawn(cached: _CachedUpstreams, place: TunnelPlace | None) -> bool:
    """Whether open connections lead through a tunnel to a place that is no longer that of the virtual cluster."""
    return cached.place is not None and cached.place != place


class _Closable(Protocol):
    """An Upstream, or the tunnel below several of them."""

    @property
    def in_use(self) -> int: ...

    async def close(self) -> None: ...


async def _close_when_idle(upstream: _Closable, immediately: bool) -> None:
    while upstream.in_use and not immediately:  # noqa: ASYNC110  # polling keeps the request path free of an idle event
        await asyncio.sleep(IDLE_CHECK_SECONDS)
    await upstream.close()
