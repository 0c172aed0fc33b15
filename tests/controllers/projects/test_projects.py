"""Projects from first to last: Ready once, quiet afterwards, and gone together with the namespace."""

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
from tests.harness.registry import RegistryFixture, as_ada, open_registry


def controllers(api: RegistryFixture) -> tuple[NamespaceController, ProjectController, EventTtlController]:
    return (
        NamespaceController(api.registry),
        ProjectController(api.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX),
        EventTtlController(api.registry, 3_600),
    )


@pytest.fixture
async def working(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(api, *controllers(api)):
        yield api


def project(api: RegistryFixture, name: str = "p") -> Object:
    found = api.see("Project", name)
    assert found is not None
    return found


def ready(api: RegistryFixture, name: str = "p") -> Object:
    found = project(api, name).get("status") or {}
    return next((each for each in found.get("conditions", ()) if each["type"] == "Ready"), {})


async def made(api: RegistryFixture, name: str = "p") -> Object:
    await api.create("Project", name, spec={"displayName": "one"})
    await eventually(lambda: ready(api, name))
    return project(api, name)


async def test_a_new_project_becomes_ready_and_an_event_says_so(working: RegistryFixture) -> None:
    found = await made(working)
    assert found["status"]["observedGeneration"] == 1
    assert (ready(working)["status"], ready(working)["reason"]) == ("True", "NamespaceReady")
    await eventually(lambda: working.names("Event"))
    (event,) = [decode(entry) for entry in working.view.entries("", "events")]
    assert (event["reason"], event["involvedObject"]["name"]) == ("NamespaceReady", "p")
    assert event["metadata"]["namespace"] == "default"


async def test_a_project_at_rest_is_not_written_again(working: RegistryFixture) -> None:
    await made(working)
    await asyncio.sleep(1)
    revision = await working.store.revision()
    await asyncio.sleep(3_000)
    assert await working.store.revision() == revision


async def test_a_restart_does_not_report_it_once_more(api: RegistryFixture) -> None:
    async with running_controllers(api, *controllers(api)):
        await made(api)
        await asyncio.sleep(1)
        before = project(api)
    async with open_registry(api.store.inner) as restarted, running_controllers(restarted, *controllers(restarted)):
        await asyncio.sleep(60)
        assert project(restarted) == before
        assert len(restarted.names("Event")) == 1


async def test_a_changed_project_is_observed_and_stays_ready_since_when_it_was(working: RegistryFixture) -> None:
    before = await made(working)
    await asyncio.sleep(100)
    await working.patch("Project", "p", lambda obj: obj["spec"].update(displayName="two"))
    await eventually(lambda: project(working)["status"]["observedGeneration"] == 2)
    assert ready(working) == {**before["status"]["conditions"][0], "observedGeneration": 2}
    assert len(working.names("Event")) == 1


async def test_what_others_say_in_the_status_is_kept(working: RegistryFixture) -> None:
    await made(working)
    other = {"type": "x.io/Checked", "status": "True"}
    status = as_ada(subresource="status")
    await working.patch("Project", "p", lambda obj: obj["status"]["conditions"].append(other), status)
    await working.patch("Project", "p", lambda obj: obj["spec"].update(displayName="two"))
    await eventually(lambda: project(working)["status"]["observedGeneration"] == 2)
    assert {each["type"] for each in project(working)["status"]["conditions"]} == {"Ready", "x.io/Checked"}


async def test_a_project_becomes_ready_also_where_others_have_spoken_first(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    other = {"type": "x.io/Checked", "status": "True"}
    status = as_ada(subresource="status")
    await api.patch("Project", "p", lambda obj: obj.update(status={"conditions": [other]}), status)
    async with running_controllers(api, *controllers(api)):
        await asyncio.sleep(10)
    assert {each["type"] for each in project(api)["status"]["conditions"]} == {"Ready", "x.io/Checked"}


async def test_what_others_write_while_it_reports_is_not_undone(api: RegistryFixture) -> None:
    await api.create("Project", "p", spec={"displayName": "one"})
    other = {"type": "x.io/Checked", "status": "True"}
    status = as_ada(subresource="status")
    api.store.before = [
        lambda: api.patch("Project", "p", lambda obj: obj.update(status={"conditions": [other]}), status)
    ]
    async with running_controllers(api, *controllers(api)):
        await asyncio.sleep(10)
    assert {each["type"] for each in project(api)["status"]["conditions"]} == {"Ready", "x.io/Checked"}


async def test_a_deleted_project_goes_with_its_namespace_and_all_that_is_in_it(working: RegistryFixture) -> None:
    await made(working)
    await working.create("ConfigMap", "c", "service-p-p")
    await working.create("DevPodWorkspaceInstance", "w", "service-p-p")
    deleted = await working.delete("Project", "p")
    assert not deleted.is_removed
    await eventually(lambda: working.names("Project") == [])
    assert "service-p-p" not in working.names("Namespace")
    assert (working.names("ConfigMap"), working.names("DevPodWorkspaceInstance")) == ([], [])
    assert working.names("Namespace") == ["default", "demo"]


async def test_a_project_stays_as_long_as_something_in_its_namespace_is_held(working: RegistryFixture) -> None:
    await made(working)
    await working.create("ConfigMap", "held", "service-p-p", metadata={"finalizers": ["x.io/a"]})
    await working.delete("Project", "p")
    await asyncio.sleep(60)
    assert "deletionTimestamp" in project(working)["metadata"]
    assert working.names("ConfigMap") == ["held"]

    def release(obj: Object) -> Object:
        return {**obj, "metadata": {**obj["metadata"], "finalizers": []}}

    await working.of("ConfigMap").modify("service-p-p", "held", release, as_ada())
    await eventually(lambda: working.names("Project") == [])
    assert "service-p-p" not in working.names("Namespace")


async def test_while_it_waits_for_its_namespace_nothing_is_written_over_and_over(working: RegistryFixture) -> None:
    await made(working)
    await working.create("ConfigMap", "held", "service-p-p", metadata={"finalizers": ["x.io/a"]})
    await working.delete("Project", "p")
    await asyncio.sleep(10)
    revision = await working.store.revision()
    await asyncio.sleep(60)
    assert await working.store.revision() == revision


async def test_a_projects_own_finalizer_outlives_the_namespace(working: RegistryFixture) -> None:
    await working.create("Project", "p", metadata={"finalizers": ["x.io/a"]})
    await working.delete("Project", "p")
    await eventually(lambda: "service-p-p" not in working.names("Namespace"))
    await asyncio.sleep(1)
    assert project(working)["metadata"]["finalizers"] == ["x.io/a"]
    await working.patch("Project", "p", lambda obj: obj["metadata"].update(finalizers=[]))
    assert working.names("Project") == []


async def test_a_name_can_be_used_again_once_the_project_is_gone(working: RegistryFixture) -> None:
    first = await made(working)
    await working.delete("Project", "p")
    await eventually(lambda: working.names("Project") == [])
    second = await made(working)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert "service-p-p" in working.names("Namespace")


async def test_a_deletion_that_began_before_a_restart_is_finished_after_it(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    await api.delete("Project", "p")
    async with open_registry(api.store.inner) as restarted, running_controllers(restarted, *controllers(restarted)):
        await eventually(lambda: restarted.names("Project") == [])
        assert "service-p-p" not in restarted.names("Namespace")


async def test_many_projects_come_and_go_at_once(working: RegistryFixture) -> None:
    names = [f"p{number}" for number in range(20)]
    await asyncio.gather(*(working.create("Project", name) for name in names))
    await eventually(lambda: all(ready(working, name) for name in names))
    await asyncio.gather(*(working.delete("Project", name) for name in names))
    await eventually(lambda: working.names("Project") == [])
    assert working.names("Namespace") == ["default", "demo"]


async def test_a_foreground_delete_waits_for_the_namespace_too(working: RegistryFixture) -> None:
    await made(working)
    await working.delete("Project", "p", DeleteOptions(propagation="Foreground"))
    await eventually(lambda: "service-p-p" not in working.names("Namespace"))
    await asyncio.sleep(1)
    assert project(working)["metadata"]["finalizers"] == ["foregroundDeletion"], "which is the garbage collector's"


async def test_where_there_is_no_place_for_the_event_the_project_is_ready_all_the_same(api: RegistryFixture) -> None:
    await api.delete("Namespace", "default")
    async with running_controllers(api, *controllers(api)):
        await eventually(lambda: "default" not in api.names("Namespace"))
        await made(api)
        await asyncio.sleep(60)
        revision = await api.store.revision()
        await asyncio.sleep(600)
        assert await api.store.revision() == revision


NAMESPACE = f"{NAMESPACE_PREFIX}p"


async def test_a_namespace_that_was_lost_is_made_again_and_that_is_told(working: RegistryFixture) -> None:
    await made(working)
    before = working.see("Namespace", NAMESPACE) or {}
    entry = working.of("Namespace").get_cached("", NAMESPACE)
    assert entry is not None
    await working.store.commit([Write(entry.key, None, entry.revision)])
    await eventually(
        lambda: (working.see("Namespace", NAMESPACE) or before)["metadata"]["uid"] != before["metadata"]["uid"]
    )
    assert (working.see("Namespace", NAMESPACE) or {})["metadata"]["labels"]["service.sh/project"] == "p"
    events = lambda: {decode(each)["reason"] for each in working.view.entries("", "events")}  # noqa: E731
    await eventually(lambda: "NamespaceRestored" in events())
    await working.create("ConfigMap", "a", NAMESPACE)


async def test_a_namespace_that_goes_without_its_project_is_said_and_made_again(api: RegistryFixture) -> None:
    """As one that an earlier version let go is found."""
    projects = ProjectController(api.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX)
    await api.create("Project", "p", spec={})
    marked = {**(api.see("Namespace", NAMESPACE) or {})}
    marked["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    marked["status"] = {"phase": "Terminating"}
    entry = api.of("Namespace").get_cached("", NAMESPACE)
    assert entry is not None
    await api.store.commit([Write(entry.key, encode(marked), entry.revision)])
    async with running_controllers(api, projects):
        await eventually(lambda: ready(api).get("reason") == "NamespaceTerminating")
        async with running_controllers(api, NamespaceController(api.registry)):
            await eventually(lambda: ready(api).get("reason") == "NamespaceReady")
    assert "deletionTimestamp" not in (api.see("Namespace", NAMESPACE) or {})["metadata"]


async def test_the_garbage_collector_leaves_the_namespace_of_a_living_project(working: RegistryFixture) -> None:
    """A reference to an owner that is gone may have been stored before that was refused."""
    await made(working)
    dead = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "dead"}
    await working.patch(
        "Namespace", NAMESPACE, lambda each: each["metadata"].update(ownerReferences=[dead]), server_write_options()
    )
    uid = (working.see("Namespace", NAMESPACE) or {})["metadata"]["uid"]
    async with running_controllers(working, GarbageCollector(working.registry)):
        await asyncio.sleep(60)
        found = (working.see("Namespace", NAMESPACE) or {})["metadata"]
        assert (found["uid"], "deletionTimestamp" in found) == (uid, False)
        await working.delete("Project", "p")
        await eventually(lambda: working.see("Project", "p") is None)
    assert working.see("Namespace", NAMESPACE) is None
