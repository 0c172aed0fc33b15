"""What others change in a cluster is heard of, put right at once, and told; our own changes are not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fairlead.controllers.instances.drift import WATCHED_RESYNC_SECONDS
from fairlead.controllers.instances.resync_rate import MAX_IMMEDIATE_REPAIRS, PASS_BURST, PASS_REFILL_SECONDS
from fairlead.controllers.instances.spaces import RESYNC_SECONDS, SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.registry.codec import decode
from fairlead.upstream.errors import Unreachable
from tests.fake_cluster.kube import Kube
from tests.fake_cluster.kube_watch import MemoryWay
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, FakeAccess, condition_message, condition_status, create_cluster

SPACE = "SpaceInstance"
PLACE = "/api/v1/namespaces/demo-one"
GREETING = f"{PLACE}/configmaps/greeting"
BINDING = "/apis/rbac.authorization.k8s.io/v1/namespaces/demo-one/rolebindings/service.sh:admin"
CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting}
data: {hello: world}
"""
SOON = 10.0
"""Virtual seconds: long before anybody would look again by himself."""


@pytest.fixture
async def working(api: RegistryFixture, reach: FakeAccess) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        SpaceController(api.registry, INSTANCE_CONFIG, reach),
    ):
        yield api


async def followed_space(api: RegistryFixture, reach: FakeAccess, **spec: Any) -> None:
    """A space that is ready, and whose namespace, binding and ConfigMap are watched."""
    await create_cluster(api)
    spec = {"template": {"objects": CONFIG_MAP}, **spec}
    await api.create(SPACE, "one", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, **spec})
    await eventually(lambda: condition_status(api, SPACE, "SpaceReady") == ("True", "Active"))
    await eventually(lambda: len(reach.way.open) == 3)
    await asyncio.sleep(SOON)


def events(api: RegistryFixture) -> list[tuple[str, str]]:
    """Reason and message of each Warning."""
    found = [decode(each) for each in api.view.entries("", "events", "demo")]
    return [(each["reason"], each["message"]) for each in found if each["type"] == "Warning"]


async def test_a_deleted_namespace_is_made_again_at_once_and_its_loss_is_told(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    await followed_space(working, reach)
    kube.put(f"{PLACE}/configmaps/precious", data={})
    kube.slow_to_go = True
    kube.asked("DELETE", PLACE)
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "NamespaceTerminating"), SOON)
    assert condition_status(working, SPACE, "SpaceReady")[0] != "True"
    assert events(working) == []
    kube.finish()
    await eventually(lambda: GREETING in kube.objects, SOON)
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady") == ("True", "Active"), SOON)
    ((reason, text),) = events(working)
    assert reason == "NamespaceDeleted"
    assert 'namespace "demo-one" in cluster "c" was deleted outside of Fairlead' in text
    assert "its former content is lost" in text
    assert f"{PLACE}/configmaps/precious" not in kube.objects


