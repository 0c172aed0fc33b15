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
from tests.harness.controllers import at_work, until
from tests.harness.registry import World, as_ada, new_world

KIND, PLURAL, HOME = "DevPodWorkspaceInstance", "devpodworkspaceinstances", "service-p-p"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    rules = (enforce_quotas(GROUP, NAMESPACE_PREFIX),)
    async with new_world(rules=rules) as made:
        controllers = NamespaceController(made.registry), ProjectController(made.registry, GROUP, NAMESPACE_PREFIX)
        async with at_work(made, *controllers):
            yield made


def status(world: World) -> Object:
    found = world.see("Project", "p")
    assert found is not None
    return found.get("status") or {}


def ready(world: World) -> Object:
    return find_condition(status(world), "Ready") or {}


async def release(world: World, kind: str, name: str) -> None:
    def edit(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "finalizers": []}}

    await world.of(kind).modify(HOME, name, edit, as_ada())


async def test_what_runs_goes_before_what_it_needs(world: World) -> None:
    await world.create("Project", "p")
    await world.create(KIND, "w", HOME, metadata={"finalizers": ["x.io/a"]})
    await world.create("Secret", "s", HOME)
    await world.delete("Project", "p")
    await asyncio.sleep(5)
    assert (world.names(KIND), world.names("Secret")) == (["w"], ["s"])
    assert HOME in world.names("Namespace")
    await release(world, KIND, "w")
    await until(lambda: world.names("Project") == [])
    assert (world.names("Secret"), world.names("Namespace")) == ([], ["default", "demo"])


async def test_the_condition_says_what_is_waited_for_and_keeps_up(world: World) -> None:
    await world.create("Project", "p")
    await until(lambda: ready(world).get("status") == "True")
    for name in ("a", "b"):
        await world.create(KIND, name, HOME, metadata={"finalizers": ["x.io/a"]})
    await world.create("Secret", "s", HOME, metadata={"finalizers": ["x.io/b", "x.io/c"]})
    await world.delete("Project", "p")
    await until(lambda: ready(world)["status"] == "False")
    assert ready(world)["reason"] == "Deleting"
    secret = "1 secret (finalizers: x.io/b, x.io/c)"
    expected = f"being deleted: waiting for 2 {PLURAL} (finalizers: x.io/a), {secret}"
    await until(lambda: ready(world)["message"] == expected)
    await release(world, KIND, "a")
    expected = f"being deleted: waiting for 1 devpodworkspaceinstance (finalizers: x.io/a), {secret}"
    await until(lambda: ready(world)["message"] == expected)
    await release(world, KIND, "b")
    await until(lambda: ready(world)["message"] == f"being deleted: waiting for {secret}")
    await release(world, "Secret", "s")
    await until(lambda: world.names("Project") == [])


async def test_an_event_tells_when_it_is_done(world: World) -> None:
    await world.create("Project", "p")
    await world.delete("Project", "p")
    await until(lambda: world.names("Project") == [])
    await asyncio.sleep(1)
    told = {each["reason"]: each for each in map(decode, world.view.entries("", "events", "default"))}
    assert told["NamespaceDeleted"]["message"] == f"namespace {HOME} was deleted with all its content"
    assert told["NamespaceDeleted"]["involvedObject"]["name"] == "p"


async def test_the_ticket_of_its_quotas_is_gone_too(world: World) -> None:
    await world.create("Project", "p", spec={"quotas": {"project": {PLURAL: "3"}}})
    await world.create(KIND, "w", HOME)
    assert world.view.get(write_locks.lock_key(GROUP, "p")) is not None
    await world.delete("Project", "p")
    await until(lambda: world.names("Project") == [])
    assert world.view.get(write_locks.lock_key(GROUP, "p")) is None
    assert [record.key for record in (await world.store.scan((GROUP, write_locks.LOCK_PLURAL))).records] == []


async def test_the_status_shows_what_is_used_of_the_quotas(world: World) -> None:
    limits = {"project": {PLURAL: "5", f"{PLURAL}.active": "3", "limits.cpu": "4"}, "user": {PLURAL: "2"}}
    await world.create("Project", "p", spec={"quotas": limits})
    await world.create(KIND, "a", HOME, spec={"owner": {"user": "ada"}})
    await world.create(KIND, "b", HOME, spec={"owner": {"team": "core"}})
    await world.create(KIND, "c", HOME, spec={"owner": {"user": "ada"}})
    asleep = {"phase": "Sleeping"}
    await world.of(KIND).modify(HOME, "c", lambda old: {**old, "status": asleep}, server_write_options("status"))
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
    await until(lambda: status(world).get("quotas") == wanted)
    await world.of(KIND).delete(HOME, "a", DeleteOptions(), as_ada())
    await until(lambda: status(world)["quotas"]["project"]["used"][PLURAL] == "2")
    await world.patch("Project", "p", lambda obj: obj["spec"].pop("quotas"))
    await until(lambda: "quotas" not in status(world))
