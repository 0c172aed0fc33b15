"""What a hostile cluster, or an instance with a foreign namespace, can do through watches: little, and to itself."""

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from fairlead.controllers.instances.applied_objects import state_digest
from fairlead.controllers.instances.drift import PASS_TIMEOUT, DriftTracker
from fairlead.controllers.instances.remote_errors import WARNING, InstanceError
from fairlead.controllers.instances.remote_instance import MIN_RETRY_INTERVAL_SECONDS, RemoteInstanceStore
from fairlead.controllers.instances.remote_namespace import NAMESPACES_PATH, RemoteNamespace
from fairlead.controllers.instances.resync_rate import PASS_BURST, PASS_REFILL_SECONDS, URGENT_BURST, ResyncLimiter
from fairlead.controllers.instances.spaces import SPACES, SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.controllers.runtime.remote_informers import MAX_PENDING_CHANGES, RemoteInformers
from fairlead.core.objects import Object
from fairlead.storage.contract import Key
from fairlead.upstream.errors import Unreachable
from tests.fake_cluster.kube import KubeApi
from tests.fake_cluster.kube_watch import MemoryWay
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, FakeAccess, condition_message, condition_status, create_cluster
from tests.harness.virtual_time import LoopClock

SPACE = "SpaceInstance"
ONE: Key = ("g", "p", "n", "one")
OTHER: Key = ("g", "p", "n", "other")
PLACE = RemoteNamespace("c", "far", {})
CONFIG_MAPS = "/api/v1/configmaps"
GREETING = "/api/v1/namespaces/far/configmaps/greeting"
OBJECTS = "{apiVersion: v1, kind: ConfigMap, metadata: {name: greeting}, data: {hello: world}}"


def nowhere(cluster: str) -> MemoryWay:
    raise Unreachable("nobody is there")


class Followed:
    """Informers that were told of one instance, and what they have had reconciled."""

    def __init__(self) -> None:
        self.informers = RemoteInformers(nowhere, "mark", ResyncLimiter(LoopClock()))
        self.requeued: list[tuple[Key, float]] = []
        self.stop = self.informers.subscribe(lambda key, seconds: self.requeued.append((key, seconds)))
        self.informers.begin_pass(ONE, PLACE)
        self.informers.claim(ONE, PLACE)
        self.follow()

    def follow(self, key: Key = ONE) -> None:
        self.informers.finish_pass(key, PLACE, {GREETING: "as applied"})

    def change(self, name: str, version: int = 1) -> None:
        managers = [{"manager": "them", "time": "2026-01-01T00:00:00Z"}]
        meta = {"name": name, "namespace": "far", "resourceVersion": str(version), "managedFields": managers}
        self.informers.handle_object(("c", CONFIG_MAPS), meta, is_deleted=False)


@pytest.fixture
async def followed() -> Any:
    followed = Followed()
    yield followed
    followed.stop()


async def test_objects_that_were_never_applied_are_not_remembered(followed: Followed) -> None:
    for number in range(1_000):
        followed.change(f"stray-{number}")
    assert followed.requeued == []
    assert followed.informers.begin_pass(ONE, PLACE) == {}


async def test_a_flood_during_a_pass_is_cut_off_and_leads_to_another_pass(followed: Followed) -> None:
    followed.informers.begin_pass(ONE, PLACE)
    for number in range(3 * MAX_PENDING_CHANGES):
        followed.change(f"stray-{number}")
    assert len(followed.informers._instances[ONE].pending) == MAX_PENDING_CHANGES
    followed.follow()
    assert [key for key, _ in followed.requeued] == [ONE]


async def test_what_was_applied_is_heard_of_in_spite_of_a_flood(followed: Followed) -> None:
    followed.informers.begin_pass(ONE, PLACE)
    for number in range(MAX_PENDING_CHANGES):
        followed.change(f"stray-{number}")
    followed.change("greeting")
    followed.follow()
    assert [key for key, _ in followed.requeued] == [ONE]


async def test_what_is_applied_for_the_first_time_is_heard_of_during_that_pass(followed: Followed) -> None:
    followed.informers.begin_pass(ONE, PLACE)
    followed.change("new", version=7)
    path = GREETING.replace("greeting", "new")
    followed.informers.finish_pass(ONE, PLACE, {path: state_digest({"resourceVersion": "6"})})
    assert [key for key, _ in followed.requeued] == [ONE]


async def test_a_namespace_that_comes_and_goes_all_the_time_is_urgent_a_few_times_only(followed: Followed) -> None:
    watched = ("c", NAMESPACES_PATH)
    for version in range(1_000):
        meta = {"name": "far", "resourceVersion": str(version)}
        followed.informers.begin_pass(ONE, PLACE)
        followed.informers.finish_pass(ONE, PLACE, {PLACE.path: state_digest(meta)})
        followed.informers.handle_object(watched, meta, is_deleted=True)
    delays = [delay for _, delay in followed.requeued]
    assert sum(delay == 0 for delay in delays) == URGENT_BURST
    assert delays[-1] >= (len(delays) - URGENT_BURST - PASS_BURST) * PASS_REFILL_SECONDS * 0.99


async def test_a_foreign_namespace_is_not_taken_over_by_naming_it(followed: Followed) -> None:
    followed.informers.begin_pass(OTHER, PLACE)
    followed.follow(OTHER)
    followed.change("greeting")
    assert [key for key, _ in followed.requeued] == [ONE]
    followed.informers.forget(OTHER)
    followed.informers.begin_pass(ONE, PLACE)
    followed.follow()
    followed.change("greeting", version=2)
    assert [key for key, _ in followed.requeued] == [ONE, ONE]


