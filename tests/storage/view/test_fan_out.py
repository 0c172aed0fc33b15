"""storage/view/fan_out.py: the queue of a watcher, when it is woken, and what happens when it is full."""

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


def build_transition(revision: int, namespace: str = "a") -> Transition[str]:
    return Transition(("g", "things", namespace, "x"), revision, "before", "after")


async def wait_ready(watcher: Watcher[Any]) -> None:
    await watcher.wait_ready()


def drain_revisions(watcher: Watcher[str]) -> list[int]:
    return [transition.revision for transition in watcher.drain()]


def test_transitions_are_drained_once_and_in_order() -> None:
    watcher: Watcher[str] = Watcher("", 10)
    for revision in (1, 2, 3):
        watcher.notify(build_transition(revision))
    assert [watcher.has_pending, drain_revisions(watcher)] == [True, [1, 2, 3]]
    assert [watcher.has_pending, drain_revisions(watcher)] == [False, []]


def test_a_watcher_of_a_namespace_gets_only_its_transitions() -> None:
    watcher: Watcher[str] = Watcher("a", 10)
    for revision, namespace in enumerate(["a", "ab", "", "a"]):
        watcher.notify(build_transition(revision, namespace))
        watcher.replay(build_transition(revision + 10, namespace))
    assert drain_revisions(watcher) == [0, 10, 3, 13]


def test_a_watcher_of_all_namespaces_gets_cluster_scoped_objects_too() -> None:
    watcher: Watcher[str] = Watcher("", 10)
    watcher.notify(build_transition(1, ""))
    watcher.notify(build_transition(2, "b"))
    assert drain_revisions(watcher) == [1, 2]


def test_a_full_queue_overflows_and_is_emptied() -> None:
    watcher: Watcher[str] = Watcher("", 2)
    watcher.notify(build_transition(1))
    watcher.notify(build_transition(2))
    seen = [watcher.overflowed]
    watcher.notify(build_transition(3))
    seen.append(watcher.overflowed)
    watcher.notify(build_transition(4))
    assert (seen, drain_revisions(watcher)) == ([False, True], [])


def test_a_watcher_that_overflowed_gets_nothing_more() -> None:
    """It has missed a transition, so further ones would hide the gap."""
    watcher: Watcher[str] = Watcher("", 1)
    watcher.notify(build_transition(1))
    watcher.notify(build_transition(2))
    watcher.drain()
    watcher.notify(build_transition(3))
    assert drain_revisions(watcher) == []
    assert watcher.overflowed


def test_transitions_of_other_namespaces_do_not_overflow_a_full_watcher() -> None:
    watcher: Watcher[str] = Watcher("a", 1)
    watcher.notify(build_transition(1))
    watcher.notify(build_transition(2, "b"))
    assert not watcher.overflowed
    assert drain_revisions(watcher) == [1]


def test_a_replay_can_be_longer_than_the_queue() -> None:
    watcher: Watcher[str] = Watcher("", 2)
    for revision in range(5):
        watcher.replay(build_transition(revision))
    assert not watcher.overflowed
    assert drain_revisions(watcher) == [0, 1, 2, 3, 4]


def test_pending_transitions_are_delivered_after_the_end() -> None:
    watcher: Watcher[str] = Watcher("", 5)
    watcher.notify(build_transition(1))
    watcher.end()
    assert watcher.ended
    assert drain_revisions(watcher) == [1]


@pytest.mark.parametrize(
    "act",
    [lambda each: each.notify(build_transition(1)), Watcher.overflow, Watcher.end],
    ids=["notify", "overflow", "end"],
)
@on_virtual_time
async def test_a_waiting_watcher_is_woken_by_a_transition_an_overflow_or_the_end(
    act: Callable[[Watcher[str]], None],
) -> None:
    loop = asyncio.get_running_loop()
    watcher: Watcher[str] = Watcher("", 5)
    loop.call_later(3, act, watcher)
    await watcher.wait_ready()
    assert loop.time() == 3


@pytest.mark.parametrize(
    "act",
    [lambda each: each.notify(build_transition(1)), Watcher.overflow, Watcher.end],
    ids=["notify", "overflow", "end"],
)
@on_virtual_time
async def test_a_watcher_with_pending_work_does_not_wait(act: Callable[[Watcher[str]], None]) -> None:
    watcher: Watcher[str] = Watcher("", 5)
    act(watcher)
    await watcher.wait_ready()
    assert asyncio.get_running_loop().time() == 0


@on_virtual_time
async def test_a_waiting_watcher_can_be_woken_without_a_transition() -> None:
    loop = asyncio.get_running_loop()
    watcher: Watcher[str] = Watcher("", 5)
    watcher.wake()
    loop.call_later(3, watcher.wake)
    await watcher.wait_ready()
    assert (loop.time(), drain_revisions(watcher)) == (3, [])


