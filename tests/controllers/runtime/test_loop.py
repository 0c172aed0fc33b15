"""The loop: everything is looked at when it should be, on time, again after trouble, and never twice at once."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest

from fairlead.controllers.runtime import loop as loop_module
from fairlead.controllers.runtime import multi_watch as ears_module
from fairlead.controllers.runtime.loop import (
    ENQUEUE_BATCH_SIZE,
    MAX_RETRY_SECONDS,
    MIN_RETRY_SECONDS,
    UNEXPECTED_ERROR_RETRY_SECONDS,
    ControllerLoop,
    run_controllers,
    same_key,
)
from fairlead.core.errors import Conflict, Unavailable
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from tests.harness.controllers import running_controllers
from tests.harness.event_loop_turns import Turns
from tests.harness.registry import RegistryFixture

GADGETS = (MANAGEMENT_GROUP, "gadgets")


class Watchful:
    """Notes when it is asked about what. `answers` are returned or raised in turn, then None."""

    def __init__(
        self, api: RegistryFixture, *answers: float | Exception | None, takes: float = 0, workers: int = 1
    ) -> None:
        self.name, self.workers = "watchful", workers
        self.watches: Sequence[tuple[str, str]] = (GADGETS,)
        self.asked: list[tuple[float, str]] = []
        self.most = 0
        self._world = api
        self._answers = list(answers)
        self._takes = takes
        self._busy: list[Key] = []

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return same_key(key, entry)

    async def reconcile(self, key: Key) -> float | None:
        assert key not in self._busy, "nobody looks at one object twice at once"
        self._busy.append(key)
        self.most = max(self.most, len(self._busy))
        self.asked.append((round(self._world.clock.monotonic(), 3), key[3]))
        if self._takes:
            await asyncio.sleep(self._takes)
        self._busy.remove(key)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_what_is_there_already_is_looked_at_when_the_work_begins(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    await api.create("Gadget", "b")
    watchful = Watchful(api)
    async with running_controllers(api, watchful):
        await asyncio.sleep(1_000)
    assert watchful.asked == [(0, "a"), (0, "b")]


async def test_however_much_is_there_requests_get_turns_and_nothing_is_missed(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "ENQUEUE_BATCH_SIZE", 2)
    for name in "abcde":
        await api.create("Gadget", name)
    watchful = Watchful(api)
    loop = ControllerLoop(watchful, api.view, api.clock)
    work = asyncio.create_task(loop.run())
    await asyncio.sleep(0)  # it has looked at the first two, and others have their turn
    await api.create("Gadget", "f")
    await asyncio.sleep(1_000)
    assert {name for _, name in watchful.asked} == set("abcdef")
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_what_comes_changes_or_goes_is_looked_at_right_away(api: RegistryFixture) -> None:
    watchful = Watchful(api)
    async with running_controllers(api, watchful):
        await asyncio.sleep(1)
        await api.create("Gadget", "a")
        await asyncio.sleep(1)
        await api.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 1}))
        await asyncio.sleep(1)
        await api.delete("Gadget", "a")
        await api.create("ConfigMap", "elsewhere")
        await asyncio.sleep(1_000)
    assert watchful.asked == [(1, "a"), (2, "a"), (3, "a")]


async def test_many_changes_at_once_are_one_look(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 0})
    watchful = Watchful(api, takes=10)
    async with running_controllers(api, watchful):
        await asyncio.sleep(1)
        for _ in range(5):
            await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=obj["spec"]["size"] + 1))
        await asyncio.sleep(100)
    assert watchful.asked == [(0, "a"), (10, "a")], "what changed while it was looked at is looked at once more"


async def test_whoever_wants_to_look_again_does_so_on_time(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    watchful = Watchful(api, 5, 3_600, 0.5)
    async with running_controllers(api, watchful):
        await asyncio.sleep(10_000)
    assert watchful.asked == [(0, "a"), (5, "a"), (3_605, "a"), (3_605.5, "a")]


async def test_a_change_does_not_wait_for_the_time_that_was_asked_for(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    watchful = Watchful(api, 100)
    async with running_controllers(api, watchful):
        await asyncio.sleep(10)
        await api.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 1}))
        await asyncio.sleep(1_000)
    assert watchful.asked == [(0, "a"), (10, "a")], "the later look was about what is no more"


async def test_after_trouble_it_is_tried_again_at_growing_distances_up_to_a_limit(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    watchful = Watchful(api, *[Unavailable("away")] * 14)
    async with running_controllers(api, watchful):
        await asyncio.sleep(1_000)
    times = [time for time, _ in watchful.asked]
    gaps = [round(later - earlier, 3) for earlier, later in pairwise(times)]
    assert gaps[:4] == [MIN_RETRY_SECONDS, 2 * MIN_RETRY_SECONDS, 4 * MIN_RETRY_SECONDS, 8 * MIN_RETRY_SECONDS]
    assert gaps == sorted(gaps)
    assert gaps[-1] == MAX_RETRY_SECONDS
    assert len(times) == 15


async def test_after_success_the_distances_begin_anew(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    watchful = Watchful(api, *[Conflict("x")] * 6, 100, Conflict("x"))
    async with running_controllers(api, watchful):
        await asyncio.sleep(1_000)
    times = [time for time, _ in watchful.asked]
    assert round(times[-1] - times[-2], 3) == MIN_RETRY_SECONDS


async def test_trouble_with_one_object_does_not_keep_the_others_waiting(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    await api.create("Gadget", "b")
    watchful = Watchful(api, Conflict("x"))
    async with running_controllers(api, watchful):
        await asyncio.sleep(1)
    assert watchful.asked == [(0, "a"), (0, "b"), (MIN_RETRY_SECONDS, "a")]


@pytest.mark.parametrize(("workers", "seconds"), [(1, 6), (2, 3), (6, 1), (100, 1)])
async def test_as_many_objects_are_looked_at_side_by_side_as_there_are_workers(
    api: RegistryFixture, workers: int, seconds: float
) -> None:
    for name in "abcdef":
        await api.create("Gadget", name)
    watchful = Watchful(api, takes=1, workers=workers)
    async with running_controllers(api, watchful):
        await asyncio.sleep(100)
    assert watchful.most == min(workers, 6)
    assert watchful.asked[-1][0] == seconds - 1


async def test_one_that_takes_long_holds_up_nobody_but_itself(api: RegistryFixture) -> None:
    """As clusters do that do not answer."""
    await api.create("Gadget", "slow")
    watchful = Watchful(api, workers=2)
    look = watchful.reconcile

    async def reconcile(key: Key) -> float | None:
        if key[3] == "slow":
            await asyncio.sleep(500)
        await look(key)
        return 10

    watchful.reconcile = reconcile  # type: ignore[method-assign]
    async with running_controllers(api, watchful):
        await asyncio.sleep(1)
        await api.create("Gadget", "quick")
        await asyncio.sleep(48)
    assert watchful.asked == [(1, "quick"), (11, "quick"), (21, "quick"), (31, "quick"), (41, "quick")]


async def test_what_is_due_while_all_are_busy_is_looked_at_as_soon_as_one_is_free(api: RegistryFixture) -> None:
    for name in "ab":
        await api.create("Gadget", name)
    watchful = Watchful(api, 5, takes=20, workers=1)
    async with running_controllers(api, watchful):
        await asyncio.sleep(90)
    assert watchful.asked == [(0, "a"), (20, "b"), (40, "a")]


async def test_whoever_missed_something_looks_at_everything_again(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ears_module, "WATCH_QUEUE_SIZE", 2)
    await api.create("Gadget", "a")
    watchful = Watchful(api, takes=10)
    async with running_controllers(api, watchful):
        await asyncio.sleep(1)
        for name in "bcde":
            await api.create("Gadget", name)
        await asyncio.sleep(100)
        assert {name for _, name in watchful.asked} == set("abcde")
        await api.create("Gadget", "f")
        await asyncio.sleep(100)
    assert watchful.asked[-1][1] == "f", "and goes on hearing of what comes"


async def test_a_stopping_server_ends_the_work(api: RegistryFixture) -> None:
    working = asyncio.create_task(ControllerLoop(Watchful(api), api.view, api.clock).run())
    await asyncio.sleep(1)
    api.view.end_watches()
    await asyncio.wait_for(working, 1)


async def test_an_object_that_a_controller_cannot_cope_with_harms_no_other(api: RegistryFixture) -> None:
    """Whoever can store such an object could otherwise end the server, again after each start."""
    await api.create("Gadget", "a")
    await api.create("Gadget", "b")
    watchful = Watchful(api, ZeroDivisionError())
    async with running_controllers(api, watchful):
        await asyncio.sleep(UNEXPECTED_ERROR_RETRY_SECONDS + 1)
    assert watchful.asked == [(0, "a"), (0, "b"), (UNEXPECTED_ERROR_RETRY_SECONDS, "a")]


async def test_a_fault_outside_of_any_object_ends_everything(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that died silently would leave things untrue for ever."""
    faulty, other = Watchful(api), Watchful(api)

    def concerned(key: Key, entry: Entry | None) -> Iterable[Key]:
        raise ZeroDivisionError

    monkeypatch.setattr(faulty, "keys_for", concerned)
    await api.create("Gadget", "a")
    with pytest.raises(ExceptionGroup) as caught:
        await run_controllers([faulty, other], api.view, api.clock)
    assert caught.group_contains(ZeroDivisionError)


