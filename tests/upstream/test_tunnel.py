"""Tests of `fairlead.upstream.tunnel`: a virtual cluster behind the port-forward of its pod."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from fairlead.core.objects import Object, metadata
from fairlead.kinds.core.server_objects import MANAGED_LABEL, MANAGED_VALUE
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import UpstreamRegistry, kubeconfig_digest, tunnel_place
from fairlead.upstream.errors import AddressBlocked, TlsError, TunnelError, UpstreamError
from fairlead.upstream.tunnel import TunnelDialer
from fairlead.upstream.tunnel_pods import TunnelPlace, find_route
from fairlead.upstream.upstream import Limits, Request, Upstream
from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.kube import FakeKube, build_kube_responder
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.fake_cluster.virtual_cluster_pods import VirtualClusterPods
from tests.harness.eventually import BUSY_SECONDS
from tests.harness.registry import NAMESPACE, RegistryFixture, write_options
from tests.upstream.test_clusters import build_secret_data

TUNNEL_PLACE = TunnelPlace("berlin", "demo-v-dev", "dev")
CLUSTER_REF = {"cluster": "berlin", "namespace": "demo-v-dev", "virtualCluster": "dev"}


def build_endpoint(server: str) -> ClusterEndpoint:
    parts = urlsplit(server)
    return ClusterEndpoint(parts.hostname or "", parts.port or 443, "", parts.hostname or "", "")


@dataclass
class Place:
    """A connected cluster, and a virtual cluster in it that only its pod's port-forward reaches."""

    host: FakeCluster
    kube: FakeKube
    inner: FakeCluster
    pods: VirtualClusterPods
    api: RegistryFixture
    upstreams: UpstreamRegistry

    async def connect_host(self) -> None:
        await self.api.create(
            "Secret", "berlin", data=build_secret_data(self.host.build_kubeconfig(token="host-token"))
        )
        config = {"secretName": "berlin", "secretNamespace": NAMESPACE}
        await self.api.create("Cluster", "berlin", spec={"config": config})

    async def connect(self, server: str = "https://localhost:8443") -> Upstream:
        """Stores the kubeconfig with this server as the chart's. Returns the Upstream of users."""
        await self.connect_host()
        instance = await self.api.create("VirtualClusterInstance", "dev", spec={"clusterRef": CLUSTER_REF})
        owner = {
            **{name: instance[name] for name in ("apiVersion", "kind")},
            **{name: metadata(instance)[name] for name in ("name", "uid")},
        }
        meta = {"ownerReferences": [owner], "labels": {MANAGED_LABEL: MANAGED_VALUE}}
        data = build_secret_data(self.inner.build_kubeconfig(token="inner-token", server=server))
        await self.api.create("Secret", "vc-dev-kubeconfig", data=data, metadata=meta)
        return self.upstream

    async def import_verified(self) -> Upstream:
        """An import whose kubeconfig the server has compared with that of the chart. Returns the Upstream of users."""
        await self.connect_host()
        kubeconfig = self.inner.build_kubeconfig(token="inner-token", server="https://localhost:8443")
        await self.api.create("Secret", "theirs", data=build_secret_data(kubeconfig))
        await self.api.create("VirtualClusterInstance", "dev", spec={"config": {"secretName": "theirs"}})
        source = {"cluster": "berlin", "namespace": "demo-v-dev", "name": "dev"}
        await self.record_source({**source, "kubeconfigDigest": kubeconfig_digest(kubeconfig)})
        return self.upstream

    async def record_source(self, source: Object | None) -> None:
        status = {"importedFrom": source} if source else {}
        options = write_options(subresource="status")
        await self.api.patch("VirtualClusterInstance", "dev", lambda each: each.update(status=status), options)

    async def replace_imported(self, server: str) -> None:
        """Writes another address into the Secret of the import, as members of its project can."""
        kubeconfig = self.inner.build_kubeconfig(token="inner-token", server=server)
        await self.api.patch("Secret", "theirs", lambda each: each.update(data=build_secret_data(kubeconfig)))

    @property
    def upstream(self) -> Upstream:
        return self.upstreams.virtual_cluster_upstream(NAMESPACE, "dev")

    @property
    def dialer(self) -> TunnelDialer:
        found = self.upstreams.virtual_cluster_tunnel(NAMESPACE, "dev")
        assert found is not None
        return found


@asynccontextmanager
async def open_place(
    api: RegistryFixture, options: ClusterOptions | None = None, networks: tuple[str, ...] = ()
) -> AsyncIterator[Place]:
    kube = FakeKube()
    with (
        FakeCluster(build_kube_responder(kube)) as host,
        FakeCluster(options=options or ClusterOptions(names=("localhost",))) as inner,
    ):
        policy = AddressPolicy(("127.0.0.1/32",), lambda: ())
        upstreams = UpstreamRegistry(
            api.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits(connect_seconds=BUSY_SECONDS)
        )
        pods = VirtualClusterPods(host, kube)
        try:
            yield Place(host, kube, inner, pods, api, upstreams)
        finally:
            await upstreams.close_all()


