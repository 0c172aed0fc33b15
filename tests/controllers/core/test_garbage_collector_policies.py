"""Foreground and Orphan: an owner that is deleted stays until its dependants have gone, or have been set free."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.core.garbage_collector import MIN_FINALIZER_SECONDS, REQUEUE_SECONDS, GarbageCollector
from fairlead.registry.write_options import DeleteOptions
from tests.controllers.core.owners import adopt, child, ends, finalizers, let_go, marked, owner, owners
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, open_registry

FOREGROUND, ORPHAN, BACKGROUND = (DeleteOptions(propagation=each) for each in ("Foreground", "Orphan", "Background"))


@pytest.fixture(autouse=True)
async def collector(api: RegistryFixture) -> AsyncIterator[None]:
    async with running_controllers(api, GarbageCollector(api.registry)):
        yield


@pytest.mark.parametrize("policy", [FOREGROUND, ORPHAN])
async def test_without_dependants_an_owner_stays_for_a_moment_only(api: RegistryFixture, policy: DeleteOptions) -> None:
    await api.create("ConfigMap", "parent")
    await api.delete("ConfigMap", "parent", policy)
    await asyncio.sleep(MIN_FINALIZER_SECONDS * 0.9)
    assert marked(api, "parent")
    await asyncio.sleep(MIN_FINALIZER_SECONDS * 0.2)
    assert api.see("ConfigMap", "parent") is None


async def test_in_the_foreground_an_owner_goes_after_those_that_block_it(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent, blocking=True)
    await child(api, "b", parent, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: marked(api, "b"))
    assert finalizers(api, "b") == ["x.io/hold"], "without dependants of its own it has nothing to wait for"
    await asyncio.sleep(1_000)
    assert api.see("ConfigMap", "a") is None
    assert marked(api, "parent")
    await let_go(api, "b")
    await eventually(lambda: api.see("ConfigMap", "parent") is None)
    assert ends(api) == ["a", "b", "parent"]


async def test_in_the_foreground_those_that_do_not_block_are_deleted_but_not_waited_for(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent)
    await child(api, "b", parent, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: api.names("ConfigMap") == ["b"])
    assert marked(api, "b")


async def test_in_the_foreground_the_youngest_generation_goes_first(api: RegistryFixture) -> None:
    made = await api.create("ConfigMap", "g0")
    for generation in range(1, 6):
        made = await child(api, f"g{generation}", made, blocking=True)
    await api.delete("ConfigMap", "g0", FOREGROUND)
    await eventually(lambda: api.names("ConfigMap") == [])
    assert ends(api) == ["g5", "g4", "g3", "g2", "g1", "g0"]


async def test_in_the_foreground_whoever_has_another_owner_stays_with_it(api: RegistryFixture) -> None:
    parent, other = await api.create("ConfigMap", "parent"), await api.create("ConfigMap", "other")
    await child(api, "a", parent, other, blocking=True)
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: api.see("ConfigMap", "parent") is None)
    assert owners(api, "a") == ["other"]
    assert not marked(api, "a")


async def test_an_owner_stops_waiting_for_whoever_no_longer_blocks_it(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: marked(api, "a"))
    await adopt(api, "a", parent, blocking=False)
    await eventually(lambda: api.names("ConfigMap") == ["a"], seconds=REQUEUE_SECONDS / 2)


async def test_an_owner_stops_waiting_for_whoever_went_unheard(api: RegistryFixture) -> None:
    """The collector is busy, and its watchers overflow: the dependant's end is among what they lose."""
    parent, doomed = await api.create("Gadget", "parent"), await api.create("Secret", "doomed")
    await child(api, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await child(api, "b", doomed, kind="Secret")
    await api.delete("Gadget", "parent", FOREGROUND)
    await eventually(lambda: marked(api, "a"))
    await api.delete("Secret", "doomed")
    api.store.before.append(lambda: asyncio.sleep(100))
    await asyncio.sleep(1)
    assert not api.store.before
    api.view._collection("", "configmaps").watchers.overflow()
    await let_go(api, "a")
    assert api.names("Gadget") == ["parent"]
    await eventually(lambda: api.names("Gadget") == [])


async def test_another_owner_that_took_the_name_at_the_last_moment_keeps_its_finalizer(api: RegistryFixture) -> None:
    async def replace() -> None:
        await let_go(api, "parent")
        parent = await api.create("ConfigMap", "parent")
        await child(api, "a", parent, blocking=True, finalizers=["x.io/hold"])
        await api.delete("ConfigMap", "parent", FOREGROUND)

    await api.create("ConfigMap", "parent")
    await api.delete("ConfigMap", "parent", FOREGROUND)
    api.store.before.append(replace)
    await asyncio.sleep(1_000)
    assert not api.store.before
    assert marked(api, "parent")


async def test_a_foreground_deletion_goes_on_where_it_was_left(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: marked(api, "a"))
    async with open_registry(api.store.inner) as later, running_controllers(later, GarbageCollector(later.registry)):
        await asyncio.sleep(1)
        assert marked(later, "parent")
        await let_go(later, "a")
        await eventually(lambda: later.names("ConfigMap") == [])


async def test_whoever_changes_their_mind_gets_what_they_asked_for_last(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent", metadata={"finalizers": ["x.io/hold"]})
    await child(api, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: marked(api, "a"))
    await api.delete("ConfigMap", "parent", BACKGROUND)
    await let_go(api, "parent")
    assert api.names("ConfigMap") == ["a"]


async def test_orphans_stay_and_lose_that_owner_only(api: RegistryFixture) -> None:
    parent, other = await api.create("ConfigMap", "parent"), await api.create("ConfigMap", "other")
    await child(api, "a", parent)
    await child(api, "b", parent, other, blocking=True)
    await api.delete("ConfigMap", "parent", ORPHAN)
    await eventually(lambda: api.see("ConfigMap", "parent") is None)
    assert (owners(api, "a"), owners(api, "b")) == ([], ["other"])
    await asyncio.sleep(1_000)
    assert not marked(api, "a")
    assert not marked(api, "b")


async def test_an_orphan_that_is_being_deleted_itself_is_set_free_all_the_same(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await child(api, "a", parent, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "a")
    await api.delete("ConfigMap", "parent", ORPHAN)
    await eventually(lambda: api.see("ConfigMap", "parent") is None)
    assert owners(api, "a") == []


@pytest.mark.parametrize("policy", [FOREGROUND, ORPHAN])
async def test_whoever_comes_while_the_owner_is_about_to_go_is_not_forgotten(
    api: RegistryFixture, policy: DeleteOptions
) -> None:
    parent = await api.create("ConfigMap", "parent")
    await api.delete("ConfigMap", "parent", policy)
    await asyncio.sleep(MIN_FINALIZER_SECONDS / 2)
    await child(api, "a", parent)
    await eventually(lambda: api.see("ConfigMap", "parent") is None)
    await asyncio.sleep(1)
    assert api.names("ConfigMap") == ([] if policy is FOREGROUND else ["a"])


async def test_whoever_asked_to_orphan_its_dependants_does_so_when_it_is_collected(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    middle = await child(api, "middle", parent, finalizers=["orphan"])
    await child(api, "a", middle)
    await api.delete("ConfigMap", "parent")
    await eventually(lambda: api.names("ConfigMap") == ["a"])
    assert owners(api, "a") == []


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_circle_ends_in_the_foreground_too(api: RegistryFixture, size: int, blocking: bool) -> None:
    names = [f"c{number}" for number in range(size)]
    made = [await api.create("ConfigMap", name) for name in names]
    for number, name in enumerate(names):
        await adopt(api, name, made[number - 1], blocking=blocking)
    await api.delete("ConfigMap", "c0", FOREGROUND)
    await eventually(lambda: api.names("ConfigMap") == [])


async def test_a_circle_ends_even_if_all_of_it_is_deleted_at_once(api: RegistryFixture) -> None:
    a, b = await api.create("ConfigMap", "a"), await api.create("ConfigMap", "b")
    await adopt(api, "a", b, blocking=True)
    await adopt(api, "b", a, blocking=True)
    await asyncio.gather(api.delete("ConfigMap", "a", FOREGROUND), api.delete("ConfigMap", "b", FOREGROUND))
    await eventually(lambda: api.names("ConfigMap") == [])


async def test_whoever_owns_a_circle_goes_after_it(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    a = await child(api, "a", parent, blocking=True)
    b = await child(api, "b", a, blocking=True)
    await adopt(api, "a", parent, b, blocking=True)
    await api.delete("ConfigMap", "b", FOREGROUND)
    await eventually(lambda: api.see("ConfigMap", "b") is None)
    assert owners(api, "a") == ["parent"], "an owner outside of the circle keeps it"
    b = await child(api, "b", a, blocking=True)
    await adopt(api, "a", parent, b, blocking=True)
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await api.delete("ConfigMap", "b", FOREGROUND)
    await eventually(lambda: api.names("ConfigMap") == [])
    assert ends(api)[-1] == "parent"


async def test_a_circle_waits_for_what_is_held_outside_of_it(api: RegistryFixture) -> None:
    a, b = await api.create("ConfigMap", "a"), await api.create("ConfigMap", "b")
    await adopt(api, "a", b, blocking=True)
    await adopt(api, "b", a, blocking=True)
    await child(api, "held", a, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "a", FOREGROUND)
    await asyncio.sleep(1_000)
    assert marked(api, "a")
    await let_go(api, "held")
    await eventually(lambda: api.names("ConfigMap") == [])
    assert ends(api)[0] == "held"


async def test_a_circle_waits_for_its_own_members_that_are_held(api: RegistryFixture) -> None:
    a = await api.create("ConfigMap", "a")
    b = await child(api, "b", a, blocking=True, finalizers=["x.io/hold"])
    await adopt(api, "a", b, blocking=True)
    await api.delete("ConfigMap", "b", BACKGROUND)
    await api.delete("ConfigMap", "a", FOREGROUND)
    await asyncio.sleep(1_000)
    assert marked(api, "a")
    await let_go(api, "b")
    await eventually(lambda: api.names("ConfigMap") == [])


async def test_a_circle_waits_for_whoever_has_yet_to_find_out_that_it_need_not_wait(api: RegistryFixture) -> None:
    a, b = await api.create("ConfigMap", "a"), await api.create("ConfigMap", "b")
    await adopt(api, "a", b, blocking=True)
    await adopt(api, "b", a, blocking=True)
    await child(api, "c", a, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "a", FOREGROUND)
    await asyncio.sleep(MIN_FINALIZER_SECONDS * 0.9)
    await api.delete("ConfigMap", "c", FOREGROUND)
    await api.patch("ConfigMap", "a", lambda obj: obj.update(data={"look": "now"}))
    await asyncio.sleep(1_000)
    assert marked(api, "a")
    await let_go(api, "c")
    await eventually(lambda: api.names("ConfigMap") == [])


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_the_family_nobody_is_left_waiting_or_without_a_living_owner(
    api: RegistryFixture, seed: int
) -> None:
    """Circles, crossings and all policies, drawn by lot."""
    lot = random.Random(seed)
    names = [f"c{number}" for number in range(8)]
    made = {name: await api.create("ConfigMap", name) for name in names}
    free = set(lot.sample(names, 3))
    for name in sorted(set(names) - free):
        references = [owner(made[each], blocking=lot.random() < 0.7) for each in lot.sample(names, lot.randint(1, 3))]
        made[name]["metadata"].update(ownerReferences=references)
        made[name] = await api.put("ConfigMap", made[name])
    doomed = lot.sample(names, 3)
    for name in doomed:
        if api.see("ConfigMap", name) is not None:
            await api.delete("ConfigMap", name, lot.choice([FOREGROUND, FOREGROUND, ORPHAN, BACKGROUND]))
    await asyncio.sleep(REQUEUE_SECONDS / 2)
    left = api.names("ConfigMap")
    assert not [name for name in left if marked(api, name)]
    assert not [name for name in left if not set(owners(api, name)) <= set(left)]
    assert free - set(doomed) <= set(left), "whoever has no owners is nobody's garbage"
