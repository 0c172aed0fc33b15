"""Tests of `fairlead.controllers.instances.remote_informers`: limits for hostile clusters and instances."""

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from fairlead.controllers.instances.drift import PASS_TIMEOUT, DriftTracker
from fairlead.controllers.instances.instance_reconciler import MIN_RETRY_INTERVAL_SECONDS, InstanceReconciler
from fairlead.controllers.instances.remote_errors import WARNING, InstanceError
from fairlead.controllers.instances.remote_informers import MAX_PENDING_CHANGES, RemoteInformers, state_digest
from fairlead.controllers.instances.remote_namespace import NAMESPACES_PATH, RemoteNamespace
from fairlead.controllers.instances.resync_rate import PASS_BURST, PASS_REFILL_SECONDS, URGENT_BURST, ResyncLimiter
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object
from fairlead.domain.typed_objects import PlacedObject
from fairlead.storage.contract import Key
from fairlead.upstream.errors import Unreachable
from tests.fake_cluster.kube import InMemoryClusterApi
from tests.fake_cluster.kube_watch import InMemoryUpstream
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, FakeAccess, condition_message, condition_status, create_cluster
from tests.harness.virtual_time import LoopClock

SPACE = "SpaceInstance"
ONE: Key = ("g", "p", "n", "one")
OTHER: Key = ("g", "p", "n", "other")
REMOTE_NAMESPACE = RemoteNamespace("c", "remote", {})
CONFIG_MAPS_PATH = "/api/v1/configmaps"
CONFIG_MAP_PATH = "/api/v1/namespaces/remote/configmaps/greeting"
OBJECTS = "{apiVersion: v1, kind: ConfigMap, metadata: {name: greeting}, data: {hello: world}}"


def raise_unreachable(cluster: str) -> InMemoryUpstream:
    raise Unreachable("no response")


class InformerFixture:
    """Informers with one tracked instance, and the keys that they requeued."""

    def __init__(self) -> None:
        self.informers = RemoteInformers(raise_unreachable, "mark", ResyncLimiter(LoopClock()))
        self.requeued: list[tuple[Key, float]] = []
        self.stop = self.informers.subscribe(lambda key, seconds: self.requeued.append((key, seconds)))
        self.informers.begin_pass(ONE, REMOTE_NAMESPACE)
        self.informers.claim(ONE, REMOTE_NAMESPACE)
        self.finish_pass()

    def finish_pass(self, key: Key = ONE) -> None:
        self.informers.finish_pass(key, REMOTE_NAMESPACE, {CONFIG_MAP_PATH: "as applied"})

    def change(self, name: str, version: int = 1) -> None:
        managers = [{"manager": "them", "time": "2026-01-01T00:00:00Z"}]
        meta = {"name": name, "namespace": "remote", "resourceVersion": str(version), "managedFields": managers}
        self.informers.handle_object(("c", CONFIG_MAPS_PATH), meta, is_deleted=False)


@pytest.fixture
async def informer_fixture() -> Any:
    informer_fixture = InformerFixture()
    yield informer_fixture
    informer_fixture.stop()


async def test_objects_that_were_never_applied_are_not_stored(informer_fixture: InformerFixture) -> None:
    for number in range(1_000):
        informer_fixture.change(f"stray-{number}")
    assert informer_fixture.requeued == []
    assert informer_fixture.informers.begin_pass(ONE, REMOTE_NAMESPACE) == {}


async def test_pending_changes_during_a_pass_are_limited_and_lead_to_another_pass(
    informer_fixture: InformerFixture,
) -> None:
    informer_fixture.informers.begin_pass(ONE, REMOTE_NAMESPACE)
    for number in range(3 * MAX_PENDING_CHANGES):
        informer_fixture.change(f"stray-{number}")
    assert len(informer_fixture.informers._instances[ONE].pending) == MAX_PENDING_CHANGES
    informer_fixture.finish_pass()
    assert [key for key, _ in informer_fixture.requeued] == [ONE]


