"""Tests of `fairlead.controllers.core.namespaces`: a deleted namespace is emptied, and reports what remains."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.core.namespaces import DELETE_BATCH_SIZE, MAX_REQUEUE_SECONDS, NamespaceController
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from tests.harness.controllers import running_controllers
from tests.harness.event_loop_turns import TurnCounter
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, write_options


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(api, NamespaceController(api.registry)):
        yield api


def conditions(api: RegistryFixture) -> dict[str, tuple[str, str]]:
    namespace = api.get("Namespace", "demo")
    assert namespace is not None
    return {
        condition["type"]: (condition["status"], condition["message"])
        for condition in namespace["status"].get("conditions", ())
    }


def is_deleted(api: RegistryFixture) -> bool:
    return api.get("Namespace", "demo") is None


async def test_a_namespace_that_is_not_deleted_is_not_changed(server: RegistryFixture) -> None:
    await server.create("ConfigMap", "c")
    revision = await server.store.revision()
    await asyncio.sleep(3_600)
    assert await server.store.revision() == revision


async def test_an_empty_namespace_is_deleted(server: RegistryFixture) -> None:
    await server.delete("Namespace", "demo")
    await eventually(lambda: is_deleted(server))


async def test_a_namespace_is_deleted_with_its_objects_and_no_others(server: RegistryFixture) -> None:
    for number in range(3):
        await server.create("ConfigMap", f"c{number}")
        await server.create("DevPodWorkspaceInstance", f"w{number}")
    await server.create("Secret", "s")
    await server.create("ConfigMap", "c", "default")
    await server.delete("Namespace", "demo")
    await eventually(lambda: is_deleted(server))
    assert (server.list_names("DevPodWorkspaceInstance"), server.list_names("Secret")) == ([], [])
    assert [entry.key[2] for entry in server.view.entries("", "configmaps")] == ["default"]


async def test_a_namespace_that_was_deleted_while_no_controller_ran_is_emptied_at_its_start(
    api: RegistryFixture,
) -> None:
    await api.create("ConfigMap", "c")
    await api.delete("Namespace", "demo")
    async with running_controllers(api, NamespaceController(api.registry)):
        await eventually(lambda: is_deleted(api))
    assert api.list_names("ConfigMap") == []


async def test_an_object_with_a_finalizer_keeps_the_namespace_and_is_reported(server: RegistryFixture) -> None:
    await server.create("ConfigMap", "held", metadata={"finalizers": ["x.io/a"]})
    await server.create("ConfigMap", "free")
    await server.delete("Namespace", "demo")
    await eventually(lambda: conditions(server))
    assert server.list_names("ConfigMap") == ["held"]
    assert conditions(server)["NamespaceContentRemaining"] == (
        "True",
        "Some resources are remaining: configmaps. has 1 resource instances",
    )
    assert conditions(server)["NamespaceFinalizersRemaining"] == (
        "True",
        "Some content in the namespace has finalizers remaining: x.io/a in 1 resource instances",
    )
    await server.patch("ConfigMap", "held", lambda obj: obj["metadata"].update(finalizers=[]))
    await eventually(lambda: is_deleted(server))


async def test_nothing_is_written_repeatedly_while_a_namespace_waits(server: RegistryFixture) -> None:
    await server.create("ConfigMap", "held", metadata={"finalizers": ["x.io/a"]})
    await server.delete("Namespace", "demo")
    await eventually(lambda: conditions(server))
    revision = await server.store.revision()
    await asyncio.sleep(60)
    assert await server.store.revision() == revision


async def test_no_objects_can_be_created_in_a_namespace_that_is_being_deleted(server: RegistryFixture) -> None:
    await server.create("ConfigMap", "held", metadata={"finalizers": ["x.io/a"]})
    await server.delete("Namespace", "demo")
    for number in range(20):
        with pytest.raises(Forbidden):
            await server.create("ConfigMap", f"late{number}")
        await asyncio.sleep(0.1)
    assert server.list_names("ConfigMap") == ["held"]


async def test_concurrent_creates_and_the_deletion_leave_no_objects_behind(server: RegistryFixture) -> None:
    """Whatever comes first: in the end, neither the namespace nor any object in it exists."""

    async def create(number: int) -> None:
        for _ in range(number % 7):
            await asyncio.sleep(0)
        await server.create("ConfigMap", f"c{number}")

    create_calls = [create(number) for number in range(30)]
    outcomes = await asyncio.gather(*create_calls, server.delete("Namespace", "demo"), return_exceptions=True)
    await eventually(lambda: is_deleted(server))
    assert server.list_names("ConfigMap") == []
    assert any(isinstance(outcome, Forbidden) for outcome in outcomes)


async def test_an_object_that_is_deleted_concurrently_is_no_error(server: RegistryFixture) -> None:
    for number in range(5):
        await server.create("ConfigMap", f"c{number}")

    await server.delete("Namespace", "demo")
    server.store.before = [lambda: server.delete("ConfigMap", "c0"), lambda: server.delete("ConfigMap", "c3")]
    await eventually(lambda: is_deleted(server))


async def test_a_finalizer_in_the_metadata_keeps_the_empty_namespace(server: RegistryFixture) -> None:
    await server.patch("Namespace", "demo", lambda obj: obj["metadata"].update(finalizers=["x.io/a"]))
    await server.delete("Namespace", "demo")
    await asyncio.sleep(60)
    namespace = server.get("Namespace", "demo")
    assert namespace is not None
    assert namespace["spec"] == {"finalizers": []}
    await server.patch("Namespace", "demo", lambda obj: obj["metadata"].update(finalizers=[]))
    assert is_deleted(server)


async def add_spec_finalizer(api: RegistryFixture) -> Object:
    """Adds a label, with its field manager, and a finalizer of another controller to the namespace."""
    await api.patch("Namespace", "demo", lambda obj: obj["metadata"]["labels"].update(x="y"))
    finalize = write_options(subresource="finalize")
    changed = await api.patch("Namespace", "demo", lambda obj: obj["spec"]["finalizers"].append("x.io/mine"), finalize)
    return changed


async def test_a_finalizer_of_another_controller_in_the_spec_keeps_the_namespace(server: RegistryFixture) -> None:
    await add_spec_finalizer(server)
    await server.delete("Namespace", "demo")
    await asyncio.sleep(60)
    namespace = server.get("Namespace", "demo")
    assert namespace is not None
    assert namespace["spec"] == {"finalizers": ["x.io/mine"]}
    finalize = write_options(subresource="finalize")
    await server.patch("Namespace", "demo", lambda obj: obj["spec"].update(finalizers=[]), finalize)
    assert is_deleted(server)


async def test_removing_the_finalizer_of_the_server_keeps_the_managed_fields(server: RegistryFixture) -> None:
    before = await add_spec_finalizer(server)
    await server.delete("Namespace", "demo")
    await asyncio.sleep(60)
    after = server.get("Namespace", "demo")
    assert after is not None
    assert {entry["manager"] for entry in before["metadata"]["managedFields"]} <= {
        entry["manager"] for entry in after["metadata"].get("managedFields", ())
    }


async def test_conditions_written_by_others_are_kept(server: RegistryFixture) -> None:
    own_condition = {"type": "x.io/Checked", "status": "True"}
    status = write_options(subresource="status")
    await server.patch("Namespace", "demo", lambda obj: obj["status"].update(conditions=[own_condition]), status)
    await server.create("ConfigMap", "held", metadata={"finalizers": ["x.io/a"]})
    await server.delete("Namespace", "demo")
    await asyncio.sleep(60)
    namespace = server.get("Namespace", "demo")
    assert namespace is not None
    assert "x.io/Checked" in {condition["type"] for condition in namespace["status"]["conditions"]}


async def test_many_objects_with_finalizers_are_processed_in_batches_and_rarely(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users can add finalizers to their objects and never remove them."""
    monkeypatch.setattr("fairlead.controllers.core.namespaces.REQUEUE_SECONDS_PER_OBJECT", 1.0)
    controller = NamespaceController(api.registry)
    for number in range(3 * DELETE_BATCH_SIZE):
        await api.create("ConfigMap", f"c{number:03}", metadata={"finalizers": ["x.io/a"]})
    await api.delete("Namespace", "demo")
    key = ("", "namespaces", "", "demo")
    await controller.reconcile(key)
    async with TurnCounter() as turns:
        requeue_seconds = await controller.reconcile(key)
    assert turns.count >= 3
    assert requeue_seconds == MAX_REQUEUE_SECONDS
