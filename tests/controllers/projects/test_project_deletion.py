"""A project that goes: in order, saying what it waits for, and leaving nothing behind."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.admission.quotas import enforce_quotas
from fairlead.controllers.core.namespaces import NamespaceController
from fairlead.controllers.projects.projects import ProjectController
from fairlead.core.objects import Object
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry import write_locks
from fairlead.registry.codec import decode
from fairlead.registry.conditions import find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, server_write_options
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, as_ada, open_registry

KIND, PLURAL, HOME = "DevPodWorkspaceInstance", "devpodworkspaceinstances", "service-p-p"


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    rules = (enforce_quotas(GROUP, NAMESPACE_PREFIX),)
    async with open_registry(rules=rules) as made:
        controllers = NamespaceController(made.registry), ProjectController(made.registry, GROUP, NAMESPACE_PREFIX)
        async with running_controllers(made, *controllers):
            yield made


def status(api: RegistryFixture) -> Object:
    found = api.see("Project", "p")
    assert found is not None
    return found.get("status") or {}


def ready(api: RegistryFixture) -> Object:
    return find_condition(status(api), "Ready") or {}


async def release(api: RegistryFixture, kind: str, name: str) -> None:
    def edit(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "finalizers": []}}

    await api.of(kind).modify(HOME, name, edit, as_ada())


async def test_what_runs_goes_before_what_it_needs(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    await api.create(KIND, "w", HOME, metadata={"finalizers": ["x.io/a"]})
    await api.create("Secret", "s", HOME)
    await api.delete("Project", "p")
    await asyncio.sleep(5)
    assert (api.names(KIND), api.names("Secret")) == (["w"], ["s"])
    assert HOME in api.names("Namespace")
    await release(api, KIND, "w")
    await eventually(lambda: api.names("Project") == [])
    assert (api.names("Secret"), api.names("Namespace")) == ([], ["default", "demo"])


async def test_the_condition_says_what_is_waited_for_and_keeps_up(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    await eventually(lambda: ready(api).get("status") == "True")
    for name in ("a", "b"):
        await api.create(KIND, name, HOME, metadata={"finalizers": ["x.io/a"]})
    await api.create("Secret", "s", HOME, metadata={"finalizers": ["x.io/b", "x.io/c"]})
    await api.delete("Project", "p")
    await eventually(lambda: ready(api)["status"] == "False")
    assert ready(api)["reason"] == "Deleting"
    secret = "1 secret (finalizers: x.io/b, x.io/c)"
    expected = f"being deleted: waiting for 2 {PLURAL} (finalizers: x.io/a), {secret}"
    await eventually(lambda: ready(api)["message"] == expected)
    await release(api, KIND, "a")
    expected = f"being deleted: waiting for 1 devpodworkspaceinstance (finalizers: x.io/a), {secret}"
    await eventually(lambda: ready(api)["message"] == expected)
    await release(api, KIND, "b")
    await eventually(lambda: ready(api)["message"] == f"being deleted: waiting for {secret}")
    await release(api, "Secret", "s")
    await eventually(lambda: api.names("Project") == [])


async def test_an_event_tells_when_it_is_done(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    await api.delete("Project", "p")
    await eventually(lambda: api.names("Project") == [])
    await asyncio.sleep(1)
    told = {each["reason"]: each for each in map(decode, api.view.entries("", "events", "default"))}
    assert told["NamespaceDeleted"]["message"] == f"namespace {HOME} was deleted with all its content"
    assert told["NamespaceDeleted"]["involvedObject"]["name"] == "p"


async def test_the_ticket_of_its_quotas_is_gone_too(api: RegistryFixture) -> None:
    await api.create("Project", "p", spec={"quotas": {"project": {PLURAL: "3"}}})
    await api.create(KIND, "w", HOME)
    assert api.view.get(write_locks.lock_key(GROUP, "p")) is not None
    await api.delete("Project", "p")
    await eventually(lambda: api.names("Project") == [])
    assert api.view.get(write_locks.lock_key(GROUP, "p")) is None
    assert [record.key for record in (await api.store.scan((GROUP, write_locks.LOCK_PLURAL))).records] == []


async def test_the_status_shows_what_is_used_of_the_quotas(api: RegistryFixture) -> None:
    limits = {"project": {PLURAL: "5", f"{PLURAL}.active": "3", "limits.cpu": "4"}, "user": {PLURAL: "2"}}
    await api.create("Project", "p", spec={"quotas": limits})
    await api.create(KIND, "a", HOME, spec={"owner": {"user": "ada"}})
    await api.create(KIND, "b", HOME, spec={"owner": {"team": "core"}})
    await api.create(KIND, "c", HOME, spec={"owner": {"user": "ada"}})
    asleep = {"phase": "Sleeping"}
    await api.of(KIND).modify(HOME, "c", lambda old: {**old, "status": asleep}, server_write_options("status"))
    wanted = {
        "project": {
            "limit": {PLURAL: "5", f"{PLURAL}.active": "3"},
            "used": {PLURAL: "3", f"{PLURAL}.active": "2"},
        },
        "user": {
            "limit": {PLURAL: "2"},
            "used": {"users": {"ada": {PLURAL: "2"}}, "teams": {"core": {PLURAL: "1"}}},
        },
    }
    await eventually(lambda: status(api).get("quotas") == wanted)
    await api.of(KIND).delete(HOME, "a", DeleteOptions(), as_ada())
    await eventually(lambda: status(api)["quotas"]["project"]["used"][PLURAL] == "2")
    await api.patch("Project", "p", lambda obj: obj["spec"].pop("quotas"))
    await eventually(lambda: "quotas" not in status(api))