async def test_a_change_of_an_applied_object_is_detected_among_many_others(informer_fixture: InformerFixture) -> None:
    informer_fixture.informers.begin_pass(ONE, REMOTE_NAMESPACE)
    for number in range(MAX_PENDING_CHANGES):
        informer_fixture.change(f"stray-{number}")
    informer_fixture.change("greeting")
    informer_fixture.finish_pass()
    assert [key for key, _ in informer_fixture.requeued] == [ONE]


async def test_a_change_of_a_newly_applied_object_is_detected_during_that_pass(
    informer_fixture: InformerFixture,
) -> None:
    informer_fixture.informers.begin_pass(ONE, REMOTE_NAMESPACE)
    informer_fixture.change("new", version=7)
    path = CONFIG_MAP_PATH.replace("greeting", "new")
    informer_fixture.informers.finish_pass(ONE, REMOTE_NAMESPACE, {path: state_digest({"resourceVersion": "6"})})
    assert [key for key, _ in informer_fixture.requeued] == [ONE]


async def test_a_namespace_that_is_deleted_repeatedly_is_urgent_only_a_few_times(
    informer_fixture: InformerFixture,
) -> None:
    watched_resource = ("c", NAMESPACES_PATH)
    for version in range(1_000):
        meta = {"name": "remote", "resourceVersion": str(version)}
        informer_fixture.informers.begin_pass(ONE, REMOTE_NAMESPACE)
        informer_fixture.informers.finish_pass(ONE, REMOTE_NAMESPACE, {REMOTE_NAMESPACE.path: state_digest(meta)})
        informer_fixture.informers.handle_object(watched_resource, meta, is_deleted=True)
    delays = [delay for _, delay in informer_fixture.requeued]
    assert sum(delay == 0 for delay in delays) == URGENT_BURST
    assert delays[-1] >= (len(delays) - URGENT_BURST - PASS_BURST) * PASS_REFILL_SECONDS * 0.99


async def test_an_instance_that_names_the_namespace_of_another_does_not_take_it_over(
    informer_fixture: InformerFixture,
) -> None:
    informer_fixture.informers.begin_pass(OTHER, REMOTE_NAMESPACE)
    informer_fixture.finish_pass(OTHER)
    informer_fixture.change("greeting")
    assert [key for key, _ in informer_fixture.requeued] == [ONE]
    informer_fixture.informers.forget(OTHER)
    informer_fixture.informers.begin_pass(ONE, REMOTE_NAMESPACE)
    informer_fixture.finish_pass()
    informer_fixture.change("greeting", version=2)
    assert [key for key, _ in informer_fixture.requeued] == [ONE, ONE]


# --- with running controllers ----------------------------------------------------------------------------------------


async def create_space(api: RegistryFixture, name: str = "one", **ref: Any) -> None:
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c", **ref}, "template": {"objects": OBJECTS}}
    await api.create(SPACE, name, spec=spec)


async def test_a_space_is_repaired_at_once_even_if_another_names_its_namespace(api: RegistryFixture) -> None:
    access = FakeAccess()
    path = "/api/v1/namespaces/demo-one/configmaps/greeting"

    async def expect_repair() -> None:
        access.kube.edit_object(path, lambda obj: obj.update(data={}))
        await eventually(lambda: access.kube.objects[path]["data"] == {"hello": "world"}, 5)

    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        build_space_controller(api, access),
    ):
        await create_cluster(api)
        await create_space(api)
        await eventually(lambda: condition_status(api, SPACE, "SpaceReady") == ("True", "Active"))
        await eventually(lambda: len(access.sender.streams) == 3)
        await create_space(api, "two", namespace="demo-one")
        await eventually(lambda: condition_status(api, SPACE, "SpaceSynced", "two") == ("False", "NamespaceConflict"))
        await expect_repair()
        await api.delete(SPACE, "two")
        await eventually(lambda: api.get(SPACE, "two") is None)
        await expect_repair()


class StuckApi(InMemoryClusterApi):
    """A cluster that never responds to applied ConfigMaps."""

    async def apply(self, path: str, body: Object) -> Object:
        if "/configmaps/" in path:
            await asyncio.Event().wait()
        return await super().apply(path, body)