async def test_who_is_told_to_stop_leaves_no_watcher_and_no_task_behind(api: RegistryFixture) -> None:
    before = len(asyncio.all_tasks())
    async with running_controllers(api, Watchful(api)):
        await asyncio.sleep(1)
    await asyncio.sleep(1)
    assert len(asyncio.all_tasks()) == before
    assert not api.view._collection(*GADGETS).watchers._watchers


async def test_a_controller_may_look_at_others_than_the_one_that_changed(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchful = Watchful(api)
    watchful.watches = (GADGETS, ("", "configmaps"))
    monkeypatch.setattr(watchful, "keys_for", lambda key, entry: [] if entry else [(*GADGETS, "", f"of-{key[3]}")])
    async with running_controllers(api, watchful):
        await api.create("ConfigMap", "c")
        await api.create("Gadget", "g")
        await asyncio.sleep(1)
        await api.delete("ConfigMap", "c")
        await asyncio.sleep(1)
        await api.delete("Gadget", "g")
        await asyncio.sleep(1)
    assert [name for _, name in watchful.asked] == ["of-c", "of-g"]


async def test_an_object_that_concerns_thousands_does_not_hold_up_others(api: RegistryFixture) -> None:
    """As an owner that goes: each of its dependants has to be looked at."""

    class Family(Watchful):
        def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
            return [(*key[:3], f"child-{number}") for number in range(10 * ENQUEUE_BATCH_SIZE)]

    loop = ControllerLoop(Family(api), api.view, api.clock)
    async with Turns() as turns:
        await loop._enqueue([((*GADGETS, "", "owner"), None)])
    assert turns.count >= 9
    assert len(loop._due_at) == 10 * ENQUEUE_BATCH_SIZE


async def test_thousands_of_changes_that_concern_nobody_do_not_hold_up_others(api: RegistryFixture) -> None:
    class Indifferent(Watchful):
        def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
            return ()

    loop = ControllerLoop(Indifferent(api), api.view, api.clock)
    async with Turns() as turns:
        await loop._enqueue([((*GADGETS, "", f"g{number}"), None) for number in range(10 * ENQUEUE_BATCH_SIZE)])
    assert turns.count >= 9 and not loop._due_at
