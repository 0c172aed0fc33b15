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
from tests.fake_cluster.server import FarSide, far_side
from tests.harness.controllers import at_work, until
from tests.harness.registry import NAMESPACE, World, new_world

__all__ = ["far_side"]


def status(world: World) -> Object:
    found = world.see("Cluster", "berlin")
    assert found is not None
    return found.get("status") or {}


def reason(world: World) -> str:
    return str((find_condition(status(world), "Ready") or {}).get("reason"))


async def lost_and_found(far: FarSide) -> None:
    async with new_world() as world:
        policy = AddressPolicy(("127.0.0.0/8",), lambda: ())
        connected = UpstreamRegistry(world.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits())
        async with at_work(
            world,
            ClusterController(
                world.registry, MANAGEMENT_GROUP, NAMESPACE, connected, ClusterIdentityMapper("fairlead:")
            ),
        ):
            await world.create("Cluster", "berlin", spec={"config": {"secretName": "s"}})
            await until(lambda: status(world).get("phase") == "Failed", 10)
            await world.create("Secret", "s", data={"config": b64encode(far.kubeconfig()).decode()})
            await until(lambda: status(world).get("phase") == "Initialized", 10)
            assert (status(world)["version"], status(world)["nodes"]) == ("v1.34.1", 1)
            far.stop()
            await until(lambda: status(world)["reason"] == "Offline", 10)
            far.start()
            await until(lambda: status(world)["online"], 10)
            far.reload(replace(well := far.manner, issuer=authority("a stranger")))
            await until(
                lambda: (status(world)["reason"], reason(world)) == ("HealthCheckCluster", "CertificateNotTrusted"), 10
            )
            far.reload(well)
            await until(lambda: status(world)["phase"] == "Initialized", 10)
        await connected.close_all()
    assert {each.header("authorization") for each in far.seen} == {"Bearer far-token"}


def test_a_cluster_is_connected_when_its_secret_comes_and_lost_and_found_and_its_certificate_followed(
    far_side: FarSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_schedule, "HEALTHY_SECONDS", 0.1)
    monkeypatch.setattr(probe_schedule, "UNREACHABLE_SECONDS", 0.2)
    monkeypatch.setattr(probe_schedule, "NO_CONFIG_SECONDS", 0.2)
    monkeypatch.setattr(clusters, "RETRY_SECONDS", 0.02)
    asyncio.run(lost_and_found(far_side))
