"""When clusters are probed: their loss and return are told in time, by new connections and by requests that fail."""

import asyncio
from itertools import pairwise
from typing import cast

import pytest

from fairlead.controllers.clusters.clusters import ClusterController
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.clusters import UpstreamRegistry
from fairlead.upstream.errors import TlsError, Unreachable, UpstreamError
from tests.controllers.clusters.cluster_fixture import NAMES, Reach, connect, events, reach, state, status, working
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture

__all__ = ["reach", "working"]


async def test_a_cluster_is_looked_at_about_every_five_seconds(working: RegistryFixture, reach: Reach) -> None:
    far = await connect(working, reach)
    await asyncio.sleep(300)
    looks = far.looks()
    assert all(4 <= later - earlier <= 6 for earlier, later in pairwise(looks))
    assert 55 <= len(looks) <= 75


@pytest.mark.parametrize("way", ["silent", "refusing"])
async def test_a_loss_is_told_within_15_seconds_and_only_after_a_second_try(
    working: RegistryFixture, reach: Reach, way: str
) -> None:
    far = await connect(working, reach)
    await eventually(lambda: len(far.looks()) > 1)
    lost = asyncio.get_running_loop().time()
    far.silent, far.error = way == "silent", Unreachable("nobody there")
    await eventually(lambda: not status(working)["online"])
    assert asyncio.get_running_loop().time() - lost <= 15
    assert len([at for at in far.looks() if at > lost]) >= 2
    assert (status(working)["phase"], status(working)["reason"]) == ("", "Offline")
    assert (status(working)["version"], status(working)["clusterUID"]) == ("v1.34.1", "u-1")
    await eventually(lambda: ("Warning", "Offline") in events(working))


async def test_one_lost_answer_is_no_loss(working: RegistryFixture, reach: Reach) -> None:
    far = await connect(working, reach)
    far.error = Unreachable("a hiccup")
    count = len(far.looks())
    await eventually(lambda: len(far.looks()) > count)
    far.error = None
    await asyncio.sleep(20)
    assert status(working)["online"]
    assert events(working) == [("Normal", "Connected")]


async def test_one_refusal_of_a_connected_cluster_is_no_failure(working: RegistryFixture, reach: Reach) -> None:
    far = await connect(working, reach)
    well, far.answers["/version"] = far.answers["/version"], (401, {})
    count = len(far.looks())
    await eventually(lambda: len(far.looks()) > count)
    far.answers["/version"] = well
    await asyncio.sleep(20)
    assert events(working) == [("Normal", "Connected")]
    far.answers["/version"] = (401, {})
    await eventually(lambda: (status(working)["phase"], status(working)["reason"]) == ("Failed", "HealthCheckCluster"))
    assert state(working, "Connected") == ("False", "Unauthorized")


@pytest.mark.parametrize("error", [Unreachable("nobody there"), TlsError("a stranger")])
async def test_a_cluster_that_was_away_for_long_is_found_again_within_five_seconds(
    working: RegistryFixture, reach: Reach, error: UpstreamError
) -> None:
    far = await connect(working, reach)
    far.error = error
    await asyncio.sleep(600)
    looks = far.looks()
    assert all(2 <= later - earlier <= 4 for earlier, later in pairwise(looks[-50:]))
    assert working.names("Cluster") == ["berlin"]
    far.error = None
    await eventually(lambda: status(working)["online"], seconds=5)
    await eventually(lambda: events(working).count(("Normal", "Connected")) == 2)


async def test_a_cluster_that_becomes_ready_is_seen_within_five_seconds(working: RegistryFixture, reach: Reach) -> None:
    far = await connect(working, reach)
    far.answers["/readyz"] = (500, None)
    await eventually(lambda: state(working, "Ready") == ("False", "NotReady"))
    await asyncio.sleep(60)
    far.answers["/readyz"] = (200, None)
    await eventually(lambda: state(working, "Ready") == ("True", "Healthy"), seconds=5)


async def test_every_other_probe_dials(working: RegistryFixture, reach: Reach) -> None:
    far = await connect(working, reach)
    await asyncio.sleep(600)
    assert len(far.looks()) - 2 <= 2 * len(far.dialed) <= len(far.looks()) + 2


async def test_a_certificate_that_the_cluster_reloads_is_noticed_without_any_request(
    working: RegistryFixture, reach: Reach
) -> None:
    far = await connect(working, reach)
    far.reloaded = TlsError("a stranger")
    await eventually(lambda: state(working, "Connected") == ("False", "CertificateNotTrusted"), seconds=12)
    await asyncio.sleep(60)
    assert state(working, "Ready") == ("False", "CertificateNotTrusted")
    assert sorted(events(working)) == [("Normal", "Connected"), ("Warning", "HealthCheckCluster")]
    far.reloaded = None
    await eventually(lambda: state(working, "Ready") == ("True", "Healthy"), seconds=5)


async def test_a_request_that_fails_has_the_cluster_probed_at_once(working: RegistryFixture, reach: Reach) -> None:
    far = await connect(working, reach)
    await asyncio.sleep(8)
    far.reloaded = TlsError("a stranger")
    reach.fail()
    await eventually(lambda: state(working, "Connected") == ("False", "CertificateNotTrusted"), seconds=1.5)


async def test_however_many_requests_fail_the_cluster_is_probed_once_a_second_more(
    working: RegistryFixture, reach: Reach
) -> None:
    far = await connect(working, reach)
    began, count = asyncio.get_running_loop().time(), len(far.looks())
    while asyncio.get_running_loop().time() < began + 60:
        reach.fail()
        reach.fail("nobody-knows-it")
        await asyncio.sleep(0.01)
    assert 55 <= len(far.looks()) - count <= 75


async def test_requests_that_fail_do_not_hurry_a_cluster_that_is_known_to_be_away(
    working: RegistryFixture, reach: Reach
) -> None:
    far = await connect(working, reach)
    far.error = Unreachable("nobody there")
    await eventually(lambda: not status(working)["online"])
    began, count = asyncio.get_running_loop().time(), len(far.looks())
    while asyncio.get_running_loop().time() < began + 60:
        reach.fail()
        await asyncio.sleep(0.01)
    assert len(far.looks()) - count <= 24


async def test_a_failure_during_a_probe_brings_another_one(working: RegistryFixture, reach: Reach) -> None:
    far = await connect(working, reach)
    count, far.delay = len(far.looks()), 1.0
    await eventually(lambda: len(far.looks()) > count)
    reach.fail()
    await eventually(lambda: len(far.looks()) > count + 1, seconds=3)
    assert status(working)["online"]


async def test_a_controller_that_has_ended_hears_of_no_failures(api: RegistryFixture, reach: Reach) -> None:
    controller = ClusterController(api.registry, MANAGEMENT_GROUP, NAMESPACE, cast(UpstreamRegistry, reach), NAMES)
    async with running_controllers(api, controller):
        far = await connect(api, reach)
    count = len(far.asked)
    reach.fail()
    await asyncio.sleep(10)
    assert len(far.asked) == count


async def test_a_slow_cluster_holds_up_nobody(working: RegistryFixture, reach: Reach) -> None:
    slow = [await connect(working, reach, f"slow-{number}", f"s-{number}") for number in range(20)]
    for each in slow:
        each.silent = True
    well = [await connect(working, reach, f"well-{number}", f"w-{number}") for number in range(20)]
    await asyncio.sleep(120)
    for each in well:
        looks = each.looks()
        assert all(later - earlier <= 6 for earlier, later in pairwise(looks))
