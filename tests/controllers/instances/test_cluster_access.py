"""The whole way: a space and its cluster's API server, over TLS, with the credential that is stored for it."""

import asyncio
from base64 import b64encode
from dataclasses import replace

import pytest

from fairlead.controllers.instances.cluster_access import RegistryClusterAccess
from fairlead.controllers.instances.spaces import SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import NotConnected, UpstreamRegistry
from fairlead.upstream.errors import AddressBlocked, ProtocolError, TimedOut, TlsError, UpstreamError
from fairlead.upstream.upstream import Limits
from tests.fake_cluster.behaviours import never
from tests.fake_cluster.certificates import authority
from tests.fake_cluster.exchange import as_json
from tests.fake_cluster.kube import Kube, kube_answering
from tests.fake_cluster.server import FarSide
from tests.harness.controllers import at_work, until
from tests.harness.registry import NAMESPACE, World, new_world
from tests.harness.remote import SETTING, set_online, told

SPACE = "SpaceInstance"


async def furnish(world: World, kubeconfig: bytes) -> None:
    await world.create("Project", NAMESPACE, spec={"owner": {"user": "ada"}})
    await world.create("Secret", "kubeconfig", data={"config": b64encode(kubeconfig).decode()})
    config = {"secretName": "kubeconfig", "secretNamespace": NAMESPACE}
    await world.create("Cluster", "c", spec={"config": config})
    await set_online(world, True)


def reaching(world: World, *networks: str) -> RegistryClusterAccess:
    policy = AddressPolicy(networks, lambda: ())
    connected = UpstreamRegistry(world.registry, GROUP, "service-system", policy, Limits())
    return RegistryClusterAccess(world.registry, GROUP, "service-system", connected, policy.resolve)


def test_a_space_is_made_and_removed_over_the_wire() -> None:
    kube = Kube()

    async def run(far: FarSide) -> None:
        async with new_world() as world:
            await furnish(world, far.kubeconfig(token="stored-token"))
            reach = reaching(world, "127.0.0.0/8")
            async with at_work(
                world,
                InstanceTemplateController(world.registry, SETTING),
                SpaceController(world.registry, SETTING, reach),
            ):
                await world.create(SPACE, "one", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}})
                await until(lambda: told(world, SPACE, "SpaceReady") == ("True", "Active"), 20)
                assert "/api/v1/namespaces/demo-one" in kube.objects
                await world.delete(SPACE, "one")
                await until(lambda: world.see(SPACE, "one") is None, 20)
            access = await reach.cluster_endpoint("c")
            assert (access.host, access.port, access.token) == ("127.0.0.1", far.port, "stored-token")
            await reach.upstreams.close_all()

    with FarSide(kube_answering(kube)) as far:
        asyncio.run(run(far))
        assert kube.objects == {}
        assert {each.header("authorization") for each in far.seen} == {"Bearer stored-token"}


async def test_other_programs_are_sent_nowhere_that_is_closed(world: World) -> None:
    with FarSide() as far:
        kubeconfig = far.kubeconfig()
    await furnish(world, kubeconfig)
    with pytest.raises(AddressBlocked):
        await reaching(world).cluster_endpoint("c")


@pytest.mark.parametrize(("kubeconfig", "reason"), [(b"{}", "InvalidKubeconfig"), (b"", "KeyNotFound")])
async def test_a_cluster_that_is_not_connected_says_why(world: World, kubeconfig: bytes, reason: str) -> None:
    await furnish(world, kubeconfig)
    with pytest.raises(NotConnected) as caught:
        await reaching(world).cluster_endpoint("c")
    assert caught.value.reason == reason


@pytest.mark.parametrize(("path", "raised"), [("/far/never", TimedOut), ("/big", ProtocolError)])
def test_a_virtual_cluster_cannot_keep_whoever_asks_for_its_version(
    path: str, raised: type[UpstreamError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that never answers is given up soon, and one that answers with too much is not heard to its end."""
    monkeypatch.setattr("fairlead.controllers.instances.cluster_access.VIRTUAL_CLUSTER_TIMEOUT", 0.2)

    async def run(far: FarSide) -> None:
        async with new_world() as world:
            kubeconfig = far.kubeconfig(server=f"{far.url}{path}")
            await world.create("Secret", "mine", data={"config": b64encode(kubeconfig).decode()})
            await world.create("VirtualClusterInstance", "v", spec={"config": {"secretName": "mine"}})
            reach = reaching(world, "127.0.0.0/8")
            with pytest.raises(raised):
                await reach.virtual_cluster_version(NAMESPACE, "v")
            await reach.upstreams.close_all()

    with FarSide() as far:
        far.behave("/far/never/version", never)
        far.answer("/big/version", as_json({"gitVersion": "A" * 100_000}, 200))
        asyncio.run(run(far))


def test_a_certificate_that_a_virtual_cluster_reloads_is_noticed_when_it_is_asked_for_its_version() -> None:
    async def run(far: FarSide) -> None:
        async with new_world() as world:
            await world.create("Secret", "mine", data={"config": b64encode(far.kubeconfig()).decode()})
            await world.create("VirtualClusterInstance", "v", spec={"config": {"secretName": "mine"}})
            reach = reaching(world, "127.0.0.0/8")
            assert (await reach.virtual_cluster_version(NAMESPACE, "v"))["gitVersion"]
            far.reload(replace(far.manner, issuer=authority("a stranger")))
            with pytest.raises(TlsError):
                await reach.virtual_cluster_version(NAMESPACE, "v")
            await reach.upstreams.close_all()

    with FarSide() as far:
        asyncio.run(run(far))
