"""Tests of `fairlead.controllers.runtime.multi_watch`: one watch over several resources."""

import asyncio

from fairlead.controllers.runtime.multi_watch import MultiWatch
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.registry import RegistryFixture

GADGETS, CONFIGMAPS = (MANAGEMENT_GROUP, "gadgets"), ("", "configmaps")


async def test_events_of_the_watched_resources_are_returned_and_no_others(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "before")
    watch = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    await api.create("ConfigMap", "a")
    await api.create("Gadget", "b")
    await api.create("Secret", "c")
    await watch.wait(1_000)
    assert sorted(event.key[3] for event in watch.drain()) == ["a", "b"]
    assert list(watch.drain()) == []
    assert api.clock.monotonic() == 0
    watch.close()


async def test_a_wait_ends_when_one_of_the_watchers_has_an_event(api: RegistryFixture) -> None:
    async def create_later(name: str) -> None:
        await asyncio.sleep(5)
        await api.create("Gadget", name)

    watch = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    for name in "abc":
        start = api.clock.monotonic()
        create_task = asyncio.create_task(create_later(name))
        await watch.wait(1_000)
        assert api.clock.monotonic() == start + 5
        assert [event.key[3] for event in watch.drain()] == [name]
        await create_task
    watch.close()


async def test_a_wait_ends_after_its_timeout_and_can_be_repeated(api: RegistryFixture) -> None:
    watch = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    for _ in range(3):
        await watch.wait(30)
        assert list(watch.drain()) == []
    await api.create("ConfigMap", "a")
    await watch.wait(0)
    assert [event.key[3] for event in watch.drain()] == ["a"]
    watch.close()


async def test_an_overflow_of_one_watcher_is_an_overflow_of_the_watch(api: RegistryFixture) -> None:
    watch = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    assert not watch.has_overflowed
    api.view._collection(*CONFIGMAPS).watchers.overflow()
    await watch.wait(1_000)
    assert (watch.has_overflowed, api.clock.monotonic()) == (True, 0)
    watch.close()


async def test_the_end_of_the_watches_ends_a_wait(api: RegistryFixture) -> None:
    watch = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    assert not watch.is_ended
    api.view.end_watches()
    await watch.wait(1_000)
    assert (watch.is_ended, api.clock.monotonic()) == (True, 0)
    watch.close()


async def test_a_closed_watch_leaves_no_tasks_and_watchers_behind(api: RegistryFixture) -> None:
    before = len(asyncio.all_tasks())
    watch = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    await watch.wait(1)
    watch.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before
    assert not [
        *api.view._collection(*GADGETS).watchers._watchers,
        *api.view._collection(*CONFIGMAPS).watchers._watchers,
    ]


async def test_wake_ends_the_current_wait_or_the_next_one(api: RegistryFixture) -> None:
    watch = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    asyncio.get_running_loop().call_later(5, watch.wake)
    await watch.wait(1_000)
    assert api.clock.monotonic() == 5
    watch.wake()
    await watch.wait(1_000)
    assert api.clock.monotonic() == 5
    await watch.wait(1_000)
    assert api.clock.monotonic() == 1_005
    watch.close()


async def test_a_wait_with_an_additional_event_ends_with_that_and_leaves_no_task_behind(api: RegistryFixture) -> None:
    before, other_event = len(asyncio.all_tasks()), asyncio.Event()
    watch = MultiWatch(api.view, (GADGETS,))
    for seconds in (1, 2, 3):
        await watch.wait(1, other_event)
        assert api.clock.monotonic() == seconds
    asyncio.get_running_loop().call_later(5, other_event.set)
    await watch.wait(1_000, other_event)
    assert api.clock.monotonic() == 8
    await watch.wait(1_000, other_event)
    assert api.clock.monotonic() == 8
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before
    watch.close()


async def test_drained_events_do_not_end_the_next_wait(api: RegistryFixture) -> None:
    watch = MultiWatch(api.view, (GADGETS, CONFIGMAPS))
    await api.create("Gadget", "a")
    await api.create("ConfigMap", "b")
    await api.create("Gadget", "c")
    await asyncio.sleep(1)
    assert [event.key[3] for event in watch.drain()] == ["a", "c", "b"]
    start = api.clock.monotonic()
    await watch.wait(7)
    assert api.clock.monotonic() == start + 7
    watch.close()


async def test_a_watch_that_starts_after_the_end_is_ended(api: RegistryFixture) -> None:
    api.view.end_watches()
    watch = MultiWatch(api.view, (GADGETS,))
    await watch.wait(1_000)
    assert (watch.is_ended, api.clock.monotonic()) == (True, 0)
    watch.close()


async def test_a_cancelled_wait_loses_no_events(api: RegistryFixture) -> None:
    watch = MultiWatch(api.view, (GADGETS,))
    wait_task = asyncio.create_task(watch.wait(1_000))
    await asyncio.sleep(1)
    wait_task.cancel()
    await asyncio.gather(wait_task, return_exceptions=True)
    await api.create("Gadget", "a")
    await watch.wait(1_000)
    assert [event.key[3] for event in watch.drain()] == ["a"]
    assert api.clock.monotonic() == 1
    watch.close()