def test_on_ready_is_called_for_the_first_pending_transition_and_for_the_end() -> None:
    watcher: Watcher[str] = Watcher("", 2)
    calls: list[str] = []
    watcher.on_ready = lambda: calls.append("ended" if watcher.ended else "missed" if watcher.overflowed else "news")
    watcher.notify(build_transition(1))
    watcher.notify(build_transition(2))
    assert calls == ["news"]
    watcher.drain()
    watcher.notify(build_transition(3))
    assert calls == ["news", "news"]
    watcher.overflow()
    watcher.end()
    assert calls == ["news", "news", "missed", "ended"]


@on_virtual_time
async def test_a_woken_watcher_can_wait_again() -> None:
    loop = asyncio.get_running_loop()
    watcher: Watcher[str] = Watcher("", 5)
    for at in (1, 2):
        loop.call_later(1, watcher.notify, build_transition(at))
        await watcher.wait_ready()
        assert (loop.time(), drain_revisions(watcher)) == (at, [at])


@on_virtual_time
async def test_a_cancelled_wait_raises_and_loses_nothing() -> None:
    watcher: Watcher[str] = Watcher("", 5)
    pending = asyncio.create_task(wait_ready(watcher))
    await asyncio.sleep(1)
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    watcher.notify(build_transition(1))
    assert drain_revisions(watcher) == [1]
    asyncio.get_running_loop().call_later(1, watcher.notify, build_transition(2))
    await watcher.wait_ready()
    assert drain_revisions(watcher) == [2]


def test_a_slow_watcher_does_not_affect_others() -> None:
    watchers: WatchHub[str] = WatchHub()
    slow: Watcher[str] = Watcher("", 1)
    quick: Watcher[str] = Watcher("", 5)
    watchers.add(slow)
    watchers.add(quick)
    for revision in (1, 2, 3):
        watchers.publish(build_transition(revision))
    assert slow.overflowed
    assert drain_revisions(quick) == [1, 2, 3]


def test_a_removed_watcher_gets_nothing_more_and_can_be_removed_again() -> None:
    watchers: WatchHub[str] = WatchHub()
    watcher: Watcher[str] = Watcher("", 5)
    watchers.add(watcher)
    watchers.remove(watcher)
    watchers.remove(watcher)
    watchers.publish(build_transition(1))
    watchers.end()
    watchers.overflow()
    assert (drain_revisions(watcher), watcher.ended, watcher.overflowed) == ([], False, False)


def test_an_end_and_an_overflow_reach_every_watcher() -> None:
    watchers: WatchHub[str] = WatchHub()
    both: list[Watcher[str]] = [Watcher("", 5), Watcher("a", 5)]
    for watcher in both:
        watchers.add(watcher)
    watchers.end()
    watchers.overflow()
    assert all(watcher.ended and watcher.overflowed for watcher in both)


# --- filters


@dataclass(frozen=True)
class State:
    labels: dict[str, str] = field(default_factory=dict)
    selectable: dict[str, str] = field(default_factory=dict)


def build_change(revision: int, before: str, after: str, *, name: str = "x", namespace: str = "a") -> Transition[State]:
    """A transition of label and field between two values; empty where there is no object."""
    states = [State({"team": value}, {"phase": value}) if value else None for value in (before, after)]
    return Transition(("g", "things", namespace, name), revision, *states)


def add_watchers(*filters: WatchFilter | None, namespace: str = "") -> tuple[WatchHub[State], list[Watcher[State]]]:
    watchers: WatchHub[State] = WatchHub()
    each: list[Watcher[State]] = [Watcher(namespace, 10, one) for one in filters]
    for watcher in each:
        watchers.add(watcher)
    return watchers, each


def drain_state_revisions(watcher: Watcher[State]) -> list[int]:
    return [transition.revision for transition in watcher.drain()]


@pytest.mark.parametrize(("source", "name"), [("labels", "team"), ("selectable", "phase")])
def test_a_filter_by_value_gets_objects_that_have_gain_or_lose_it(source: str, name: str) -> None:
    steps = [("", "red"), ("red", "red"), ("red", "blue"), ("blue", "green"), ("green", "red"), ("red", "")]
    watchers, (red, blue, unfiltered) = add_watchers(
        (source, name, frozenset({"red"})), (source, name, frozenset({"blue"})), None
    )
    for revision, (before, after) in enumerate(steps):
        watchers.publish(build_change(revision, before, after))
    assert [drain_state_revisions(red), drain_state_revisions(blue), drain_state_revisions(unfiltered)] == [
        [0, 1, 2, 4, 5],
        [2, 3],
        [0, 1, 2, 3, 4, 5],
    ]


def test_a_filter_by_several_values_gets_a_change_between_them_once() -> None:
    watchers, (either,) = add_watchers(("labels", "team", frozenset({"red", "blue"})))
    watchers.publish(build_change(1, "red", "blue"))
    watchers.publish(build_change(2, "green", "pink"))
    assert drain_state_revisions(either) == [1]


def test_a_filter_by_a_missing_label_gets_nothing() -> None:
    watchers, (other,) = add_watchers(("labels", "tier", frozenset({"red"})))
    watchers.publish(build_change(1, "red", "red"))
    assert drain_state_revisions(other) == []


