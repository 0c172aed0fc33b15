"""Several watchers, heard as one."""

import asyncio

from fairlead.controllers.ears import WAIT_SECONDS, Ears
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.admission.world import World

GADGETS, CONFIGMAPS = (MANAGEMENT_GROUP, "gadgets"), ("", "configmaps")


async def test_each_resource_is_heard_and_no_other(world: World) -> None:
    await world.create("ConfigMap", "before")
    ears = Ears(world.view, (GADGETS, CONFIGMAPS))
    await world.create("ConfigMap", "a")
    await world.create("Gadget", "b")
    await world.create("Secret", "c")
    await ears.wait(1_000, asyncio.Event())
    assert sorted(each.key[3] for each in ears.drain()) == ["a", "b"]
    assert list(ears.drain()) == []
    assert world.clock.monotonic() == 0
    ears.close()


async def test_waiting_ends_when_one_of_them_has_something(world: World) -> None:
    async def create_later(name: str) -> None:
        await asyncio.sleep(5)
        await world.create("Gadget", name)

    ears = Ears(world.view, (GADGETS, CONFIGMAPS))
    for name in "abc":
        began = world.clock.monotonic()
        creating = asyncio.create_task(create_later(name))
        await ears.wait(1_000, asyncio.Event())
        assert world.clock.monotonic() == began + 5
        assert [each.key[3] for each in ears.drain()] == [name]
        await creating
    ears.close()


async def test_waiting_ends_when_the_time_is_over_and_may_begin_again(world: World) -> None:
    ears = Ears(world.view, (GADGETS, CONFIGMAPS))
    for _ in range(3):
        await ears.wait(WAIT_SECONDS / 2, asyncio.Event())
        assert list(ears.drain()) == []
    await world.create("ConfigMap", "a")
    await ears.wait(0, asyncio.Event())
    assert [each.key[3] for each in ears.drain()] == ["a"]
    ears.close()


async def test_one_that_overflows_is_enough_to_have_missed_something(world: World) -> None:
    ears = Ears(world.view, (GADGETS, CONFIGMAPS))
    assert not ears.overflowed
    world.view._collection(*CONFIGMAPS).watchers.overflow()
    await ears.wait(1_000, asyncio.Event())
    assert (ears.overflowed, world.clock.monotonic()) == (True, 0)
    ears.close()


async def test_the_end_is_heard(world: World) -> None:
    ears = Ears(world.view, (GADGETS, CONFIGMAPS))
    assert not ears.ended
    world.view.end_watches()
    await ears.wait(1_000, asyncio.Event())
    assert (ears.ended, world.clock.monotonic()) == (True, 0)
    ears.close()


async def test_who_has_closed_them_leaves_nothing_behind(world: World) -> None:
    before = len(asyncio.all_tasks())
    ears = Ears(world.view, (GADGETS, CONFIGMAPS))
    await ears.wait(1, asyncio.Event())
    ears.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before
    assert not [*world.view._collection(*GADGETS).watchers._all, *world.view._collection(*CONFIGMAPS).watchers._all]
