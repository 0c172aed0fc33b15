"""Tests of `fairlead.controllers.clusters.probe_schedule`: how soon the loss and return of a cluster are reported."""

import asyncio
from itertools import pairwise
from typing import cast

import pytest

from fairlead.controllers.clusters.clusters import ClusterController
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.clusters import UpstreamRegistry
from fairlead.upstream.errors import TlsError, Unreachable, UpstreamError
from tests.controllers.clusters.cluster_fixture import (
    IDENTITY_MAPPER,
    FakeUpstreams,
    cluster_status,
    condition_status,
    connect_cluster,
    list_events,
    server,
    upstreams,
)
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture

__all__ = ["server", "upstreams"]


async def test_a_cluster_is_probed_about_every_five_seconds(server: RegistryFixture, upstreams: FakeUpstreams) -> None:
    upstream = await connect_cluster(server, upstreams)
    await asyncio.sleep(300)
    probe_times = upstream.probe_times()
    assert all(4 <= after - before <= 6 for before, after in pairwise(probe_times))
    assert 55 <= len(probe_times) <= 75


@pytest.mark.parametrize("failure_mode", ["silent", "unreachable"])
async def test_a_loss_is_reported_within_15_seconds_and_only_after_a_second_probe(
    server: RegistryFixture, upstreams: FakeUpstreams, failure_mode: str
) -> None:
    upstream = await connect_cluster(server, upstreams)
    await eventually(lambda: len(upstream.probe_times()) > 1)
    lost_at = asyncio.get_running_loop().time()
    upstream.is_silent, upstream.error = failure_mode == "silent", Unreachable("no response")
    await eventually(lambda: not cluster_status(server)["online"])
    assert asyncio.get_running_loop().time() - lost_at <= 15
    assert len([time for time in upstream.probe_times() if time > lost_at]) >= 2
    assert (cluster_status(server)["phase"], cluster_status(server)["reason"]) == ("", "Offline")
    assert (cluster_status(server)["version"], cluster_status(server)["clusterUID"]) == ("v1.34.1", "u-1")
    await eventually(lambda: ("Warning", "Offline") in list_events(server))


async def test_one_failed_probe_is_no_loss(server: RegistryFixture, upstreams: FakeUpstreams) -> None:
    upstream = await connect_cluster(server, upstreams)
    upstream.error = Unreachable("temporary")
    count = len(upstream.probe_times())
    await eventually(lambda: len(upstream.probe_times()) > count)
    upstream.error = None
    await asyncio.sleep(20)
    assert cluster_status(server)["online"]
    assert list_events(server) == [("Normal", "Connected")]


