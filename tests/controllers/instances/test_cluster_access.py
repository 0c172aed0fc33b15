"""Tests of `fairlead.controllers.instances.cluster_access` with a fake cluster over TLS and a stored credential."""

import asyncio
from base64 import b64encode
from dataclasses import replace

import pytest
import yaml

from fairlead.controllers.instances.cluster_access import RegistryClusterAccess
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import NotConnected, UpstreamRegistry
from fairlead.upstream.errors import ProtocolError, TimedOut, TlsError, UpstreamError
from fairlead.upstream.upstream import Limits
from tests.fake_cluster.behaviours import never_respond
from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.exchange import build_json_response
from tests.fake_cluster.kube import FakeKube, build_kube_responder
from tests.fake_cluster.server import FakeCluster
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller
from tests.harness.local_gateways import build_client
from tests.harness.registry import NAMESPACE, RegistryFixture, open_registry
from tests.harness.remote import INSTANCE_CONFIG, condition_status, set_online

SPACE = "SpaceInstance"


async def create_project_and_cluster(api: RegistryFixture, kubeconfig: bytes) -> None:
    await api.create("Project", NAMESPACE, spec={"owner": {"user": "ada"}})
    await api.create("Secret", "kubeconfig", data={"config": b64encode(kubeconfig).decode()})
    config = {"secretName": "kubeconfig", "secretNamespace": NAMESPACE}
    await api.create("Cluster", "c", spec={"config": config})
    await set_online(api, True)


def build_access(api: RegistryFixture, *networks: str) -> RegistryClusterAccess:
    policy = AddressPolicy(networks, lambda: ())
    upstreams = UpstreamRegistry(api.registry, GROUP, "service-system", policy, Limits())
    return RegistryClusterAccess(upstreams)


def test_a_space_is_created_and_deleted_over_tls() -> None:
    kube = FakeKube()

    async def run(fake_cluster: FakeCluster) -> None:
        async with open_registry() as api:
            await create_project_and_cluster(api, fake_cluster.build_kubeconfig(token="stored-token"))
            access = build_access(api, "127.0.0.0/8")
            async with running_controllers(
                api,
                InstanceTemplateController(api.registry, INSTANCE_CONFIG),
                build_space_controller(api, access),
            ):
                await api.create(SPACE, "one", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}})
                await eventually(lambda: condition_status(api, SPACE, "SpaceReady") == ("True", "Active"), 20)
                assert "/api/v1/namespaces/demo-one" in kube.objects
                await api.delete(SPACE, "one")
                await eventually(lambda: api.get(SPACE, "one") is None, 20)
            async with access.open_cluster_endpoint("c") as endpoint:
                assert endpoint.port != fake_cluster.port
                assert endpoint.token != "stored-token"
                async with build_client(endpoint) as client:
                    assert (await client.get("/version")).json()["gitVersion"]
            await access.upstreams.close_all()

    with FakeCluster(build_kube_responder(kube)) as fake_cluster:
        asyncio.run(run(fake_cluster))
        assert kube.objects == {}
        assert {request.header("authorization") for request in fake_cluster.requests} == {"Bearer stored-token"}


def test_another_program_does_not_reach_a_blocked_address() -> None:
    async def run(kubeconfig: bytes) -> None:
        async with open_registry() as api:
            await create_project_and_cluster(api, kubeconfig)
            async with build_access(api).open_cluster_endpoint("c") as endpoint, build_client(endpoint) as client:
                answer = await client.get("/version")
            assert answer.status_code == 503
            assert "loopback or private" in answer.json()["message"]

    with FakeCluster() as fake_cluster:
        asyncio.run(run(fake_cluster.build_kubeconfig()))
    assert fake_cluster.requests == []


@pytest.mark.parametrize(("kubeconfig", "reason"), [(b"{}", "InvalidKubeconfig"), (b"", "KeyNotFound")])
async def test_a_cluster_that_is_not_connected_has_a_reason(
    api: RegistryFixture, kubeconfig: bytes, reason: str
) -> None:
    await create_project_and_cluster(api, kubeconfig)
    with pytest.raises(NotConnected) as caught:
        async with build_access(api).open_cluster_endpoint("c"):
            pass
    assert caught.value.reason == reason


