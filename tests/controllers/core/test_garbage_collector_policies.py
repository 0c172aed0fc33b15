"""Foreground and Orphan: an owner that is deleted stays until its dependants have gone, or have been set free."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.core.garbage_collector import MIN_FINALIZER_SECONDS, REQUEUE_SECONDS, GarbageCollector
from fairlead.registry.write_options import DeleteOptions
from tests.controllers.core.owners import adopt, child, ends, finalizers, let_go, marked, owner, owners
from tests.harness.controllers import at_work, until
from tests.harness.registry import World, new_world

FOREGROUND, ORPHAN, BACKGROUND = (DeleteOptions(propagation=each) for each in ("Foreground", "Orphan", "Background"))


@pytest.fixture(autouse=True)
async def collector(world: World) -> AsyncIterator[None]:
    async with at_work(world, GarbageCollector(world.registry)):
        yield


@pytest.mark.parametrize("policy", [FOREGROUND, ORPHAN])
async def test_without_dependants_an_owner_stays_for_a_moment_only(world: World, policy: DeleteOptions) -> None:
    await world.create("ConfigMap", "parent")
    await world.delete("ConfigMap", "parent", policy)
    await asyncio.sleep(MIN_FINALIZER_SECONDS * 0.9)
    assert marked(world, "parent")
    await asyncio.sleep(MIN_FINALIZER_SECONDS * 0.2)
    assert world.see("ConfigMap", "parent") is None


async def test_in_the_foreground_an_owner_goes_after_those_that_block_it(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent, blocking=True)
    await child(world, "b", parent, blocking=True, finalizers=["x.io/hold"])
    await world.delete("ConfigMap", "parent", FOREGROUND)
    await until(lambda: marked(world, "b"))
    assert finalizers(world, "b") == ["x.io/hold"], "without dependants of its own it has nothing to wait for"
    await asyncio.sleep(1_000)
    assert world.see("ConfigMap", "a") is None
    assert marked(world, "parent")
    await let_go(world, "b")
    await until(lambda: world.see("ConfigMap", "parent") is None)
    assert ends(world) == ["a", "b", "parent"]


async def test_in_the_foreground_those_that_do_not_block_are_deleted_but_not_waited_for(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent)
    await child(world, "b", parent, finalizers=["x.io/hold"])
    await world.delete("ConfigMap", "parent", FOREGROUND)
    await until(lambda: world.names("ConfigMap") == ["b"])
    assert marked(world, "b")


async def test_in_the_foreground_the_youngest_generation_goes_first(world: World) -> None:
    made = await world.create("ConfigMap", "g0")
    for generation in range(1, 6):
        made = await child(world, f"g{generation}", made, blocking=True)
    await world.delete("ConfigMap", "g0", FOREGROUND)
    await until(lambda: world.names("ConfigMap") == [])
    assert ends(world) == ["g5", "g4", "g3", "g2", "g1", "g0"]


async def test_in_the_foreground_whoever_has_another_owner_stays_with_it(world: World) -> None:
    parent, other = await world.create("ConfigMap", "parent"), await world.create("ConfigMap", "other")
    await child(world, "a", parent, other, blocking=True)
    await world.delete("ConfigMap", "parent", FOREGROUND)
    await until(lambda: world.see("ConfigMap", "parent") is None)
    assert owners(world, "a") == ["other"]
    assert not marked(world, "a")


async def test_an_owner_stops_waiting_for_whoever_no_longer_blocks_it(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await world.delete("ConfigMap", "parent", FOREGROUND)
    await until(lambda: marked(world, "a"))
    await adopt(world, "a", parent, blocking=False)
    await until(lambda: world.names("ConfigMap") == ["a"], seconds=REQUEUE_SECONDS / 2)


async def test_an_owner_stops_waiting_for_whoever_went_unheard(world: World) -> None:
    """The collector is busy, and its watchers overflow: the dependant's end is among what they lose."""
    parent, doomed = await world.create("Gadget", "parent"), await world.create("Secret", "doomed")
    await child(world, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await child(world, "b", doomed, kind="Secret")
    await world.delete("Gadget", "parent", FOREGROUND)
    await until(lambda: marked(world, "a"))
    await world.delete("Secret", "doomed")
    world.store.before.append(lambda: asyncio.sleep(100))
    await asyncio.sleep(1)
    assert not world.store.before
    world.view._collection("", "configmaps").watchers.overflow()
    await let_go(world, "a")
    assert world.names("Gadget") == ["parent"]
    await until(lambda: world.names("Gadget") == [])


async def test_another_owner_that_took_the_name_at_the_last_moment_keeps_its_finalizer(world: World) -> None:
    async def replace() -> None:
        await let_go(world, "parent")
        parent = await world.create("ConfigMap", "parent")
        await child(world, "a", parent, blocking=True, finalizers=["x.io/hold"])
        await world.delete("ConfigMap", "parent", FOREGROUND)

    await world.create("ConfigMap", "parent")
    await world.delete("ConfigMap", "parent", FOREGROUND)
    world.store.before.append(replace)
    await asyncio.sleep(1_000)
    assert not world.store.before
    assert marked(world, "parent")


async def test_a_foreground_deletion_goes_on_where_it_was_left(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await world.delete("ConfigMap", "parent", FOREGROUND)
    await until(lambda: marked(world, "a"))
    async with new_world(world.store.inner) as later, at_work(later, GarbageCollector(later.registry)):
        await asyncio.sleep(1)
        assert marked(later, "parent")
        await let_go(later, "a")
        await until(lambda: later.names("ConfigMap") == [])


async def test_whoever_changes_their_mind_gets_what_they_asked_for_last(world: World) -> None:
    parent = await world.create("ConfigMap", "parent", metadata={"finalizers": ["x.io/hold"]})
    await child(world, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await world.delete("ConfigMap", "parent", FOREGROUND)
    await until(lambda: marked(world, "a"))
    await world.delete("ConfigMap", "parent", BACKGROUND)
    await let_go(world, "parent")
    assert world.names("ConfigMap") == ["a"]


async def test_orphans_stay_and_lose_that_owner_only(world: World) -> None:
    parent, other = await world.create("ConfigMap", "parent"), await world.create("ConfigMap", "other")
    await child(world, "a", parent)
    await child(world, "b", parent, other, blocking=True)
    await world.delete("ConfigMap", "parent", ORPHAN)
    await until(lambda: world.see("ConfigMap", "parent") is None)
    assert (owners(world, "a"), owners(world, "b")) == ([], ["other"])
    await asyncio.sleep(1_000)
    assert not marked(world, "a")
    assert not marked(world, "b")


async def test_an_orphan_that_is_being_deleted_itself_is_set_free_all_the_same(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    await child(world, "a", parent, finalizers=["x.io/hold"])
    await world.delete("ConfigMap", "a")
    await world.delete("ConfigMap", "parent", ORPHAN)
    await until(lambda: world.see("ConfigMap", "parent") is None)
    assert owners(world, "a") == []


@pytest.mark.parametrize("policy", [FOREGROUND, ORPHAN])
async def test_whoever_comes_while_the_owner_is_about_to_go_is_not_forgotten(
    world: World, policy: DeleteOptions
) -> None:
    parent = await world.create("ConfigMap", "parent")
    await world.delete("ConfigMap", "parent", policy)
    await asyncio.sleep(MIN_FINALIZER_SECONDS / 2)
    await child(world, "a", parent)
    await until(lambda: world.see("ConfigMap", "parent") is None)
    await asyncio.sleep(1)
    assert world.names("ConfigMap") == ([] if policy is FOREGROUND else ["a"])


async def test_whoever_asked_to_orphan_its_dependants_does_so_when_it_is_collected(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    middle = await child(world, "middle", parent, finalizers=["orphan"])
    await child(world, "a", middle)
    await world.delete("ConfigMap", "parent")
    await until(lambda: world.names("ConfigMap") == ["a"])
    assert owners(world, "a") == []


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_circle_ends_in_the_foreground_too(world: World, size: int, blocking: bool) -> None:
    names = [f"c{number}" for number in range(size)]
    made = [await world.create("ConfigMap", name) for name in names]
    for number, name in enumerate(names):
        await adopt(world, name, made[number - 1], blocking=blocking)
    await world.delete("ConfigMap", "c0", FOREGROUND)
    await until(lambda: world.names("ConfigMap") == [])


async def test_a_circle_ends_even_if_all_of_it_is_deleted_at_once(world: World) -> None:
    a, b = await world.create("ConfigMap", "a"), await world.create("ConfigMap", "b")
    await adopt(world, "a", b, blocking=True)
    await adopt(world, "b", a, blocking=True)
    await asyncio.gather(world.delete("ConfigMap", "a", FOREGROUND), world.delete("ConfigMap", "b", FOREGROUND))
    await until(lambda: world.names("ConfigMap") == [])


async def test_whoever_owns_a_circle_goes_after_it(world: World) -> None:
    parent = await world.create("ConfigMap", "parent")
    a = await child(world, "a", parent, blocking=True)
    b = await child(world, "b", a, blocking=True)
    await adopt(world, "a", parent, b, blocking=True)
    await world.delete("ConfigMap", "b", FOREGROUND)
    await until(lambda: world.see("ConfigMap", "b") is None)
    assert owners(world, "a") == ["parent"], "an owner outside of the circle keeps it"
    b = await child(world, "b", a, blocking=True)
    await adopt(world, "a", parent, b, blocking=True)
    await world.delete("ConfigMap", "parent", FOREGROUND)
    await world.delete("ConfigMap", "b", FOREGROUND)
    await until(lambda: world.names("ConfigMap") == [])
    assert ends(world)[-1] == "parent"


async def test_a_circle_waits_for_what_is_held_outside_of_it(world: World) -> None:
    a, b = await world.create("ConfigMap", "a"), await world.create("ConfigMap", "b")
    await adopt(world, "a", b, blocking=True)
    await adopt(world, "b", a, blocking=True)
    await child(world, "held", a, blocking=True, finalizers=["x.io/hold"])
    await world.delete("ConfigMap", "a", FOREGROUND)
    await asyncio.sleep(1_000)
    assert marked(world, "a")
    await let_go(world, "held")
    await until(lambda: world.names("ConfigMap") == [])
    assert ends(world)[0] == "held"


async def test_a_circle_waits_for_its_own_members_that_are_held(world: World) -> None:
    a = await world.create("ConfigMap", "a")
    b = await child(world, "b", a, blocking=True, finalizers=["x.io/hold"])
    await adopt(world, "a", b, blocking=True)
    await world.delete("ConfigMap", "b", BACKGROUND)
    await world.delete("ConfigMap", "a", FOREGROUND)
    await asyncio.sleep(1_000)
    assert marked(world, "a")
    await let_go(world, "b")
    await until(lambda: world.names("ConfigMap") == [])


async def test_a_circle_waits_for_whoever_has_yet_to_find_out_that_it_need_not_wait(world: World) -> None:
    a, b = await world.create("ConfigMap", "a"), await world.create("ConfigMap", "b")
    await adopt(world, "a", b, blocking=True)
    await adopt(world, "b", a, blocking=True)
    await child(world, "c", a, blocking=True, finalizers=["x.io/hold"])
    await world.delete("ConfigMap", "a", FOREGROUND)
    await asyncio.sleep(MIN_FINALIZER_SECONDS * 0.9)
    await world.delete("ConfigMap", "c", FOREGROUND)
    await world.patch("ConfigMap", "a", lambda obj: obj.update(data={"look": "now"}))
    await asyncio.sleep(1_000)
    assert marked(world, "a")
    await let_go(world, "c")
    await until(lambda: world.names("ConfigMap") == [])


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_the_family_nobody_is_left_waiting_or_without_a_living_owner(world: World, seed: int) -> None:
    """Circles, crossings and all policies, drawn by lot."""
    lot = random.Random(seed)
    names = [f"c{number}" for number in range(8)]
    made = {name: await world.create("ConfigMap", name) for name in names}
    free = set(lot.sample(names, 3))
    for name in sorted(set(names) - free):
        references = [owner(made[each], blocking=lot.random() < 0.7) for each in lot.sample(names, lot.randint(1, 3))]
        made[name]["metadata"].update(ownerReferences=references)
        made[name] = await world.put("ConfigMap", made[name])
    doomed = lot.sample(names, 3)
    for name in doomed:
        if world.see("ConfigMap", name) is not None:
            await world.delete("ConfigMap", name, lot.choice([FOREGROUND, FOREGROUND, ORPHAN, BACKGROUND]))
    await asyncio.sleep(REQUEUE_SECONDS / 2)
    left = world.names("ConfigMap")
    assert not [name for name in left if marked(world, name)]
    assert not [name for name in left if not set(owners(world, name)) <= set(left)]
    assert free - set(doomed) <= set(left), "whoever has no owners is nobody's garbage"
