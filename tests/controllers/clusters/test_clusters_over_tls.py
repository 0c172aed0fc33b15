"""Tests of the controller of clusters with a fake cluster over TLS, in real time with short intervals."""

import asyncio
from base64 import b64encode
from dataclasses import replace

import pytest

from fairlead.controllers.clusters import clusters, probe_schedule
from fairlead.controllers.clusters.clusters import ClusterController
from fairlead.core.objects import Object
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.registry.conditions import find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import UpstreamRegistry
from fairlead.upstream.upstream import Limits
from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.server import FakeCluster, fake_cluster
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture, open_registry

__all__ = ["fake_cluster"]


def cluster_status(api: RegistryFixture) -> Object:
    cluster = api.get("Cluster", "berlin")
    assert cluster is not None
    return cluster.get("status") or {}


def ready_reason(api: RegistryFixture) -> str:
    return str((find_condition(cluster_status(api), "Ready") or {}).get("reason"))


async def lose_and_restore_cluster(fake_cluster: FakeCluster) -> None:
    async with open_registry() as api:
        policy = AddressPolicy(("127.0.0.0/8",), lambda: ())
        upstreams = UpstreamRegistry(api.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits())
        async with running_controllers(
            api,
            ClusterController(api.registry, MANAGEMENT_GROUP, NAMESPACE, upstreams, ClusterIdentityMapper("fairlead:")),
        ):
            await api.create("Cluster", "berlin", spec={"config": {"secretName": "s"}})
            await eventually(lambda: cluster_status(api).get("phase") == "Failed", 10)
            await api.create("Secret", "s", data={"config": b64encode(fake_cluster.build_kubeconfig()).decode()})
            await eventually(lambda: cluster_status(api).get("phase") == "Initialized", 10)
            assert (cluster_status(api)["version"], cluster_status(api)["nodes"]) == ("v1.34.1", 1)
            fake_cluster.stop()
            await eventually(lambda: cluster_status(api)["reason"] == "Offline", 10)
            fake_cluster.start()
            await eventually(lambda: cluster_status(api)["online"], 10)
            fake_cluster.reload(replace(healthy := fake_cluster.options, issuer=get_authority("an unknown authority")))
            await eventually(
                lambda: (
                    (cluster_status(api)["reason"], ready_reason(api))
                    == ("HealthCheckCluster", "CertificateNotTrusted")
                ),
                10,
            )
            fake_cluster.reload(healthy)
            await eventually(lambda: cluster_status(api)["phase"] == "Initialized", 10)
        await upstreams.close_all()
    assert {request.header("authorization") for request in fake_cluster.requests} == {"Bearer fake-token"}


def test_a_cluster_is_connected_lost_and_restored_and_its_certificate_is_checked(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_schedule, "HEALTHY_SECONDS", 0.1)
    monkeypatch.setattr(probe_schedule, "UNREACHABLE_SECONDS", 0.2)
    monkeypatch.setattr(probe_schedule, "NO_CONFIG_SECONDS", 0.2)
    monkeypatch.setattr(clusters, "RETRY_SECONDS", 0.02)
    asyncio.run(lose_and_restore_cluster(fake_cluster))