def test_a_filter_by_name_gets_only_that_object_in_its_namespace() -> None:
    watchers, (watcher,) = add_watchers((BY_NAME, "", frozenset({"x"})), namespace="a")
    watchers.publish(build_change(1, "red", "red"))
    watchers.publish(build_change(2, "red", "red", name="y"))
    watchers.publish(build_change(3, "red", "red", namespace="b"))
    assert drain_state_revisions(watcher) == [1]


def test_a_removed_watcher_with_a_filter_gets_nothing_more() -> None:
    filters: list[WatchFilter | None] = [
        None,
        (BY_NAME, "", frozenset({"x"})),
        ("labels", "team", frozenset({"red", "b"})),
    ]
    watchers, each = add_watchers(*filters, *filters)
    for watcher in each[:3]:
        watchers.remove(watcher)
    watchers.publish(build_change(1, "red", "red"))
    for watcher in each[3:]:
        watchers.remove(watcher)
    watchers.publish(build_change(2, "red", "red"))
    assert [drain_state_revisions(watcher) for watcher in each] == [[], [], [], [1], [1], [1]]


# --- wake-up rounds


@on_virtual_time
async def test_simultaneous_transitions_wake_a_watcher_once() -> None:
    watchers, (one,) = add_watchers(None)
    pending = asyncio.create_task(wait_ready(one))
    await asyncio.sleep(1)
    for revision in (1, 2, 3):
        watchers.publish(build_change(revision, "red", "red"))
    await pending
    assert (drain_state_revisions(one), asyncio.get_running_loop().time()) == ([1, 2, 3], 1)


class Followers:
    """Watchers on virtual time; each batch takes the given CPU time to process."""

    def __init__(self, size: int, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._busy = 0.0
        self.batches: list[tuple[float, list[int]]] = []
        self.watchers: WatchHub[State] = WatchHub(lambda: self._busy)
        self.tasks = [asyncio.create_task(self._follow(Watcher("", 10))) for _ in range(size)]

    async def _follow(self, watcher: Watcher[State]) -> None:
        self.watchers.add(watcher)
        while True:
            await watcher.wait_ready()
            self._busy += self._seconds
            self.batches.append((self._loop.time(), drain_state_revisions(watcher)))


@pytest.mark.parametrize(
    ("seconds", "rest"),
    [(0.0001, 0.02), (0.01, MAX_PAUSE_SECONDS)],
    ids=["as long as the round", "up to the maximum"],
)
@on_virtual_time
async def test_after_a_long_round_the_next_transitions_are_batched(seconds: float, rest: float) -> None:
    followers = Followers(200, seconds)
    await asyncio.sleep(1)
    for revision in (1, 2, 3):
        followers.watchers.publish(build_change(revision, "red", "red"))
        await asyncio.sleep(0.001)
    await asyncio.sleep(1)
    assert followers.batches == [(1, [1])] * 200 + [(pytest.approx(1 + rest), [2, 3])] * 200
    followers.watchers.publish(build_change(4, "red", "red"))
    now = asyncio.get_running_loop().time()
    await asyncio.sleep(1)
    assert followers.batches[400:] == [(now, [4])] * 200
    for task in followers.tasks:
        task.cancel()


@on_virtual_time
async def test_after_a_short_round_there_is_no_pause() -> None:
    followers = Followers(3, 0.0001)
    await asyncio.sleep(1)
    for revision in (1, 2):
        followers.watchers.publish(build_change(revision, "red", "red"))
        for _ in range(10):
            await asyncio.sleep(0)
    assert followers.batches == [(1, [1])] * 3 + [(1, [2])] * 3
    for task in followers.tasks:
        task.cancel()


@on_virtual_time
async def test_other_tasks_run_during_a_long_round() -> None:
    followers = Followers(10 * WAKE_BATCH_SIZE, 0.0)
    await asyncio.sleep(1)
    followers.watchers.publish(build_change(1, "red", "red"))
    seen = []
    while len(followers.batches) < 10 * WAKE_BATCH_SIZE:
        await asyncio.sleep(0)
        seen.append(len(followers.batches))
    assert {WAKE_BATCH_SIZE * number for number in range(1, 11)} <= set(seen)
    for task in followers.tasks:
        task.cancel()


@on_virtual_time
async def test_an_end_or_an_overflow_does_not_wait_for_a_round() -> None:
    loop = asyncio.get_running_loop()
    watchers, each = add_watchers(*[None] * 2_000)
    waits = [asyncio.create_task(wait_ready(watcher)) for watcher in each]
    await asyncio.sleep(1)
    watchers.publish(build_change(1, "red", "red"))
    await asyncio.gather(*waits)
    for watcher in each:
        watcher.drain()
    waits = [asyncio.create_task(wait_ready(watcher)) for watcher in each]
    await asyncio.sleep(0)
    watchers.end()
    await asyncio.gather(*waits)
    assert loop.time() == 1
