"""A namespace that is deleted is emptied first, says what it waits for, and goes when nothing holds it any more."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.core.namespaces import DELETE_BATCH_SIZE, MAX_REQUEUE_SECONDS, NamespaceController
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from tests.harness.controllers import running_controllers
from tests.harness.event_loop_turns import Turns
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, as_ada


@pytest.fixture
async def working(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(api, NamespaceController(api.registry)):
        yield api


def conditions(api: RegistryFixture) -> dict[str, tuple[str, str]]:
    found = api.see("Namespace", "demo")
    assert found is not None
    return {each["type"]: (each["status"], each["message"]) for each in found["status"].get("conditions", ())}


def gone(api: RegistryFixture) -> bool:
    return api.see("Namespace", "demo") is None


async def test_a_namespace_that_nobody_deletes_is_left_alone(working: RegistryFixture) -> None:
    await working.create("ConfigMap", "c")
    revision = await working.store.revision()
    await asyncio.sleep(3_600)
    assert await working.store.revision() == revision


async def test_an_empty_namespace_goes(working: RegistryFixture) -> None:
    await working.delete("Namespace", "demo")
    await eventually(lambda: gone(working))


async def test_a_namespace_goes_with_all_that_is_in_it_and_with_nothing_else(working: RegistryFixture) -> None:
    for number in range(3):
        await working.create("ConfigMap", f"c{number}")
        await working.create("DevPodWorkspaceInstance", f"w{number}")
    await working.create("Secret", "s")
    await working.create("ConfigMap", "c", "default")
    await working.delete("Namespace", "demo")
    await eventually(lambda: gone(working))
    assert (working.names("DevPodWorkspaceInstance"), working.names("Secret")) == ([], [])
    assert [entry.key[2] for entry in working.view.entries("", "configmaps")] == ["default"]


async def test_what_was_there_when_the_server_was_down_is_seen_to_when_it_is_back(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "c")
    await api.delete("Namespace", "demo")
    async with running_controllers(api, NamespaceController(api.registry)):
        await eventually(lambda: gone(api))
    assert api.names("ConfigMap") == []


async def test_an_object_that_something_holds_holds_the_namespace_and_that_is_said(working: RegistryFixture) -> None:
    await working.create("ConfigMap", "held", metadata={"finalizers": ["x.io/a"]})
    await working.create("ConfigMap", "free")
    await working.delete("Namespace", "demo")
    await eventually(lambda: conditions(working))
    assert working.names("ConfigMap") == ["held"]
    assert conditions(working)["NamespaceContentRemaining"] == (
        "True",
        "Some resources are remaining: configmaps. has 1 resource instances",
    )
    assert conditions(working)["NamespaceFinalizersRemaining"] == (
        "True",
        "Some content in the namespace has finalizers remaining: x.io/a in 1 resource instances",
    )
    await working.patch("ConfigMap", "held", lambda obj: obj["metadata"].update(finalizers=[]))
    await eventually(lambda: gone(working))


async def test_while_it_waits_it_writes_nothing_over_and_over(working: RegistryFixture) -> None:
    await working.create("ConfigMap", "held", metadata={"finalizers": ["x.io/a"]})
    await working.delete("Namespace", "demo")
    await eventually(lambda: conditions(working))
    revision = await working.store.revision()
    await asyncio.sleep(60)
    assert await working.store.revision() == revision


async def test_nothing_new_gets_in_while_it_ends(working: RegistryFixture) -> None:
    await working.create("ConfigMap", "held", metadata={"finalizers": ["x.io/a"]})
    await working.delete("Namespace", "demo")
    for number in range(20):
        with pytest.raises(Forbidden):
            await working.create("ConfigMap", f"late{number}")
        await asyncio.sleep(0.1)
    assert working.names("ConfigMap") == ["held"]


async def test_creators_and_the_end_race_and_nothing_is_left_behind(working: RegistryFixture) -> None:
    """Whatever comes first: afterwards there is neither the namespace nor anything in it."""

    async def create(number: int) -> None:
        for _ in range(number % 7):
            await asyncio.sleep(0)
        await working.create("ConfigMap", f"c{number}")

    creators = [create(number) for number in range(30)]
    outcomes = await asyncio.gather(*creators, working.delete("Namespace", "demo"), return_exceptions=True)
    await eventually(lambda: gone(working))
    assert working.names("ConfigMap") == []
    assert any(isinstance(outcome, Forbidden) for outcome in outcomes)


async def test_an_object_that_goes_by_itself_meanwhile_does_no_harm(working: RegistryFixture) -> None:
    for number in range(5):
        await working.create("ConfigMap", f"c{number}")

    await working.delete("Namespace", "demo")
    working.store.before = [lambda: working.delete("ConfigMap", "c0"), lambda: working.delete("ConfigMap", "c3")]
    await eventually(lambda: gone(working))


async def test_a_finalizer_in_its_metadata_holds_the_empty_namespace(working: RegistryFixture) -> None:
    await working.patch("Namespace", "demo", lambda obj: obj["metadata"].update(finalizers=["x.io/a"]))
    await working.delete("Namespace", "demo")
    await asyncio.sleep(60)
    found = working.see("Namespace", "demo")
    assert found is not None
    assert found["spec"] == {"finalizers": []}
    await working.patch("Namespace", "demo", lambda obj: obj["metadata"].update(finalizers=[]))
    assert gone(working)


async def with_own_finalizer(api: RegistryFixture) -> Object:
    """A namespace that somebody beside the server has to let go of; who manages its label is on record."""
    await api.patch("Namespace", "demo", lambda obj: obj["metadata"]["labels"].update(x="y"))
    finalize = as_ada(subresource="finalize")
    changed = await api.patch("Namespace", "demo", lambda obj: obj["spec"]["finalizers"].append("x.io/mine"), finalize)
    return changed


async def test_somebody_elses_finalizer_in_its_spec_holds_it_too(working: RegistryFixture) -> None:
    await with_own_finalizer(working)
    await working.delete("Namespace", "demo")
    await asyncio.sleep(60)
    found = working.see("Namespace", "demo")
    assert found is not None
    assert found["spec"] == {"finalizers": ["x.io/mine"]}
    finalize = as_ada(subresource="finalize")
    await working.patch("Namespace", "demo", lambda obj: obj["spec"].update(finalizers=[]), finalize)
    assert gone(working)


async def test_letting_go_of_it_does_not_wipe_out_who_manages_what(working: RegistryFixture) -> None:
    before = await with_own_finalizer(working)
    await working.delete("Namespace", "demo")
    await asyncio.sleep(60)
    after = working.see("Namespace", "demo")
    assert after is not None
    assert {each["manager"] for each in before["metadata"]["managedFields"]} <= {
        each["manager"] for each in after["metadata"].get("managedFields", ())
    }


async def test_conditions_that_others_wrote_do_not_stop_the_server_and_are_not_lost(working: RegistryFixture) -> None:
    mine = {"type": "x.io/Checked", "status": "True"}
    status = as_ada(subresource="status")
    await working.patch("Namespace", "demo", lambda obj: obj["status"].update(conditions=[mine]), status)
    await working.create("ConfigMap", "held", metadata={"finalizers": ["x.io/a"]})
    await working.delete("Namespace", "demo")
    await asyncio.sleep(60)
    found = working.see("Namespace", "demo")
    assert found is not None
    assert "x.io/Checked" in {each["type"] for each in found["status"]["conditions"]}


async def test_many_objects_that_finalizers_hold_are_looked_at_in_slices_and_seldom(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can put finalizers on what he makes, and leave it like that for ever."""
    monkeypatch.setattr("fairlead.controllers.core.namespaces.REQUEUE_SECONDS_PER_OBJECT", 1.0)
    controller = NamespaceController(api.registry)
    for number in range(3 * DELETE_BATCH_SIZE):
        await api.create("ConfigMap", f"c{number:03}", metadata={"finalizers": ["x.io/a"]})
    await api.delete("Namespace", "demo")
    key = ("", "namespaces", "", "demo")
    await controller.reconcile(key)
    async with Turns() as turns:
        again = await controller.reconcile(key)
    assert turns.count >= 3
    assert again == MAX_REQUEUE_SECONDS
