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
from tests.fake_cluster.server import FarSide, far_side
from tests.harness.registry import NAMESPACE, World, as_ada, new_world

__all__ = ["far_side"]

CONFIG = {"secretName": "berlin", "secretNamespace": NAMESPACE}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as made:
        yield made


def opened(world: World, *networks: str) -> UpstreamRegistry:
    policy = AddressPolicy(networks, lambda: ())
    return UpstreamRegistry(world.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits())


@pytest.fixture
async def connected(world: World) -> AsyncIterator[UpstreamRegistry]:
    made = opened(world, "127.0.0.0/8")
    yield made
    await made.close_all()


def data(kubeconfig: bytes, key: str = "config") -> Object:
    return {key: b64encode(kubeconfig).decode()}


async def connect(world: World, far: FarSide, config: Any = None) -> Object:
    await world.create("Secret", "berlin", data=data(far.kubeconfig()))
    return await world.create("Cluster", "berlin", spec={"config": config or CONFIG})


async def restore(world: World, kubeconfig: bytes) -> None:
    await world.patch("Secret", "berlin", lambda each: each.update(data=data(kubeconfig)))


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
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    await connect(world, far_side)
    assert b"gitVersion" in await ask(connected.cluster_upstream("berlin"))
    assert far_side.seen[-1].header("authorization") == "Bearer far-token"


