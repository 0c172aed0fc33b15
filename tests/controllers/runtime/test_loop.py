"""Tests of `fairlead.controllers.runtime.loop`: when keys are reconciled, retries, workers, and shutdown."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest

from fairlead.controllers.runtime import loop as loop_module
from fairlead.controllers.runtime import multi_watch as multi_watch_module
from fairlead.controllers.runtime.loop import (
    ENQUEUE_BATCH_SIZE,
    RETRY,
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
from tests.harness.event_loop_turns import TurnCounter
from tests.harness.registry import RegistryFixture

GADGETS = (MANAGEMENT_GROUP, "gadgets")


class RecordingController:
    """Records the time and name of each reconcile. `results` are returned or raised in turn, then None."""

    def __init__(
        self, api: RegistryFixture, *results: float | Exception | None, duration: float = 0, workers: int = 1
    ) -> None:
        self.name, self.workers = "recording", workers
        self.watches: Sequence[tuple[str, str]] = (GADGETS,)
        self.reconciled: list[tuple[float, str]] = []
        self.max_concurrent = 0
        self._api = api
        self._results = list(results)
        self._duration = duration
        self._running: list[Key] = []

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return same_key(key, entry)

    async def reconcile(self, key: Key) -> float | None:
        assert key not in self._running, "a key is never reconciled twice at the same time"
        self._running.append(key)
        self.max_concurrent = max(self.max_concurrent, len(self._running))
        self.reconciled.append((round(self._api.clock.monotonic(), 3), key[3]))
        if self._duration:
            await asyncio.sleep(self._duration)
        self._running.remove(key)
        result = self._results.pop(0) if self._results else None
        if isinstance(result, Exception):
            raise result
        return result


async def test_existing_objects_are_reconciled_at_the_start(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    await api.create("Gadget", "b")
    controller = RecordingController(api)
    async with running_controllers(api, controller):
        await asyncio.sleep(1_000)
    assert controller.reconciled == [(0, "a"), (0, "b")]


async def test_many_objects_are_enqueued_in_batches_and_no_event_is_missed(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "ENQUEUE_BATCH_SIZE", 2)
    for name in "abcde":
        await api.create("Gadget", name)
    controller = RecordingController(api)
    loop = ControllerLoop(controller, api.view, api.clock)
    loop_task = asyncio.create_task(loop.run())
    await asyncio.sleep(0)  # the first batch is enqueued, and other tasks run
    await api.create("Gadget", "f")
    await asyncio.sleep(1_000)
    assert {name for _, name in controller.reconciled} == set("abcdef")
    loop_task.cancel()
    await asyncio.gather(loop_task, return_exceptions=True)


async def test_created_changed_and_deleted_objects_are_reconciled_at_once(api: RegistryFixture) -> None:
    controller = RecordingController(api)
    async with running_controllers(api, controller):
        await asyncio.sleep(1)
        await api.create("Gadget", "a")
        await asyncio.sleep(1)
        await api.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 1}))
        await asyncio.sleep(1)
        await api.delete("Gadget", "a")
        await api.create("ConfigMap", "elsewhere")
        await asyncio.sleep(1_000)
    assert controller.reconciled == [(1, "a"), (2, "a"), (3, "a")]


async def test_many_changes_at_once_are_one_reconcile(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 0})
    controller = RecordingController(api, duration=10)
    async with running_controllers(api, controller):
        await asyncio.sleep(1)
        for _ in range(5):
            await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=obj["spec"]["size"] + 1))
        await asyncio.sleep(100)
    assert controller.reconciled == [(0, "a"), (10, "a")], "changes during a reconcile lead to one more"


async def test_a_requeued_key_is_reconciled_on_time(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    controller = RecordingController(api, 5, 3_600, 0.5)
    async with running_controllers(api, controller):
        await asyncio.sleep(10_000)
    assert controller.reconciled == [(0, "a"), (5, "a"), (3_605, "a"), (3_605.5, "a")]


async def test_a_change_does_not_wait_for_the_requeue(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    controller = RecordingController(api, 100)
    async with running_controllers(api, controller):
        await asyncio.sleep(10)
        await api.patch("Gadget", "a", lambda obj: obj.update(spec={"size": 1}))
        await asyncio.sleep(1_000)
    assert controller.reconciled == [(0, "a"), (10, "a")], "the change replaces the scheduled reconcile"


async def test_errors_are_retried_with_growing_delays_up_to_a_limit(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    controller = RecordingController(api, *[Unavailable("away")] * 14)
    async with running_controllers(api, controller):
        await asyncio.sleep(1_000)
    times = [time for time, _ in controller.reconciled]
    delays = [round(after - before, 3) for before, after in pairwise(times)]
    assert delays[:4] == [
        RETRY.first_seconds,
        2 * RETRY.first_seconds,
        4 * RETRY.first_seconds,
        8 * RETRY.first_seconds,
    ]
    assert delays == sorted(delays)
    assert delays[-1] == RETRY.max_seconds
    assert len(times) == 15


async def test_the_retry_delay_is_reset_after_a_success(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    controller = RecordingController(api, *[Conflict("x")] * 6, 100, Conflict("x"))
    async with running_controllers(api, controller):
        await asyncio.sleep(1_000)
    times = [time for time, _ in controller.reconciled]
    assert round(times[-1] - times[-2], 3) == RETRY.first_seconds


async def test_an_error_of_one_object_does_not_delay_others(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    await api.create("Gadget", "b")
    controller = RecordingController(api, Conflict("x"))
    async with running_controllers(api, controller):
        await asyncio.sleep(1)
    assert controller.reconciled == [(0, "a"), (0, "b"), (RETRY.first_seconds, "a")]


@pytest.mark.parametrize(("workers", "seconds"), [(1, 6), (2, 3), (6, 1), (100, 1)])
async def test_objects_are_reconciled_concurrently_by_the_number_of_workers(
    api: RegistryFixture, workers: int, seconds: float
) -> None:
    for name in "abcdef":
        await api.create("Gadget", name)
    controller = RecordingController(api, duration=1, workers=workers)
    async with running_controllers(api, controller):
        await asyncio.sleep(100)
    assert controller.max_concurrent == min(workers, 6)
    assert controller.reconciled[-1][0] == seconds - 1


async def test_a_slow_reconcile_does_not_delay_others(api: RegistryFixture) -> None:
    """Like clusters that do not respond."""
    await api.create("Gadget", "slow")
    controller = RecordingController(api, workers=2)
    original_reconcile = controller.reconcile

    async def reconcile(key: Key) -> float | None:
        if key[3] == "slow":
            await asyncio.sleep(500)
        await original_reconcile(key)
        return 10

    controller.reconcile = reconcile  # type: ignore[method-assign]
    async with running_controllers(api, controller):
        await asyncio.sleep(1)
        await api.create("Gadget", "quick")
        await asyncio.sleep(48)
    assert controller.reconciled == [(1, "quick"), (11, "quick"), (21, "quick"), (31, "quick"), (41, "quick")]


async def test_a_due_key_is_reconciled_as_soon_as_a_worker_is_free(api: RegistryFixture) -> None:
    for name in "ab":
        await api.create("Gadget", name)
    controller = RecordingController(api, 5, duration=20, workers=1)
    async with running_controllers(api, controller):
        await asyncio.sleep(90)
    assert controller.reconciled == [(0, "a"), (20, "b"), (40, "a")]


async def test_all_objects_are_reconciled_after_a_watch_overflow(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_watch_module, "WATCH_QUEUE_SIZE", 2)
    await api.create("Gadget", "a")
    controller = RecordingController(api, duration=10)
    async with running_controllers(api, controller):
        await asyncio.sleep(1)
        for name in "bcde":
            await api.create("Gadget", name)
        await asyncio.sleep(100)
        assert {name for _, name in controller.reconciled} == set("abcde")
        await api.create("Gadget", "f")
        await asyncio.sleep(100)
    assert controller.reconciled[-1][1] == "f", "later events are still received"


async def test_a_stopping_server_ends_the_loop(api: RegistryFixture) -> None:
    loop_task = asyncio.create_task(ControllerLoop(RecordingController(api), api.view, api.clock).run())
    await asyncio.sleep(1)
    api.view.end_watches()
    await asyncio.wait_for(loop_task, 1)


async def test_an_unexpected_exception_for_one_object_does_not_affect_others(api: RegistryFixture) -> None:
    """Otherwise, a user who can store such an object could stop the server after each start."""
    await api.create("Gadget", "a")
    await api.create("Gadget", "b")
    controller = RecordingController(api, ZeroDivisionError())
    async with running_controllers(api, controller):
        await asyncio.sleep(UNEXPECTED_ERROR_RETRY_SECONDS + 1)
    assert controller.reconciled == [(0, "a"), (0, "b"), (UNEXPECTED_ERROR_RETRY_SECONDS, "a")]


async def test_an_exception_outside_of_reconcile_ends_all_controllers(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that stops silently would leave objects outdated for ever."""
    faulty, other = RecordingController(api), RecordingController(api)

    def fail(key: Key, entry: Entry | None) -> Iterable[Key]:
        raise ZeroDivisionError

    monkeypatch.setattr(faulty, "keys_for", fail)
    await api.create("Gadget", "a")
    with pytest.raises(ExceptionGroup) as caught:
        await run_controllers([faulty, other], api.view, api.clock)
    assert caught.group_contains(ZeroDivisionError)