async def test_a_cluster_with_an_agent_is_never_dialled_for_other_programs(api: RegistryFixture) -> None:
    with FakeCluster() as fake_cluster:
        kubeconfig = fake_cluster.build_kubeconfig()
    await create_project_and_cluster(api, kubeconfig)
    await api.patch("Cluster", "c", lambda each: each["spec"].update(networkPeer=True))
    with pytest.raises(NotConnected) as caught:
        async with build_access(api, "127.0.0.0/8").open_cluster_endpoint("c"):
            pass
    assert caught.value.reason == "AgentNotJoined"


@pytest.mark.parametrize(("path", "error_type"), [("/fake/never", TimedOut), ("/big", ProtocolError)])
def test_the_version_request_to_a_virtual_cluster_has_a_timeout_and_a_size_limit(
    path: str, error_type: type[UpstreamError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual cluster that does not respond is a timeout, and a response over the limit is not read to its end."""
    monkeypatch.setattr("fairlead.controllers.instances.cluster_access.VIRTUAL_CLUSTER_TIMEOUT", 0.2)

    async def run(fake_cluster: FakeCluster) -> None:
        async with open_registry() as api:
            kubeconfig = fake_cluster.build_kubeconfig(server=f"{fake_cluster.url}{path}")
            await api.create("Secret", "mine", data={"config": b64encode(kubeconfig).decode()})
            await api.create("VirtualClusterInstance", "v", spec={"config": {"secretName": "mine"}})
            access = build_access(api, "127.0.0.0/8")
            with pytest.raises(error_type):
                await access.virtual_cluster_version(NAMESPACE, "v", is_new_connection=True)
            await access.upstreams.close_all()

    with FakeCluster() as fake_cluster:
        fake_cluster.set_behaviour("/fake/never/version", never_respond)
        fake_cluster.set_response("/big/version", build_json_response({"gitVersion": "A" * 100_000}, 200))
        asyncio.run(run(fake_cluster))


def test_a_reloaded_certificate_of_a_virtual_cluster_is_checked_by_the_version_request() -> None:
    async def run(fake_cluster: FakeCluster) -> None:
        async with open_registry() as api:
            await api.create("Secret", "mine", data={"config": b64encode(fake_cluster.build_kubeconfig()).decode()})
            await api.create("VirtualClusterInstance", "v", spec={"config": {"secretName": "mine"}})
            access = build_access(api, "127.0.0.0/8")
            assert (await access.virtual_cluster_version(NAMESPACE, "v", is_new_connection=True))["gitVersion"]
            fake_cluster.reload(replace(fake_cluster.options, issuer=get_authority("an unknown authority")))
            with pytest.raises(TlsError):
                await access.virtual_cluster_version(NAMESPACE, "v", is_new_connection=True)
            await access.upstreams.close_all()

    with FakeCluster() as fake_cluster:
        asyncio.run(run(fake_cluster))


def test_other_programs_reach_a_cluster_behind_a_proxy_through_this_server() -> None:
    """Helm would use the proxy with its own rules, such as NO_PROXY."""

    async def run(fake_cluster: FakeCluster) -> None:
        config = yaml.safe_load(fake_cluster.build_kubeconfig(token="stored-token"))
        config["clusters"][0]["cluster"]["proxy-url"] = "http://127.0.0.1:3128"
        async with open_registry() as api:
            await create_project_and_cluster(api, yaml.safe_dump(config).encode())
            policy = AddressPolicy((), lambda: (), ("127.0.0.1:3128",))
            upstreams = UpstreamRegistry(api.registry, GROUP, NAMESPACE, policy, Limits())
            access = RegistryClusterAccess(upstreams)
            async with access.open_cluster_endpoint("c") as endpoint:
                assert (endpoint.host, endpoint.proxy) == ("127.0.0.1", None)
                assert endpoint.port != fake_cluster.port and endpoint.token != "stored-token"
            await upstreams.close_all()

    with FakeCluster() as fake_cluster:
        asyncio.run(run(fake_cluster))