# --- with controllers at work ----------------------------------------------------------------------------------------


async def make_space(api: RegistryFixture, name: str = "one", **ref: Any) -> None:
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c", **ref}, "template": {"objects": OBJECTS}}
    await api.create(SPACE, name, spec=spec)


async def test_a_space_is_repaired_at_once_whoever_else_names_its_namespace(api: RegistryFixture) -> None:
    reach = FakeAccess()
    path = "/api/v1/namespaces/demo-one/configmaps/greeting"

    async def is_repaired() -> None:
        reach.kube.edit(path, lambda obj: obj.update(data={}))
        await eventually(lambda: reach.kube.objects[path]["data"] == {"hello": "world"}, 5)

    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        SpaceController(api.registry, INSTANCE_CONFIG, reach),
    ):
        await create_cluster(api)
        await make_space(api)
        await eventually(lambda: condition_status(api, SPACE, "SpaceReady") == ("True", "Active"))
        await eventually(lambda: len(reach.way.open) == 3)
        await make_space(api, "two", namespace="demo-one")
        await eventually(lambda: condition_status(api, SPACE, "SpaceSynced", "two") == ("False", "NamespaceConflict"))
        await is_repaired()
        await api.delete(SPACE, "two")
        await eventually(lambda: api.see(SPACE, "two") is None)
        await is_repaired()


class StuckApi(KubeApi):
    """A cluster that does not get on with ConfigMaps."""

    async def apply(self, path: str, body: Object) -> Object:
        if "/configmaps/" in path:
            await asyncio.Event().wait()
        return await super().apply(path, body)


class StuckReach(FakeAccess):
    def cluster_api(self, name: str, acting_as: str = "") -> KubeApi:
        return StuckApi(self.kube, self.down, acting_as)


async def test_a_pass_that_takes_too_long_is_ended_and_told(api: RegistryFixture) -> None:
    reach = StuckReach()
    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        SpaceController(api.registry, INSTANCE_CONFIG, reach),
    ):
        await create_cluster(api)
        await make_space(api)
        await eventually(lambda: condition_status(api, SPACE, "SpaceSynced") == ("False", "TimedOut"), 2 * PASS_TIMEOUT)
    text = condition_message(api, SPACE, "SpaceSynced")
    assert 'cluster "c" took more than 180 seconds' in text and "webhooks are slow" in text


async def test_a_timeout_within_a_pass_is_not_taken_for_its_end(api: RegistryFixture) -> None:
    kept = DriftTracker(api.registry, nowhere, "mark", ("g", "p"))
    instance = {"metadata": {"namespace": "n", "name": "one"}}
    with pytest.raises(TimeoutError):
        async with kept.track_pass(instance, PLACE, FakeAccess().cluster_api("c")):
            raise TimeoutError


async def test_one_cluster_leaves_workers_for_others(api: RegistryFixture) -> None:
    kept = DriftTracker(api.registry, nowhere, "mark", ("g", "p"))

    def turn_in(cluster: str) -> Any:
        return kept.cluster_slot({"spec": {"clusterRef": {"cluster": cluster}}}, 4)

    with ExitStack() as stack:
        assert [stack.enter_context(turn_in("slow")) for _ in range(3)] == [0, 0, 0]
        with turn_in("slow") as wait:
            assert wait > 0
        with turn_in("slow") as wait:
            assert wait > 0, "who got none gives none back"
        with turn_in("quick") as wait:
            assert wait == 0
    with turn_in("slow") as wait:
        assert wait == 0


async def test_spaces_of_a_stuck_cluster_wait_for_a_turn(api: RegistryFixture) -> None:
    reach = StuckReach()
    spaces = SpaceController(api.registry, INSTANCE_CONFIG, reach)
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG), spaces):
        await create_cluster(api)
        for number in range(spaces.workers):
            await make_space(api, f"s-{number}")
        await asyncio.sleep(PASS_TIMEOUT / 2)
        made = [path for path in reach.kube.objects if path.rpartition("/")[0] == NAMESPACES_PATH]
        assert len(made) == spaces.workers * 3 // 4


async def test_changes_end_the_wait_after_a_failure_only_now_and_then(api: RegistryFixture) -> None:
    await create_cluster(api)
    await make_space(api)
    space = api.see(SPACE, "one") or {}
    instances = RemoteInstanceStore(api.registry, INSTANCE_CONFIG, SPACES, "finalizer")
    requeued: list[float] = []
    try_again = instances.retry_on_change(lambda key, seconds: requeued.append(seconds))
    key: Key = (INSTANCE_CONFIG.api_group, SPACES, space["metadata"]["namespace"], "one")

    def fail() -> None:
        instances.record_failure(space, InstanceError("Odd", "it did not work", WARNING))

    for _ in range(5):
        fail()
    assert instances.backoff_seconds(space) > MIN_RETRY_INTERVAL_SECONDS
    try_again(key, 0.0)
    assert instances.backoff_seconds(space) == 0
    for _ in range(3):
        fail()
        try_again(key, 0.0)
        assert instances.backoff_seconds(space) == pytest.approx(MIN_RETRY_INTERVAL_SECONDS)
        await asyncio.sleep(MIN_RETRY_INTERVAL_SECONDS)
        assert instances.backoff_seconds(space) == 0
    assert requeued == [0.0] * 4