async def test_a_reference_without_a_namespace_means_the_servers_own(
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    await connect(world, far_side, {"secretName": "berlin"})
    assert b"gitVersion" in await ask(connected.cluster_upstream("berlin"))


async def test_the_way_stays_while_only_other_things_change(
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    await connect(world, far_side)
    first = connected.cluster_upstream("berlin")
    await world.patch("Cluster", "berlin", lambda each: each["spec"].update(displayName="Berlin"))
    await world.patch(
        "Cluster", "berlin", lambda each: each.update(status={"online": True}), as_ada(subresource="status")
    )
    assert connected.cluster_upstream("berlin") is first


async def test_probes_have_a_way_of_their_own(world: World, connected: UpstreamRegistry, far_side: FarSide) -> None:
    await connect(world, far_side)
    assert connected.system_upstream("berlin") is connected.system_upstream("berlin")
    assert connected.system_upstream("berlin") is not connected.cluster_upstream("berlin")
    await ask(connected.cluster_upstream("berlin"))
    await ask(connected.system_upstream("berlin"))
    assert [each.connection for each in far_side.seen] == [1, 2]


async def test_a_changed_secret_makes_a_new_way_and_ends_the_old_one(
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    await connect(world, far_side)
    old = connected.cluster_upstream("berlin")
    await ask(old)
    await restore(world, far_side.kubeconfig(token="another"))
    new = connected.cluster_upstream("berlin")
    assert new is not old
    await ask(new)
    assert far_side.seen[-1].header("authorization") == "Bearer another"
    async with asyncio.timeout(5):
        while 1 in far_side.open:  # noqa: ASYNC110  # the far side is in another thread
            await asyncio.sleep(0.01)


async def test_what_is_under_way_may_end_when_the_secret_changes(
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    await connect(world, far_side)
    response = await connected.cluster_upstream("berlin").send(Request("GET", "/far/ticks?count=5&seconds=0.05"))
    await restore(world, far_side.kubeconfig(token="another"))
    await ask(connected.cluster_upstream("berlin"))
    assert (await response.read(10_000)).endswith(b"tick 4\n")
    await response.close()


async def test_a_new_cluster_of_the_same_name_gets_a_way_of_its_own(
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    await connect(world, far_side)
    old = connected.cluster_upstream("berlin")
    await world.delete("Cluster", "berlin")
    await world.create("Cluster", "berlin", spec={"config": CONFIG})
    assert connected.cluster_upstream("berlin") is not old


async def test_connections_of_a_cluster_that_is_gone_end_at_once(
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    await connect(world, far_side)
    stream = await connected.cluster_upstream("berlin").send(Request("GET", "/far/ticks?seconds=0.01"))
    await world.delete("Cluster", "berlin")
    assert reason(connected) == "NotFound"
    async with asyncio.timeout(5):
        while far_side.open:  # noqa: ASYNC110  # the far side is in another thread
            await asyncio.sleep(0.01)
    await stream.close()


async def test_what_is_missing_is_told(world: World, connected: UpstreamRegistry, far_side: FarSide) -> None:
    assert reason(connected) == "NotFound"
    await world.create("Cluster", "berlin")
    assert reason(connected) == "KubeconfigNotSet"
    await world.patch("Cluster", "berlin", lambda each: each.update(spec={"config": {**CONFIG, "key": "k"}}))
    assert reason(connected) == "SecretNotFound"
    await world.create("Secret", "berlin", data=data(b"nonsense"))
    assert reason(connected) == "KeyNotFound"
    await world.patch("Secret", "berlin", lambda each: each.update(data=data(b"nonsense", "k")))
    assert reason(connected) == "InvalidKubeconfig"
    await world.patch("Secret", "berlin", lambda each: each.update(data=data(far_side.kubeconfig(), "k")))
    assert b"gitVersion" in await ask(connected.cluster_upstream("berlin"))
    await world.delete("Secret", "berlin")
    assert reason(connected) == "SecretNotFound"


async def test_a_cluster_that_is_being_deleted_is_not_connected(
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    await connect(world, far_side)
    await world.patch("Cluster", "berlin", lambda each: each["metadata"].update(finalizers=["example.com/wait"]))
    await world.delete("Cluster", "berlin")
    assert reason(connected) == "Terminating"


async def test_t12_a_kubeconfig_that_would_run_a_program_connects_nothing(
    world: World, connected: UpstreamRegistry
) -> None:
    bad = b"{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: \
{server: 'https://x'}}], users: [{name: a, user: {exec: {command: touch}}}]}"
    await world.create("Secret", "berlin", data=data(bad))
    await world.create("Cluster", "berlin", spec={"config": CONFIG})
    with pytest.raises(NotConnected, match="user: exec would run a program"):
        connected.cluster_upstream("berlin")


async def test_t22_a_cluster_on_loopback_is_blocked_unless_listed(world: World, far_side: FarSide) -> None:
    await connect(world, far_side)
    strict = opened(world)
    with pytest.raises(AddressBlocked):
        await ask(strict.cluster_upstream("berlin"))
    assert far_side.connections == 0
    await strict.close_all()


async def test_failures_are_notified_except_those_of_health_probes(
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    await connect(world, far_side)
    heard: list[Key] = []
    unsubscribe = connected.failures.subscribe(heard.append)
    far_side.stop()
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


async def virtual_cluster(world: World) -> Object:
    return await world.create("VirtualClusterInstance", "v", spec={"external": True})


async def test_a_virtual_cluster_is_reached_with_the_secret_that_belongs_to_it(
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    instance = await virtual_cluster(world)
    with pytest.raises(NotConnected, match=r"secret .* not found"):
        connected.virtual_cluster_upstream(NAMESPACE, "v")
    owner = {
        **{name: instance[name] for name in ("apiVersion", "kind")},
        **{name: metadata(instance)[name] for name in ("name", "uid")},
    }
    others = {"ownerReferences": [{**owner, "uid": "of-another"}]}
    await world.create("Secret", "vc-v-kubeconfig", data=data(far_side.kubeconfig()), metadata=others)
    with pytest.raises(NotConnected):
        connected.virtual_cluster_upstream(NAMESPACE, "v")
    await world.patch("Secret", "vc-v-kubeconfig", lambda each: metadata(each).update(ownerReferences=[owner]))
    assert b"gitVersion" in await ask(connected.virtual_cluster_upstream(NAMESPACE, "v"))


async def test_connections_of_a_deleted_virtual_cluster_end_at_once(
    world: World, connected: UpstreamRegistry, far_side: FarSide
) -> None:
    await world.create("Secret", "mine", data=data(far_side.kubeconfig()))
    spec = {"config": {"secretName": "mine"}}
    await world.create("VirtualClusterInstance", "v", spec=spec, metadata={"finalizers": ["example.com/x"]})
    ways = connected.virtual_cluster_upstream(NAMESPACE, "v"), connected.virtual_cluster_system_upstream(NAMESPACE, "v")
    streams = [await each.send(Request("GET", "/far/ticks?seconds=0.01")) for each in ways]
    connected.close_deleted_virtual_cluster(NAMESPACE, "v")
    assert connected.virtual_cluster_upstream(NAMESPACE, "v") is ways[0]
    await world.delete("VirtualClusterInstance", "v")
    connected.close_deleted_virtual_cluster(NAMESPACE, "v")
    async with asyncio.timeout(5):
        while far_side.open:  # noqa: ASYNC110  # the far side is in another thread
            await asyncio.sleep(0.01)
    for stream in streams:
        await stream.close()