async def test_one_rejected_probe_of_a_connected_cluster_is_no_failure(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await connect_cluster(server, upstreams)
    healthy, upstream.responses["/version"] = upstream.responses["/version"], (401, {})
    count = len(upstream.probe_times())
    await eventually(lambda: len(upstream.probe_times()) > count)
    upstream.responses["/version"] = healthy
    await asyncio.sleep(20)
    assert list_events(server) == [("Normal", "Connected")]
    upstream.responses["/version"] = (401, {})
    await eventually(
        lambda: (cluster_status(server)["phase"], cluster_status(server)["reason"]) == ("Failed", "HealthCheckCluster")
    )
    assert condition_status(server, "Connected") == ("False", "Unauthorized")


@pytest.mark.parametrize("error", [Unreachable("no response"), TlsError("unknown authority")])
async def test_the_return_of_a_cluster_after_a_long_time_is_reported_within_five_seconds(
    server: RegistryFixture, upstreams: FakeUpstreams, error: UpstreamError
) -> None:
    upstream = await connect_cluster(server, upstreams)
    upstream.error = error
    await asyncio.sleep(600)
    probe_times = upstream.probe_times()
    assert all(2 <= after - before <= 4 for before, after in pairwise(probe_times[-50:]))
    assert server.list_names("Cluster") == ["berlin"]
    upstream.error = None
    await eventually(lambda: cluster_status(server)["online"], seconds=5)
    await eventually(lambda: list_events(server).count(("Normal", "Connected")) == 2)


async def test_a_cluster_that_becomes_ready_is_reported_within_five_seconds(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await connect_cluster(server, upstreams)
    upstream.responses["/readyz"] = (500, None)
    await eventually(lambda: condition_status(server, "Ready") == ("False", "NotReady"))
    await asyncio.sleep(60)
    upstream.responses["/readyz"] = (200, None)
    await eventually(lambda: condition_status(server, "Ready") == ("True", "Healthy"), seconds=5)


async def test_every_other_probe_opens_a_new_connection(server: RegistryFixture, upstreams: FakeUpstreams) -> None:
    upstream = await connect_cluster(server, upstreams)
    await asyncio.sleep(600)
    assert len(upstream.probe_times()) - 2 <= 2 * len(upstream.connect_times) <= len(upstream.probe_times()) + 2


async def test_a_reloaded_certificate_is_detected_without_any_request(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await connect_cluster(server, upstreams)
    upstream.new_connection_error = TlsError("unknown authority")
    await eventually(lambda: condition_status(server, "Connected") == ("False", "CertificateNotTrusted"), seconds=12)
    await asyncio.sleep(60)
    assert condition_status(server, "Ready") == ("False", "CertificateNotTrusted")
    assert sorted(list_events(server)) == [("Normal", "Connected"), ("Warning", "HealthCheckCluster")]
    upstream.new_connection_error = None
    await eventually(lambda: condition_status(server, "Ready") == ("True", "Healthy"), seconds=5)


async def test_a_failed_request_triggers_a_probe_at_once(server: RegistryFixture, upstreams: FakeUpstreams) -> None:
    upstream = await connect_cluster(server, upstreams)
    await asyncio.sleep(8)
    upstream.new_connection_error = TlsError("unknown authority")
    upstreams.fail()
    await eventually(lambda: condition_status(server, "Connected") == ("False", "CertificateNotTrusted"), seconds=1.5)


async def test_failed_requests_trigger_at_most_one_probe_per_second(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await connect_cluster(server, upstreams)
    start, count = asyncio.get_running_loop().time(), len(upstream.probe_times())
    while asyncio.get_running_loop().time() < start + 60:
        upstreams.fail()
        upstreams.fail("unknown")
        await asyncio.sleep(0.01)
    assert 55 <= len(upstream.probe_times()) - count <= 75


async def test_failed_requests_trigger_no_probes_of_a_cluster_that_is_offline(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await connect_cluster(server, upstreams)
    upstream.error = Unreachable("no response")
    await eventually(lambda: not cluster_status(server)["online"])
    start, count = asyncio.get_running_loop().time(), len(upstream.probe_times())
    while asyncio.get_running_loop().time() < start + 60:
        upstreams.fail()
        await asyncio.sleep(0.01)
    assert len(upstream.probe_times()) - count <= 24


async def test_a_failed_request_during_a_probe_triggers_another_probe(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    upstream = await connect_cluster(server, upstreams)
    count, upstream.delay = len(upstream.probe_times()), 1.0
    await eventually(lambda: len(upstream.probe_times()) > count)
    upstreams.fail()
    await eventually(lambda: len(upstream.probe_times()) > count + 1, seconds=3)
    assert cluster_status(server)["online"]


async def test_a_stopped_controller_is_not_notified_of_failures(api: RegistryFixture, upstreams: FakeUpstreams) -> None:
    controller = ClusterController(
        api.registry, MANAGEMENT_GROUP, NAMESPACE, cast(UpstreamRegistry, upstreams), IDENTITY_MAPPER
    )
    async with running_controllers(api, controller):
        upstream = await connect_cluster(api, upstreams)
    count = len(upstream.requests)
    upstreams.fail()
    await asyncio.sleep(10)
    assert len(upstream.requests) == count


async def test_a_slow_cluster_does_not_delay_probes_of_others(
    server: RegistryFixture, upstreams: FakeUpstreams
) -> None:
    slow_clusters = [await connect_cluster(server, upstreams, f"slow-{number}", f"s-{number}") for number in range(20)]
    for cluster in slow_clusters:
        cluster.is_silent = True
    healthy_clusters = [
        await connect_cluster(server, upstreams, f"healthy-{number}", f"h-{number}") for number in range(20)
    ]
    await asyncio.sleep(120)
    for cluster in healthy_clusters:
        probe_times = cluster.probe_times()
        assert all(after - before <= 6 for before, after in pairwise(probe_times))
