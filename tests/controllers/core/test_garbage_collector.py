"""Tests of `fairlead.controllers.core.garbage_collector`: objects without owners are deleted, and no others."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from fairlead.controllers.core.garbage_collector import MIN_SECONDS, GarbageCollector
from fairlead.core.objects import Object
from fairlead.storage.contract import Precondition, Write
from tests.controllers.core.owners import (
    create_dependent,
    is_being_deleted,
    owner_names,
    owner_reference,
    remove_finalizers,
    set_owners,
)
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, open_registry


@pytest.fixture(autouse=True)
async def collector(api: RegistryFixture) -> AsyncIterator[None]:
    async with running_controllers(api, GarbageCollector(api.registry)):
        yield


async def test_dependents_of_a_deleted_owner_are_deleted_and_no_others(api: RegistryFixture) -> None:
    parent, other = await api.create("ConfigMap", "parent"), await api.create("ConfigMap", "other")
    await create_dependent(api, "a", parent)
    await create_dependent(api, "b", parent, kind="Secret")
    await create_dependent(api, "c", parent, kind="Lease")
    await create_dependent(api, "of-other", other)
    await asyncio.sleep(100)
    assert api.list_names("ConfigMap") == ["a", "of-other", "other", "parent"], (
        "dependents stay as long as their owner exists"
    )
    await api.delete("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert api.list_names("ConfigMap") == ["of-other", "other"]
    assert api.list_names("Secret") == api.list_names("Lease") == []


async def test_one_existing_owner_is_enough_and_references_to_deleted_owners_are_removed(api: RegistryFixture) -> None:
    first, second = await api.create("ConfigMap", "first"), await api.create("ConfigMap", "second")
    await create_dependent(api, "a", first, second)
    await api.delete("ConfigMap", "first")
    await eventually(lambda: owner_names(api, "a") == ["second"])
    assert not is_being_deleted(api, "a")
    await api.delete("ConfigMap", "second")
    await eventually(lambda: api.get("ConfigMap", "a") is None)


async def test_an_owner_is_identified_by_kind_name_and_uid(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "kept", parent)
    await api.create("ConfigMap", "a", metadata={"ownerReferences": [{**owner_reference(parent), "uid": "another"}]})
    await api.create("ConfigMap", "b", metadata={"ownerReferences": [{**owner_reference(parent), "name": "missing"}]})
    await api.create("ConfigMap", "c", metadata={"ownerReferences": [{**owner_reference(parent), "kind": "Secret"}]})
    await asyncio.sleep(1)
    assert api.list_names("ConfigMap") == ["kept", "parent"]
    await api.delete("ConfigMap", "parent")
    await api.create("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert api.list_names("ConfigMap") == ["parent"], "another object with that name is not the owner"


async def test_a_dependent_of_an_absent_owner_can_be_read_before_it_is_deleted(api: RegistryFixture) -> None:
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "none"}
    await api.create("ConfigMap", "a", metadata={"ownerReferences": [absent]})
    await asyncio.sleep(MIN_SECONDS * 0.9)
    assert api.get("ConfigMap", "a") is not None
    await asyncio.sleep(MIN_SECONDS * 0.2)
    assert api.get("ConfigMap", "a") is None


async def test_an_owner_with_a_finalizer_keeps_its_dependents(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent", metadata={"finalizers": ["x.io/hold"]})
    await create_dependent(api, "a", parent)
    await api.delete("ConfigMap", "parent")
    await asyncio.sleep(100)
    assert owner_names(api, "a") == ["parent"]
    await remove_finalizers(api, "parent")
    await eventually(lambda: api.get("ConfigMap", "a") is None)


async def test_a_dependent_with_a_finalizer_is_deleted_when_the_finalizer_is_removed(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent")
    await eventually(lambda: is_being_deleted(api, "a"))
    await asyncio.sleep(100)
    assert owner_names(api, "a") == ["parent"]
    await remove_finalizers(api, "a")
    assert api.get("ConfigMap", "a") is None


async def test_a_cluster_scoped_owner_can_have_dependents_in_any_namespace(api: RegistryFixture) -> None:
    parent = await api.create("Gadget", "parent")
    await create_dependent(api, "a", parent)
    await create_dependent(api, "a", parent, namespace="default")
    await create_dependent(api, "a", parent, kind="Gadget")
    await asyncio.sleep(1)
    assert api.list_names("ConfigMap") == ["a", "a"]
    await api.delete("Gadget", "parent")
    await asyncio.sleep(1)
    assert api.list_names("ConfigMap") == api.list_names("Gadget") == []


async def test_an_owner_in_another_namespace_does_not_count(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent, namespace="default")
    await asyncio.sleep(1)
    assert api.list_names("ConfigMap") == ["parent"]


async def test_a_cluster_scoped_dependent_of_a_namespaced_owner_is_not_deleted(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent, kind="Gadget", blocking=True)
    await api.delete("ConfigMap", "parent")
    await asyncio.sleep(100)
    assert owner_names(api, "a", "Gadget") == ["parent"]


@pytest.mark.parametrize("changes", [{"kind": "Nothing"}, {"apiVersion": "v9"}, {"apiVersion": "x.io/v1"}])
async def test_a_dependent_of_a_kind_that_is_not_served_is_not_deleted(api: RegistryFixture, changes: Object) -> None:
    parent = await api.create("ConfigMap", "parent")
    references = [{**owner_reference(parent), "uid": "dead"}, {**owner_reference(parent), **changes}]
    await api.create("ConfigMap", "a", metadata={"ownerReferences": references})
    await asyncio.sleep(100)
    assert owner_names(api, "a") == ["parent", "parent"]


async def test_dependents_of_dependents_are_deleted(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "g0")
    for generation in range(1, 10):
        parent = await create_dependent(api, f"g{generation}", parent)
    await api.delete("ConfigMap", "g0")
    await eventually(lambda: api.list_names("ConfigMap") == [])


async def test_a_cycle_is_deleted_when_one_of_its_objects_is_deleted(api: RegistryFixture) -> None:
    a = await api.create("ConfigMap", "a")
    b = await create_dependent(api, "b", a)
    c = await create_dependent(api, "c", b)
    await set_owners(api, "a", c)
    await asyncio.sleep(100)
    assert api.list_names("ConfigMap") == ["a", "b", "c"]
    await api.delete("ConfigMap", "b")
    await eventually(lambda: api.list_names("ConfigMap") == [])


async def test_a_dependent_with_a_new_owner_is_not_deleted(api: RegistryFixture) -> None:
    parent, other = await api.create("ConfigMap", "parent"), await api.create("ConfigMap", "other")
    for name in "abc":
        await create_dependent(api, name, parent)
    await set_owners(api, "a")
    await set_owners(api, "b", other)
    await api.delete("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert api.list_names("ConfigMap") == ["a", "b", "other"]


async def test_a_dependent_that_gets_a_new_owner_concurrently_is_not_deleted(api: RegistryFixture) -> None:
    parent, other = await api.create("ConfigMap", "parent"), await api.create("ConfigMap", "other")
    await create_dependent(api, "a", parent)
    await api.delete("ConfigMap", "parent")
    api.store.before.append(lambda: set_owners(api, "a", other))
    await asyncio.sleep(1)
    assert not api.store.before, "the collector was about to delete it"
    assert owner_names(api, "a") == ["other"]
    assert not is_being_deleted(api, "a")


async def test_an_object_that_is_recreated_concurrently_is_not_deleted(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent)

    async def recreate() -> None:
        await api.delete("ConfigMap", "a")
        await api.create("ConfigMap", "a")

    await api.delete("ConfigMap", "parent")
    api.store.before.append(recreate)
    await asyncio.sleep(1)
    assert not api.store.before
    assert owner_names(api, "a") == []


async def test_nothing_is_written_while_all_owners_exist(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent, blocking=True)
    commits = len(api.store.commits)
    await asyncio.sleep(10_000)
    await api.patch("ConfigMap", "parent", lambda obj: obj.update(data={"x": "y"}))
    await api.patch("ConfigMap", "a", lambda obj: obj.update(data={"x": "y"}))
    await asyncio.sleep(10_000)
    assert len(api.store.commits) == commits + 2


async def test_dependents_that_lost_their_owner_while_no_collector_ran_are_deleted_at_its_start(
    api: RegistryFixture,
) -> None:
    async with open_registry(api.store.inner) as restarted:
        parent = await api.create("ConfigMap", "parent")
        await create_dependent(api, "a", parent)
        async with running_controllers(restarted, GarbageCollector(restarted.registry)):
            await asyncio.sleep(1)
            assert restarted.list_names("ConfigMap") == ["a", "parent"]
        await api.delete("ConfigMap", "parent")
        async with running_controllers(restarted, GarbageCollector(restarted.registry)):
            await eventually(lambda: restarted.list_names("ConfigMap") == [])


async def test_a_deletion_that_the_watch_missed_is_found(api: RegistryFixture) -> None:
    """The collector is busy, and its watchers overflow: they lose the deletion of the owner."""
    parent, other_parent = await api.create("Gadget", "parent"), await api.create("ConfigMap", "other-parent")
    await create_dependent(api, "a", parent)
    await create_dependent(api, "b", other_parent)
    await asyncio.sleep(1)
    api.store.before.extend([return_at_once, lambda: asyncio.sleep(10)])
    await api.delete("ConfigMap", "other-parent")
    await asyncio.sleep(1)
    assert api.store.before == []
    api.view._collection(parent["apiVersion"].partition("/")[0], "gadgets").watchers.overflow()
    await api.delete("Gadget", "parent")
    assert api.list_names("ConfigMap") == ["a", "b"], "the collector is still busy with the other object"
    await eventually(lambda: api.list_names("ConfigMap") == [])


async def return_at_once() -> None:
    return None


async def test_many_dependents_are_deleted_concurrently_by_a_limited_number_of_workers(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await api.create("ConfigMap", "parent")
    for number in range(200):
        await create_dependent(api, f"c{number}", parent)
    commit, running, max_running = api.store.inner.commit, 0, 0

    async def commit_slowly(changes: Sequence[Write], checks: Sequence[Precondition] = ()) -> int:
        nonlocal running, max_running
        running += 1
        max_running = max(max_running, running)
        await asyncio.sleep(1)
        running -= 1
        return await commit(changes, checks)

    await api.delete("ConfigMap", "parent")
    monkeypatch.setattr(api.store.inner, "commit", commit_slowly)
    start = api.clock.monotonic()
    await eventually(lambda: api.list_names("ConfigMap") == [])
    assert max_running == GarbageCollector.workers
    assert api.clock.monotonic() - start < 200 / GarbageCollector.workers + 2
