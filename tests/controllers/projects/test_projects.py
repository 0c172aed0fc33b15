"""Tests of `fairlead.controllers.projects.projects`: readiness, status, and deletion with the namespace."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.core.event_ttl import EventTtlController
from fairlead.controllers.core.garbage_collector import GarbageCollector
from fairlead.controllers.core.namespaces import NamespaceController
from fairlead.controllers.projects.projects import ProjectController
from fairlead.core.objects import Object
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.codec import decode, encode
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.storage.contract import Write
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, open_registry, write_options


def build_controllers(api: RegistryFixture) -> tuple[NamespaceController, ProjectController, EventTtlController]:
    return (
        NamespaceController(api.registry),
        ProjectController(api.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX),
        EventTtlController(api.registry, 3_600),
    )


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(api, *build_controllers(api)):
        yield api


def get_project(api: RegistryFixture, name: str = "p") -> Object:
    project = api.get("Project", name)
    assert project is not None
    return project


def ready_condition(api: RegistryFixture, name: str = "p") -> Object:
    status = get_project(api, name).get("status") or {}
    return next((condition for condition in status.get("conditions", ()) if condition["type"] == "Ready"), {})


async def create_ready_project(api: RegistryFixture, name: str = "p") -> Object:
    await api.create("Project", name, spec={"displayName": "one"})
    await eventually(lambda: ready_condition(api, name).get("status") == "True")
    return get_project(api, name)


async def test_a_new_project_becomes_ready_with_an_event(server: RegistryFixture) -> None:
    project = await create_ready_project(server)
    assert project["status"]["observedGeneration"] == 1
    assert (ready_condition(server)["status"], ready_condition(server)["reason"]) == ("True", "NamespaceReady")
    await eventually(lambda: server.list_names("Event"))
    (event,) = [decode(entry) for entry in server.view.entries("", "events")]
    assert (event["reason"], event["involvedObject"]["name"]) == ("NamespaceReady", "p")
    assert event["metadata"]["namespace"] == "default"


async def test_an_unchanged_project_is_not_written_again(server: RegistryFixture) -> None:
    await create_ready_project(server)
    await asyncio.sleep(1)
    revision = await server.store.revision()
    await asyncio.sleep(3_000)
    assert await server.store.revision() == revision


async def test_a_restart_does_not_record_another_event(api: RegistryFixture) -> None:
    async with running_controllers(api, *build_controllers(api)):
        await create_ready_project(api)
        await asyncio.sleep(1)
        before = get_project(api)
    async with (
        open_registry(api.store.inner) as restarted,
        running_controllers(restarted, *build_controllers(restarted)),
    ):
        await asyncio.sleep(60)
        assert get_project(restarted) == before
        assert len(restarted.list_names("Event")) == 1


async def test_a_changed_project_is_observed_and_keeps_its_transition_time(server: RegistryFixture) -> None:
    before = await create_ready_project(server)
    await asyncio.sleep(100)
    await server.patch("Project", "p", lambda obj: obj["spec"].update(displayName="two"))
    await eventually(lambda: get_project(server)["status"]["observedGeneration"] == 2)
    assert ready_condition(server) == {**before["status"]["conditions"][0], "observedGeneration": 2}
    assert len(server.list_names("Event")) == 1


async def test_conditions_of_others_in_the_status_are_kept(server: RegistryFixture) -> None:
    await create_ready_project(server)
    other_condition = {"type": "x.io/Checked", "status": "True"}
    status_options = write_options(subresource="status")
    await server.patch("Project", "p", lambda obj: obj["status"]["conditions"].append(other_condition), status_options)
    await server.patch("Project", "p", lambda obj: obj["spec"].update(displayName="two"))
    await eventually(lambda: get_project(server)["status"]["observedGeneration"] == 2)
    assert {condition["type"] for condition in get_project(server)["status"]["conditions"]} == {"Ready", "x.io/Checked"}


async def test_a_project_with_conditions_of_others_becomes_ready(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    other_condition = {"type": "x.io/Checked", "status": "True"}
    status_options = write_options(subresource="status")
    await api.patch("Project", "p", lambda obj: obj.update(status={"conditions": [other_condition]}), status_options)
    async with running_controllers(api, *build_controllers(api)):
        await asyncio.sleep(10)
    assert {condition["type"] for condition in get_project(api)["status"]["conditions"]} == {"Ready", "x.io/Checked"}


async def test_a_concurrent_write_to_the_status_is_not_undone(api: RegistryFixture) -> None:
    await api.create("Project", "p", spec={"displayName": "one"})
    other_condition = {"type": "x.io/Checked", "status": "True"}
    status_options = write_options(subresource="status")
    api.store.before = [
        lambda: api.patch(
            "Project", "p", lambda obj: obj.update(status={"conditions": [other_condition]}), status_options
        )
    ]
    async with running_controllers(api, *build_controllers(api)):
        await asyncio.sleep(10)
    assert {condition["type"] for condition in get_project(api)["status"]["conditions"]} == {"Ready", "x.io/Checked"}


async def test_a_deleted_project_is_removed_with_its_namespace_and_its_objects(server: RegistryFixture) -> None:
    await create_ready_project(server)
    await server.create("ConfigMap", "c", "service-p-p")
    await server.create("DevPodWorkspaceInstance", "w", "service-p-p")
    deleted = await server.delete("Project", "p")
    assert not deleted.is_removed
    await eventually(lambda: server.list_names("Project") == [])
    assert "service-p-p" not in server.list_names("Namespace")
    assert (server.list_names("ConfigMap"), server.list_names("DevPodWorkspaceInstance")) == ([], [])
    assert server.list_names("Namespace") == ["default", "demo"]


async def test_a_project_is_kept_while_an_object_in_its_namespace_has_a_finalizer(server: RegistryFixture) -> None:
    await create_ready_project(server)
    await server.create("ConfigMap", "held", "service-p-p", metadata={"finalizers": ["x.io/a"]})
    await server.delete("Project", "p")
    await asyncio.sleep(60)
    assert "deletionTimestamp" in get_project(server)["metadata"]
    assert server.list_names("ConfigMap") == ["held"]

    def remove_finalizers(obj: Object) -> Object:
        return {**obj, "metadata": {**obj["metadata"], "finalizers": []}}

    await server.resource("ConfigMap").modify("service-p-p", "held", remove_finalizers, write_options())
    await eventually(lambda: server.list_names("Project") == [])
    assert "service-p-p" not in server.list_names("Namespace")


async def test_nothing_is_written_repeatedly_while_a_project_waits_for_its_namespace(server: RegistryFixture) -> None:
    await create_ready_project(server)
    await server.create("ConfigMap", "held", "service-p-p", metadata={"finalizers": ["x.io/a"]})
    await server.delete("Project", "p")
    await asyncio.sleep(10)
    revision = await server.store.revision()
    await asyncio.sleep(60)
    assert await server.store.revision() == revision


async def test_a_finalizer_of_the_project_outlives_the_namespace(server: RegistryFixture) -> None:
    await server.create("Project", "p", metadata={"finalizers": ["x.io/a"]})
    await server.delete("Project", "p")
    await eventually(lambda: "service-p-p" not in server.list_names("Namespace"))
    await asyncio.sleep(1)
    assert get_project(server)["metadata"]["finalizers"] == ["x.io/a"]
    await server.patch("Project", "p", lambda obj: obj["metadata"].update(finalizers=[]))
    assert server.list_names("Project") == []


async def test_a_name_can_be_used_again_after_the_deletion_of_the_project(server: RegistryFixture) -> None:
    first = await create_ready_project(server)
    await server.delete("Project", "p")
    await eventually(lambda: server.list_names("Project") == [])
    second = await create_ready_project(server)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert "service-p-p" in server.list_names("Namespace")


async def test_a_deletion_that_began_before_a_restart_is_finished_after_it(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    await api.delete("Project", "p")
    async with (
        open_registry(api.store.inner) as restarted,
        running_controllers(restarted, *build_controllers(restarted)),
    ):
        await eventually(lambda: restarted.list_names("Project") == [])
        assert "service-p-p" not in restarted.list_names("Namespace")


async def test_many_projects_are_created_and_deleted_concurrently(server: RegistryFixture) -> None:
    names = [f"p{number}" for number in range(20)]
    await asyncio.gather(*(server.create("Project", name) for name in names))
    await eventually(lambda: all(ready_condition(server, name) for name in names))
    await asyncio.gather(*(server.delete("Project", name) for name in names))
    await eventually(lambda: server.list_names("Project") == [])
    assert server.list_names("Namespace") == ["default", "demo"]


async def test_a_foreground_delete_waits_for_the_namespace_too(server: RegistryFixture) -> None:
    await create_ready_project(server)
    await server.delete("Project", "p", DeleteOptions(propagation="Foreground"))
    await eventually(lambda: "service-p-p" not in server.list_names("Namespace"))
    await asyncio.sleep(1)
    assert get_project(server)["metadata"]["finalizers"] == ["foregroundDeletion"], (
        "which the garbage collector removes"
    )


async def test_a_project_is_ready_even_if_its_event_cannot_be_recorded(api: RegistryFixture) -> None:
    await api.delete("Namespace", "default")
    async with running_controllers(api, *build_controllers(api)):
        await eventually(lambda: "default" not in api.list_names("Namespace"))
        await create_ready_project(api)
        await asyncio.sleep(60)
        revision = await api.store.revision()
        await asyncio.sleep(600)
        assert await api.store.revision() == revision


NAMESPACE = f"{NAMESPACE_PREFIX}p"


async def test_a_lost_namespace_is_created_again_with_an_event(server: RegistryFixture) -> None:
    await create_ready_project(server)
    before = server.get("Namespace", NAMESPACE) or {}
    entry = server.resource("Namespace").get_cached("", NAMESPACE)
    assert entry is not None
    await server.store.commit([Write(entry.key, None, entry.revision)])
    await eventually(
        lambda: (server.get("Namespace", NAMESPACE) or before)["metadata"]["uid"] != before["metadata"]["uid"]
    )
    assert (server.get("Namespace", NAMESPACE) or {})["metadata"]["labels"]["service.sh/project"] == "p"
    events = lambda: {decode(entry)["reason"] for entry in server.view.entries("", "events")}  # noqa: E731
    await eventually(lambda: "NamespaceRestored" in events())
    await server.create("ConfigMap", "a", NAMESPACE)


async def test_a_terminating_namespace_of_an_existing_project_is_reported_and_created_again(
    api: RegistryFixture,
) -> None:
    """Such as a namespace whose deletion an earlier version allowed."""
    project_controller = ProjectController(api.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX)
    await api.create("Project", "p", spec={})
    terminating = {**(api.get("Namespace", NAMESPACE) or {})}
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    terminating["status"] = {"phase": "Terminating"}
    entry = api.resource("Namespace").get_cached("", NAMESPACE)
    assert entry is not None
    await api.store.commit([Write(entry.key, encode(terminating), entry.revision)])
    async with running_controllers(api, project_controller):
        await eventually(lambda: ready_condition(api).get("reason") == "NamespaceTerminating")
        async with running_controllers(api, NamespaceController(api.registry)):
            await eventually(lambda: ready_condition(api).get("reason") == "NamespaceReady")
    assert "deletionTimestamp" not in (api.get("Namespace", NAMESPACE) or {})["metadata"]


async def test_the_garbage_collector_keeps_the_namespace_of_an_existing_project(server: RegistryFixture) -> None:
    """A reference to a missing owner may have been stored before such references were rejected."""
    await create_ready_project(server)
    missing_owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "dead"}
    await server.patch(
        "Namespace",
        NAMESPACE,
        lambda obj: obj["metadata"].update(ownerReferences=[missing_owner]),
        server_write_options(),
    )
    uid = (server.get("Namespace", NAMESPACE) or {})["metadata"]["uid"]
    async with running_controllers(server, GarbageCollector(server.registry)):
        await asyncio.sleep(60)
        metadata = (server.get("Namespace", NAMESPACE) or {})["metadata"]
        assert (metadata["uid"], "deletionTimestamp" in metadata) == (uid, False)
        await server.delete("Project", "p")
        await eventually(lambda: server.get("Project", "p") is None)
    assert server.get("Namespace", NAMESPACE) is None