@pytest.fixture
async def place(api: RegistryFixture) -> AsyncIterator[Place]:
    async with open_place(api) as place:
        place.pods.add_service(place.inner.port)
        place.pods.add_pod("dev-0")
        yield place


async def fetch(upstream: Upstream, target: str = "/version") -> bytes:
    response = await upstream.send(Request("GET", target))
    try:
        return await response.read(64 * 2**20)
    finally:
        await response.close()


async def test_a_loopback_kubeconfig_leads_to_the_pod_behind_the_service(place: Place) -> None:
    upstream = await place.connect()
    assert b"gitVersion" in await fetch(upstream)
    assert place.inner.requests[-1].header("authorization") == "Bearer inner-token"
    assert not any(b"inner-token" in each.head for each in place.host.requests)
    target = place.dialer.target
    assert target is not None
    assert (target.service, target.pod, target.port) == ("dev", "dev-0", place.inner.port)


@pytest.mark.parametrize(
    ("server", "services", "is_address"),
    [
        ("https://localhost:8443", ("dev",), False),
        ("https://127.0.0.1:8443", ("dev",), False),
        ("https://127.9.9.9", ("dev",), False),
        ("https://[::1]:8443", ("dev",), False),
        ("https://dev", ("dev",), False),
        ("https://dev.demo-v-dev", ("dev",), False),
        ("https://api.demo-v-dev.svc", ("api", "dev"), False),
        ("https://dev.demo-v-dev.svc.cluster.local:443", ("dev",), False),
        ("https://10.96.0.7", ("dev",), True),
        ("https://[fd00::7]", ("dev",), True),
    ],
)
def test_loopback_and_names_and_addresses_of_the_cluster_are_tunnelled(
    server: str, services: tuple[str, ...], is_address: bool
) -> None:
    route = find_route(TUNNEL_PLACE, build_endpoint(server))
    assert route is not None
    assert (route.services, route.is_address) == (services, is_address)


@pytest.mark.parametrize(
    "server",
    [
        "https://8.8.8.8",
        "https://kube.example",
        "https://other",
        "https://dev.other",
        "https://dev.other.svc",
        "https://dev.demo-v-dev.example.com",
        "https://kubernetes.default.svc",
    ],
)
def test_other_hosts_are_not_tunnelled(server: str) -> None:
    assert find_route(TUNNEL_PLACE, build_endpoint(server)) is None
    assert find_route(None, build_endpoint("https://localhost")) is None


def test_an_imported_virtual_cluster_is_tunnelled_only_if_the_server_has_recorded_where_it_is() -> None:
    imported: Object = {"spec": {"config": {"secretName": "x"}, "clusterRef": CLUSTER_REF}}
    assert tunnel_place(imported) is None
    source = {"cluster": "berlin", "namespace": "n", "name": "dev"}
    assert tunnel_place({**imported, "status": {"importedFrom": source}}) == TunnelPlace("berlin", "n", "dev")
    assert tunnel_place({"spec": {"clusterRef": {"cluster": "berlin"}}}) is None


async def test_a_kubeconfig_of_an_import_that_was_not_compared_is_not_tunnelled(place: Place) -> None:
    upstream = await place.import_verified()
    stream = await upstream.send(Request("GET", "/fake/ticks?seconds=0.01"))
    dialer = place.dialer
    assert dialer.forward_count == 1
    await place.replace_imported("https://localhost:1")
    assert place.upstreams.virtual_cluster_tunnel(NAMESPACE, "dev") is None
    await eventually_no_forwards(dialer)  # the open stream does not run on
    await stream.close()
    count = len(place.host.requests)
    async with place.upstreams.open_virtual_cluster_cleanup(NAMESPACE, "dev") as cleanup:
        for each in (place.upstream, cleanup):
            with pytest.raises(UpstreamError):
                await fetch(each)
    assert len(place.host.requests) == count
    await place.replace_imported("https://localhost:8443")
    assert b"gitVersion" in await fetch(place.upstream)


async def test_the_tunnel_of_an_import_is_closed_when_its_source_is_withdrawn(place: Place) -> None:
    upstream = await place.import_verified()
    stream = await upstream.send(Request("GET", "/fake/ticks?seconds=0.01"))
    dialer = place.dialer
    place.upstreams.close_withdrawn_virtual_cluster(NAMESPACE, "dev")
    assert (place.upstream, dialer.forward_count) == (upstream, 1)
    await place.record_source(None)
    place.upstreams.close_withdrawn_virtual_cluster(NAMESPACE, "dev")
    await eventually_no_forwards(dialer)
    await stream.close()


