"""Tests of `fairlead.upstream.clusters`: the upstream of a cluster follows the Cluster object and its secret."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import __version__
from fairlead.core.objects import Object, metadata
from fairlead.kinds.core.server_objects import MANAGED_LABEL, MANAGED_VALUE
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.storage.contract import Key
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import NotConnected, UpstreamRegistry
from fairlead.upstream.errors import AddressBlocked, Unreachable
from fairlead.upstream.upstream import Limits, Request, Upstream
from tests.fake_cluster.server import FakeCluster, fake_cluster
from tests.harness.registry import NAMESPACE, RegistryFixture, write_options

__all__ = ["fake_cluster"]

CONFIG = {"secretName": "berlin", "secretNamespace": NAMESPACE}


def build_upstreams(api: RegistryFixture, *networks: str, dials: bool = True) -> UpstreamRegistry:
    policy = AddressPolicy(networks, lambda: (), dials_clusters=dials)
    return UpstreamRegistry(api.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits())


@pytest.fixture
async def upstreams(api: RegistryFixture) -> AsyncIterator[UpstreamRegistry]:
    upstreams = build_upstreams(api, "127.0.0.0/8")
    yield upstreams
    await upstreams.close_all()


def build_secret_data(kubeconfig: bytes, key: str = "config") -> Object:
    return {key: b64encode(kubeconfig).decode()}


async def create_connected_cluster(api: RegistryFixture, fake_cluster: FakeCluster, config: Any = None) -> Object:
    await api.create("Secret", "berlin", data=build_secret_data(fake_cluster.build_kubeconfig()))
    return await api.create("Cluster", "berlin", spec={"config": config or CONFIG})


async def replace_kubeconfig(api: RegistryFixture, kubeconfig: bytes) -> None:
    await api.patch("Secret", "berlin", lambda obj: obj.update(data=build_secret_data(kubeconfig)))


async def fetch_version(upstream: Upstream) -> bytes:
    response = await upstream.send(Request("GET", "/version"))
    try:
        return await response.read(10_000)
    finally:
        await response.close()


def expect_not_connected(upstreams: UpstreamRegistry, name: str = "berlin") -> str:
    with pytest.raises(NotConnected) as caught:
        upstreams.cluster_upstream(name)
    assert caught.value.message
    return caught.value.reason


async def test_a_cluster_is_reached_with_the_kubeconfig_in_its_secret(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    assert b"gitVersion" in await fetch_version(upstreams.cluster_upstream("berlin"))
    assert fake_cluster.requests[-1].header("authorization") == "Bearer fake-token"


async def test_a_secret_reference_without_a_namespace_uses_that_of_the_server(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster, {"secretName": "berlin"})
    assert b"gitVersion" in await fetch_version(upstreams.cluster_upstream("berlin"))


async def test_without_connections_no_cluster_is_reached(api: RegistryFixture, fake_cluster: FakeCluster) -> None:
    upstreams = build_upstreams(api, "127.0.0.0/8", dials=False)
    await create_connected_cluster(api, fake_cluster)
    assert expect_not_connected(upstreams) == "ConnectionsOff"
    with pytest.raises(NotConnected, match="setting cluster_connections"):
        upstreams.system_upstream("berlin")
    assert fake_cluster.requests == []


async def test_an_upstream_is_kept_when_unrelated_fields_change(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    first = upstreams.cluster_upstream("berlin")
    await api.patch("Cluster", "berlin", lambda obj: obj["spec"].update(displayName="Berlin"))
    await api.patch(
        "Cluster", "berlin", lambda obj: obj.update(status={"online": True}), write_options(subresource="status")
    )
    assert upstreams.cluster_upstream("berlin") is first


async def test_the_system_upstream_has_its_own_connections(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    assert upstreams.system_upstream("berlin") is upstreams.system_upstream("berlin")
    assert upstreams.system_upstream("berlin") is not upstreams.cluster_upstream("berlin")
    await fetch_version(upstreams.cluster_upstream("berlin"))
    await fetch_version(upstreams.system_upstream("berlin"))
    assert [request.connection for request in fake_cluster.requests] == [1, 2]


async def test_requests_of_the_server_have_a_user_agent_and_those_of_users_their_own(
    api: RegistryFixture, fake_cluster: FakeCluster, upstreams: UpstreamRegistry
) -> None:
    await create_connected_cluster(api, fake_cluster)
    await fetch_version(upstreams.cluster_upstream("berlin"))
    for upstream in (upstreams.system_upstream("berlin"), upstreams.health_upstream("berlin")):
        await fetch_version(upstream)
    users, *own = (each.header_values("user-agent") for each in fake_cluster.requests)
    assert users == []
    assert own == [[f"fairlead/{__version__} (controller)"]] * 2


async def test_a_changed_secret_creates_a_new_upstream_and_closes_the_old_one(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    old = upstreams.cluster_upstream("berlin")
    await fetch_version(old)
    await replace_kubeconfig(api, fake_cluster.build_kubeconfig(token="another"))
    new = upstreams.cluster_upstream("berlin")
    assert new is not old
    await fetch_version(new)
    assert fake_cluster.requests[-1].header("authorization") == "Bearer another"
    async with asyncio.timeout(40):
        while 1 in fake_cluster.open_connections:  # noqa: ASYNC110  # the fake cluster runs in another thread
            await asyncio.sleep(0.01)


async def test_requests_in_progress_finish_after_the_secret_changes(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    response = await upstreams.cluster_upstream("berlin").send(Request("GET", "/fake/ticks?count=5&seconds=0.05"))
    await replace_kubeconfig(api, fake_cluster.build_kubeconfig(token="another"))
    await fetch_version(upstreams.cluster_upstream("berlin"))
    assert (await response.read(10_000)).endswith(b"tick 4\n")
    await response.close()


async def test_a_new_cluster_with_the_same_name_gets_its_own_upstream(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    old = upstreams.cluster_upstream("berlin")
    await api.delete("Cluster", "berlin")
    await api.create("Cluster", "berlin", spec={"config": CONFIG})
    assert upstreams.cluster_upstream("berlin") is not old


async def test_connections_of_a_deleted_cluster_are_closed_at_once(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    stream = await upstreams.cluster_upstream("berlin").send(Request("GET", "/fake/ticks?seconds=0.01"))
    await api.delete("Cluster", "berlin")
    assert expect_not_connected(upstreams) == "NotFound"
    async with asyncio.timeout(40):
        while fake_cluster.open_connections:  # noqa: ASYNC110  # the fake cluster runs in another thread
            await asyncio.sleep(0.01)
    await stream.close()


async def test_the_reason_says_what_is_missing(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    assert expect_not_connected(upstreams) == "NotFound"
    await api.create("Cluster", "berlin")
    assert expect_not_connected(upstreams) == "KubeconfigNotSet"
    await api.patch("Cluster", "berlin", lambda obj: obj.update(spec={"config": {**CONFIG, "key": "k"}}))
    assert expect_not_connected(upstreams) == "SecretNotFound"
    await api.create("Secret", "berlin", data=build_secret_data(b"nonsense"))
    assert expect_not_connected(upstreams) == "KeyNotFound"
    await api.patch("Secret", "berlin", lambda obj: obj.update(data=build_secret_data(b"nonsense", "k")))
    assert expect_not_connected(upstreams) == "InvalidKubeconfig"
    await api.patch(
        "Secret", "berlin", lambda obj: obj.update(data=build_secret_data(fake_cluster.build_kubeconfig(), "k"))
    )
    assert b"gitVersion" in await fetch_version(upstreams.cluster_upstream("berlin"))
    await api.delete("Secret", "berlin")
    assert expect_not_connected(upstreams) == "SecretNotFound"


async def test_a_cluster_that_is_being_deleted_is_not_connected(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    await api.patch("Cluster", "berlin", lambda obj: obj["metadata"].update(finalizers=["example.com/wait"]))
    await api.delete("Cluster", "berlin")
    assert expect_not_connected(upstreams) == "Terminating"


async def test_t12_a_kubeconfig_that_would_run_a_program_is_rejected(
    api: RegistryFixture, upstreams: UpstreamRegistry
) -> None:
    kubeconfig = (
        b"{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: \
{server: 'https://x'}}], users: [{name: a, user: {exec: {command: touch}}}]}"
    )
    await api.create("Secret", "berlin", data=build_secret_data(kubeconfig))
    await api.create("Cluster", "berlin", spec={"config": CONFIG})
    with pytest.raises(NotConnected, match="user: exec would run a program"):
        upstreams.cluster_upstream("berlin")


async def test_t22_a_cluster_on_loopback_is_blocked_unless_listed(
    api: RegistryFixture, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    strict_upstreams = build_upstreams(api)
    with pytest.raises(AddressBlocked):
        await fetch_version(strict_upstreams.cluster_upstream("berlin"))
    assert fake_cluster.connection_count == 0
    await strict_upstreams.close_all()


async def test_failures_are_notified_except_those_of_health_probes(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    notified: list[Key] = []
    unsubscribe = upstreams.failures.subscribe(notified.append)
    fake_cluster.stop()
    for upstream in (
        upstreams.cluster_upstream("berlin"),
        upstreams.system_upstream("berlin"),
        upstreams.health_upstream("berlin"),
    ):
        with pytest.raises(Unreachable):
            await fetch_version(upstream)
    assert notified == [(MANAGEMENT_GROUP, "clusters", "", "berlin")] * 2
    unsubscribe()
    with pytest.raises(Unreachable):
        await fetch_version(upstreams.cluster_upstream("berlin"))
    assert len(notified) == 2


async def create_virtual_cluster(api: RegistryFixture) -> Object:
    return await api.create("VirtualClusterInstance", "v", spec={"external": True})


async def test_a_virtual_cluster_is_reached_with_the_secret_that_the_server_created_for_it(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    instance = await create_virtual_cluster(api)
    with pytest.raises(NotConnected, match=r"secret .* not found"):
        upstreams.virtual_cluster_upstream(NAMESPACE, "v")
    owner = {
        **{name: instance[name] for name in ("apiVersion", "kind")},
        **{name: metadata(instance)[name] for name in ("name", "uid")},
    }
    foreign_owner = {"ownerReferences": [{**owner, "uid": "of-another"}]}
    await api.create(
        "Secret", "vc-v-kubeconfig", data=build_secret_data(fake_cluster.build_kubeconfig()), metadata=foreign_owner
    )
    with pytest.raises(NotConnected):
        upstreams.virtual_cluster_upstream(NAMESPACE, "v")
    await api.patch("Secret", "vc-v-kubeconfig", lambda obj: metadata(obj).update(ownerReferences=[owner]))
    with pytest.raises(NotConnected):  # who may create Secrets may set an owner, but not the label
        upstreams.virtual_cluster_upstream(NAMESPACE, "v")
    managed = {MANAGED_LABEL: MANAGED_VALUE}
    await api.patch("Secret", "vc-v-kubeconfig", lambda obj: metadata(obj).update(labels=managed))
    assert b"gitVersion" in await fetch_version(upstreams.virtual_cluster_upstream(NAMESPACE, "v"))


async def test_connections_of_a_deleted_virtual_cluster_are_closed_at_once(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await api.create("Secret", "mine", data=build_secret_data(fake_cluster.build_kubeconfig()))
    spec = {"config": {"secretName": "mine"}}
    await api.create("VirtualClusterInstance", "v", spec=spec, metadata={"finalizers": ["example.com/x"]})
    instance_upstreams = (
        upstreams.virtual_cluster_upstream(NAMESPACE, "v"),
        upstreams.virtual_cluster_system_upstream(NAMESPACE, "v"),
    )
    streams = [await upstream.send(Request("GET", "/fake/ticks?seconds=0.01")) for upstream in instance_upstreams]
    upstreams.close_withdrawn_virtual_cluster(NAMESPACE, "v")
    assert upstreams.virtual_cluster_upstream(NAMESPACE, "v") is instance_upstreams[0]
    await api.delete("VirtualClusterInstance", "v")
    upstreams.close_withdrawn_virtual_cluster(NAMESPACE, "v")
    async with asyncio.timeout(40):
        while fake_cluster.open_connections:  # noqa: ASYNC110  # the fake cluster runs in another thread
            await asyncio.sleep(0.01)
    for stream in streams:
        await stream.close()


async def test_no_user_reaches_a_cluster_where_another_installation_uses_the_same_names(
    api: RegistryFixture, upstreams: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await create_connected_cluster(api, fake_cluster)
    first = upstreams.cluster_upstream("berlin")
    identity = {"prefix": "fairlead:", "otherInstallation": "id-1"}
    await api.patch(
        "Cluster", "berlin", lambda obj: obj.update(status={"identity": identity}), write_options(subresource="status")
    )
    assert expect_not_connected(upstreams) == "IdentityPrefixTaken"
    assert upstreams.health_upstream("berlin") is not None
    annotation = {"annotations": {"service.sh/shared-identity": "id-1"}}
    await api.patch("Cluster", "berlin", lambda obj: obj["metadata"].update(annotation))
    assert upstreams.cluster_upstream("berlin") is first
