"""The queue between the view and one watcher: what gets in, when its owner wakes up, and what a full one does."""

import asyncio
from collections.abc import Callable

import pytest

from fairlead.storage.watchers import Transition, Watcher, Watchers
from tests.controllers.virtual_time import virtually


def step(revision: int, namespace: str = "a") -> Transition[str]:
    return Transition(("g", "things", namespace, "x"), revision, "before", "after")


def revisions(watcher: Watcher[str]) -> list[int]:
    return [transition.revision for transition in watcher.drain()]


def test_what_was_offered_is_drained_once_and_in_order() -> None:
    watcher: Watcher[str] = Watcher("", 10)
    for revision in (1, 2, 3):
        watcher.offer(step(revision))
    assert [watcher.pending, revisions(watcher)] == [True, [1, 2, 3]]
    assert [watcher.pending, revisions(watcher)] == [False, []]


def test_a_watcher_of_one_namespace_hears_only_of_that_one() -> None:
    watcher: Watcher[str] = Watcher("a", 10)
    for revision, namespace in enumerate(["a", "ab", "", "a"]):
        watcher.offer(step(revision, namespace))
        watcher.replay(step(revision + 10, namespace))
    assert revisions(watcher) == [0, 10, 3, 13]


def test_a_watcher_of_all_namespaces_hears_of_objects_without_one_too() -> None:
    watcher: Watcher[str] = Watcher("", 10)
    watcher.offer(step(1, ""))
    watcher.offer(step(2, "b"))
    assert revisions(watcher) == [1, 2]


def test_a_full_queue_overflows_and_then_holds_nothing_rather_than_a_part() -> None:
    watcher: Watcher[str] = Watcher("", 2)
    watcher.offer(step(1))
    watcher.offer(step(2))
    seen = [watcher.overflowed]
    watcher.offer(step(3))
    seen.append(watcher.overflowed)
    watcher.offer(step(4))
    assert (seen, revisions(watcher)) == ([False, True], [])


def test_a_watcher_that_once_overflowed_never_hears_anything_again() -> None:
    """It has missed something, so whatever came now would hide the gap."""
    watcher: Watcher[str] = Watcher("", 1)
    watcher.offer(step(1))
    watcher.offer(step(2))
    watcher.drain()
    watcher.offer(step(3))
    assert revisions(watcher) == []
    assert watcher.overflowed


def test_what_does_not_concern_a_full_watcher_does_not_overflow_it() -> None:
    watcher: Watcher[str] = Watcher("a", 1)
    watcher.offer(step(1))
    watcher.offer(step(2, "b"))
    assert not watcher.overflowed
    assert revisions(watcher) == [1]


def test_a_replay_may_be_longer_than_the_queue() -> None:
    watcher: Watcher[str] = Watcher("", 2)
    for revision in range(5):
        watcher.replay(step(revision))
    assert not watcher.overflowed
    assert revisions(watcher) == [0, 1, 2, 3, 4]


def test_what_waited_when_the_watch_ended_is_still_delivered() -> None:
    watcher: Watcher[str] = Watcher("", 5)
    watcher.offer(step(1))
    watcher.end()
    assert watcher.ended
    assert revisions(watcher) == [1]


@pytest.mark.parametrize(
    "act", [lambda each: each.offer(step(1)), Watcher.overflow, Watcher.end], ids=["offer", "overflow", "end"]
)
@virtually
async def test_a_sleeping_watcher_is_woken_before_its_time_is_over(act: Callable[[Watcher[str]], None]) -> None:
    loop = asyncio.get_running_loop()
    watcher: Watcher[str] = Watcher("", 5)
    loop.call_later(3, act, watcher)
    await watcher.wait(60)
    assert loop.time() == 3


@pytest.mark.parametrize(
    "act", [lambda each: each.offer(step(1)), Watcher.overflow, Watcher.end], ids=["offer", "overflow", "end"]
)
@virtually
async def test_nobody_falls_asleep_over_what_is_there_already(act: Callable[[Watcher[str]], None]) -> None:
    watcher: Watcher[str] = Watcher("", 5)
    act(watcher)
    await watcher.wait(60)
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.parametrize("seconds", [60, 0, -1])
@virtually
async def test_when_nothing_happens_the_wait_ends_with_its_time(seconds: float) -> None:
    watcher: Watcher[str] = Watcher("", 5)
    await watcher.wait(seconds)
    assert asyncio.get_running_loop().time() == max(0, seconds)


@virtually
async def test_a_watcher_that_was_woken_can_wait_again() -> None:
    loop = asyncio.get_running_loop()
    watcher: Watcher[str] = Watcher("", 5)
    for at in (1, 2):
        loop.call_later(1, watcher.offer, step(at))
        await watcher.wait(60)
        assert (loop.time(), revisions(watcher)) == (at, [at])


@virtually
async def test_a_wait_that_is_cancelled_is_cancelled_and_not_swallowed() -> None:
    watcher: Watcher[str] = Watcher("", 5)
    waiting = asyncio.create_task(watcher.wait(60))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    watcher.offer(step(1))
    assert revisions(watcher) == [1]


def test_one_slow_watcher_does_not_cost_the_others_anything() -> None:
    watchers: Watchers[str] = Watchers()
    slow: Watcher[str] = Watcher("", 1)
    quick: Watcher[str] = Watcher("", 5)
    watchers.add(slow)
    watchers.add(quick)
    for revision in (1, 2, 3):
        watchers.offer(step(revision))
    assert slow.overflowed
    assert revisions(quick) == [1, 2, 3]


def test_a_removed_watcher_hears_nothing_more_and_may_be_removed_again() -> None:
    watchers: Watchers[str] = Watchers()
    watcher: Watcher[str] = Watcher("", 5)
    watchers.add(watcher)
    watchers.remove(watcher)
    watchers.remove(watcher)
    watchers.offer(step(1))
    watchers.end()
    watchers.overflow()
    assert (revisions(watcher), watcher.ended, watcher.overflowed) == ([], False, False)


def test_an_end_and_an_overflow_reach_every_watcher() -> None:
    watchers: Watchers[str] = Watchers()
    both: list[Watcher[str]] = [Watcher("", 5), Watcher("a", 5)]
    for watcher in both:
        watchers.add(watcher)
    watchers.end()
    watchers.overflow()
    assert all(watcher.ended and watcher.overflowed for watcher in both)
