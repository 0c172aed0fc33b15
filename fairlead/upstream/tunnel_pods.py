"""Where a tunnel to a virtual cluster leads: the Service that its chart created, and a ready pod behind it.

Everything that the cluster answers is quoted only as far as it is a name or a reason of Kubernetes: users of the
virtual cluster see the messages.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote

from fairlead.core.addresses import all_forms, is_loopback, is_private
from fairlead.core.objects import Object, get_path
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.errors import TunnelError, UpstreamError
from fairlead.upstream.kube_client import KubeClient, RemoteApiError, get_or_none

WAITING_FOR_POD, SERVICE_NOT_FOUND = "WaitingForPod", "ServiceNotFound"
TUNNEL_FORBIDDEN, TUNNEL_NOT_SUPPORTED = "TunnelForbidden", "TunnelNotSupported"
PERMANENT_REASONS = frozenset({SERVICE_NOT_FOUND, TUNNEL_FORBIDDEN, TUNNEL_NOT_SUPPORTED})
"""Those that do not pass by themselves."""
AVOID_SECONDS = 30.0
"""How long a pod that has failed is chosen only if there is no other."""
MAX_LISTED_PODS = 100
_HTTPS_PORT = 443
_FORBIDDEN = 403
_SERVICE_DOMAIN = "svc"
_word = re.compile(r"[A-Za-z]{1,64}", re.ASCII)
_name = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TunnelRoute:
    """A virtual cluster that only the cluster around it reaches."""

    cluster: str
    namespace: str
    release: str
    host: str
    port: int
    services: tuple[str, ...]
    """The names of its Service, the first that exists counts."""
    is_address: bool
    """Whether the host is a private address. It is tunnelled only if the Service or one of its pods has it."""


@dataclass(frozen=True, slots=True)
class TunnelPlace:
    """Where a chart has created a virtual cluster."""

    cluster: str
    namespace: str
    release: str


def find_route(place: TunnelPlace | None, endpoint: ClusterEndpoint) -> TunnelRoute | None:
    """The route to an endpoint whose host is loopback or inside the cluster; None if it is outside."""
    if place is None:
        return None
    host = endpoint.host.lower().rstrip(".")
    services: tuple[str, ...] = (place.release,)
    is_address = False
    if not is_loopback(host):
        try:
            address = ip_address(host)
        except ValueError:
            service = _service_of(host, place)
            if not service:
                return None
            services = tuple(dict.fromkeys((service, place.release)))
        else:
            if not all(map(is_private, all_forms(address))):
                return None
            is_address = True
    return TunnelRoute(place.cluster, place.namespace, place.release, host, endpoint.port, services, is_address)


def _service_of(host: str, place: TunnelPlace) -> str:
    """The Service of a DNS name of Kubernetes, `<service>[.<namespace>[.svc[.<domain>]]]`; empty for other names."""
    labels = host.split(".")
    if len(labels) == 1:
        return host if host == place.release else ""
    if labels[1] != place.namespace:
        return ""
    if len(labels) == 2 or labels[2] == _SERVICE_DOMAIN:
        return labels[0]
    return ""


@dataclass(frozen=True, slots=True)
class PodTarget:
    service: str
    pod: str
    uid: str
    port: int


class NotInCluster(Exception):
    """The address of the kubeconfig is neither that of the Service nor of one of its pods."""


class PodFinder:
    """Finds the pod, and remembers it until it is forgotten. `connect` raises UpstreamError."""

    def __init__(self, route: TunnelRoute, connect: Callable[[], KubeClient]) -> None:
        self._route = route
        self._connect = connect
        self._lock = asyncio.Lock()
        self._target: PodTarget | None = None
        self._failed_at: dict[str, float] = {}
        """By uid of the pods that have failed lately."""

    @property
    def current(self) -> PodTarget | None:
        return self._target

    def forget(self, uid: str) -> None:
        """The pod has failed: the next `find` looks again, and prefers another one."""
        now = asyncio.get_running_loop().time()
        self._failed_at = {each: at for each, at in self._failed_at.items() if now - at < AVOID_SECONDS}
        self._failed_at[uid] = now
        if self._target is not None and self._target.uid == uid:
            self._target = None

    async def find(self) -> PodTarget:
        """Raises TunnelError, other UpstreamErrors of the cluster around it, and NotInCluster."""
        if self._target is not None:
            return self._target
        async with self._lock:
            if self._target is None:
                self._target = await self._look_up()
            return self._target

    async def _look_up(self) -> PodTarget:
        route = self._route
        try:
            api = self._connect()
            service = await self._find_service(api)
            pods = await self._list_pods(api, service)
        except RemoteApiError as error:
            raise self._unknown(self._translate(error)) from error
        except TunnelError:
            raise
        except UpstreamError as error:
            message = f'cluster "{route.cluster}", in which it runs: {error.message}'
            raise self._unknown(TunnelError(error.reason, message)) from error
        if route.is_address and route.host not in _addresses_of(service, pods):
            raise NotInCluster
        ready = [each for each in pods if _is_ready(each)]
        if not ready:
            message = f'no ready pod behind Service "{_service_name(service)}": {_describe(pods)}'
            raise TunnelError(WAITING_FOR_POD, message)
        pod = max(ready, key=self._preference)
        port = _choose_port(service, pod, route)
        return PodTarget(_service_name(service), str(get_path(pod, "metadata.name")), _uid(pod), port)

    def _preference(self, pod: Object) -> tuple[bool, bool, str]:
        """Not one that has failed lately; one of the release's workload; the newest."""
        now = asyncio.get_running_loop().time()
        has_failed = now - self._failed_at.get(_uid(pod), -AVOID_SECONDS) < AVOID_SECONDS
        return not has_failed, _has_owner(pod, self._route.release), str(get_path(pod, "metadata.creationTimestamp"))

    async def _find_service(self, api: KubeClient) -> Object:
        route = self._route
        for name in route.services:
            path = f"/api/v1/namespaces/{quote(route.namespace)}/services/{quote(name, safe='')}"
            if (service := await get_or_none(api, path)) is not None:
                return service
        if route.is_address:
            raise NotInCluster
        message = (
            f'the chart created no Service "{route.services[0]}" in namespace "{route.namespace}"; it must, or the '
            "kubeconfig must name an address outside of the cluster"
        )
        raise TunnelError(SERVICE_NOT_FOUND, message)

    async def _list_pods(self, api: KubeClient, service: Object) -> Sequence[Object]:
        folder = f"/api/v1/namespaces/{quote(self._route.namespace)}/pods"
        selector = get_path(service, "spec.selector")
        if isinstance(selector, Mapping) and selector:
            text = ",".join(f"{key}={value}" for key, value in selector.items())
            found = await api.list(folder, labelSelector=text, limit=str(MAX_LISTED_PODS))
            return _items(found)
        slices = await api.list(
            f"/apis/discovery.k8s.io/v1/namespaces/{quote(self._route.namespace)}/endpointslices",
            labelSelector=f"kubernetes.io/service-name={_service_name(service)}",
            limit=str(MAX_LISTED_PODS),
        )
        pods = []
        for name in _pods_of_slices(_items(slices)):
            if (pod := await get_or_none(api, f"{folder}/{quote(name, safe='')}")) is not None:
                pods.append(pod)
        return pods

    def _unknown(self, error: TunnelError) -> TunnelError | NotInCluster:
        """The cluster could not be asked. An address may be one outside of it, which does not depend on it."""
        return NotInCluster() if self._route.is_address else error

    def _translate(self, error: RemoteApiError) -> TunnelError:
        if error.status == _FORBIDDEN:
            return forbidden_error(self._route.cluster)
        message = f'cluster "{self._route.cluster}", in which it runs, cannot be asked for its pods'
        return TunnelError("ClusterFailing", f"{message} (HTTP status {error.status}); this is retried")


