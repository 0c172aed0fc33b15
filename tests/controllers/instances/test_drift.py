"""Tests of `fairlead.controllers.instances.drift`: changes by others are detected, repaired and reported."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fairlead.controllers.instances.drift import WATCHED_RESYNC_SECONDS
from fairlead.controllers.instances.resync_rate import PASS_BURST, PASS_REFILL_SECONDS, REPAIRS
from fairlead.controllers.instances.spaces import RESYNC_SECONDS, SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.registry.codec import decode
from fairlead.upstream.errors import Unreachable
from tests.fake_cluster.kube import FakeKube
from tests.fake_cluster.kube_watch import InMemoryUpstream
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_space_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import INSTANCE_CONFIG, FakeAccess, condition_message, condition_status, create_cluster

Change = Callable[[Object], object]
SPACE = "SpaceInstance"
NAMESPACE_PATH = "/api/v1/namespaces/demo-one"
CONFIG_MAP_PATH = f"{NAMESPACE_PATH}/configmaps/greeting"
BINDING_PATH = "/apis/rbac.authorization.k8s.io/v1/namespaces/demo-one/rolebindings/service.sh:admin"
CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting}
data: {hello: world}
"""
SOON = 10.0
"""Virtual seconds: long before the next resync."""


def build_controllers(api: RegistryFixture, access: FakeAccess) -> tuple[InstanceTemplateController, SpaceController]:
    return InstanceTemplateController(api.registry, INSTANCE_CONFIG), build_space_controller(api, access)


@pytest.fixture
async def server(api: RegistryFixture, access: FakeAccess) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(api, *build_controllers(api, access)):
        yield api


async def create_watched_space(api: RegistryFixture, access: FakeAccess, **spec: Any) -> None:
    """Creates a space and waits until it is ready and its namespace, binding and ConfigMap are watched."""
    await create_cluster(api)
    spec = {"template": {"objects": CONFIG_MAP}, **spec}
    await api.create(SPACE, "one", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, **spec})
    await eventually(lambda: condition_status(api, SPACE, "SpaceReady") == ("True", "Active"))
    await eventually(lambda: len(access.sender.streams) == 3)
    await asyncio.sleep(SOON)


def list_warnings(api: RegistryFixture) -> list[tuple[str, str]]:
    """Reason and message of each Warning."""
    events = [decode(entry) for entry in api.view.entries("", "events", "demo")]
    return [(event["reason"], event["message"]) for event in events if event["type"] == "Warning"]


async def test_a_deleted_namespace_is_created_again_at_once_and_reported(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    kube.add_object(f"{NAMESPACE_PATH}/configmaps/precious", data={})
    kube.delays_deletion = True
    kube.handle_request("DELETE", NAMESPACE_PATH)
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "NamespaceTerminating"), SOON)
    assert condition_status(server, SPACE, "SpaceReady")[0] != "True"
    assert list_warnings(server) == []
    kube.finish_deletions()
    await eventually(lambda: CONFIG_MAP_PATH in kube.objects, SOON)
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("True", "Active"), SOON)
    ((reason, message),) = list_warnings(server)
    assert reason == "NamespaceDeleted"
    assert 'namespace "demo-one" in cluster "c" was deleted outside of Fairlead' in message
    assert "its former content is lost" in message
    assert f"{NAMESPACE_PATH}/configmaps/precious" not in kube.objects


