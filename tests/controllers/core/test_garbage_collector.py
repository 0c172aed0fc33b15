"""What has lost its owners goes, and nothing else does."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from fairlead.controllers.core.garbage_collector import GarbageCollector
from fairlead.core.objects import Object
from fairlead.storage.contract import Precondition, Write
from tests.controllers.core.owners import adopt, child, let_go, marked, owner, owners
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, open_registry


@pytest.fixture(autouse=True)
async def collector(api: RegistryFixture) -> AsyncIterator[None]:
    async with running_controllers(api, GarbageCollector(api.registry)):
        yield


async def test_what_an_owner_leaves_behind_goes_and_nothing_else(api: RegistryFixture) -> None:
    parent, other = await api.create("ConfigMap", "parent"), await api.create("ConfigMap", "other")
    await child(api, "a", parent)
    await child(api, "b", parent, kind="Secret")
    await child(api, "c", parent, kind="Lease")
    await child(api, "of-other", other)
    await asyncio.sleep(100)
    assert api.names("ConfigMap") == ["a", "of-other", "other", "parent"], "as long as it is there they stay"
    await api.delete("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert api.names("ConfigMap") == ["of-other", "other"]
    assert api.names("Secret") == api.names("Lease") == []


async def test_one_owner_is_enough_and_references_to_dead_ones_are_removed(api: RegistryFixture) -> None:
    first, second = await api.create("ConfigMap", "first"), await api.create("ConfigMap", "second")
    await child(api, "a", first, second)
    await api.delete("ConfigMap", "first")
    await eventually(lambda: owners(api, "a") == ["second"])
    assert not marked(api, "a")
    await api.delete("ConfigMap", "second")
    await eventually(lambda: api.see("ConfigMap", "a") is None)


async def test_the_uid_counts_and_not_the_name(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "kept", parent)
    await api.create("ConfigMap", "a", metadata={"ownerReferences": [{**owner(parent), "uid": "another"}]})
    await api.create("ConfigMap", "b", metadata={"ownerReferences": [{**owner(parent), "name": "nobody"}]})
    await api.create("ConfigMap", "c", metadata={"ownerReferences": [{**owner(parent), "kind": "Secret"}]})
    await asyncio.sleep(1)
    assert api.names("ConfigMap") == ["kept", "parent"]
    await api.delete("ConfigMap", "parent")
    await api.create("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert api.names("ConfigMap") == ["parent"], "another one of that name is not the owner"


async def test_an_owner_that_is_held_by_a_finalizer_keeps_what_it_owns(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent", metadata={"finalizers": ["x.io/hold"]})
    await child(api, "a", parent)
    await api.delete("ConfigMap", "parent")
    await asyncio.sleep(100)
    assert owners(api, "a") == ["parent"]
    await let_go(api, "parent")
    await eventually(lambda: api.see("ConfigMap", "a") is None)


async def test_what_is_held_by_a_finalizer_is_marked_and_goes_when_let_go(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent")
    await eventually(lambda: marked(api, "a"))
    await asyncio.sleep(100)
    assert owners(api, "a") == ["parent"]
    await let_go(api, "a")
    assert api.see("ConfigMap", "a") is None


async def test_whoever_has_no_namespace_may_own_objects_everywhere(api: RegistryFixture) -> None:
    parent = await api.create("Gadget", "parent")
    await child(api, "a", parent)
    await child(api, "a", parent, namespace="default")
    await child(api, "a", parent, kind="Gadget")
    await asyncio.sleep(1)
    assert api.names("ConfigMap") == ["a", "a"]
    await api.delete("Gadget", "parent")
    await asyncio.sleep(1)
    assert api.names("ConfigMap") == api.names("Gadget") == []


async def test_an_owner_in_another_namespace_does_not_count(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent, namespace="default")
    await asyncio.sleep(1)
    assert api.names("ConfigMap") == ["parent"]


async def test_what_has_no_namespace_cannot_be_owned_by_what_has_one_and_is_left_alone(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent, kind="Gadget", blocking=True)
    await api.delete("ConfigMap", "parent")
    await asyncio.sleep(100)
    assert owners(api, "a", "Gadget") == ["parent"]


@pytest.mark.parametrize("strange", [{"kind": "Nothing"}, {"apiVersion": "v9"}, {"apiVersion": "x.io/v1"}])
async def test_what_belongs_to_something_that_is_not_served_is_left_alone(
    api: RegistryFixture, strange: Object
) -> None:
    parent = await api.create("ConfigMap", "parent")
    references = [{**owner(parent), "uid": "dead"}, {**owner(parent), **strange}]
    await api.create("ConfigMap", "a", metadata={"ownerReferences": references})
    await asyncio.sleep(100)
    assert owners(api, "a") == ["parent", "parent"]


async def test_all_generations_go(api: RegistryFixture) -> None:
    made = await api.create("ConfigMap", "g0")
    for generation in range(1, 10):
        made = await child(api, f"g{generation}", made)
    await api.delete("ConfigMap", "g0")
    await eventually(lambda: api.names("ConfigMap") == [])


async def test_a_circle_goes_when_one_of_it_is_deleted(api: RegistryFixture) -> None:
    a = await api.create("ConfigMap", "a")
    b = await child(api, "b", a)
    c = await child(api, "c", b)
    await adopt(api, "a", c)
    await asyncio.sleep(100)
    assert api.names("ConfigMap") == ["a", "b", "c"]
    await api.delete("ConfigMap", "b")
    await eventually(lambda: api.names("ConfigMap") == [])


async def test_whoever_is_adopted_in_time_stays(api: RegistryFixture) -> None:
    parent, other = await api.create("ConfigMap", "parent"), await api.create("ConfigMap", "other")
    for name in "abc":
        await child(api, name, parent)
    await adopt(api, "a")
    await adopt(api, "b", other)
    await api.delete("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert api.names("ConfigMap") == ["a", "b", "other"]


async def test_whoever_is_adopted_at_the_last_moment_stays(api: RegistryFixture) -> None:
    parent, other = await api.create("ConfigMap", "parent"), await api.create("ConfigMap", "other")
    await child(api, "a", parent)
    await api.delete("ConfigMap", "parent")
    api.store.before.append(lambda: adopt(api, "a", other))
    await asyncio.sleep(1)
    assert not api.store.before, "the collector was about to delete it"
    assert owners(api, "a") == ["other"]
    assert not marked(api, "a")


async def test_another_object_that_took_the_name_at_the_last_moment_stays(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent)

    async def replace() -> None:
        await api.delete("ConfigMap", "a")
        await api.create("ConfigMap", "a")

    await api.delete("ConfigMap", "parent")
    api.store.before.append(replace)
    await asyncio.sleep(1)
    assert not api.store.before
    assert owners(api, "a") == []


async def test_while_all_is_well_nothing_is_written(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent, blocking=True)
    written = len(api.store.commits)
    await asyncio.sleep(10_000)
    await api.patch("ConfigMap", "parent", lambda obj: obj.update(data={"x": "y"}))
    await api.patch("ConfigMap", "a", lambda obj: obj.update(data={"x": "y"}))
    await asyncio.sleep(10_000)
    assert len(api.store.commits) == written + 2


async def test_what_lost_its_owner_while_nobody_looked_goes_when_work_begins_again(api: RegistryFixture) -> None:
    async with open_registry(api.store.inner) as later:
        parent = await api.create("ConfigMap", "parent")
        await child(api, "a", parent)
        async with running_controllers(later, GarbageCollector(later.registry)):
            await asyncio.sleep(1)
            assert later.names("ConfigMap") == ["a", "parent"]
        await api.delete("ConfigMap", "parent")
        async with running_controllers(later, GarbageCollector(later.registry)):
            await eventually(lambda: later.names("ConfigMap") == [])


async def test_an_end_that_was_not_heard_of_is_found_out(api: RegistryFixture) -> None:
    """The collector is busy, and its watchers overflow: the owner's end is among what they lose."""
    parent, doomed = await api.create("Gadget", "parent"), await api.create("ConfigMap", "doomed")
    await child(api, "a", parent)
    await child(api, "b", doomed)
    await asyncio.sleep(1)
    api.store.before.extend([_at_once, lambda: asyncio.sleep(10)])
    await api.delete("ConfigMap", "doomed")
    await asyncio.sleep(1)
    assert api.store.before == []
    api.view._collection(parent["apiVersion"].partition("/")[0], "gadgets").watchers.overflow()
    await api.delete("Gadget", "parent")
    assert api.names("ConfigMap") == ["a", "b"], "it is still at the other one"
    await eventually(lambda: api.names("ConfigMap") == [])


async def _at_once() -> None:
    return None


async def test_a_crowd_is_deleted_side_by_side_but_not_all_at_once(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await api.create("ConfigMap", "parent")
    for number in range(200):
        await child(api, f"c{number}", parent)
    commit, under_way, most = api.store.inner.commit, 0, 0

    async def slow(changes: Sequence[Write], checks: Sequence[Precondition] = ()) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(1)
        under_way -= 1
        return await commit(changes, checks)

    await api.delete("ConfigMap", "parent")
    monkeypatch.setattr(api.store.inner, "commit", slow)
    began = api.clock.monotonic()
    await eventually(lambda: api.names("ConfigMap") == [])
    assert most == GarbageCollector.workers
    assert api.clock.monotonic() - began < 200 / GarbageCollector.workers + 2
