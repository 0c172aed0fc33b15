"""Tests of `fairlead.controllers.clusters.clusters`: probes of clusters, and the status and Events that report them."""

import asyncio
from itertools import pairwise

import pytest

from fairlead.controllers.clusters.clusters import STATUS_REFRESH_SECONDS
from fairlead.controllers.clusters.rights import REVIEWS_PATH
from fairlead.core.objects import Object
from fairlead.domain.probe_day import QUARTER_SECONDS, decode_day
from fairlead.domain.probe_history import decode_samples
from fairlead.upstream.clusters import NotConnected
from fairlead.upstream.errors import TimedOut, TlsError
from tests.controllers.clusters.cluster_fixture import (
    CONFIG,
    FakeUpstream,
    FakeUpstreams,
    cluster_status,
    condition_status,
    connect_cluster,
    list_events,
    server,
    upstreams,
)
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture

__all__ = ["server", "upstreams"]

BINDINGS_PATH = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


async def test_a_cluster_that_responds_is_initialized(server: RegistryFixture, upstreams: FakeUpstreams) -> None:
    await connect_cluster(server, upstreams)
    status = cluster_status(server)
    assert (status["phase"], status["reason"], status["online"]) == ("Initialized", "", True)
    assert (status["version"], status["clusterUID"], status["nodes"]) == ("v1.34.1", "u-1", 1)
    assert condition_status(server, "Ready") == ("True", "Healthy")
    await eventually(lambda: list_events(server) == [("Normal", "Connected")])


