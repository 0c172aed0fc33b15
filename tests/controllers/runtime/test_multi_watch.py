"""Several watchers, heard as one."""

import asyncio

from fairlead.controllers.runtime.multi_watch import MultiWatch
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.registry import RegistryFixture

GADGETS, CONFIGMAPS = (MANAGEMENT_GROUP, "gadgets"), ("", "configmaps")


async def test_each_resource_is_heard_and_no_other(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "before")
    ears = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    await api.create("ConfigMap", "a")
    await api.create("Gadget", "b")
    await api.create("Secret", "c")
    await ears.wait(1_000)
    assert sorted(each.key[3] for each in ears.drain()) == ["a", "b"]
    assert list(ears.drain()) == []
    assert api.clock.monotonic() == 0
    ears.close()


async def test_waiting_ends_when_one_of_them_has_something(api: RegistryFixture) -> None:
    async def create_later(name: str) -> None:
        await asyncio.sleep(5)
        await api.create("Gadget", name)

    ears = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    for name in "abc":
        began = api.clock.monotonic()
        creating = asyncio.create_task(create_later(name))
        await ears.wait(1_000)
        assert api.clock.monotonic() == began + 5
        assert [each.key[3] for each in ears.drain()] == [name]
        await creating
    ears.close()


async def test_waiting_ends_when_the_time_is_over_and_may_begin_again(api: RegistryFixture) -> None:
    ears = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    for _ in range(3):
        await ears.wait(30)
        assert list(ears.drain()) == []
    await api.create("ConfigMap", "a")
    await ears.wait(0)
    assert [each.key[3] for each in ears.drain()] == ["a"]
    ears.close()


async def test_one_that_overflows_is_enough_to_have_missed_something(api: RegistryFixture) -> None:
    ears = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    assert not ears.has_overflowed
    api.view._collection(*CONFIGMAPS).watchers.overflow()
    await ears.wait(1_000)
    assert (ears.has_overflowed, api.clock.monotonic()) == (True, 0)
    ears.close()


async def test_the_end_is_heard(api: RegistryFixture) -> None:
    ears = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    assert not ears.is_ended
    api.view.end_watches()
    await ears.wait(1_000)
    assert (ears.is_ended, api.clock.monotonic()) == (True, 0)
    ears.close()


async def test_who_has_closed_them_leaves_nothing_behind(api: RegistryFixture) -> None:
    before = len(asyncio.all_tasks())
    ears = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    await ears.wait(1)
    ears.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before
    assert not [
        *api.view._collection(*GADGETS).watchers._watchers,
        *api.view._collection(*CONFIGMAPS).watchers._watchers,
    ]


async def test_a_nudge_ends_the_wait_under_way_or_the_next_one_and_no_more(api: RegistryFixture) -> None:
    ears = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    asyncio.get_running_loop().call_later(5, ears.wake)
    await ears.wait(1_000)
    assert api.clock.monotonic() == 5
    ears.wake()
    await ears.wait(1_000)
    assert api.clock.monotonic() == 5
    await ears.wait(1_000)
    assert api.clock.monotonic() == 1_005
    ears.close()


async def test_a_wait_for_something_else_as_well_ends_with_that_and_leaves_no_task_behind(api: RegistryFixture) -> None:
    before, doubted = len(asyncio.all_tasks()), asyncio.Event()
    ears = MultiWatch(api.view, (GADGETS,))
    for seconds in (1, 2, 3):
        await ears.wait(1, doubted)
        assert api.clock.monotonic() == seconds
    asyncio.get_running_loop().call_later(5, doubted.set)
    await ears.wait(1_000, doubted)
    assert api.clock.monotonic() == 8
    await ears.wait(1_000, doubted)
    assert api.clock.monotonic() == 8
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before
    ears.close()


async def test_what_was_drained_already_does_not_end_the_next_wait(api: RegistryFixture) -> None:
    ears = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    await api.create("Gadget", "a")
    await api.create("ConfigMap", "b")
    await api.create("Gadget", "c")
    await asyncio.sleep(1)
    assert [each.key[3] for each in ears.drain()] == ["a", "c", "b"]
    began = api.clock.monotonic()
    await ears.wait(7)
    assert api.clock.monotonic() == began + 7
    ears.close()


async def test_ears_that_begin_to_listen_after_the_end_know_of_it(api: RegistryFixture) -> None:
    api.view.end_watches()
    ears = MultiWatch(api.view, (GADGETS,))
    await ears.wait(1_000)
    assert (ears.is_ended, api.clock.monotonic()) == (True, 0)
    ears.close()


async def test_a_wait_that_is_cancelled_takes_nothing_away(api: RegistryFixture) -> None:
    ears = MultiWatch(api.view, (GADGETS,))
    waiting = asyncio.create_task(ears.wait(1_000))
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await api.create("Gadget", "a")
    await ears.wait(1_000)
    assert [each.key[3] for each in ears.drain()] == ["a"]
    assert api.clock.monotonic() == 1
    ears.close()
