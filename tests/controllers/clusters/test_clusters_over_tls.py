"""The controller with a real server at the other end: connected, lost, found again. In real time, with short waits."""

import asyncio
from base64 import b64encode
from dataclasses import replace

import pytest

from fairlead.controllers.clusters import clusters, probe_schedule
from fairlead.controllers.clusters.clusters import ClusterController
from fairlead.core.cluster_identity import ClusterIdentityMapper
from fairlead.core.objects import Object
from fairlead.registry.conditions import find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import UpstreamRegistry
from fairlead.upstream.upstream import Limits
from tests.fake_cluster.certificates import authority
from tests.fake_cluster.server import FakeCluster, fake_cluster
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture, open_registry

__all__ = ["fake_cluster"]


def status(api: RegistryFixture) -> Object:
    found = api.see("Cluster", "berlin")
    assert found is not None
    return found.get("status") or {}


def reason(api: RegistryFixture) -> str:
    return str((find_condition(status(api), "Ready") or {}).get("reason"))


async def lost_and_found(far: FakeCluster) -> None:
    async with open_registry() as api:
        policy = AddressPolicy(("127.0.0.0/8",), lambda: ())
        connected = UpstreamRegistry(api.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits())
        async with running_controllers(
            api,
            ClusterController(api.registry, MANAGEMENT_GROUP, NAMESPACE, connected, ClusterIdentityMapper("fairlead:")),
        ):
            await api.create("Cluster", "berlin", spec={"config": {"secretName": "s"}})
            await eventually(lambda: status(api).get("phase") == "Failed", 10)
            await api.create("Secret", "s", data={"config": b64encode(far.kubeconfig()).decode()})
            await eventually(lambda: status(api).get("phase") == "Initialized", 10)
            assert (status(api)["version"], status(api)["nodes"]) == ("v1.34.1", 1)
            far.stop()
            await eventually(lambda: status(api)["reason"] == "Offline", 10)
            far.start()
            await eventually(lambda: status(api)["online"], 10)
            far.reload(replace(well := far.manner, issuer=authority("a stranger")))
            await eventually(
                lambda: (status(api)["reason"], reason(api)) == ("HealthCheckCluster", "CertificateNotTrusted"), 10
            )
            far.reload(well)
            await eventually(lambda: status(api)["phase"] == "Initialized", 10)
        await connected.close_all()
    assert {each.header("authorization") for each in far.seen} == {"Bearer far-token"}


def test_a_cluster_is_connected_when_its_secret_comes_and_lost_and_found_and_its_certificate_followed(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_schedule, "HEALTHY_SECONDS", 0.1)
    monkeypatch.setattr(probe_schedule, "UNREACHABLE_SECONDS", 0.2)
    monkeypatch.setattr(probe_schedule, "NO_CONFIG_SECONDS", 0.2)
    monkeypatch.setattr(clusters, "RETRY_SECONDS", 0.02)
    asyncio.run(lost_and_found(fake_cluster))