async def test_an_unchanged_cluster_is_written_at_most_every_five_minutes(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    await connect_cluster(server, upstreams)
    revision, last_probe = await server.store.revision(), cluster_status(server)["lastProbeTime"]
    await asyncio.sleep(3600)
    assert 10 <= await server.store.revision() - revision <= 12
    assert cluster_status(server)["lastProbeTime"] > last_probe


async def test_the_status_has_the_recent_probes_without_more_writes(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await connect_cluster(server, upstreams)
    revision = await server.store.revision()
    await asyncio.sleep(400)
    assert await server.store.revision() - revision <= 2
    samples = decode_samples(cluster_status(server)["probeHistory"])
    assert len(samples) >= 60
    assert all(sample.latency is not None and not sample.reason for sample in samples)
    assert cluster_status(server)["latencyMilliseconds"] == samples[-1].latency
    upstream.error = TimedOut("no answer")
    await eventually(lambda: not cluster_status(server)["online"])
    failed = decode_samples(cluster_status(server)["probeHistory"])
    assert failed[: len(samples)] == samples
    assert (failed[-1].latency, failed[-1].reason) == (None, TimedOut.reason)
    assert "latencyMilliseconds" not in cluster_status(server)


async def test_the_status_has_the_probes_of_a_day_by_quarters_of_an_hour(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await connect_cluster(server, upstreams)
    await asyncio.sleep(2 * QUARTER_SECONDS)
    day = decode_day(cluster_status(server)["probeDay"])
    assert 2 <= len(day) <= 3
    assert all(later.time - earlier.time == QUARTER_SECONDS for earlier, later in pairwise(day))
    assert sum(each.probes for each in day) >= 2 * QUARTER_SECONDS / 5 - 20 - STATUS_REFRESH_SECONDS / 5
    assert all(each.failed == 0 and each.mean_latency is not None for each in day)
    upstream.error = TimedOut("no answer")
    await eventually(lambda: not cluster_status(server)["online"])
    failed = decode_day(cluster_status(server)["probeDay"])
    assert failed[-1].failed == failed[-1].silent >= 1
    await server.patch("Cluster", "berlin", lambda cluster: cluster["spec"].pop("config"))
    await eventually(lambda: "probeDay" not in cluster_status(server))


async def test_a_cluster_is_not_ready_while_its_credential_cannot_impersonate(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstreams.by_name["berlin"] = upstream = FakeUpstream()
    upstream.responses[REVIEWS_PATH] = (201, {"status": {"allowed": False}})
    await server.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: condition_status(server, "Ready") == ("False", "ImpersonationForbidden"))
    assert condition_status(server, "Connected") == ("True", "Connected")
    assert condition_status(server, "Stalled") == ("True", "ImpersonationForbidden")
    status = cluster_status(server)
    assert (status["phase"], status["reason"], status["online"]) == ("Initialized", "ImpersonationForbidden", True)
    assert "users, groups, uids" in status["message"]
    await eventually(lambda: list_events(server) == [("Warning", "ImpersonationForbidden")])
    await asyncio.sleep(60)
    upstream.responses[REVIEWS_PATH] = (201, {"status": {"allowed": True}})
    await eventually(lambda: condition_status(server, "Ready") == ("True", "Healthy"), seconds=5)
    assert condition_status(server, "Stalled") == ("", "")


async def test_a_revoked_permission_is_detected_within_about_a_minute(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await connect_cluster(server, upstreams)
    upstream.responses[REVIEWS_PATH] = (201, {"status": {"allowed": False}})
    await eventually(lambda: condition_status(server, "Ready") == ("False", "ImpersonationForbidden"), seconds=66)


async def test_a_failure_that_needs_a_repair_is_reported_at_once(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstreams.by_name["berlin"] = upstream = FakeUpstream()
    upstream.error = TlsError("unknown authority")
    await server.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: cluster_status(server).get("phase") == "Failed")
    assert len(upstream.probe_times()) == 1
    assert cluster_status(server)["reason"] == "InitializeCluster"
    assert condition_status(server, "Stalled") == ("True", "CertificateNotTrusted")


async def test_a_missing_secret_is_reported_and_its_creation_is_detected_at_once(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstreams.by_name["berlin"] = NotConnected("SecretNotFound", "there is no secret")
    await server.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: condition_status(server, "Connected") == ("False", "SecretNotFound"))
    assert cluster_status(server)["probes"][0]["name"] == "config"
    await asyncio.sleep(300)
    upstreams.by_name["berlin"] = FakeUpstream()
    await server.create("Secret", "s", data={"config": ""})
    await eventually(lambda: cluster_status(server)["online"], seconds=1)


async def test_the_newer_of_two_objects_for_the_same_cluster_fails_until_the_older_is_deleted(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    await connect_cluster(server, upstreams, "older")
    await asyncio.sleep(5)
    await connect_cluster(server, upstreams, "newer")
    assert (cluster_status(server, "newer")["phase"], cluster_status(server, "newer")["reason"]) == (
        "Failed",
        "ClusterUID",
    )
    await asyncio.sleep(20)
    assert cluster_status(server, "older")["phase"] == "Initialized"
    await server.delete("Cluster", "older")
    await eventually(lambda: cluster_status(server, "newer")["phase"] == "Initialized", seconds=10)


async def test_administrators_are_bound_once(server: RegistryFixture, upstreams: FakeUpstreams) -> None:
    upstreams.by_name["berlin"] = upstream = FakeUpstream()
    upstream.responses[BINDINGS_PATH] = (201, {})
    await server.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: condition_status(server, "AdministratorsBound") == ("True", "Bound"))
    await asyncio.sleep(1_000)
    assert [target for _, target in upstream.requests].count(BINDINGS_PATH) == 1


async def test_administrators_that_cannot_be_bound_are_reported_and_retried_rarely(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstreams.by_name["berlin"] = upstream = FakeUpstream()
    upstream.responses[BINDINGS_PATH] = (403, {})
    await server.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: condition_status(server, "AdministratorsBound") == ("False", "Forbidden"))
    assert cluster_status(server)["phase"] == "Initialized"
    await asyncio.sleep(1_000)
    assert 2 <= [target for _, target in upstream.requests].count(BINDINGS_PATH) <= 4


@pytest.mark.parametrize(
    "spec", [{}, {"networkPeer": True, "config": CONFIG}, {"local": True}, {"config": {"key": "config"}}]
)
async def test_clusters_without_a_secret_reference_are_not_changed(
    server: RegistryFixture, upstreams: FakeUpstreams, spec: Object
) -> None:
    upstreams.by_name["berlin"] = upstream = FakeUpstream()
    await server.create("Cluster", "berlin", spec=spec)
    revision = await server.store.revision()
    await asyncio.sleep(300)
    assert await server.store.revision() == revision
    assert upstream.requests == []


async def test_the_local_cluster_is_probed_like_others_if_it_has_a_secret(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstreams.by_name["berlin"] = FakeUpstream()
    await server.create("Cluster", "berlin", spec={"local": True, "config": CONFIG})
    await eventually(lambda: condition_status(server, "Ready") == ("True", "Healthy"))


async def test_a_cluster_whose_secret_reference_is_removed_is_no_longer_online(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    await connect_cluster(server, upstreams)
    await server.patch("Cluster", "berlin", lambda obj: obj.update(spec={}))
    await eventually(lambda: cluster_status(server)["reason"] == "KubeconfigNotSet")
    assert not cluster_status(server)["online"]
    revision = await server.store.revision()
    await asyncio.sleep(300)
    assert await server.store.revision() == revision


async def test_a_deleted_cluster_is_not_probed(server: RegistryFixture, upstreams: FakeUpstreams) -> None:
    upstream = await connect_cluster(server, upstreams)
    await server.delete("Cluster", "berlin")
    await asyncio.sleep(1)
    count = len(upstream.requests)
    await asyncio.sleep(300)
    assert len(upstream.requests) == count