async def test_deleted_objects_of_a_space_are_created_again_and_named(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    kube.handle_request("DELETE", BINDING_PATH)
    kube.handle_request("DELETE", CONFIG_MAP_PATH)
    await eventually(lambda: CONFIG_MAP_PATH in kube.objects and BINDING_PATH in kube.objects, SOON)
    await eventually(lambda: bool(list_warnings(server)), SOON)
    ((reason, message),) = list_warnings(server)
    assert reason == "ObjectsRestored"
    assert "ConfigMap greeting, RoleBinding service.sh:admin" in message


@pytest.mark.parametrize(
    ("path", "change", "title"),
    [
        (CONFIG_MAP_PATH, lambda obj: obj.update(data={"hello": "moon"}), "ConfigMap greeting"),
        (CONFIG_MAP_PATH, lambda obj: obj["metadata"].pop("labels"), "ConfigMap greeting"),
        (BINDING_PATH, lambda obj: obj.update(subjects=[]), "RoleBinding service.sh:admin"),
        (
            NAMESPACE_PATH,
            lambda obj: obj["metadata"]["labels"].update({"service.sh/project": "x"}),
            "Namespace demo-one",
        ),
    ],
)
async def test_changed_objects_are_changed_back_and_named(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube, path: str, change: Change, title: str
) -> None:
    await create_watched_space(server, access)
    before = {**kube.objects[path], "metadata": dict(kube.objects[path]["metadata"]["labels"])}
    kube.edit_object(path, change)
    await eventually(lambda: bool(list_warnings(server)), SOON)
    assert {**kube.objects[path], "metadata": kube.objects[path]["metadata"]["labels"]} == before
    ((reason, message),) = list_warnings(server)
    assert reason == "DriftRepaired"
    assert title in message


async def test_the_field_manager_of_a_change_is_reported(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    kube.edit_object(CONFIG_MAP_PATH, lambda obj: obj.update(data={}))
    await eventually(lambda: bool(list_warnings(server)), SOON)
    assert "kubectl-edit" in list_warnings(server)[0][1]


async def test_a_field_manager_is_not_reported_for_changes_of_other_objects(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    kube.edit_object(CONFIG_MAP_PATH, lambda obj: obj["metadata"].update(annotations={"theirs": "1"}))
    labels = kube.objects[BINDING_PATH]["metadata"]["labels"]
    del labels["service.sh/project"]  # without a record of the field manager
    kube.history.increment_version()
    await eventually(
        lambda: "service.sh/project" in kube.objects[BINDING_PATH]["metadata"]["labels"], 2 * WATCHED_RESYNC_SECONDS
    )
    ((reason, message),) = list_warnings(server)
    assert reason == "DriftRepaired" and "RoleBinding" in message
    assert "kubectl-edit" not in message


async def test_server_changes_are_not_reported(server: RegistryFixture, access: FakeAccess, kube: FakeKube) -> None:
    await create_watched_space(server, access)
    changed_objects = CONFIG_MAP.replace("world", "moon")
    rules = [{"users": ["eve"], "clusterRole": "view"}]
    await server.patch(
        SPACE, "one", lambda obj: obj["spec"].update(template={"objects": changed_objects}, extraAccessRules=rules)
    )
    await eventually(lambda: kube.objects[CONFIG_MAP_PATH]["data"] == {"hello": "moon"})
    await server.patch(SPACE, "one", lambda obj: obj["spec"].update(template={}, extraAccessRules=[]))
    await eventually(lambda: CONFIG_MAP_PATH not in kube.objects)
    await asyncio.sleep(2 * WATCHED_RESYNC_SECONDS)
    await server.delete(SPACE, "one")
    await eventually(lambda: server.get(SPACE, "one") is None)
    assert list_warnings(server) == []


async def test_fields_added_by_others_are_kept_and_not_reported(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    kube.edit_object(CONFIG_MAP_PATH, lambda obj: obj["metadata"].update(annotations={"theirs": "1"}))
    kube.edit_object(NAMESPACE_PATH, lambda obj: obj["metadata"]["labels"].update(theirs="1"))
    await asyncio.sleep(SOON)
    assert kube.objects[CONFIG_MAP_PATH]["metadata"]["annotations"] == {"theirs": "1"}
    assert kube.objects[NAMESPACE_PATH]["metadata"]["labels"]["theirs"] == "1"
    assert list_warnings(server) == []


async def test_the_controller_is_not_triggered_by_its_own_writes(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    before = len(kube.request_log)
    kube.edit_object(CONFIG_MAP_PATH, lambda obj: obj.update(data={}))
    await eventually(lambda: kube.objects[CONFIG_MAP_PATH]["data"] == {"hello": "world"}, SOON)
    await asyncio.sleep(RESYNC_SECONDS)
    assert len([request for request in kube.request_log[before:] if request == ("PATCH", CONFIG_MAP_PATH)]) == 1


async def test_repeated_repairs_are_reported_and_slowed_down(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    repairs = 0

    async def change_back() -> None:
        nonlocal repairs
        while True:
            if kube.objects[CONFIG_MAP_PATH]["data"] != {"hello": "moon"}:
                repairs += 1
                kube.edit_object(CONFIG_MAP_PATH, lambda obj: obj.update(data={"hello": "moon"}))
            await asyncio.sleep(0.1)

    fight_task = asyncio.create_task(change_back())
    await asyncio.sleep(3_600)
    fight_task.cancel()
    assert REPAIRS.free_attempts <= repairs < 40
    reasons = [reason for reason, _ in list_warnings(server)]
    assert reasons.count("RepairedRepeatedly") == 1
    assert "ConfigMap greeting" in next(
        message for reason, message in list_warnings(server) if reason == "RepairedRepeatedly"
    )


async def test_many_changes_lead_to_a_limited_number_of_passes(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    before = len(kube.request_log)
    for number in range(6_000):
        kube.edit_object(NAMESPACE_PATH, lambda obj, n=number: obj["metadata"]["labels"].update(theirs=str(n)))  # type: ignore[misc]
        await asyncio.sleep(0.01)
    assert (
        len([request for request in kube.request_log[before:] if request == ("PATCH", NAMESPACE_PATH)])
        <= PASS_BURST + 60 / PASS_REFILL_SECONDS + 1
    )
    assert list_warnings(server) == []


async def test_an_unexpected_binding_with_the_labels_of_the_server_is_removed_at_once(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    labels = dict(kube.objects[BINDING_PATH]["metadata"]["labels"])
    extra = BINDING_PATH.replace("service.sh:admin", "service.sh:cluster-admin")
    kube.add_object(extra, metadata={"labels": labels})
    await eventually(lambda: extra not in kube.objects, SOON)


async def test_missing_permission_to_watch_is_reported_and_replaced_by_polling(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    kube.failing_paths["/api/v1/configmaps"] = 403
    await create_cluster(server)
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "template": {"objects": CONFIG_MAP}}
    await server.create(SPACE, "one", spec=spec)
    await eventually(lambda: "may not list and watch configmaps" in condition_message(server, SPACE, "SpaceSynced"))
    assert condition_status(server, SPACE, "SpaceReady") == ("True", "Active")
    await asyncio.sleep(SOON)
    kube.edit_object(CONFIG_MAP_PATH, lambda obj: obj.update(data={}))
    await eventually(lambda: kube.objects[CONFIG_MAP_PATH]["data"] == {"hello": "world"}, 2 * RESYNC_SECONDS)
    assert list_warnings(server)[0][0] == "DriftRepaired"
    del kube.failing_paths["/api/v1/configmaps"]
    await eventually(lambda: "list and watch" not in condition_message(server, SPACE, "SpaceSynced"), 600)


async def test_changes_during_an_interrupted_watch_are_detected(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    access.sender.error = Unreachable("gone")
    access.sender.end_streams()
    await asyncio.sleep(1)
    kube.handle_request("DELETE", BINDING_PATH)
    kube.edit_object(CONFIG_MAP_PATH, lambda obj: obj.update(data={}))
    kube.history.oldest = kube.history.version  # so that the watch cannot be resumed
    await asyncio.sleep(1)
    access.sender.error = None
    await eventually(
        lambda: BINDING_PATH in kube.objects and kube.objects[CONFIG_MAP_PATH]["data"] == {"hello": "world"}, 40
    )
    assert {reason for reason, _ in list_warnings(server)} == {"ObjectsRestored", "DriftRepaired"}


async def test_a_new_connection_to_the_cluster_starts_with_a_list(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    """Another server would take the resource versions for future ones, and send no events."""
    await create_watched_space(server, access)
    old, access.sender = access.sender, InMemoryUpstream(kube)
    old.end_streams()
    await eventually(lambda: len(access.sender.streams) == 3, SOON)
    assert sum("watch=true" not in request.target for request in access.sender.requests) == 3


async def test_watches_end_with_the_last_space(server: RegistryFixture, access: FakeAccess, kube: FakeKube) -> None:
    await create_watched_space(server, access)
    await server.create(SPACE, "two", spec={"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}})
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady", "two") == ("True", "Active"))
    assert len(access.sender.streams) == 3
    await server.delete(SPACE, "one")
    await eventually(lambda: server.get(SPACE, "one") is None)
    await eventually(
        lambda: (
            {stream.collection.rpartition("/")[2] for stream in access.sender.streams} == {"namespaces", "rolebindings"}
        )
    )
    await server.delete(SPACE, "two")
    await eventually(lambda: access.sender.streams == [])


async def test_watches_end_with_the_connection_of_the_cluster(server: RegistryFixture, access: FakeAccess) -> None:
    await create_watched_space(server, access)
    await server.patch("Cluster", "c", lambda obj: obj["spec"].pop("config"))
    await eventually(lambda: access.sender.streams == [])


async def test_watches_end_with_the_controller(api: RegistryFixture, access: FakeAccess) -> None:
    async with running_controllers(api, *build_controllers(api, access)):
        await create_watched_space(api, access)
    await eventually(lambda: access.sender.streams == [])


async def test_the_number_of_watched_resources_is_limited(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.controllers.instances.remote_informers.MAX_WATCHES_PER_CLUSTER", 2)
    await create_cluster(server)
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "template": {"objects": CONFIG_MAP}}
    await server.create(SPACE, "one", spec=spec)
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("True", "Active"))
    await asyncio.sleep(SOON)
    assert {stream.collection for stream in access.sender.streams} == {"/api/v1/namespaces", "/api/v1/configmaps"}
    del kube.objects[BINDING_PATH]
    await eventually(lambda: BINDING_PATH in kube.objects, 2 * RESYNC_SECONDS)


async def test_the_watch_detects_the_end_of_a_namespace_deletion(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.controllers.instances.instance_reconciler.DELETION_POLL_SECONDS", 1_000.0)
    await create_watched_space(server, access)
    kube.delays_deletion = True
    await server.delete(SPACE, "one")
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("False", "Deleting"))
    kube.finish_deletions()
    await eventually(lambda: server.get(SPACE, "one") is None, SOON)
    assert list_warnings(server) == []


async def test_a_namespace_deleted_while_no_server_ran_is_reported(api: RegistryFixture, access: FakeAccess) -> None:
    async with running_controllers(api, *build_controllers(api, access)):
        await create_watched_space(api, access)
    access.kube.handle_request("DELETE", NAMESPACE_PATH)
    async with running_controllers(api, *build_controllers(api, access)):
        await eventually(lambda: CONFIG_MAP_PATH in access.kube.objects)
        await eventually(lambda: [reason for reason, _ in list_warnings(api)] == ["NamespaceDeleted"])


async def test_objects_of_templates_have_the_labels_of_their_space(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    objects = CONFIG_MAP.replace("{name: greeting}", "{name: greeting, labels: {mine: a, service.sh/uid: other}}")
    await create_watched_space(server, access, template={"objects": objects})
    labels = kube.objects[CONFIG_MAP_PATH]["metadata"]["labels"]
    uid = get_path(server.get(SPACE, "one"), "metadata.uid")
    assert (labels["mine"], labels["service.sh/managed"], labels["service.sh/uid"]) == ("a", "fairlead", uid)


async def test_binding_to_another_role_is_replaced(server: RegistryFixture, access: FakeAccess, kube: FakeKube) -> None:
    """The roleRef of a binding is immutable, also for the server."""
    await create_watched_space(server, access)
    foreign_binding = {
        **kube.objects[BINDING_PATH],
        "roleRef": {**kube.objects[BINDING_PATH]["roleRef"], "name": "view"},
    }
    kube.handle_request("DELETE", BINDING_PATH)
    kube.handle_request("POST", BINDING_PATH.rpartition("/")[0], foreign_binding)
    await eventually(lambda: kube.objects[BINDING_PATH]["roleRef"]["name"] == "admin", SOON)
    await eventually(lambda: [reason for reason, _ in list_warnings(server)] == ["ObjectsRestored"], SOON)


async def test_a_change_in_the_cluster_ends_the_backoff_after_a_failure(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    """Such as the deletion of an object that could not be changed."""
    secret = "{apiVersion: v1, kind: Secret, metadata: {name: fixed}, immutable: true, data: {a: %s}}"
    await create_cluster(server)
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "template": {"objects": secret % "b25l"}}
    await server.create(SPACE, "one", spec=spec)
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("True", "Active"))
    await server.patch(SPACE, "one", lambda obj: obj["spec"].update(template={"objects": secret % "dHdv"}))
    await eventually(lambda: condition_status(server, SPACE, "SpaceSynced") == ("False", "Invalid"))
    assert "field is immutable" in condition_message(server, SPACE, "SpaceSynced")
    await asyncio.sleep(600)
    before = len(kube.request_log)
    await asyncio.sleep(120)
    assert len(kube.request_log) - before < 30, "it is retried rarely"
    kube.handle_request("DELETE", f"{NAMESPACE_PATH}/secrets/fixed")
    await eventually(lambda: condition_status(server, SPACE, "SpaceReady") == ("True", "Active"), SOON)
    assert kube.objects[f"{NAMESPACE_PATH}/secrets/fixed"]["data"] == {"a": "dHdv"}


async def test_a_missing_namespace_in_another_cluster_is_not_reported_as_deleted(
    server: RegistryFixture, access: FakeAccess, kube: FakeKube
) -> None:
    await create_watched_space(server, access)
    old, access.sender = access.sender, InMemoryUpstream(kube)
    kube.objects.clear()  # like a cluster in which nothing was created
    old.end_streams()
    await eventually(lambda: CONFIG_MAP_PATH in kube.objects, SOON)
    await eventually(lambda: [reason for reason, _ in list_warnings(server)] == ["NamespaceMissing"], SOON)
