"""The queue between the view and one watcher: what gets in, when its owner wakes up, and what a full one does."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlead.storage.view.fan_out import (
    BY_NAME,
    MAX_PAUSE_SECONDS,
    WAKE_BATCH_SIZE,
    Transition,
    Watcher,
    WatchFilter,
    WatchHub,
)
from tests.harness.virtual_time import on_virtual_time


def step(revision: int, namespace: str = "a") -> Transition[str]:
    return Transition(("g", "things", namespace, "x"), revision, "before", "after")


async def sleep(watcher: Watcher[Any]) -> None:
    await watcher.wait_ready()


def revisions(watcher: Watcher[str]) -> list[int]:
    return [transition.revision for transition in watcher.drain()]


def test_what_was_offered_is_drained_once_and_in_order() -> None:
    watcher: Watcher[str] = Watcher("", 10)
    for revision in (1, 2, 3):
        watcher.notify(step(revision))
    assert [watcher.has_pending, revisions(watcher)] == [True, [1, 2, 3]]
    assert [watcher.has_pending, revisions(watcher)] == [False, []]


def test_a_watcher_of_one_namespace_hears_only_of_that_one() -> None:
    watcher: Watcher[str] = Watcher("a", 10)
    for revision, namespace in enumerate(["a", "ab", "", "a"]):
        watcher.notify(step(revision, namespace))
        watcher.replay(step(revision + 10, namespace))
    assert revisions(watcher) == [0, 10, 3, 13]


def test_a_watcher_of_all_namespaces_hears_of_objects_without_one_too() -> None:
    watcher: Watcher[str] = Watcher("", 10)
    watcher.notify(step(1, ""))
    watcher.notify(step(2, "b"))
    assert revisions(watcher) == [1, 2]


def test_a_full_queue_overflows_and_then_holds_nothing_rather_than_a_part() -> None:
    watcher: Watcher[str] = Watcher("", 2)
    watcher.notify(step(1))
    watcher.notify(step(2))
    seen = [watcher.overflowed]
    watcher.notify(step(3))
    seen.append(watcher.overflowed)
    watcher.notify(step(4))
    assert (seen, revisions(watcher)) == ([False, True], [])


def test_a_watcher_that_once_overflowed_never_hears_anything_again() -> None:
    """It has missed something, so whatever came now would hide the gap."""
    watcher: Watcher[str] = Watcher("", 1)
    watcher.notify(step(1))
    watcher.notify(step(2))
    watcher.drain()
    watcher.notify(step(3))
    assert revisions(watcher) == []
    assert watcher.overflowed


def test_what_does_not_concern_a_full_watcher_does_not_overflow_it() -> None:
    watcher: Watcher[str] = Watcher("a", 1)
    watcher.notify(step(1))
    watcher.notify(step(2, "b"))
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
    watcher.notify(step(1))
    watcher.end()
    assert watcher.ended
    assert revisions(watcher) == [1]


@pytest.mark.parametrize(
    "act", [lambda each: each.notify(step(1)), Watcher.overflow, Watcher.end], ids=["notify", "overflow", "end"]
)
@on_virtual_time
async def test_a_sleeping_watcher_is_woken_by_whatever_concerns_it(act: Callable[[Watcher[str]], None]) -> None:
    loop = asyncio.get_running_loop()
    watcher: Watcher[str] = Watcher("", 5)
    loop.call_later(3, act, watcher)
    await watcher.wait_ready()
    assert loop.time() == 3


@pytest.mark.parametrize(
    "act", [lambda each: each.notify(step(1)), Watcher.overflow, Watcher.end], ids=["notify", "overflow", "end"]
)
@on_virtual_time
async def test_nobody_falls_asleep_over_what_is_there_already(act: Callable[[Watcher[str]], None]) -> None:
    watcher: Watcher[str] = Watcher("", 5)
    act(watcher)
    await watcher.wait_ready()
    assert asyncio.get_running_loop().time() == 0


@on_virtual_time
async def test_a_sleeping_watcher_can_be_roused_though_there_is_nothing_new() -> None:
    loop = asyncio.get_running_loop()
    watcher: Watcher[str] = Watcher("", 5)
    watcher.wake()
    loop.call_later(3, watcher.wake)
    await watcher.wait_ready()
    assert (loop.time(), revisions(watcher)) == (3, [])


def test_a_bell_rings_for_the_first_thing_that_waits_and_for_the_end() -> None:
    watcher: Watcher[str] = Watcher("", 2)
    rung: list[str] = []
    watcher.on_ready = lambda: rung.append("ended" if watcher.ended else "missed" if watcher.overflowed else "news")
    watcher.notify(step(1))
    watcher.notify(step(2))
    assert rung == ["news"]
    watcher.drain()
    watcher.notify(step(3))
    assert rung == ["news", "news"]
    watcher.overflow()
    watcher.end()
    assert rung == ["news", "news", "missed", "ended"]


@on_virtual_time
async def test_a_watcher_that_was_woken_can_wait_again() -> None:
    loop = asyncio.get_running_loop()
    watcher: Watcher[str] = Watcher("", 5)
    for at in (1, 2):
        loop.call_later(1, watcher.notify, step(at))
        await watcher.wait_ready()
        assert (loop.time(), revisions(watcher)) == (at, [at])


@on_virtual_time
async def test_a_wait_that_is_cancelled_is_cancelled_and_not_swallowed() -> None:
    watcher: Watcher[str] = Watcher("", 5)
    waiting = asyncio.create_task(sleep(watcher))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    watcher.notify(step(1))
    assert revisions(watcher) == [1]
    asyncio.get_running_loop().call_later(1, watcher.notify, step(2))
    await watcher.wait_ready()
    assert revisions(watcher) == [2]


def test_one_slow_watcher_does_not_cost_the_others_anything() -> None:
    watchers: WatchHub[str] = WatchHub()
    slow: Watcher[str] = Watcher("", 1)
    quick: Watcher[str] = Watcher("", 5)
    watchers.add(slow)
    watchers.add(quick)
    for revision in (1, 2, 3):
        watchers.publish(step(revision))
    assert slow.overflowed
    assert revisions(quick) == [1, 2, 3]


def test_a_removed_watcher_hears_nothing_more_and_may_be_removed_again() -> None:
    watchers: WatchHub[str] = WatchHub()
    watcher: Watcher[str] = Watcher("", 5)
    watchers.add(watcher)
    watchers.remove(watcher)
    watchers.remove(watcher)
    watchers.publish(step(1))
    watchers.end()
    watchers.overflow()
    assert (revisions(watcher), watcher.ended, watcher.overflowed) == ([], False, False)


def test_an_end_and_an_overflow_reach_every_watcher() -> None:
    watchers: WatchHub[str] = WatchHub()
    both: list[Watcher[str]] = [Watcher("", 5), Watcher("a", 5)]
    for watcher in both:
        watchers.add(watcher)
    watchers.end()
    watchers.overflow()
    assert all(watcher.ended and watcher.overflowed for watcher in both)


# --- who is found


@dataclass(frozen=True)
class State:
    labels: dict[str, str] = field(default_factory=dict)
    selectable: dict[str, str] = field(default_factory=dict)


def moved(revision: int, before: str, after: str, *, name: str = "x", namespace: str = "a") -> Transition[State]:
    """An object whose label and field go from one value to another; empty where there is no object."""
    states = [State({"team": value}, {"phase": value}) if value else None for value in (before, after)]
    return Transition(("g", "things", namespace, name), revision, *states)


def seeking(*sought: WatchFilter | None, namespace: str = "") -> tuple[WatchHub[State], list[Watcher[State]]]:
    watchers: WatchHub[State] = WatchHub()
    each: list[Watcher[State]] = [Watcher(namespace, 10, one) for one in sought]
    for watcher in each:
        watchers.add(watcher)
    return watchers, each


def heard(watcher: Watcher[State]) -> list[int]:
    return [transition.revision for transition in watcher.drain()]


@pytest.mark.parametrize(("sort", "name"), [("labels", "team"), ("selectable", "phase")])
def test_who_seeks_a_value_hears_of_what_has_it_gets_it_or_loses_it_and_of_nothing_else(sort: str, name: str) -> None:
    steps = [("", "red"), ("red", "red"), ("red", "blue"), ("blue", "green"), ("green", "red"), ("red", "")]
    watchers, (red, blue, all_of_it) = seeking(
        (sort, name, frozenset({"red"})), (sort, name, frozenset({"blue"})), None
    )
    for revision, (before, after) in enumerate(steps):
        watchers.publish(moved(revision, before, after))
    assert [heard(red), heard(blue), heard(all_of_it)] == [[0, 1, 2, 4, 5], [2, 3], [0, 1, 2, 3, 4, 5]]


def test_who_seeks_several_values_hears_of_a_step_between_two_of_them_once() -> None:
    watchers, (either,) = seeking(("labels", "team", frozenset({"red", "blue"})))
    watchers.publish(moved(1, "red", "blue"))
    watchers.publish(moved(2, "green", "pink"))
    assert heard(either) == [1]


def test_who_seeks_what_an_object_lacks_altogether_does_not_hear_of_it() -> None:
    watchers, (other,) = seeking(("labels", "tier", frozenset({"red"})))
    watchers.publish(moved(1, "red", "red"))
    assert heard(other) == []


def test_who_seeks_a_name_hears_of_that_object_alone_and_only_in_its_namespace() -> None:
    watchers, (mine,) = seeking((BY_NAME, "", frozenset({"x"})), namespace="a")
    watchers.publish(moved(1, "red", "red"))
    watchers.publish(moved(2, "red", "red", name="y"))
    watchers.publish(moved(3, "red", "red", namespace="b"))
    assert heard(mine) == [1]


def test_a_watcher_that_was_filed_is_found_no_more_once_it_is_removed() -> None:
    sought: list[WatchFilter | None] = [
        None,
        (BY_NAME, "", frozenset({"x"})),
        ("labels", "team", frozenset({"red", "b"})),
    ]
    watchers, each = seeking(*sought, *sought)
    for watcher in each[:3]:
        watchers.remove(watcher)
    watchers.publish(moved(1, "red", "red"))
    for watcher in each[3:]:
        watchers.remove(watcher)
    watchers.publish(moved(2, "red", "red"))
    assert [heard(watcher) for watcher in each] == [[], [], [], [1], [1], [1]]


# --- rounds


@on_virtual_time
async def test_what_happens_at_once_wakes_a_watcher_once() -> None:
    watchers, (one,) = seeking(None)
    waiting = asyncio.create_task(sleep(one))
    await asyncio.sleep(1)
    for revision in (1, 2, 3):
        watchers.publish(moved(revision, "red", "red"))
    await waiting
    assert (heard(one), asyncio.get_running_loop().time()) == ([1, 2, 3], 1)


class Audience:
    """Followers on virtual time, each of whom takes a while with what it hears, as the given clock has it."""

    def __init__(self, size: int, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._busy = 0.0
        self.told: list[tuple[float, list[int]]] = []
        self.watchers: WatchHub[State] = WatchHub(lambda: self._busy)
        self.tasks = [asyncio.create_task(self._follow(Watcher("", 10))) for _ in range(size)]

    async def _follow(self, watcher: Watcher[State]) -> None:
        self.watchers.add(watcher)
        while True:
            await watcher.wait_ready()
            self._busy += self._seconds
            self.told.append((self._loop.time(), heard(watcher)))


@pytest.mark.parametrize(
    ("seconds", "rest"),
    [(0.0001, 0.02), (0.01, MAX_PAUSE_SECONDS)],
    ids=["as long as the round", "but not for ever"],
)
@on_virtual_time
async def test_after_a_round_that_took_long_the_next_news_waits_for_more(seconds: float, rest: float) -> None:
    audience = Audience(200, seconds)
    await asyncio.sleep(1)
    for revision in (1, 2, 3):
        audience.watchers.publish(moved(revision, "red", "red"))
        await asyncio.sleep(0.001)
    await asyncio.sleep(1)
    assert audience.told == [(1, [1])] * 200 + [(pytest.approx(1 + rest), [2, 3])] * 200
    audience.watchers.publish(moved(4, "red", "red"))
    now = asyncio.get_running_loop().time()
    await asyncio.sleep(1)
    assert audience.told[400:] == [(now, [4])] * 200
    for task in audience.tasks:
        task.cancel()


@on_virtual_time
async def test_after_a_short_round_nobody_waits() -> None:
    audience = Audience(3, 0.0001)
    await asyncio.sleep(1)
    for revision in (1, 2):
        audience.watchers.publish(moved(revision, "red", "red"))
        for _ in range(10):
            await asyncio.sleep(0)
    assert audience.told == [(1, [1])] * 3 + [(1, [2])] * 3
    for task in audience.tasks:
        task.cancel()


@on_virtual_time
async def test_others_get_their_turn_in_the_middle_of_a_long_round() -> None:
    audience = Audience(10 * WAKE_BATCH_SIZE, 0.0)
    await asyncio.sleep(1)
    audience.watchers.publish(moved(1, "red", "red"))
    seen = []
    while len(audience.told) < 10 * WAKE_BATCH_SIZE:
        await asyncio.sleep(0)
        seen.append(len(audience.told))
    assert {WAKE_BATCH_SIZE * number for number in range(1, 11)} <= set(seen)
    for task in audience.tasks:
        task.cancel()


@on_virtual_time
async def test_an_end_and_an_overflow_do_not_wait_for_a_round() -> None:
    loop = asyncio.get_running_loop()
    watchers, each = seeking(*[None] * 2_000)
    waits = [asyncio.create_task(sleep(watcher)) for watcher in each]
    await asyncio.sleep(1)
    watchers.publish(moved(1, "red", "red"))
    await asyncio.gather(*waits)
    for watcher in each:
        watcher.drain()
    waits = [asyncio.create_task(sleep(watcher)) for watcher in each]
    await asyncio.sleep(0)
    watchers.end()
    await asyncio.gather(*waits)
    assert loop.time() == 1