def forbidden_error(cluster: str) -> TunnelError:
    message = (
        f'the stored credential of cluster "{cluster}" needs get and create on pods/portforward, and get and list on '
        "pods, services and endpointslices, to reach it; `fairlead cluster role virtual-clusters` prints such a role"
    )
    return TunnelError(TUNNEL_FORBIDDEN, message)


def _items(found: Object) -> Sequence[Object]:
    items = found.get("items")
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else ()


def _service_name(service: Object) -> str:
    return str(get_path(service, "metadata.name"))


def _uid(pod: Object) -> str:
    return str(get_path(pod, "metadata.uid"))


def _pods_of_slices(slices: Sequence[Object]) -> Sequence[str]:
    endpoints = [each for found in slices for each in found.get("endpoints") or () if isinstance(each, dict)]
    names = [str(get_path(each, "targetRef.name")) for each in endpoints if get_path(each, "targetRef.kind") == "Pod"]
    return [each for each in dict.fromkeys(names) if _name.fullmatch(each)][:MAX_LISTED_PODS]


def _addresses_of(service: Object, pods: Sequence[Object]) -> set[str]:
    found = [get_path(service, "spec.clusterIP"), *(get_path(service, "spec.clusterIPs") or ())]
    for pod in pods:
        found.append(get_path(pod, "status.podIP"))
        found += [each.get("ip") for each in get_path(pod, "status.podIPs") or () if isinstance(each, dict)]
    return {str(each) for each in found if each}