class StuckAccess(FakeAccess):
    def cluster_api(self, name: str, acting_as: str = "") -> InMemoryClusterApi:
        return StuckApi(self.kube, self.down, acting_as)


async def test_a_pass_over_the_timeout_is_ended_and_reported(api: RegistryFixture) -> None:
    access = StuckAccess()
    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        build_space_controller(api, access),
    ):
        await create_cluster(api)
        await create_space(api)
        await eventually(lambda: condition_status(api, SPACE, "SpaceSynced") == ("False", "TimedOut"), 2 * PASS_TIMEOUT)
    message = condition_message(api, SPACE, "SpaceSynced")
    assert 'cluster "c" took more than 180 seconds' in message and "webhooks are slow" in message


async def test_a_timeout_within_a_pass_is_not_mistaken_for_the_timeout_of_the_pass(api: RegistryFixture) -> None:
    tracker = DriftTracker(api.registry, raise_unreachable, "mark", ("g", "p"))
    instance = PlacedObject({"metadata": {"namespace": "n", "name": "one"}})
    with pytest.raises(TimeoutError):
        async with tracker.track_pass(instance, REMOTE_NAMESPACE, FakeAccess().cluster_api("c")):
            raise TimeoutError


async def test_one_cluster_leaves_workers_for_others(api: RegistryFixture) -> None:
    tracker = DriftTracker(api.registry, raise_unreachable, "mark", ("g", "p"))

    def cluster_slot(cluster: str) -> Any:
        return tracker.cluster_slot(PlacedObject({"spec": {"clusterRef": {"cluster": cluster}}}), 4)

    with ExitStack() as stack:
        assert [stack.enter_context(cluster_slot("slow")) for _ in range(3)] == [0, 0, 0]
        with cluster_slot("slow") as delay:
            assert delay > 0
        with cluster_slot("slow") as delay:
            assert delay > 0, "a caller without a slot releases none"
        with cluster_slot("quick") as delay:
            assert delay == 0
    with cluster_slot("slow") as delay:
        assert delay == 0


async def test_spaces_of_a_stuck_cluster_wait_for_a_slot(api: RegistryFixture) -> None:
    access = StuckAccess()
    spaces = build_space_controller(api, access)
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG), spaces):
        await create_cluster(api)
        for number in range(spaces.workers):
            await create_space(api, f"s-{number}")
        await asyncio.sleep(PASS_TIMEOUT / 2)
        namespaces = [path for path in access.kube.objects if path.rpartition("/")[0] == NAMESPACES_PATH]
        assert len(namespaces) == spaces.workers * 3 // 4


async def test_changes_end_the_backoff_after_a_failure_at_a_limited_rate(api: RegistryFixture) -> None:
    await create_cluster(api)
    await create_space(api)
    space = PlacedObject(api.get(SPACE, "one") or {})
    resource = (INSTANCE_CONFIG.api_group, "spaceinstances")
    instances = InstanceReconciler(
        api.registry, resource, PlacedObject, "finalizer", derive=lambda view, status, now: status
    )
    requeued: list[float] = []
    retry_on_change = instances.retry_on_change(lambda key, seconds: requeued.append(seconds))
    key: Key = (*resource, *space.key)

    def fail() -> None:
        instances.backoff.record_failure(space.key, "inputs", InstanceError("Odd", "it did not work", WARNING))

    for _ in range(5):
        fail()
    assert instances.backoff.remaining_seconds(space.key, "inputs") > MIN_RETRY_INTERVAL_SECONDS
    retry_on_change(key, 0.0)
    assert instances.backoff.remaining_seconds(space.key, "inputs") == 0
    for _ in range(3):
        fail()
        retry_on_change(key, 0.0)
        assert instances.backoff.remaining_seconds(space.key, "inputs") == pytest.approx(MIN_RETRY_INTERVAL_SECONDS)
        await asyncio.sleep(MIN_RETRY_INTERVAL_SECONDS)
        assert instances.backoff.remaining_seconds(space.key, "inputs") == 0
    assert requeued == [0.0] * 4
