"""Clusters are looked at again and again; their loss is told in time, and nothing else is touched."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, cast

import orjson
import pytest

from fairlead.controllers.clusters import Clusters
from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.connected import CLUSTERS, Connected, NotConnected
from fairlead.upstream.errors import Unreachable, Untrusted, UpstreamError
from fairlead.upstream.failures import FailureNotifier
from fairlead.upstream.upstream import Request
from tests.admission.world import NAMESPACE, World
from tests.controllers.at_work import at_work, until

CONFIG = {"secretName": "s", "secretNamespace": NAMESPACE}
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


class Answer:
    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self._body = orjson.dumps(body)

    async def read(self, limit: int) -> bytes:
        return self._body

    async def close(self) -> None:
        pass


class Far:
    """A cluster on virtual time."""

    def __init__(self, uid: str = "u-1") -> None:
        self.error: UpstreamError | None = None
        self.reloaded: UpstreamError | None = None
        """What a new connection meets, while the one that is kept goes on working."""
        self.silent = False
        self.delay = 0.0
        self._is_kept = False
        self.dialed: list[float] = []
        self.bindings = 404
        self.asked: list[tuple[float, str]] = []
        self.answers: dict[str, tuple[int, Any]] = {
            "/version": (200, {"gitVersion": "v1.34.1"}),
            "/readyz": (200, None),
            "/api/v1/namespaces/kube-system": (200, {"metadata": {"uid": uid}}),
            "/api/v1/nodes?limit=1": (200, {"items": [{}], "metadata": {}}),
        }

    async def send(self, request: Request, *, seconds: float | None = None) -> Answer:
        self.asked.append((asyncio.get_running_loop().time(), request.target))
        if self.silent:
            await asyncio.sleep(1_000_000)
        await asyncio.sleep(self.delay)
        if not self._is_kept:
            self.dialed.append(asyncio.get_running_loop().time())
        if self.error is not None or (self.reloaded is not None and not self._is_kept):
            self._is_kept = False
            raise self.error or cast(UpstreamError, self.reloaded)
        self._is_kept = True
        return Answer(*self.answers.get(request.target, (404, None)))

    def close_idle(self) -> None:
        self._is_kept = False

    def looks(self) -> list[float]:
        return [at for at, target in self.asked if target == "/version"]


class Reach:
    """Stands for Connected."""

    def __init__(self) -> None:
        self.far: dict[str, Far | NotConnected] = {}
        self.failures = FailureNotifier()

    def health(self, name: str) -> Far:
        found = self.far.get(name) or NotConnected("NotFound", "nothing there")
        if isinstance(found, NotConnected):
            raise found
        return found

    cluster = health

    def fail(self, name: str = "berlin") -> None:
        """A request through a gateway gets no answer."""
        self.failures.notify((MANAGEMENT_GROUP, CLUSTERS, "", name))


@pytest.fixture
def reach() -> Reach:
    return Reach()


@pytest.fixture
async def working(world: World, reach: Reach) -> AsyncIterator[World]:
    controller = Clusters(world.registry, MANAGEMENT_GROUP, NAMESPACE, cast(Connected, reach))
    async with at_work(world, controller):
        yield world


def status(world: World, name: str = "berlin") -> Object:
    found = world.see("Cluster", name)
    assert found is not None
    return found.get("status") or {}


def state(world: World, type: str, name: str = "berlin") -> tuple[str, str]:
    found = status(world, name).get("conditions") or ()
    return next(((each["status"], each["reason"]) for each in found if each["type"] == type), ("", ""))


def events(world: World) -> list[tuple[str, str]]:
    found = [world.of("Event").peek("default", name) for name in world.names("Event")]
    return [(each["type"], each["reason"]) for each in (orjson.loads(entry.body) for entry in found if entry)]


async def connect(world: World, reach: Reach, name: str = "berlin", uid: str = "u-1") -> Far:
    far = reach.far[name] = Far(uid)
    await world.create("Cluster", name, spec={"config": CONFIG})
    await until(lambda: status(world, name).get("phase"))
    return far


async def test_a_cluster_that_answers_is_initialized(working: World, reach: Reach) -> None:
    await connect(working, reach)
    found = status(working)
    assert (found["phase"], found["reason"], found["online"]) == ("Initialized", "", True)
    assert (found["version"], found["clusterUID"], found["nodes"]) == ("v1.34.1", "u-1", 1)
    assert state(working, "Ready") == ("True", "Healthy")
    await until(lambda: events(working) == [("Normal", "Connected")])


async def test_a_cluster_is_looked_at_about_every_five_seconds(working: World, reach: Reach) -> None:
    far = await connect(working, reach)
    await asyncio.sleep(300)
    looks = far.looks()
    assert all(4 <= later - earlier <= 6 for earlier, later in pairwise(looks))
    assert 55 <= len(looks) <= 75


async def test_a_cluster_at_rest_is_written_at_most_every_half_minute(working: World, reach: Reach) -> None:
    await connect(working, reach)
    revision, since = await working.store.revision(), status(working)["lastProbeTime"]
    await asyncio.sleep(300)
    assert 5 <= await working.store.revision() - revision <= 10
    assert status(working)["lastProbeTime"] > since


@pytest.mark.parametrize("way", ["silent", "refusing"])
async def test_a_loss_is_told_within_15_seconds_and_only_after_a_second_try(
    working: World, reach: Reach, way: str
) -> None:
    far = await connect(working, reach)
    await until(lambda: len(far.looks()) > 1)
    lost = asyncio.get_running_loop().time()
    far.silent, far.error = way == "silent", Unreachable("nobody there")
    await until(lambda: not status(working)["online"])
    assert asyncio.get_running_loop().time() - lost <= 15
    assert len([at for at in far.looks() if at > lost]) >= 2
    assert (status(working)["phase"], status(working)["reason"]) == ("", "Offline")
    assert (status(working)["version"], status(working)["clusterUID"]) == ("v1.34.1", "u-1")
    await until(lambda: ("Warning", "Offline") in events(working))


async def test_one_lost_answer_is_no_loss(working: World, reach: Reach) -> None:
    far = await connect(working, reach)
    far.error = Unreachable("a hiccup")
    count = len(far.looks())
    await until(lambda: len(far.looks()) > count)
    far.error = None
    await asyncio.sleep(20)
    assert status(working)["online"]
    assert events(working) == [("Normal", "Connected")]


async def test_one_refusal_of_a_connected_cluster_is_no_failure(working: World, reach: Reach) -> None:
    far = await connect(working, reach)
    well, far.answers["/version"] = far.answers["/version"], (401, {})
    count = len(far.looks())
    await until(lambda: len(far.looks()) > count)
    far.answers["/version"] = well
    await asyncio.sleep(20)
    assert events(working) == [("Normal", "Connected")]
    far.answers["/version"] = (401, {})
    await until(lambda: (status(working)["phase"], status(working)["reason"]) == ("Failed", "HealthCheckCluster"))
    assert state(working, "Connected") == ("False", "Unauthorized")


@pytest.mark.parametrize("error", [Unreachable("nobody there"), Untrusted("a stranger")])
async def test_a_cluster_that_was_away_for_long_is_found_again_within_five_seconds(
    working: World, reach: Reach, error: UpstreamError
) -> None:
    far = await connect(working, reach)
    far.error = error
    await asyncio.sleep(600)
    looks = far.looks()
    assert all(2 <= later - earlier <= 4 for earlier, later in pairwise(looks[-50:]))
    assert working.names("Cluster") == ["berlin"]
    far.error = None
    await until(lambda: status(working)["online"], seconds=5)
    await until(lambda: events(working).count(("Normal", "Connected")) == 2)


async def test_a_cluster_that_becomes_ready_is_seen_within_five_seconds(working: World, reach: Reach) -> None:
    far = await connect(working, reach)
    far.answers["/readyz"] = (500, None)
    await until(lambda: state(working, "Ready") == ("False", "NotReady"))
    await asyncio.sleep(60)
    far.answers["/readyz"] = (200, None)
    await until(lambda: state(working, "Ready") == ("True", "Healthy"), seconds=5)


async def test_every_other_probe_dials(working: World, reach: Reach) -> None:
    far = await connect(working, reach)
    await asyncio.sleep(600)
    assert len(far.looks()) - 2 <= 2 * len(far.dialed) <= len(far.looks()) + 2


async def test_a_certificate_that_the_cluster_reloads_is_noticed_without_any_request(
    working: World, reach: Reach
) -> None:
    far = await connect(working, reach)
    far.reloaded = Untrusted("a stranger")
    await until(lambda: state(working, "Connected") == ("False", "Untrusted"), seconds=12)
    await asyncio.sleep(60)
    assert state(working, "Ready") == ("False", "Untrusted")
    assert sorted(events(working)) == [("Normal", "Connected"), ("Warning", "HealthCheckCluster")]
    far.reloaded = None
    await until(lambda: state(working, "Ready") == ("True", "Healthy"), seconds=5)


async def test_a_request_that_fails_has_the_cluster_probed_at_once(working: World, reach: Reach) -> None:
    far = await connect(working, reach)
    await asyncio.sleep(8)
    far.reloaded = Untrusted("a stranger")
    reach.fail()
    await until(lambda: state(working, "Connected") == ("False", "Untrusted"), seconds=1.5)


async def test_however_many_requests_fail_the_cluster_is_probed_once_a_second_more(
    working: World, reach: Reach
) -> None:
    far = await connect(working, reach)
    began, count = asyncio.get_running_loop().time(), len(far.looks())
    while asyncio.get_running_loop().time() < began + 60:
        reach.fail()
        reach.fail("nobody-knows-it")
        await asyncio.sleep(0.01)
    assert 55 <= len(far.looks()) - count <= 75


async def test_requests_that_fail_do_not_hurry_a_cluster_that_is_known_to_be_away(working: World, reach: Reach) -> None:
    far = await connect(working, reach)
    far.error = Unreachable("nobody there")
    await until(lambda: not status(working)["online"])
    began, count = asyncio.get_running_loop().time(), len(far.looks())
    while asyncio.get_running_loop().time() < began + 60:
        reach.fail()
        await asyncio.sleep(0.01)
    assert len(far.looks()) - count <= 24


async def test_a_failure_during_a_probe_brings_another_one(working: World, reach: Reach) -> None:
    far = await connect(working, reach)
    count, far.delay = len(far.looks()), 1.0
    await until(lambda: len(far.looks()) > count)
    reach.fail()
    await until(lambda: len(far.looks()) > count + 1, seconds=3)
    assert status(working)["online"]


async def test_a_controller_that_has_ended_hears_of_no_failures(world: World, reach: Reach) -> None:
    controller = Clusters(world.registry, MANAGEMENT_GROUP, NAMESPACE, cast(Connected, reach))
    async with at_work(world, controller):
        far = await connect(world, reach)
    count = len(far.asked)
    reach.fail()
    await asyncio.sleep(10)
    assert len(far.asked) == count


async def test_what_somebody_has_to_mend_is_told_at_once(working: World, reach: Reach) -> None:
    reach.far["berlin"] = far = Far()
    far.error = Untrusted("a stranger")
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await until(lambda: status(working).get("phase") == "Failed")
    assert len(far.looks()) == 1
    assert status(working)["reason"] == "InitializeCluster"
    assert state(working, "Stalled") == ("True", "Untrusted")


async def test_a_missing_secret_is_told_and_its_coming_noticed_at_once(working: World, reach: Reach) -> None:
    reach.far["berlin"] = NotConnected("SecretNotFound", "there is no secret")
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await until(lambda: state(working, "Connected") == ("False", "SecretNotFound"))
    assert status(working)["probes"][0]["name"] == "config"
    await asyncio.sleep(300)
    reach.far["berlin"] = Far()
    await working.create("Secret", "s", data={"config": ""})
    await until(lambda: status(working)["online"], seconds=1)


async def test_a_slow_cluster_holds_up_nobody(working: World, reach: Reach) -> None:
    slow = [await connect(working, reach, f"slow-{number}", f"s-{number}") for number in range(20)]
    for each in slow:
        each.silent = True
    well = [await connect(working, reach, f"well-{number}", f"w-{number}") for number in range(20)]
    await asyncio.sleep(120)
    for each in well:
        looks = each.looks()
        assert all(later - earlier <= 6 for earlier, later in pairwise(looks))


async def test_the_same_cluster_twice_fails_the_younger_until_the_older_is_removed(
    working: World, reach: Reach
) -> None:
    await connect(working, reach, "elder")
    await asyncio.sleep(5)
    await connect(working, reach, "younger")
    assert (status(working, "younger")["phase"], status(working, "younger")["reason"]) == ("Failed", "ClusterUID")
    await asyncio.sleep(20)
    assert status(working, "elder")["phase"] == "Initialized"
    await working.delete("Cluster", "elder")
    await until(lambda: status(working, "younger")["phase"] == "Initialized", seconds=10)


async def test_administrators_are_bound_once(working: World, reach: Reach) -> None:
    reach.far["berlin"] = far = Far()
    far.answers[BINDINGS] = (201, {})
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await until(lambda: state(working, "AdministratorsBound") == ("True", "Bound"))
    await asyncio.sleep(1_000)
    assert [target for _, target in far.asked].count(BINDINGS) == 1


async def test_administrators_that_cannot_be_bound_are_said_and_tried_seldom(working: World, reach: Reach) -> None:
    reach.far["berlin"] = far = Far()
    far.answers[BINDINGS] = (403, {})
    await working.create("Cluster", "berlin", spec={"config": CONFIG})
    await until(lambda: state(working, "AdministratorsBound") == ("False", "Forbidden"))
    assert status(working)["phase"] == "Initialized"
    await asyncio.sleep(1_000)
    assert 2 <= [target for _, target in far.asked].count(BINDINGS) <= 4


@pytest.mark.parametrize(
    "spec", [{}, {"networkPeer": True}, {"local": True, "config": CONFIG}, {"config": {"key": "config"}}]
)
async def test_clusters_that_name_no_secret_are_left_alone(working: World, reach: Reach, spec: Object) -> None:
    reach.far["berlin"] = far = Far()
    await working.create("Cluster", "berlin", spec=spec)
    revision = await working.store.revision()
    await asyncio.sleep(300)
    assert await working.store.revision() == revision
    assert far.asked == []


async def test_a_cluster_whose_secret_is_no_longer_named_does_not_go_on_looking_well(
    working: World, reach: Reach
) -> None:
    await connect(working, reach)
    await working.patch("Cluster", "berlin", lambda each: each.update(spec={}))
    await until(lambda: status(working)["reason"] == "NoConfig")
    assert not status(working)["online"]
    revision = await working.store.revision()
    await asyncio.sleep(300)
    assert await working.store.revision() == revision


async def test_a_deleted_cluster_is_not_looked_at_any_more(working: World, reach: Reach) -> None:
    far = await connect(working, reach)
    await working.delete("Cluster", "berlin")
    await asyncio.sleep(1)
    count = len(far.asked)
    await asyncio.sleep(300)
    assert len(far.asked) == count
