"""What has lost its owners goes, and nothing else does."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from fairlead.controllers.core.garbage_collector import GarbageCollector
from fairlead.core.objects import Object
from fairlead.storage.contract import Precondition, Write
from tests.controllers.core.owners import adopt, child, let_go, marked, owner, owners
from tests.harness.controllers import at_work, until
from tests.harness.registry import World, new_world


@pytest.fixture(autouse=True)
async def collector(world: World) -> AsyncIterator[None]:
    async with at_work(world, GarbageCollector(world.registry)):
        yield


async def test_what_an_owner_leaves_behind_goes_and_nothing_else(world: World) -> None:
    parent, other = await world.create("ConfigMap", "parent"), await world.create("ConfigMap", "other")
    await child(world, "a", parent)
    await child(world, "b", parent, kind="Secret")
    await child(world, "c", parent, kind="Lease")
    await child(world, "of-other", other)
    await asyncio.sleep(100)
    assert world.names("ConfigMap") == ["a", "of-other", "other", "parent"], "as long as it is there they stay"
    await world.delete("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert world.names("ConfigMap") == ["of-other", "other"]
    assert world.names("Secret") == world.names("Lease") == []


async def test_one_owner_is_enough_and_references_to_dead_ones_are_removed(world: World) -> None:
    first, second = await world.create("ConfigMap", "first"), await world.create("ConfigMap", "second")
    await child(world, "a", first, second)
    await world.delete("ConfigMap", "first")
    await until(lambda: owners(world, "a") == ["second"])
    assert not marked(world, "a")
    await world.delete("ConfigMap", "second")
    await until(lambda: world.see("ConfigMap", "a") is None)


async def test_the_uid_counts_and_not_the_name(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "kept", parent)
    await world.create("ConfigMap", "a", metadata={"ownerReferences": [{**owner(parent), "uid": "another"}]})
    await world.create("ConfigMap", "b", metadata={"ownerReferences": [{**owner(parent), "name": "nobody"}]})
    await world.create("ConfigMap", "c", metadata={"ownerReferences": [{**owner(parent), "kind": "Secret"}]})
    await asyncio.sleep(1)
    assert world.names("ConfigMap") == ["kept", "parent"]
    await world.delete("ConfigMap", "parent")
    await world.create("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert world.names("ConfigMap") == ["parent"], "another one of that name is not the owner"


async def test_an_owner_that_is_held_by_a_finalizer_keeps_what_it_owns(world: World) -> None:
    parent = await world.create("ConfigMap", "parent", metadata={"finalizers": ["x.io/hold"]})
    await child(world, "a", parent)
    await world.delete("ConfigMap", "parent")
    await asyncio.sleep(100)
    assert owners(world, "a") == ["parent"]
    await let_go(world, "parent")
    await until(lambda: world.see("ConfigMap", "a") is None)


async def test_what_is_held_by_a_finalizer_is_marked_and_goes_when_let_go(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent, finalizers=["x.io/hold"])
    await world.delete("ConfigMap", "parent")
    await until(lambda: marked(world, "a"))
    await asyncio.sleep(100)
    assert owners(world, "a") == ["parent"]
    await let_go(world, "a")
    assert world.see("ConfigMap", "a") is None


async def test_whoever_has_no_namespace_may_own_objects_everywhere(world: World) -> None:
    parent = await world.create("Gadget", "parent")
    await child(world, "a", parent)
    await child(world, "a", parent, namespace="default")
    await child(world, "a", parent, kind="Gadget")
    await asyncio.sleep(1)
    assert world.names("ConfigMap") == ["a", "a"]
    await world.delete("Gadget", "parent")
    await asyncio.sleep(1)
    assert world.names("ConfigMap") == world.names("Gadget") == []


async def test_an_owner_in_another_namespace_does_not_count(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent, namespace="default")
    await asyncio.sleep(1)
    assert world.names("ConfigMap") == ["parent"]


async def test_what_has_no_namespace_cannot_be_owned_by_what_has_one_and_is_left_alone(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent, kind="Gadget", blocking=True)
    await world.delete("ConfigMap", "parent")
    await asyncio.sleep(100)
    assert owners(world, "a", "Gadget") == ["parent"]


@pytest.mark.parametrize("strange", [{"kind": "Nothing"}, {"apiVersion": "v9"}, {"apiVersion": "x.io/v1"}])
async def test_what_belongs_to_something_that_is_not_served_is_left_alone(world: World, strange: Object) -> None:
    parent = await world.create("ConfigMap", "parent")
    references = [{**owner(parent), "uid": "dead"}, {**owner(parent), **strange}]
    await world.create("ConfigMap", "a", metadata={"ownerReferences": references})
    await asyncio.sleep(100)
    assert owners(world, "a") == ["parent", "parent"]


async def test_all_generations_go(world: World) -> None:
    made = await world.create("ConfigMap", "g0")
    for generation in range(1, 10):
        made = await child(world, f"g{generation}", made)
    await world.delete("ConfigMap", "g0")
    await until(lambda: world.names("ConfigMap") == [])


async def test_a_circle_goes_when_one_of_it_is_deleted(world: World) -> None:
    a = await world.create("ConfigMap", "a")
    b = await child(world, "b", a)
    c = await child(world, "c", b)
    await adopt(world, "a", c)
    await asyncio.sleep(100)
    assert world.names("ConfigMap") == ["a", "b", "c"]
    await world.delete("ConfigMap", "b")
    await until(lambda: world.names("ConfigMap") == [])


async def test_whoever_is_adopted_in_time_stays(world: World) -> None:
    parent, other = await world.create("ConfigMap", "parent"), await world.create("ConfigMap", "other")
    for name in "abc":
        await child(world, name, parent)
    await adopt(world, "a")
    await adopt(world, "b", other)
    await world.delete("ConfigMap", "parent")
    await asyncio.sleep(1)
    assert world.names("ConfigMap") == ["a", "b", "other"]


async def test_whoever_is_adopted_at_the_last_moment_stays(world: World) -> None:
    parent, other = await world.create("ConfigMap", "parent"), await world.create("ConfigMap", "other")
    await child(world, "a", parent)
    await world.delete("ConfigMap", "parent")
    world.store.before.append(lambda: adopt(world, "a", other))
    await asyncio.sleep(1)
    assert not world.store.before, "the collector was about to delete it"
    assert owners(world, "a") == ["other"]
    assert not marked(world, "a")


async def test_another_object_that_took_the_name_at_the_last_moment_stays(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent)

    async def replace() -> None:
        await world.delete("ConfigMap", "a")
        await world.create("ConfigMap", "a")

    await world.delete("ConfigMap", "parent")
    world.store.before.append(replace)
    await asyncio.sleep(1)
    assert not world.store.before
    assert owners(world, "a") == []


async def test_while_all_is_well_nothing_is_written(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent, blocking=True)
    written = len(world.store.commits)
    await asyncio.sleep(10_000)
    await world.patch("ConfigMap", "parent", lambda obj: obj.update(data={"x": "y"}))
    await world.patch("ConfigMap", "a", lambda obj: obj.update(data={"x": "y"}))
    await asyncio.sleep(10_000)
    assert len(world.store.commits) == written + 2


async def test_what_lost_its_owner_while_nobody_looked_goes_when_work_begins_again(world: World) -> None:
    async with new_world(world.store.inner) as later:
        parent = await world.create("ConfigMap", "parent")
        await child(world, "a", parent)
        async with at_work(later, GarbageCollector(later.registry)):
            await asyncio.sleep(1)
            assert later.names("ConfigMap") == ["a", "parent"]
        await world.delete("ConfigMap", "parent")
        async with at_work(later, GarbageCollector(later.registry)):
            await until(lambda: later.names("ConfigMap") == [])


async def test_an_end_that_was_not_heard_of_is_found_out(world: World) -> None:
    """The collector is busy, and its watchers overflow: the owner's end is among what they lose."""
    parent, doomed = await world.create("Gadget", "parent"), await world.create("ConfigMap", "doomed")
    await child(world, "a", parent)
    await child(world, "b", doomed)
    await asyncio.sleep(1)
    world.store.before.extend([_at_once, lambda: asyncio.sleep(10)])
    await world.delete("ConfigMap", "doomed")
    await asyncio.sleep(1)
    assert world.store.before == []
    world.view._collection(parent["apiVersion"].partition("/")[0], "gadgets").watchers.overflow()
    await world.delete("Gadget", "parent")
    assert world.names("ConfigMap") == ["a", "b"], "it is still at the other one"
    await until(lambda: world.names("ConfigMap") == [])


async def _at_once() -> None:
    return None


async def test_a_crowd_is_deleted_side_by_side_but_not_all_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await world.create("ConfigMap", "parent")
    for number in range(200):
        await child(world, f"c{number}", parent)
    commit, under_way, most = world.store.inner.commit, 0, 0

    async def slow(changes: Sequence[Write], checks: Sequence[Precondition] = ()) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(1)
        under_way -= 1
        return await commit(changes, checks)

    await world.delete("ConfigMap", "parent")
    monkeypatch.setattr(world.store.inner, "commit", slow)
    began = world.clock.monotonic()
    await until(lambda: world.names("ConfigMap") == [])
    assert most == GarbageCollector.workers
    assert world.clock.monotonic() - began < 200 / GarbageCollector.workers + 2