def _is_ready(pod: Object) -> bool:
    """Evicted and finished pods stay in the list; terminating ones are still Ready."""
    if get_path(pod, "metadata.deletionTimestamp") or get_path(pod, "status.phase") != "Running":
        return False
    if not _name.fullmatch(str(get_path(pod, "metadata.name"))):
        return False
    conditions = get_path(pod, "status.conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _has_owner(pod: Object, release: str) -> bool:
    """Whether it belongs to a workload with the name of the release: a StatefulSet, or a ReplicaSet of a Deployment."""
    owners = [each for each in get_path(pod, "metadata.ownerReferences") or () if each.get("controller")]
    return any(str(each.get("name")).startswith(release) for each in owners)


def _describe(pods: Sequence[Object]) -> str:
    """The state of the newest pod, in the words of Kubernetes."""
    if not pods:
        return "none exists"
    pod = max(pods, key=lambda each: str(get_path(each, "metadata.creationTimestamp")))
    if get_path(pod, "metadata.deletionTimestamp"):
        return "Terminating"
    words = [get_path(pod, "status.phase"), get_path(pod, "status.reason")]
    for field in ("initContainerStatuses", "containerStatuses"):
        for status in get_path(pod, f"status.{field}") or ():
            words.append(get_path(status, "state.waiting.reason") or get_path(status, "state.terminated.reason"))
    known = [str(each) for each in words if each and _word.fullmatch(str(each))]
    return ", ".join(dict.fromkeys(known)) or "its state is unknown"


def _choose_port(service: Object, pod: Object, route: TunnelRoute) -> int:
    """The port of the pod for the port of the kubeconfig, which may be that of the Service or that of the pod."""
    ports = [each for each in get_path(service, "spec.ports") or () if isinstance(each, dict)]
    wanted = (
        lambda each: each.get("port") == route.port,
        lambda each: _target_port(each, pod) == route.port,
        lambda each: each.get("name") == "https",
        lambda each: each.get("port") == _HTTPS_PORT,
    )
    for is_wanted in wanted:
        for each in ports:
            port = _target_port(each, pod)
            if port and is_wanted(each):
                return port
    message = (
        f'Service "{_service_name(service)}" in namespace "{route.namespace}" has no port {route.port}, none named '
        "https, and not 443; it must have one of them, or the kubeconfig must name an address outside of the cluster"
    )
    raise TunnelError(SERVICE_NOT_FOUND, message)


def _target_port(port: Object, pod: Object) -> int:
    """The number of the pod's port; 0 if a container has none of that name."""
    target = port.get("targetPort") or port.get("port")
    if isinstance(target, int):
        return target
    for container in get_path(pod, "spec.containers") or ():
        for each in container.get("ports") or ():
            if each.get("name") == target and isinstance(each.get("containerPort"), int):
                return int(each["containerPort"])
    return 0
