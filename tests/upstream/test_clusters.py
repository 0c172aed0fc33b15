"""The way to a cluster follows its object and its secret, and belongs to no other object of the same name."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.core.objects import Object, metadata
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.storage.contract import Key
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import NotConnected, UpstreamRegistry
from fairlead.upstream.errors import AddressBlocked, Unreachable
from fairlead.upstream.upstream import Limits, Request, Upstream
from tests.fake_cluster.server import FakeCluster, fake_cluster
from tests.harness.registry import NAMESPACE, RegistryFixture, as_ada, open_registry

__all__ = ["fake_cluster"]

CONFIG = {"secretName": "berlin", "secretNamespace": NAMESPACE}


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry() as made:
        yield made


def opened(api: RegistryFixture, *networks: str) -> UpstreamRegistry:
    policy = AddressPolicy(networks, lambda: ())
    return UpstreamRegistry(api.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits())


@pytest.fixture
async def connected(api: RegistryFixture) -> AsyncIterator[UpstreamRegistry]:
    made = opened(api, "127.0.0.0/8")
    yield made
    await made.close_all()


def data(kubeconfig: bytes, key: str = "config") -> Object:
    return {key: b64encode(kubeconfig).decode()}


async def connect(api: RegistryFixture, far: FakeCluster, config: Any = None) -> Object:
    await api.create("Secret", "berlin", data=data(far.kubeconfig()))
    return await api.create("Cluster", "berlin", spec={"config": config or CONFIG})


async def restore(api: RegistryFixture, kubeconfig: bytes) -> None:
    await api.patch("Secret", "berlin", lambda each: each.update(data=data(kubeconfig)))


async def ask(upstream: Upstream) -> bytes:
    response = await upstream.send(Request("GET", "/version"))
    try:
        return await response.read(10_000)
    finally:
        await response.close()


def reason(connected: UpstreamRegistry, name: str = "berlin") -> str:
    with pytest.raises(NotConnected) as raised:
        connected.cluster_upstream(name)
    assert raised.value.message
    return raised.value.reason


async def test_a_cluster_is_reached_with_what_its_secret_holds(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster)
    assert b"gitVersion" in await ask(connected.cluster_upstream("berlin"))
    assert fake_cluster.seen[-1].header("authorization") == "Bearer far-token"


async def test_a_reference_without_a_namespace_means_the_servers_own(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster, {"secretName": "berlin"})
    assert b"gitVersion" in await ask(connected.cluster_upstream("berlin"))


async def test_the_way_stays_while_only_other_things_change(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster)
    first = connected.cluster_upstream("berlin")
    await api.patch("Cluster", "berlin", lambda each: each["spec"].update(displayName="Berlin"))
    await api.patch(
        "Cluster", "berlin", lambda each: each.update(status={"online": True}), as_ada(subresource="status")
    )
    assert connected.cluster_upstream("berlin") is first


async def test_probes_have_a_way_of_their_own(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster)
    assert connected.system_upstream("berlin") is connected.system_upstream("berlin")
    assert connected.system_upstream("berlin") is not connected.cluster_upstream("berlin")
    await ask(connected.cluster_upstream("berlin"))
    await ask(connected.system_upstream("berlin"))
    assert [each.connection for each in fake_cluster.seen] == [1, 2]


async def test_a_changed_secret_makes_a_new_way_and_ends_the_old_one(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster)
    old = connected.cluster_upstream("berlin")
    await ask(old)
    await restore(api, fake_cluster.kubeconfig(token="another"))
    new = connected.cluster_upstream("berlin")
    assert new is not old
    await ask(new)
    assert fake_cluster.seen[-1].header("authorization") == "Bearer another"
    async with asyncio.timeout(5):
        while 1 in fake_cluster.open:  # noqa: ASYNC110  # the far side is in another thread
            await asyncio.sleep(0.01)


async def test_what_is_under_way_may_end_when_the_secret_changes(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster)
    response = await connected.cluster_upstream("berlin").send(Request("GET", "/far/ticks?count=5&seconds=0.05"))
    await restore(api, fake_cluster.kubeconfig(token="another"))
    await ask(connected.cluster_upstream("berlin"))
    assert (await response.read(10_000)).endswith(b"tick 4\n")
    await response.close()


async def test_a_new_cluster_of_the_same_name_gets_a_way_of_its_own(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster)
    old = connected.cluster_upstream("berlin")
    await api.delete("Cluster", "berlin")
    await api.create("Cluster", "berlin", spec={"config": CONFIG})
    assert connected.cluster_upstream("berlin") is not old


async def test_connections_of_a_cluster_that_is_gone_end_at_once(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster)
    stream = await connected.cluster_upstream("berlin").send(Request("GET", "/far/ticks?seconds=0.01"))
    await api.delete("Cluster", "berlin")
    assert reason(connected) == "NotFound"
    async with asyncio.timeout(5):
        while fake_cluster.open:  # noqa: ASYNC110  # the far side is in another thread
            await asyncio.sleep(0.01)
    await stream.close()


async def test_what_is_missing_is_told(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    assert reason(connected) == "NotFound"
    await api.create("Cluster", "berlin")
    assert reason(connected) == "KubeconfigNotSet"
    await api.patch("Cluster", "berlin", lambda each: each.update(spec={"config": {**CONFIG, "key": "k"}}))
    assert reason(connected) == "SecretNotFound"
    await api.create("Secret", "berlin", data=data(b"nonsense"))
    assert reason(connected) == "KeyNotFound"
    await api.patch("Secret", "berlin", lambda each: each.update(data=data(b"nonsense", "k")))
    assert reason(connected) == "InvalidKubeconfig"
    await api.patch("Secret", "berlin", lambda each: each.update(data=data(fake_cluster.kubeconfig(), "k")))
    assert b"gitVersion" in await ask(connected.cluster_upstream("berlin"))
    await api.delete("Secret", "berlin")
    assert reason(connected) == "SecretNotFound"


async def test_a_cluster_that_is_being_deleted_is_not_connected(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster)
    await api.patch("Cluster", "berlin", lambda each: each["metadata"].update(finalizers=["example.com/wait"]))
    await api.delete("Cluster", "berlin")
    assert reason(connected) == "Terminating"


async def test_t12_a_kubeconfig_that_would_run_a_program_connects_nothing(
    api: RegistryFixture, connected: UpstreamRegistry
) -> None:
    bad = b"{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: \
{server: 'https://x'}}], users: [{name: a, user: {exec: {command: touch}}}]}"
    await api.create("Secret", "berlin", data=data(bad))
    await api.create("Cluster", "berlin", spec={"config": CONFIG})
    with pytest.raises(NotConnected, match="user: exec would run a program"):
        connected.cluster_upstream("berlin")


async def test_t22_a_cluster_on_loopback_is_blocked_unless_listed(
    api: RegistryFixture, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster)
    strict = opened(api)
    with pytest.raises(AddressBlocked):
        await ask(strict.cluster_upstream("berlin"))
    assert fake_cluster.connections == 0
    await strict.close_all()


async def test_failures_are_notified_except_those_of_health_probes(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await connect(api, fake_cluster)
    heard: list[Key] = []
    unsubscribe = connected.failures.subscribe(heard.append)
    fake_cluster.stop()
    for way in (
        connected.cluster_upstream("berlin"),
        connected.system_upstream("berlin"),
        connected.health_upstream("berlin"),
    ):
        with pytest.raises(Unreachable):
            await ask(way)
    assert heard == [(MANAGEMENT_GROUP, "clusters", "", "berlin")] * 2
    unsubscribe()
    with pytest.raises(Unreachable):
        await ask(connected.cluster_upstream("berlin"))
    assert len(heard) == 2


async def virtual_cluster(api: RegistryFixture) -> Object:
    return await api.create("VirtualClusterInstance", "v", spec={"external": True})


async def test_a_virtual_cluster_is_reached_with_the_secret_that_belongs_to_it(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    instance = await virtual_cluster(api)
    with pytest.raises(NotConnected, match=r"secret .* not found"):
        connected.virtual_cluster_upstream(NAMESPACE, "v")
    owner = {
        **{name: instance[name] for name in ("apiVersion", "kind")},
        **{name: metadata(instance)[name] for name in ("name", "uid")},
    }
    others = {"ownerReferences": [{**owner, "uid": "of-another"}]}
    await api.create("Secret", "vc-v-kubeconfig", data=data(fake_cluster.kubeconfig()), metadata=others)
    with pytest.raises(NotConnected):
        connected.virtual_cluster_upstream(NAMESPACE, "v")
    await api.patch("Secret", "vc-v-kubeconfig", lambda each: metadata(each).update(ownerReferences=[owner]))
    assert b"gitVersion" in await ask(connected.virtual_cluster_upstream(NAMESPACE, "v"))


async def test_connections_of_a_deleted_virtual_cluster_end_at_once(
    api: RegistryFixture, connected: UpstreamRegistry, fake_cluster: FakeCluster
) -> None:
    await api.create("Secret", "mine", data=data(fake_cluster.kubeconfig()))
    spec = {"config": {"secretName": "mine"}}
    await api.create("VirtualClusterInstance", "v", spec=spec, metadata={"finalizers": ["example.com/x"]})
    ways = connected.virtual_cluster_upstream(NAMESPACE, "v"), connected.virtual_cluster_system_upstream(NAMESPACE, "v")
    streams = [await each.send(Request("GET", "/far/ticks?seconds=0.01")) for each in ways]
    connected.close_deleted_virtual_cluster(NAMESPACE, "v")
    assert connected.virtual_cluster_upstream(NAMESPACE, "v") is ways[0]
    await api.delete("VirtualClusterInstance", "v")
    connected.close_deleted_virtual_cluster(NAMESPACE, "v")
    async with asyncio.timeout(5):
        while fake_cluster.open:  # noqa: ASYNC110  # the far side is in another thread
            await asyncio.sleep(0.01)
    for stream in streams:
        await stream.close()
