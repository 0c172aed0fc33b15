"""Tests of deletion in `fairlead.controllers.projects.projects`: its order, its condition and its Event."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.admission.quotas import enforce_quotas
from fairlead.controllers.core.namespaces import NamespaceController
from fairlead.controllers.projects.projects import ProjectController
from fairlead.core.objects import Object
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.codec import decode
from fairlead.registry.conditions import find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.quota import write_locks
from fairlead.registry.write_options import DeleteOptions, server_write_options
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, open_registry, write_options

KIND, PLURAL, NAMESPACE = "DevPodWorkspaceInstance", "devpodworkspaceinstances", "service-p-p"


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    rules = (enforce_quotas(GROUP, NAMESPACE_PREFIX),)
    async with open_registry(rules=rules) as fixture:
        controllers = (
            NamespaceController(fixture.registry),
            ProjectController(fixture.registry, GROUP, NAMESPACE_PREFIX),
        )
        async with running_controllers(fixture, *controllers):
            yield fixture


def project_status(api: RegistryFixture) -> Object:
    project = api.get("Project", "p")
    assert project is not None
    return project.get("status") or {}


def ready_condition(api: RegistryFixture) -> Object:
    return find_condition(project_status(api), "Ready") or {}


async def remove_finalizers(api: RegistryFixture, kind: str, name: str) -> None:
    def edit(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "finalizers": []}}

    await api.resource(kind).modify(NAMESPACE, name, edit, write_options())


async def test_instances_are_deleted_before_the_secrets_that_they_need(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    await api.create(KIND, "w", NAMESPACE, metadata={"finalizers": ["x.io/a"]})
    await api.create("Secret", "s", NAMESPACE)
    await api.delete("Project", "p")
    await asyncio.sleep(5)
    assert (api.list_names(KIND), api.list_names("Secret")) == (["w"], ["s"])
    assert NAMESPACE in api.list_names("Namespace")
    await remove_finalizers(api, KIND, "w")
    await eventually(lambda: api.list_names("Project") == [])
    assert (api.list_names("Secret"), api.list_names("Namespace")) == ([], ["default", "demo"])


async def test_the_condition_lists_the_remaining_objects_and_is_updated(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    await eventually(lambda: ready_condition(api).get("status") == "True")
    for name in ("a", "b"):
        await api.create(KIND, name, NAMESPACE, metadata={"finalizers": ["x.io/a"]})
    await api.create("Secret", "s", NAMESPACE, metadata={"finalizers": ["x.io/b", "x.io/c"]})
    await api.delete("Project", "p")
    await eventually(lambda: ready_condition(api)["status"] == "False")
    assert ready_condition(api)["reason"] == "Deleting"
    secret_text = "1 secret (finalizers: x.io/b, x.io/c)"
    expected = f"being deleted: waiting for 2 {PLURAL} (finalizers: x.io/a), {secret_text}"
    await eventually(lambda: ready_condition(api)["message"] == expected)
    await remove_finalizers(api, KIND, "a")
    expected = f"being deleted: waiting for 1 devpodworkspaceinstance (finalizers: x.io/a), {secret_text}"
    await eventually(lambda: ready_condition(api)["message"] == expected)
    await remove_finalizers(api, KIND, "b")
    await eventually(lambda: ready_condition(api)["message"] == f"being deleted: waiting for {secret_text}")
    await remove_finalizers(api, "Secret", "s")
    await eventually(lambda: api.list_names("Project") == [])


async def test_an_event_reports_the_deletion_of_the_namespace(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    await api.delete("Project", "p")
    await eventually(lambda: api.list_names("Project") == [])
    await asyncio.sleep(1)
    events_by_reason = {event["reason"]: event for event in map(decode, api.view.entries("", "events", "default"))}
    assert events_by_reason["NamespaceDeleted"]["message"] == f"namespace {NAMESPACE} was deleted with all its content"
    assert events_by_reason["NamespaceDeleted"]["involvedObject"]["name"] == "p"


async def test_the_write_lock_of_the_quotas_is_removed(api: RegistryFixture) -> None:
    await api.create("Project", "p", spec={"quotas": {"project": {PLURAL: "3"}}})
    await api.create(KIND, "w", NAMESPACE)
    assert api.view.get(write_locks.lock_key(GROUP, "p")) is not None
    await api.delete("Project", "p")
    await eventually(lambda: api.list_names("Project") == [])
    assert api.view.get(write_locks.lock_key(GROUP, "p")) is None
    assert [record.key for record in (await api.store.scan((GROUP, write_locks.LOCK_PLURAL))).records] == []


async def test_the_status_shows_the_usage_of_the_quotas(api: RegistryFixture) -> None:
    limits = {"project": {PLURAL: "5", f"{PLURAL}.active": "3", "limits.cpu": "4"}, "user": {PLURAL: "2"}}
    await api.create("Project", "p", spec={"quotas": limits})
    await api.create(KIND, "a", NAMESPACE, spec={"owner": {"user": "ada"}})
    await api.create(KIND, "b", NAMESPACE, spec={"owner": {"team": "core"}})
    await api.create(KIND, "c", NAMESPACE, spec={"owner": {"user": "ada"}})
    sleeping = {"phase": "Sleeping"}
    await api.resource(KIND).modify(
        NAMESPACE, "c", lambda old: {**old, "status": sleeping}, server_write_options("status")
    )
    expected = {
        "project": {
            "limit": {PLURAL: "5", f"{PLURAL}.active": "3"},
            "used": {PLURAL: "3", f"{PLURAL}.active": "2"},
        },
        "user": {
            "limit": {PLURAL: "2"},
            "used": {"users": {"ada": {PLURAL: "2"}}, "teams": {"core": {PLURAL: "1"}}},
        },
    }
    await eventually(lambda: project_status(api).get("quotas") == expected)
    await api.resource(KIND).delete(NAMESPACE, "a", DeleteOptions(), write_options())
    await eventually(lambda: project_status(api)["quotas"]["project"]["used"][PLURAL] == "2")
    await api.patch("Project", "p", lambda obj: obj["spec"].pop("quotas"))
    await eventually(lambda: "quotas" not in project_status(api))
