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
from tests.fake_cluster.server import FakeCluster
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture, open_registry
from tests.harness.remote import INSTANCE_CONFIG, condition_status, set_online

SPACE = "SpaceInstance"


async def furnish(api: RegistryFixture, kubeconfig: bytes) -> None:
    await api.create("Project", NAMESPACE, spec={"owner": {"user": "ada"}})
    await api.create("Secret", "kubeconfig", data={"config": b64encode(kubeconfig).decode()})
    config = {"secretName": "kubeconfig", "secretNamespace": NAMESPACE}
    await api.create("Cluster", "c", spec={"config": config})
    await set_online(api, True)


def reaching(api: RegistryFixture, *networks: str) -> RegistryClusterAccess:
    policy = AddressPolicy(networks, lambda: ())
    connected = UpstreamRegistry(api.registry, GROUP, "service-system", policy, Limits())
    return RegistryClusterAccess(api.registry, GROUP, "service-system", connected, policy.resolve)


def test_a_space_is_made_and_removed_over_the_wire() -> None:
    kube = Kube()

    async def run(far: FakeCluster) -> None:
        async with open_registry() as api:
            await furnish(api, far.kubeconfig(token="stored-token"))
            reach = reaching(api, "127.0.0.0/8")
            async with running_controllers(
                api,
                InstanceTemplateController(api.registry, INSTANCE_CONFIG),
                SpaceController(api.registry, INSTANCE_CONFIG, reach),
            ):
                await api.create(SPACE, "one", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}})
                await eventually(lambda: condition_status(api, SPACE, "SpaceReady") == ("True", "Active"), 20)
                assert "/api/v1/namespaces/demo-one" in kube.objects
                await api.delete(SPACE, "one")
                await eventually(lambda: api.see(SPACE, "one") is None, 20)
            access = await reach.cluster_endpoint("c")
            assert (access.host, access.port, access.token) == ("127.0.0.1", far.port, "stored-token")
            await reach.upstreams.close_all()

    with FakeCluster(kube_answering(kube)) as far:
        asyncio.run(run(far))
        assert kube.objects == {}
        assert {each.header("authorization") for each in far.seen} == {"Bearer stored-token"}


async def test_other_programs_are_sent_nowhere_that_is_closed(api: RegistryFixture) -> None:
    with FakeCluster() as far:
        kubeconfig = far.kubeconfig()
    await furnish(api, kubeconfig)
    with pytest.raises(AddressBlocked):
        await reaching(api).cluster_endpoint("c")


@pytest.mark.parametrize(("kubeconfig", "reason"), [(b"{}", "InvalidKubeconfig"), (b"", "KeyNotFound")])
async def test_a_cluster_that_is_not_connected_says_why(api: RegistryFixture, kubeconfig: bytes, reason: str) -> None:
    await furnish(api, kubeconfig)
    with pytest.raises(NotConnected) as caught:
        await reaching(api).cluster_endpoint("c")
    assert caught.value.reason == reason


@pytest.mark.parametrize(("path", "raised"), [("/far/never", TimedOut), ("/big", ProtocolError)])
def test_a_virtual_cluster_cannot_keep_whoever_asks_for_its_version(
    path: str, raised: type[UpstreamError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that never answers is given up soon, and one that answers with too much is not heard to its end."""
    monkeypatch.setattr("fairlead.controllers.instances.cluster_access.VIRTUAL_CLUSTER_TIMEOUT", 0.2)

    async def run(far: FakeCluster) -> None:
        async with open_registry() as api:
            kubeconfig = far.kubeconfig(server=f"{far.url}{path}")
            await api.create("Secret", "mine", data={"config": b64encode(kubeconfig).decode()})
            await api.create("VirtualClusterInstance", "v", spec={"config": {"secretName": "mine"}})
            reach = reaching(api, "127.0.0.0/8")
            with pytest.raises(raised):
                await reach.virtual_cluster_version(NAMESPACE, "v")
            await reach.upstreams.close_all()

    with FakeCluster() as far:
        far.behave("/far/never/version", never)
        far.answer("/big/version", as_json({"gitVersion": "A" * 100_000}, 200))
        asyncio.run(run(far))


def test_a_certificate_that_a_virtual_cluster_reloads_is_noticed_when_it_is_asked_for_its_version() -> None:
    async def run(far: FakeCluster) -> None:
        async with open_registry() as api:
            await api.create("Secret", "mine", data={"config": b64encode(far.kubeconfig()).decode()})
            await api.create("VirtualClusterInstance", "v", spec={"config": {"secretName": "mine"}})
            reach = reaching(api, "127.0.0.0/8")
            assert (await reach.virtual_cluster_version(NAMESPACE, "v"))["gitVersion"]
            far.reload(replace(far.manner, issuer=authority("a stranger")))
            with pytest.raises(TlsError):
                await reach.virtual_cluster_version(NAMESPACE, "v")
            await reach.upstreams.close_all()

    with FakeCluster() as far:
        asyncio.run(run(far))