@pytest.mark.parametrize("host", ["dev.demo-v-dev.svc", "10.96.0.7", "10.244.0.9"])
async def test_names_and_addresses_of_the_service_and_its_pods_lead_to_the_pod(api: RegistryFixture, host: str) -> None:
    async with open_place(api, ClusterOptions(names=(host,))) as place:
        place.pods.add_service(place.inner.port)
        place.pods.add_pod("dev-0")
        assert b"gitVersion" in await fetch(await place.connect(f"https://{host}"))


async def test_the_tunnelled_host_is_never_dialled(api: RegistryFixture) -> None:
    """The address policy would allow it: it is this machine's own."""
    async with open_place(api, ClusterOptions(names=("127.0.0.1",))) as place:
        place.pods.add_service(place.inner.port)
        place.pods.add_pod("dev-0")
        with FakeCluster() as trap:
            upstream = await place.connect(f"https://127.0.0.1:{trap.port}")
            await fetch(upstream)
            place.pods.remove_pod("dev-0")
            with pytest.raises(UpstreamError):
                await fetch(upstream)
            assert trap.connection_count == 0


async def test_a_private_address_that_is_not_in_the_cluster_is_left_to_the_address_policy(place: Place) -> None:
    upstream = await place.connect("https://10.1.2.3:8443")
    with pytest.raises(AddressBlocked):
        await fetch(upstream)


async def test_a_private_address_does_not_depend_on_the_cluster_around_it(place: Place) -> None:
    place.kube.failing_paths["/services"] = 403
    upstream = await place.connect("https://10.1.2.3:8443")
    with pytest.raises(AddressBlocked):
        await fetch(upstream)


@pytest.mark.parametrize("options", [ClusterOptions(names=("other",)), ClusterOptions(issuer=get_authority("other"))])
async def test_t22_a_pod_that_cannot_prove_its_name_gets_no_request(
    api: RegistryFixture, options: ClusterOptions
) -> None:
    async with open_place(api, options) as place:
        place.pods.add_service(place.inner.port)
        place.pods.add_pod("dev-0")
        upstream = await place.connect()
        with pytest.raises(TlsError):
            await fetch(upstream)
        assert place.inner.requests == []


async def test_another_pod_is_tried_after_one_that_cannot_prove_its_name(place: Place) -> None:
    """A pod of a tenant may have the same labels."""
    with FakeCluster(options=ClusterOptions(names=("other",))) as foreign:
        place.pods.add_service("api")
        place.kube.edit_object(place.pods.pod_path("dev-0"), lambda pod: set_port(pod, place.inner.port))
        place.pods.add_pod("foreign")
        place.kube.edit_object(place.pods.pod_path("foreign"), lambda pod: set_port(pod, foreign.port))
        upstream = await place.connect()
        with pytest.raises(TlsError):
            await fetch(upstream)
        assert b"gitVersion" in await fetch(upstream)


def set_port(pod: Object, port: int) -> None:
    pod["spec"]["containers"][0]["ports"][0]["containerPort"] = port


async def test_a_pod_that_restarts_is_found_again(place: Place) -> None:
    upstream = await place.connect()
    await fetch(upstream)
    place.pods.remove_pod("dev-0")
    asyncio.get_running_loop().call_later(0.5, place.pods.add_pod, "dev-1")
    started = asyncio.get_running_loop().time()
    assert b"gitVersion" in await fetch(upstream)
    assert asyncio.get_running_loop().time() - started < 3 + BUSY_SECONDS
    assert place.dialer.target is not None
    assert place.dialer.target.pod == "dev-1"


async def test_a_port_that_does_not_listen_yet_is_tried_again(place: Place) -> None:
    upstream = await place.connect()
    place.inner.stop()
    asyncio.get_running_loop().call_later(0.5, place.inner.start)
    assert b"gitVersion" in await fetch(upstream)


async def test_evicted_terminating_and_unready_pods_are_not_chosen(place: Place) -> None:
    place.pods.add_pod("evicted", phase="Failed", reason="Evicted")
    place.pods.add_pod("starting", is_ready=False)
    place.pods.add_pod("leaving")
    place.kube.edit_object(place.pods.pod_path("leaving"), lambda pod: pod["metadata"].update(deletionTimestamp="x"))
    await fetch(await place.connect())
    assert place.dialer.target is not None
    assert place.dialer.target.pod == "dev-0"


async def test_a_service_without_a_selector_leads_to_the_pods_of_its_endpoint_slices(place: Place) -> None:
    place.pods.add_service(place.inner.port, selector=None)
    endpoints = [{"targetRef": {"kind": "Pod", "name": "gone"}}, {"targetRef": {"kind": "Pod", "name": "dev-0"}}]
    path = "/apis/discovery.k8s.io/v1/namespaces/demo-v-dev/endpointslices/dev-x"
    place.kube.add_object(path, metadata={"labels": {"kubernetes.io/service-name": "dev"}}, endpoints=endpoints)
    assert b"gitVersion" in await fetch(await place.connect())