async def test_what_was_deleted_from_a_space_is_made_again_and_named(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    await followed_space(working, reach)
    kube.asked("DELETE", BINDING)
    kube.asked("DELETE", GREETING)
    await eventually(lambda: GREETING in kube.objects and BINDING in kube.objects, SOON)
    await eventually(lambda: bool(events(working)), SOON)
    ((reason, text),) = events(working)
    assert reason == "ObjectsRestored"
    assert "ConfigMap greeting, RoleBinding service.sh:admin" in text


@pytest.mark.parametrize(
    ("path", "change", "title"),
    [
        (GREETING, lambda obj: obj.update(data={"hello": "moon"}), "ConfigMap greeting"),
        (GREETING, lambda obj: obj["metadata"].pop("labels"), "ConfigMap greeting"),
        (BINDING, lambda obj: obj.update(subjects=[]), "RoleBinding service.sh:admin"),
        (PLACE, lambda obj: obj["metadata"]["labels"].update({"service.sh/project": "x"}), "Namespace demo-one"),
    ],
)
async def test_what_was_changed_is_changed_back_and_named(
    working: RegistryFixture, reach: FakeAccess, kube: Kube, path: str, change: Callable[[Object], object], title: str
) -> None:
    await followed_space(working, reach)
    before = {**kube.objects[path], "metadata": dict(kube.objects[path]["metadata"]["labels"])}
    kube.edit(path, change)
    await eventually(lambda: bool(events(working)), SOON)
    assert {**kube.objects[path], "metadata": kube.objects[path]["metadata"]["labels"]} == before
    ((reason, text),) = events(working)
    assert reason == "DriftRepaired"
    assert title in text


async def test_it_is_told_which_field_manager_has_changed_it(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    await followed_space(working, reach)
    kube.edit(GREETING, lambda obj: obj.update(data={}))
    await eventually(lambda: bool(events(working)), SOON)
    assert "kubectl-edit" in events(working)[0][1]


async def test_a_field_manager_is_not_blamed_for_what_happens_to_other_objects(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    await followed_space(working, reach)
    kube.edit(GREETING, lambda obj: obj["metadata"].update(annotations={"theirs": "1"}))
    labels = kube.objects[BINDING]["metadata"]["labels"]
    del labels["service.sh/project"]  # nobody knows by whom
    kube.history.next()
    await eventually(
        lambda: "service.sh/project" in kube.objects[BINDING]["metadata"]["labels"], 2 * WATCHED_RESYNC_SECONDS
    )
    ((reason, text),) = events(working)
    assert reason == "DriftRepaired" and "RoleBinding" in text
    assert "kubectl-edit" not in text


async def test_changes_of_our_own_are_nothing_to_tell(working: RegistryFixture, reach: FakeAccess, kube: Kube) -> None:
    await followed_space(working, reach)
    news = CONFIG_MAP.replace("world", "moon")
    rules = [{"users": ["eve"], "clusterRole": "view"}]
    await working.patch(
        SPACE, "one", lambda each: each["spec"].update(template={"objects": news}, extraAccessRules=rules)
    )
    await eventually(lambda: kube.objects[GREETING]["data"] == {"hello": "moon"})
    await working.patch(SPACE, "one", lambda each: each["spec"].update(template={}, extraAccessRules=[]))
    await eventually(lambda: GREETING not in kube.objects)
    await asyncio.sleep(2 * WATCHED_RESYNC_SECONDS)
    await working.delete(SPACE, "one")
    await eventually(lambda: working.see(SPACE, "one") is None)
    assert events(working) == []


async def test_what_others_add_stays_and_is_nothing_to_tell(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    await followed_space(working, reach)
    kube.edit(GREETING, lambda obj: obj["metadata"].update(annotations={"theirs": "1"}))
    kube.edit(PLACE, lambda obj: obj["metadata"]["labels"].update(theirs="1"))
    await asyncio.sleep(SOON)
    assert kube.objects[GREETING]["metadata"]["annotations"] == {"theirs": "1"}
    assert kube.objects[PLACE]["metadata"]["labels"]["theirs"] == "1"
    assert events(working) == []


async def test_nobody_wakes_up_from_his_own_writes(working: RegistryFixture, reach: FakeAccess, kube: Kube) -> None:
    await followed_space(working, reach)
    before = len(kube.log)
    kube.edit(GREETING, lambda obj: obj.update(data={}))
    await eventually(lambda: kube.objects[GREETING]["data"] == {"hello": "world"}, SOON)
    await asyncio.sleep(RESYNC_SECONDS)
    assert len([each for each in kube.log[before:] if each == ("PATCH", GREETING)]) == 1


async def test_a_fight_with_another_controller_is_told_and_slows_down(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    await followed_space(working, reach)
    repairs = 0

    async def fight() -> None:
        nonlocal repairs
        while True:
            if kube.objects[GREETING]["data"] != {"hello": "moon"}:
                repairs += 1
                kube.edit(GREETING, lambda obj: obj.update(data={"hello": "moon"}))
            await asyncio.sleep(0.01)

    fighting = asyncio.create_task(fight())
    await asyncio.sleep(3_600)
    fighting.cancel()
    assert MAX_IMMEDIATE_REPAIRS < repairs < 40
    reasons = [reason for reason, _ in events(working)]
    assert reasons.count("RepairedRepeatedly") == 1
    assert "ConfigMap greeting" in next(text for reason, text in events(working) if reason == "RepairedRepeatedly")


async def test_a_flood_of_changes_costs_a_bounded_number_of_passes(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    await followed_space(working, reach)
    before = len(kube.log)
    for number in range(6_000):
        kube.edit(PLACE, lambda obj, n=number: obj["metadata"]["labels"].update(theirs=str(n)))  # type: ignore[misc]
        await asyncio.sleep(0.01)
    assert (
        len([each for each in kube.log[before:] if each == ("PATCH", PLACE)])
        <= PASS_BURST + 60 / PASS_REFILL_SECONDS + 1
    )
    assert events(working) == []


async def test_a_binding_with_our_labels_that_is_not_ours_is_removed_at_once(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    await followed_space(working, reach)
    labels = dict(kube.objects[BINDING]["metadata"]["labels"])
    extra = BINDING.replace("service.sh:admin", "service.sh:cluster-admin")
    kube.put(extra, metadata={"labels": labels})
    await eventually(lambda: extra not in kube.objects, SOON)


async def test_one_who_may_not_watch_is_said_and_looks_every_minute(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    kube.refused["/api/v1/configmaps"] = 403
    await create_cluster(working)
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "template": {"objects": CONFIG_MAP}}
    await working.create(SPACE, "one", spec=spec)
    await eventually(lambda: "may not list and watch configmaps" in condition_message(working, SPACE, "SpaceSynced"))
    assert condition_status(working, SPACE, "SpaceReady") == ("True", "Active")
    await asyncio.sleep(SOON)
    kube.edit(GREETING, lambda obj: obj.update(data={}))
    await eventually(lambda: kube.objects[GREETING]["data"] == {"hello": "world"}, 2 * RESYNC_SECONDS)
    assert events(working)[0][0] == "DriftRepaired"
    del kube.refused["/api/v1/configmaps"]
    await eventually(lambda: "list and watch" not in condition_message(working, SPACE, "SpaceSynced"), 600)


async def test_what_happened_while_a_watch_was_away_is_found_out(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    await followed_space(working, reach)
    reach.way.broken = Unreachable("gone")
    reach.way.break_off()
    await asyncio.sleep(1)
    kube.asked("DELETE", BINDING)
    kube.edit(GREETING, lambda obj: obj.update(data={}))
    kube.history.oldest = kube.history.version  # so that it cannot be resumed
    await asyncio.sleep(1)
    reach.way.broken = None
    await eventually(lambda: BINDING in kube.objects and kube.objects[GREETING]["data"] == {"hello": "world"}, 40)
    assert {reason for reason, _ in events(working)} == {"ObjectsRestored", "DriftRepaired"}


async def test_another_way_to_the_cluster_begins_with_a_list(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    """Versions of one server mean nothing to another, which would take them for the future and say nothing."""
    await followed_space(working, reach)
    old, reach.way = reach.way, MemoryWay(kube)
    old.break_off()
    await eventually(lambda: len(reach.way.open) == 3, SOON)
    assert sum("watch=true" not in each.target for each in reach.way.asked) == 3


async def test_watches_end_with_the_last_space(working: RegistryFixture, reach: FakeAccess, kube: Kube) -> None:
    await followed_space(working, reach)
    await working.create(SPACE, "two", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}})
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady", "two") == ("True", "Active"))
    assert len(reach.way.open) == 3
    await working.delete(SPACE, "one")
    await eventually(lambda: working.see(SPACE, "one") is None)
    await eventually(
        lambda: {each.collection.rpartition("/")[2] for each in reach.way.open} == {"namespaces", "rolebindings"}
    )
    await working.delete(SPACE, "two")
    await eventually(lambda: reach.way.open == [])


async def test_watches_end_with_the_connection_of_the_cluster(working: RegistryFixture, reach: FakeAccess) -> None:
    await followed_space(working, reach)
    await working.patch("Cluster", "c", lambda each: each["spec"].pop("config"))
    await eventually(lambda: reach.way.open == [])


async def test_watches_end_with_the_controller(api: RegistryFixture, reach: FakeAccess) -> None:
    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        SpaceController(api.registry, INSTANCE_CONFIG, reach),
    ):
        await followed_space(api, reach)
    await eventually(lambda: reach.way.open == [])


async def test_no_more_than_so_many_resources_are_watched(
    working: RegistryFixture, reach: FakeAccess, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.controllers.runtime.remote_informers.MAX_WATCHES_PER_CLUSTER", 2)
    await create_cluster(working)
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "template": {"objects": CONFIG_MAP}}
    await working.create(SPACE, "one", spec=spec)
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady") == ("True", "Active"))
    await asyncio.sleep(SOON)
    assert {each.collection for each in reach.way.open} == {"/api/v1/namespaces", "/api/v1/configmaps"}
    del kube.objects[BINDING]
    await eventually(lambda: BINDING in kube.objects, 2 * RESYNC_SECONDS)


async def test_the_end_of_a_namespace_that_is_being_removed_is_heard_of(
    working: RegistryFixture, reach: FakeAccess, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.controllers.instances.remote_instance.DELETION_POLL_SECONDS", 1_000.0)
    await followed_space(working, reach)
    kube.slow_to_go = True
    await working.delete(SPACE, "one")
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady") == ("False", "Deleting"))
    kube.finish()
    await eventually(lambda: working.see(SPACE, "one") is None, SOON)
    assert events(working) == []


async def test_a_namespace_that_went_while_no_server_ran_is_told_to_be_lost(
    api: RegistryFixture, reach: FakeAccess
) -> None:
    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        SpaceController(api.registry, INSTANCE_CONFIG, reach),
    ):
        await followed_space(api, reach)
    reach.kube.asked("DELETE", PLACE)
    async with running_controllers(
        api,
        InstanceTemplateController(api.registry, INSTANCE_CONFIG),
        SpaceController(api.registry, INSTANCE_CONFIG, reach),
    ):
        await eventually(lambda: GREETING in reach.kube.objects)
        await eventually(lambda: [reason for reason, _ in events(api)] == ["NamespaceDeleted"])


async def test_objects_of_templates_carry_the_marks_of_their_space(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    objects = CONFIG_MAP.replace("{name: greeting}", "{name: greeting, labels: {mine: a, service.sh/uid: other}}")
    await followed_space(working, reach, template={"objects": objects})
    labels = kube.objects[GREETING]["metadata"]["labels"]
    uid = get_path(working.see(SPACE, "one"), "metadata.uid")
    assert (labels["mine"], labels["service.sh/managed"], labels["service.sh/uid"]) == ("a", "fairlead", uid)


async def test_a_binding_to_another_role_is_replaced(working: RegistryFixture, reach: FakeAccess, kube: Kube) -> None:
    """The role of a binding cannot be changed, neither by others nor by us."""
    await followed_space(working, reach)
    theirs = {**kube.objects[BINDING], "roleRef": {**kube.objects[BINDING]["roleRef"], "name": "view"}}
    kube.asked("DELETE", BINDING)
    kube.asked("POST", BINDING.rpartition("/")[0], theirs)
    await eventually(lambda: kube.objects[BINDING]["roleRef"]["name"] == "admin", SOON)
    await eventually(lambda: [reason for reason, _ in events(working)] == ["ObjectsRestored"], SOON)


async def test_a_change_in_the_cluster_ends_the_wait_after_a_failure(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    """Such as the deletion of what could not be changed."""
    secret = "{apiVersion: v1, kind: Secret, metadata: {name: sealed}, immutable: true, data: {a: %s}}"
    await create_cluster(working)
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "template": {"objects": secret % "b25l"}}
    await working.create(SPACE, "one", spec=spec)
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady") == ("True", "Active"))
    await working.patch(SPACE, "one", lambda each: each["spec"].update(template={"objects": secret % "dHdv"}))
    await eventually(lambda: condition_status(working, SPACE, "SpaceSynced") == ("False", "Invalid"))
    assert "field is immutable" in condition_message(working, SPACE, "SpaceSynced")
    await asyncio.sleep(600)
    before = len(kube.log)
    await asyncio.sleep(120)
    assert len(kube.log) - before < 30, "it is tried now and then"
    kube.asked("DELETE", f"{PLACE}/secrets/sealed")
    await eventually(lambda: condition_status(working, SPACE, "SpaceReady") == ("True", "Active"), SOON)
    assert kube.objects[f"{PLACE}/secrets/sealed"]["data"] == {"a": "dHdv"}


async def test_a_namespace_is_not_said_to_be_deleted_where_another_cluster_is_reached(
    working: RegistryFixture, reach: FakeAccess, kube: Kube
) -> None:
    await followed_space(working, reach)
    old, reach.way = reach.way, MemoryWay(kube)
    kube.objects.clear()  # as a cluster is in which nothing was ever made
    old.break_off()
    await eventually(lambda: GREETING in kube.objects, SOON)
    await eventually(lambda: [reason for reason, _ in events(working)] == ["NamespaceMissing"], SOON)
