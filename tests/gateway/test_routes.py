"""Tests of `fairlead.gateway.routes`: only the server's own objects decide which cluster a request is forwarded to."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER, gateway_target
from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized, Unavailable
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.gateway.routes import GatewayHandler
from fairlead.kinds.core.server_objects import MANAGED_LABEL, MANAGED_VALUE
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions, server_write_options
from fairlead.upstream.access import Limits
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import UpstreamRegistry
from tests.fake_cluster.exchange import build_status_response
from tests.fake_cluster.server import FakeCluster
from tests.gateway.gateway_calls import ANNA, IDENTITY_MAPPER, STORED_TOKEN, build_call
from tests.harness.calls import FakeHeaders
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture

SYNCED_CONDITION = {"type": "SpaceSynced", "status": "True"}


@pytest.fixture
async def gateway(api: RegistryFixture) -> AsyncIterator[GatewayHandler]:
    policy = AddressPolicy(["127.0.0.0/8"], lambda: ())
    upstreams = UpstreamRegistry(api.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits())
    yield GatewayHandler(api.registry, MANAGEMENT_GROUP, "p-", upstreams, IDENTITY_MAPPER)
    await upstreams.close_all()


async def create_connected_cluster(api: RegistryFixture, name: str, fake_cluster: FakeCluster) -> None:
    data = {"config": b64encode(fake_cluster.build_kubeconfig(token=STORED_TOKEN)).decode()}
    await api.create("Secret", f"cluster-{name}", data=data)
    config = {"secretName": f"cluster-{name}", "secretNamespace": NAMESPACE}
    await api.create("Cluster", name, spec={"config": config})


async def create_space(
    api: RegistryFixture,
    name: str,
    cluster: str = "c",
    namespace: str = "mine",
    condition: Mapping[str, str] = SYNCED_CONDITION,
) -> None:
    await api.create("SpaceInstance", name, spec={"clusterRef": {"cluster": cluster, "namespace": namespace}})
    await set_conditions(api, "SpaceInstance", name, condition)


async def set_conditions(api: RegistryFixture, kind: str, name: str, *conditions: Mapping[str, str]) -> None:
    def patch(obj: Object) -> None:
        obj["status"] = {
            "conditions": [{**condition, "lastTransitionTime": "2024-01-01T00:00:00Z"} for condition in conditions]
        }

    await api.patch(kind, name, patch, WriteOptions(ADA, "tests", subresource="status"))


def build_cluster_call(name: str, path: str, method: str = "GET", authorized_path: str = "") -> Call:
    """`authorized_path` is the path that the authorizer saw, if it differs from the one that was sent."""
    gateway = gateway_target(CLUSTER, name)
    target = RequestInfo(method.lower(), authorized_path or path.partition("?")[0], gateway=gateway)
    return build_call(f"/kubernetes/cluster/{name}{path}", method, target=target)


def build_project_call(root: str, name: str, path: str, method: str = "GET") -> Call:
    segment = "space" if root == SPACE else "virtualcluster"
    target = RequestInfo(method.lower(), path.partition("?")[0], gateway=gateway_target(root, name, NAMESPACE))
    return build_call(f"/kubernetes/project/demo/{segment}/{name}{path}", method, target=target)


async def expect_error(gateway: GatewayHandler, call: Call) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await gateway(call)
    return caught.value


def echoed_path(reply: Reply) -> str:
    return str(json.loads(reply.body)["path"])


async def test_a_request_is_forwarded_to_the_cluster_with_that_name(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, "c", fake_cluster)
    reply = await gateway(build_cluster_call("c", "/api/v1/pods?limit=1&labelSelector=a%2Fb"))
    assert echoed_path(reply) == "/api/v1/pods?limit=1&labelSelector=a%2Fb"
    assert fake_cluster.requests[0].header("impersonate-user") == "fairlead:anna"
    assert fake_cluster.requests[0].header_values("authorization") == [f"Bearer {STORED_TOKEN}"]


async def test_the_prefix_of_a_gateway_alone_is_the_root_path(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, "c", fake_cluster)
    call = build_call("/kubernetes/cluster/c", target=RequestInfo("get", "/", gateway=gateway_target(CLUSTER, "c")))
    assert echoed_path(await gateway(call)) == "/"


async def test_t13_a_request_goes_to_the_authorized_cluster_and_no_other(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    with FakeCluster() as other:
        await create_connected_cluster(api, "c", fake_cluster)
        await create_connected_cluster(api, "d", other)
        call = build_cluster_call("c", "/api/v1/pods?cluster=d")
        call.raw_target = call.raw_target.replace("/cluster/c", "/cluster/d")
        await gateway(call)
        assert fake_cluster.request_lines() == ["GET /api/v1/pods?cluster=d"]
        assert other.connection_count == 0


async def test_t13_a_new_cluster_with_the_name_of_a_deleted_one_gets_its_own_connection(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, "c", fake_cluster)
    await gateway(build_cluster_call("c", "/version"))
    await api.delete("Cluster", "c")
    await api.delete("Secret", "cluster-c")
    assert isinstance(await expect_error(gateway, build_cluster_call("c", "/version")), NotFound)
    with FakeCluster() as new:
        await create_connected_cluster(api, "c", new)
        await gateway(build_cluster_call("c", "/version"))
        assert (fake_cluster.request_lines(), new.request_lines()) == (["GET /version"], ["GET /version"])


async def test_a_path_that_differs_from_the_authorized_path_is_rejected(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, "c", fake_cluster)
    for path, authorized_path in (("/api/v1/secrets", "/api/v1/pods"), ("/api/v1/pods/", "/api/v1/pods")):
        assert isinstance(
            await expect_error(gateway, build_cluster_call("c", path, authorized_path=authorized_path)), BadRequest
        )
    assert fake_cluster.connection_count == 0
    await gateway(build_cluster_call("c", "/api/v1/pods/a%3ab", authorized_path="/api/v1/pods/a:b"))
    assert fake_cluster.request_lines() == ["GET /api/v1/pods/a%3ab"]


@pytest.mark.parametrize("path", ["/api/v1/../pods", "//pods", "/api/%2e%2e/x", "/a%2fb", "/a%00"])
async def test_ambiguous_paths_are_rejected(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster, path: str
) -> None:
    await create_connected_cluster(api, "c", fake_cluster)
    assert isinstance(await expect_error(gateway, build_cluster_call("c", path)), BadRequest)
    assert fake_cluster.connection_count == 0


async def test_a_call_without_a_user_or_a_gateway_target_is_rejected(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, "c", fake_cluster)
    call = build_cluster_call("c", "/version")
    call.user = None
    assert isinstance(await expect_error(gateway, call), Unauthorized)
    assert isinstance(await expect_error(gateway, build_call("/kubernetes/cluster/c/version")), Unauthorized)
    assert fake_cluster.connection_count == 0


async def test_a_missing_cluster_or_instance_is_not_found(gateway: GatewayHandler) -> None:
    assert isinstance(await expect_error(gateway, build_cluster_call("c", "/version")), NotFound)
    for root in (SPACE, VIRTUAL_CLUSTER):
        assert isinstance(await expect_error(gateway, build_project_call(root, "x", "/version")), NotFound)


async def test_a_cluster_without_a_connection_is_unavailable(api: RegistryFixture, gateway: GatewayHandler) -> None:
    await api.create("Cluster", "c")
    error = await expect_error(gateway, build_cluster_call("c", "/version"))
    assert isinstance(error, Unavailable)
    assert error.message.startswith('cluster "c": ')


async def test_the_gateway_of_a_space_forwards_requests_to_its_namespace(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, "c", fake_cluster)
    await create_space(api, "s")
    reply = await gateway(build_project_call(SPACE, "s", "/api/v1/namespaces/mine/pods"))
    assert echoed_path(reply) == "/api/v1/namespaces/mine/pods"
    assert (await gateway(build_project_call(SPACE, "s", "/version"))).status == 200


@pytest.mark.parametrize("path", ["/api/v1/namespaces/other/pods", "/api/v1/pods", "/api/v1/nodes", "/metrics"])
async def test_the_gateway_of_a_space_rejects_requests_outside_its_namespace(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster, path: str
) -> None:
    await create_connected_cluster(api, "c", fake_cluster)
    await create_space(api, "s")
    error = await expect_error(gateway, build_project_call(SPACE, "s", path))
    assert isinstance(error, Forbidden)
    assert 'space "s" of project "demo" gives access to the namespace "mine" only' in error.message
    assert fake_cluster.connection_count == 0


async def test_a_space_is_unavailable_until_it_owns_its_namespace(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, "c", fake_cluster)
    conflict = {"type": "SpaceSynced", "status": "False", "reason": "NamespaceConflict"}
    await create_space(api, "s", namespace="kube-system", condition=conflict)
    call = build_project_call(SPACE, "s", "/api/v1/namespaces/kube-system/secrets")
    assert isinstance(await expect_error(gateway, call), Unavailable)
    assert fake_cluster.connection_count == 0
    await set_conditions(api, "SpaceInstance", "s", SYNCED_CONDITION)
    assert (await gateway(call)).status == 200
    await set_conditions(api, "SpaceInstance", "s", conflict)
    assert isinstance(await expect_error(gateway, call), Unavailable)


async def test_a_space_that_is_being_deleted_is_unavailable(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, "c", fake_cluster)
    spec = {"clusterRef": {"cluster": "c", "namespace": "mine"}}
    await api.create("SpaceInstance", "s", spec=spec, metadata={"finalizers": ["example.com/wait"]})
    await set_conditions(api, "SpaceInstance", "s", SYNCED_CONDITION)
    await api.delete("SpaceInstance", "s", DeleteOptions())
    error = await expect_error(gateway, build_project_call(SPACE, "s", "/version"))
    assert isinstance(error, Unavailable)
    assert "being deleted" in error.message


async def create_virtual_cluster(api: RegistryFixture, fake_cluster: FakeCluster, **status: object) -> None:
    instance = await api.create("VirtualClusterInstance", "v")
    owner = {
        "apiVersion": instance["apiVersion"],
        "kind": instance["kind"],
        "name": "v",
        "uid": instance["metadata"]["uid"],
    }
    data = {"config": b64encode(fake_cluster.build_kubeconfig(token=STORED_TOKEN)).decode()}
    meta = {"ownerReferences": [owner], "labels": {MANAGED_LABEL: MANAGED_VALUE}}
    await api.create("Secret", "vc-v-kubeconfig", data=data, metadata=meta)
    if status:
        await api.patch(
            "VirtualClusterInstance", "v", lambda obj: obj.update(status=status), server_write_options("status")
        )


async def test_a_virtual_cluster_is_reached_with_its_own_kubeconfig(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_virtual_cluster(api, fake_cluster)
    assert echoed_path(await gateway(build_project_call(VIRTUAL_CLUSTER, "v", "/api/v1/nodes/n"))) == "/api/v1/nodes/n"


FORWARDING = {"virtualCluster": {"forwardToken": True}, "templateTrust": "Trusted", "templateApplied": "Trusted"}
OWN_TOKEN = {"authorization": "Bearer own-token", "impersonate-user": "root", "cookie": "session=1"}


def build_virtual_cluster_call(headers: Mapping[str, str] = OWN_TOKEN) -> Call:
    call = build_project_call(VIRTUAL_CLUSTER, "v", "/version")
    call.headers = FakeHeaders(headers)
    return call


async def test_with_forward_token_a_request_has_the_token_of_its_user_and_nothing_else(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_virtual_cluster(api, fake_cluster, **FORWARDING)
    assert (await gateway(build_virtual_cluster_call())).status == 200
    request = fake_cluster.requests[-1]
    assert request.header_values("authorization") == ["Bearer own-token"]
    assert b"impersonate" not in request.head and STORED_TOKEN.encode() not in request.head
    assert b"cookie" not in request.head


@pytest.mark.parametrize(
    "changes",
    [
        {"virtualCluster": {"forwardToken": False}},
        {"templateTrust": "Confined"},
        {"templateApplied": "Confined"},
        {"deployedConfined": True},
    ],
)
async def test_only_the_template_of_an_administrator_has_tokens_forwarded(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster, changes: Mapping[str, object]
) -> None:
    await create_virtual_cluster(api, fake_cluster, **{**FORWARDING, **changes})
    assert (await gateway(build_virtual_cluster_call())).status == 200
    assert b"own-token" not in fake_cluster.requests[-1].head
    assert fake_cluster.requests[-1].header_values("impersonate-user") == ["fairlead:anna"]


async def test_no_token_is_forwarded_to_an_imported_virtual_cluster(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    """Whoever imported it chose its server."""
    await create_virtual_cluster(api, fake_cluster, **FORWARDING)
    config = {"config": {"secretName": "vc-v-kubeconfig"}}
    await api.patch("VirtualClusterInstance", "v", lambda obj: obj.update(spec=config))
    await gateway(build_virtual_cluster_call())
    assert b"own-token" not in fake_cluster.requests[-1].head


async def test_without_a_token_of_the_user_the_request_is_impersonated(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_virtual_cluster(api, fake_cluster, **FORWARDING)
    await gateway(build_virtual_cluster_call({"cookie": "session=1"}))
    assert fake_cluster.requests[-1].header_values("impersonate-user") == ["fairlead:anna"]
    call = build_virtual_cluster_call()
    call.user = replace(ANNA, impersonator=User("root"))
    await gateway(call)
    assert b"own-token" not in fake_cluster.requests[-1].head
    assert fake_cluster.requests[-1].header_values("impersonate-user") == ["fairlead:anna"]


async def test_a_virtual_cluster_that_does_not_accept_the_token_is_named(
    api: RegistryFixture, gateway: GatewayHandler, fake_cluster: FakeCluster
) -> None:
    await create_virtual_cluster(api, fake_cluster, **FORWARDING)
    fake_cluster.set_response("/version", build_status_response(401, "Unauthorized", "Unauthorized"))
    error = await expect_error(gateway, build_virtual_cluster_call())
    assert isinstance(error, Forbidden)
    assert 'virtual cluster "v" of project "demo" does not accept your token' in error.message


async def test_a_virtual_cluster_without_a_kubeconfig_is_unavailable(
    api: RegistryFixture, gateway: GatewayHandler
) -> None:
    await api.create("VirtualClusterInstance", "v")
    error = await expect_error(gateway, build_project_call(VIRTUAL_CLUSTER, "v", "/version"))
    assert isinstance(error, Unavailable)
    assert error.message.startswith('virtual cluster "v" of project "demo": ')