async def fail(place: Place) -> TunnelError:
    upstream = await place.connect()
    with pytest.raises(TunnelError) as caught:
        await fetch(upstream)
    return caught.value


async def test_without_a_ready_pod_the_error_has_its_state(place: Place) -> None:
    waiting = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    place.kube.objects.pop(place.pods.pod_path("dev-0"))
    place.pods.add_pod("dev-0", is_ready=False, phase="Pending", **waiting)
    error = await fail(place)
    assert error.reason == "WaitingForPod"
    assert error.message == 'no ready pod behind Service "dev": Pending, ImagePullBackOff'


async def test_what_the_pod_says_about_itself_is_not_quoted_unless_it_is_a_word(place: Place) -> None:
    waiting = {"containerStatuses": [{"state": {"waiting": {"reason": "see https://evil.example"}}}]}
    place.kube.objects.pop(place.pods.pod_path("dev-0"))
    place.pods.add_pod("dev-0", is_ready=False, phase="Pending", **waiting)
    assert (await fail(place)).message == 'no ready pod behind Service "dev": Pending'


async def test_without_pods_the_error_says_so(place: Place) -> None:
    place.kube.objects.pop(place.pods.pod_path("dev-0"))
    assert (await fail(place)).message == 'no ready pod behind Service "dev": none exists'


async def test_without_a_service_the_error_says_so(api: RegistryFixture) -> None:
    async with open_place(api) as place:
        error = await fail(place)
        assert error.reason == "ServiceNotFound"
        assert 'no Service "dev" in namespace "demo-v-dev"' in error.message


async def test_a_service_without_a_fitting_port_is_an_error(place: Place) -> None:
    place.pods.add_service(place.inner.port, ports=[{"name": "metrics", "port": 9090}])
    error = await fail(place)
    assert error.reason == "ServiceNotFound"
    assert "has no port 8443" in error.message


@pytest.mark.parametrize("path", ["/services", "/pods", "/portforward"])
async def test_a_missing_permission_is_named(place: Place, path: str) -> None:
    place.kube.failing_paths[path] = 403
    error = await fail(place)
    assert error.reason == "TunnelForbidden"
    assert "pods/portforward" in error.message
    assert "fairlead cluster role virtual-clusters" in error.message


async def test_a_cluster_without_port_forward_by_websocket_is_named(place: Place) -> None:
    place.kube.failing_paths["/portforward"] = 400
    error = await fail(place)
    assert error.reason == "TunnelNotSupported"
    assert "Kubernetes 1.31" in error.message


async def test_a_cluster_that_cannot_be_reached_is_named(place: Place) -> None:
    upstream = await place.connect()
    place.host.stop()
    with pytest.raises(TunnelError) as caught:
        await fetch(upstream)
    assert caught.value.reason == "Unreachable"
    assert 'cluster "berlin", in which it runs' in caught.value.message


async def test_a_stream_that_is_cut_within_a_body_is_an_error(place: Place) -> None:
    upstream = await place.connect()
    response = await upstream.send(Request("GET", "/fake/ticks?count=100&seconds=0.02"))
    await response.read_chunk()
    place.pods.remove_pod("dev-0")
    with pytest.raises(UpstreamError):
        await response.read(10_000)


async def test_the_tunnel_is_closed_with_the_object(place: Place) -> None:
    upstream = await place.connect()
    stream = await upstream.send(Request("GET", "/fake/ticks?seconds=0.01"))
    dialer = place.dialer
    assert dialer.forward_count == 1
    await place.api.delete("VirtualClusterInstance", "dev")
    place.upstreams.close_withdrawn_virtual_cluster(NAMESPACE, "dev")
    await eventually_no_forwards(dialer)
    await stream.close()


async def test_the_tunnel_is_closed_when_the_credential_of_the_cluster_changes_and_opened_anew(place: Place) -> None:
    upstream = await place.connect()
    await fetch(upstream)
    data = build_secret_data(place.host.build_kubeconfig(token="new-token"))
    await place.api.patch("Secret", "berlin", lambda secret: secret.update(data=data))
    place.upstreams.system_upstream("berlin")
    await eventually_no_forwards(place.dialer)
    await fetch(upstream)
    assert place.host.requests[-1].header("authorization") == "Bearer new-token"


async def eventually_no_forwards(dialer: TunnelDialer) -> None:
    async with asyncio.timeout(10):
        while dialer.forward_count:  # noqa: ASYNC110  # until it is closed
            await asyncio.sleep(0.01)
