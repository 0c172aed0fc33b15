"""Where a request through a gateway goes is found in our own objects, and only there."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping

import pytest

from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER, gateway_target
from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized, Unavailable
from fairlead.core.objects import Object
from fairlead.gateway.routes import GatewayHandler
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from fairlead.upstream.access import Limits
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import UpstreamRegistry
from tests.fake_cluster.server import FakeCluster
from tests.gateway.gateway_calls import NAMES, STORED, asking
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture, open_registry

READY = {"type": "SpaceSynced", "status": "True"}


@pytest.fixture
def far() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        yield made


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry() as made:
        yield made


@pytest.fixture
async def gateways(api: RegistryFixture) -> AsyncIterator[GatewayHandler]:
    policy = AddressPolicy(["127.0.0.0/8"], lambda: ())
    connected = UpstreamRegistry(api.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits())
    yield GatewayHandler(api.registry, MANAGEMENT_GROUP, "p-", connected, NAMES)
    await connected.close_all()


async def connect(api: RegistryFixture, name: str, far: FakeCluster) -> None:
    data = {"config": b64encode(far.kubeconfig(token=STORED)).decode()}
    await api.create("Secret", f"cluster-{name}", data=data)
    config = {"secretName": f"cluster-{name}", "secretNamespace": NAMESPACE}
    await api.create("Cluster", name, spec={"config": config})


async def make_space(
    api: RegistryFixture, name: str, cluster: str = "c", namespace: str = "mine", made: Mapping[str, str] = READY
) -> None:
    await api.create("SpaceInstance", name, spec={"clusterRef": {"cluster": cluster, "namespace": namespace}})
    await say(api, "SpaceInstance", name, made)


async def say(api: RegistryFixture, kind: str, name: str, *conditions: Mapping[str, str]) -> None:
    def patch(obj: Object) -> None:
        obj["status"] = {"conditions": [{**each, "lastTransitionTime": "2024-01-01T00:00:00Z"} for each in conditions]}

    await api.patch(kind, name, patch, WriteOptions(ADA, "tests", subresource="status"))


def through_cluster(name: str, inner: str, method: str = "GET", authorized: str = "") -> Call:
    """`authorized` is the path that was decided about, where it is not the one that was sent."""
    via = gateway_target(CLUSTER, name)
    target = RequestInfo(method.lower(), authorized or inner.partition("?")[0], gateway=via)
    return asking(f"/kubernetes/cluster/{name}{inner}", method, target=target)


def through_project(root: str, name: str, inner: str, method: str = "GET") -> Call:
    word = "space" if root == SPACE else "virtualcluster"
    target = RequestInfo(method.lower(), inner.partition("?")[0], gateway=gateway_target(root, name, NAMESPACE))
    return asking(f"/kubernetes/project/demo/{word}/{name}{inner}", method, target=target)


async def refused(gateways: GatewayHandler, call: Call) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await gateways(call)
    return caught.value


def echoed(reply: Reply) -> str:
    return str(json.loads(reply.body)["path"])


async def test_a_cluster_is_reached_by_its_name(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster
) -> None:
    await connect(api, "c", far)
    reply = await gateways(through_cluster("c", "/api/v1/pods?limit=1&labelSelector=a%2Fb"))
    assert echoed(reply) == "/api/v1/pods?limit=1&labelSelector=a%2Fb"
    assert far.seen[0].header("impersonate-user") == "fairlead:anna"
    assert far.seen[0].all("authorization") == [f"Bearer {STORED}"]


async def test_the_entrance_alone_is_the_root(api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster) -> None:
    await connect(api, "c", far)
    call = asking("/kubernetes/cluster/c", target=RequestInfo("get", "/", gateway=gateway_target(CLUSTER, "c")))
    assert echoed(await gateways(call)) == "/"


async def test_t13_a_request_goes_to_the_authorized_cluster_and_no_other(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster
) -> None:
    with FakeCluster() as other:
        await connect(api, "c", far)
        await connect(api, "d", other)
        call = through_cluster("c", "/api/v1/pods?cluster=d")
        call.raw_target = call.raw_target.replace("/cluster/c", "/cluster/d")
        await gateways(call)
        assert far.paths() == ["GET /api/v1/pods?cluster=d"]
        assert other.connections == 0


async def test_t13_a_new_cluster_of_an_old_name_has_nothing_of_the_old(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster
) -> None:
    await connect(api, "c", far)
    await gateways(through_cluster("c", "/version"))
    await api.delete("Cluster", "c")
    await api.delete("Secret", "cluster-c")
    assert isinstance(await refused(gateways, through_cluster("c", "/version")), NotFound)
    with FakeCluster() as new:
        await connect(api, "c", new)
        await gateways(through_cluster("c", "/version"))
        assert (far.paths(), new.paths()) == (["GET /version"], ["GET /version"])


async def test_what_was_authorized_is_what_is_asked_for(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster
) -> None:
    await connect(api, "c", far)
    for sent, authorized in (("/api/v1/secrets", "/api/v1/pods"), ("/api/v1/pods/", "/api/v1/pods")):
        assert isinstance(await refused(gateways, through_cluster("c", sent, authorized=authorized)), BadRequest)
    assert far.connections == 0
    await gateways(through_cluster("c", "/api/v1/pods/a%3ab", authorized="/api/v1/pods/a:b"))
    assert far.paths() == ["GET /api/v1/pods/a%3ab"]


@pytest.mark.parametrize("inner", ["/api/v1/../pods", "//pods", "/api/%2e%2e/x", "/a%2fb", "/a%00"])
async def test_tricky_paths_go_nowhere(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster, inner: str
) -> None:
    await connect(api, "c", far)
    assert isinstance(await refused(gateways, through_cluster("c", inner)), BadRequest)
    assert far.connections == 0


async def test_a_call_that_entered_no_gateway_or_is_from_nobody_goes_nowhere(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster
) -> None:
    await connect(api, "c", far)
    call = through_cluster("c", "/version")
    call.user = None
    assert isinstance(await refused(gateways, call), Unauthorized)
    assert isinstance(await refused(gateways, asking("/kubernetes/cluster/c/version")), Unauthorized)
    assert far.connections == 0


async def test_a_cluster_that_is_not_there_is_not_found(gateways: GatewayHandler) -> None:
    assert isinstance(await refused(gateways, through_cluster("c", "/version")), NotFound)
    for root in (SPACE, VIRTUAL_CLUSTER):
        assert isinstance(await refused(gateways, through_project(root, "x", "/version")), NotFound)


async def test_a_cluster_without_a_connection_is_unavailable(api: RegistryFixture, gateways: GatewayHandler) -> None:
    await api.create("Cluster", "c")
    error = await refused(gateways, through_cluster("c", "/version"))
    assert isinstance(error, Unavailable)
    assert error.message.startswith('cluster "c": ')


async def test_a_space_is_its_namespace_in_its_cluster(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster
) -> None:
    await connect(api, "c", far)
    await make_space(api, "s")
    reply = await gateways(through_project(SPACE, "s", "/api/v1/namespaces/mine/pods"))
    assert echoed(reply) == "/api/v1/namespaces/mine/pods"
    assert (await gateways(through_project(SPACE, "s", "/version"))).status == 200


@pytest.mark.parametrize("inner", ["/api/v1/namespaces/other/pods", "/api/v1/pods", "/api/v1/nodes", "/metrics"])
async def test_a_space_leads_nowhere_else(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster, inner: str
) -> None:
    await connect(api, "c", far)
    await make_space(api, "s")
    error = await refused(gateways, through_project(SPACE, "s", inner))
    assert isinstance(error, Forbidden)
    assert 'space "s" of project "demo" gives access to the namespace "mine" only' in error.message
    assert far.connections == 0


async def test_a_space_cannot_be_entered_before_its_namespace_is_its_own(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster
) -> None:
    await connect(api, "c", far)
    taken = {"type": "SpaceSynced", "status": "False", "reason": "NamespaceConflict"}
    await make_space(api, "s", namespace="kube-system", made=taken)
    call = through_project(SPACE, "s", "/api/v1/namespaces/kube-system/secrets")
    assert isinstance(await refused(gateways, call), Unavailable)
    assert far.connections == 0
    await say(api, "SpaceInstance", "s", READY)
    assert (await gateways(call)).status == 200
    await say(api, "SpaceInstance", "s", taken)
    assert isinstance(await refused(gateways, call), Unavailable)


async def test_a_space_that_is_being_deleted_cannot_be_entered(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster
) -> None:
    await connect(api, "c", far)
    spec = {"clusterRef": {"cluster": "c", "namespace": "mine"}}
    await api.create("SpaceInstance", "s", spec=spec, metadata={"finalizers": ["example.com/wait"]})
    await say(api, "SpaceInstance", "s", READY)
    await api.delete("SpaceInstance", "s", DeleteOptions())
    error = await refused(gateways, through_project(SPACE, "s", "/version"))
    assert isinstance(error, Unavailable)
    assert "being deleted" in error.message


async def test_a_virtual_cluster_is_reached_by_its_own_kubeconfig(
    api: RegistryFixture, gateways: GatewayHandler, far: FakeCluster
) -> None:
    made = await api.create("VirtualClusterInstance", "v")
    owner = {"apiVersion": made["apiVersion"], "kind": made["kind"], "name": "v", "uid": made["metadata"]["uid"]}
    data = {"config": b64encode(far.kubeconfig(token=STORED)).decode()}
    await api.create("Secret", "vc-v-kubeconfig", data=data, metadata={"ownerReferences": [owner]})
    assert echoed(await gateways(through_project(VIRTUAL_CLUSTER, "v", "/api/v1/nodes/n"))) == "/api/v1/nodes/n"


async def test_a_virtual_cluster_without_a_kubeconfig_is_unavailable(
    api: RegistryFixture, gateways: GatewayHandler
) -> None:
    await api.create("VirtualClusterInstance", "v")
    error = await refused(gateways, through_project(VIRTUAL_CLUSTER, "v", "/version"))
    assert isinstance(error, Unavailable)
    assert error.message.startswith('virtual cluster "v" of project "demo": ')
