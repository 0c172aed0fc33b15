"""Clusters are looked at again and again; what is found is told, and nothing else is touched."""

import asyncio

import pytest

from fairlead.controllers.clusters.probe import REVIEWS_PATH
from fairlead.core.objects import Object
from fairlead.upstream.clusters import NotConnected
from fairlead.upstream.errors import TlsError
from tests.controllers.clusters.cluster_fixture import (
    CONFIG,
    Far,
    Reach,
    connect,
    events,
    reach,
    state,
    status,
    working,
)
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture

__all__ = ["reach", "working"]

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


async def test_a_cluster_that_answers_is_initialized(working: RegistryFixture, reach: Reach) -> None:
    await connect(working, reach)
    found = status(working)
    assert (found["phase"], found["reason"], found["online"]) == ("Initialized", "", True)
    assert (found["version"], found["clusterUID"], found["nodes"]) == ("v1.34.1", "u-1", 1)
    assert state(working, "Ready") == ("True", "Healthy")
    await eventually(lambda: events(working) == [("Normal", "Connected")])


async def test_a_cluster_at_rest_is_written_at_most_every_half_minute(working: RegistryFixture, reach: Reach) -> None:
    await connect(working, reach)
    revision, since = await working.store.revision(), status(working)["lastProbeTime"]
    await asyncio.sleep(300)
    assert 5 <= await working.store.revision() - revision <= 10
    assert status(working)["lastProbeTime"] > since


async def test_a_credential_that_may_not_impersonate_makes_the_cluster_not_ready_until_it_may(
    working: RegistryFixture, reach: Reach
) -> None:
    reach.far["berlin"] = far = Far()
    far.answers[REVIEWS_PATH] = (201, {"status": {"allowed": False}})
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: state(working, "Ready") == ("False", "ImpersonationForbidden"))
    assert state(working, "Connected") == ("True", "Connected")
    assert state(working, "Stalled") == ("True", "ImpersonationForbidden")
    found = status(working)
    assert (found["phase"], found["reason"], found["online"]) == ("Initialized", "ImpersonationForbidden", True)
    assert "users, groups, uids" in found["message"]
    await eventually(lambda: events(working) == [("Warning", "ImpersonationForbidden")])
    await asyncio.sleep(60)
    far.answers[REVIEWS_PATH] = (201, {"status": {"allowed": True}})
    await eventually(lambda: state(working, "Ready") == ("True", "Healthy"), seconds=5)
    assert state(working, "Stalled") == ("", "")


async def test_a_right_that_is_taken_away_is_noticed_within_about_a_minute(
    working: RegistryFixture, reach: Reach
) -> None:
    far = await connect(working, reach)
    far.answers[REVIEWS_PATH] = (201, {"status": {"allowed": False}})
    await eventually(lambda: state(working, "Ready") == ("False", "ImpersonationForbidden"), seconds=66)


async def test_what_somebody_has_to_mend_is_told_at_once(working: RegistryFixture, reach: Reach) -> None:
    reach.far["berlin"] = far = Far()
    far.error = TlsError("a stranger")
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: status(working).get("phase") == "Failed")
    assert len(far.looks()) == 1
    assert status(working)["reason"] == "InitializeCluster"
    assert state(working, "Stalled") == ("True", "CertificateNotTrusted")


async def test_a_missing_secret_is_told_and_its_coming_noticed_at_once(working: RegistryFixture, reach: Reach) -> None:
    reach.far["berlin"] = NotConnected("SecretNotFound", "there is no secret")
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: state(working, "Connected") == ("False", "SecretNotFound"))
    assert status(working)["probes"][0]["name"] == "config"
    await asyncio.sleep(300)
    reach.far["berlin"] = Far()
    await working.create("Secret", "s", data={"config": ""})
    await eventually(lambda: status(working)["online"], seconds=1)


async def test_the_same_cluster_twice_fails_the_younger_until_the_older_is_removed(
    working: RegistryFixture, reach: Reach
) -> None:
    await connect(working, reach, "elder")
    await asyncio.sleep(5)
    await connect(working, reach, "younger")
    assert (status(working, "younger")["phase"], status(working, "younger")["reason"]) == ("Failed", "ClusterUID")
    await asyncio.sleep(20)
    assert status(working, "elder")["phase"] == "Initialized"
    await working.delete("Cluster", "elder")
    await eventually(lambda: status(working, "younger")["phase"] == "Initialized", seconds=10)


async def test_administrators_are_bound_once(working: RegistryFixture, reach: Reach) -> None:
    reach.far["berlin"] = far = Far()
    far.answers[BINDINGS] = (201, {})
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: state(working, "AdministratorsBound") == ("True", "Bound"))
    await asyncio.sleep(1_000)
    assert [target for _, target in far.asked].count(BINDINGS) == 1


async def test_administrators_that_cannot_be_bound_are_said_and_tried_seldom(
    working: RegistryFixture, reach: Reach
) -> None:
    reach.far["berlin"] = far = Far()
    far.answers[BINDINGS] = (403, {})
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await eventually(lambda: state(working, "AdministratorsBound") == ("False", "Forbidden"))
    assert status(working)["phase"] == "Initialized"
    await asyncio.sleep(1_000)
    assert 2 <= [target for _, target in far.asked].count(BINDINGS) <= 4


@pytest.mark.parametrize(
    "spec", [{}, {"networkPeer": True}, {"local": True, "config": CONFIG}, {"config": {"key": "config"}}]
)
async def test_clusters_that_name_no_secret_are_left_alone(
    working: RegistryFixture, reach: Reach, spec: Object
) -> None:
    reach.far["berlin"] = far = Far()
    await working.create("Cluster", "berlin", spec=spec)
    revision = await working.store.revision()
    await asyncio.sleep(300)
    assert await working.store.revision() == revision
    assert far.asked == []


async def test_a_cluster_whose_secret_is_no_longer_named_does_not_go_on_looking_well(
    working: RegistryFixture, reach: Reach
) -> None:
    await connect(working, reach)
    await working.patch("Cluster", "berlin", lambda each: each.update(spec={}))
    await eventually(lambda: status(working)["reason"] == "KubeconfigNotSet")
    assert not status(working)["online"]
    revision = await working.store.revision()
    await asyncio.sleep(300)
    assert await working.store.revision() == revision


async def test_a_deleted_cluster_is_not_looked_at_any_more(working: RegistryFixture, reach: Reach) -> None:
    far = await connect(working, reach)
    await working.delete("Cluster", "berlin")
    await asyncio.sleep(1)
    count = len(far.asked)
    await asyncio.sleep(300)
    assert len(far.asked) == count