async def test_a_stopped_loop_leaves_no_watcher_and_no_task_behind(api: RegistryFixture) -> None:
    before = len(asyncio.all_tasks())
    async with running_controllers(api, RecordingController(api)):
        await asyncio.sleep(1)
    await asyncio.sleep(1)
    assert len(asyncio.all_tasks()) == before
    assert not api.view._collection(*GADGETS).watchers._watchers


async def test_a_controller_can_reconcile_other_keys_than_the_changed_one(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = RecordingController(api)
    controller.watches = (GADGETS, ("", "configmaps"))
    monkeypatch.setattr(controller, "keys_for", lambda key, entry: [] if entry else [(*GADGETS, "", f"of-{key[3]}")])
    async with running_controllers(api, controller):
        await api.create("ConfigMap", "c")
        await api.create("Gadget", "g")
        await asyncio.sleep(1)
        await api.delete("ConfigMap", "c")
        await asyncio.sleep(1)
        await api.delete("Gadget", "g")
        await asyncio.sleep(1)
    assert [name for _, name in controller.reconciled] == ["of-c", "of-g"]


async def test_an_event_with_thousands_of_keys_does_not_block_the_event_loop(api: RegistryFixture) -> None:
    """Like a deleted owner: each of its dependents has to be reconciled."""

    class FanOutController(RecordingController):
        def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
            return [(*key[:3], f"child-{number}") for number in range(10 * ENQUEUE_BATCH_SIZE)]

    loop = ControllerLoop(FanOutController(api), api.view, api.clock)
    async with TurnCounter() as turns:
        await loop._enqueue([((*GADGETS, "", "owner"), None)])
    assert turns.count >= 9
    assert len(loop._due_at) == 10 * ENQUEUE_BATCH_SIZE


async def test_thousands_of_events_without_keys_do_not_block_the_event_loop(api: RegistryFixture) -> None:
    class IgnoringController(RecordingController):
        def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
            return ()

    loop = ControllerLoop(IgnoringController(api), api.view, api.clock)
    async with TurnCounter() as turns:
        await loop._enqueue([((*GADGETS, "", f"g{number}"), None) for number in range(10 * ENQUEUE_BATCH_SIZE)])
    assert turns.count >= 9 and not loop._due_at
