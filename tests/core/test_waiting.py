"""Tests of `core/waiting.py`: signals between tasks, waits for a revision, and the end of tasks and of the process."""

import asyncio

import pytest

from fairlead.core.waiting import (
    RevisionWaiters,
    Signal,
    background_task,
    end_tasks,
    run_to_end,
    sleep_monotonic,
    start_task,
    wait_until_stopped,
)
from tests.harness.virtual_time import on_virtual_time


def get_time() -> float:
    return asyncio.get_running_loop().time()


async def let_tasks_run() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


# --- signals ---


@on_virtual_time
async def test_a_wake_up_ends_the_wait() -> None:
    signal, start = Signal(), get_time()
    asyncio.get_running_loop().call_later(5, signal.wake)
    assert await signal.wait()
    assert get_time() == start + 5


@on_virtual_time
async def test_a_wake_up_before_the_wait_is_not_lost_and_counts_once() -> None:
    signal, start = Signal(), get_time()
    signal.wake()
    signal.wake()
    assert await signal.wait(10)
    assert get_time() == start
    assert not await signal.wait(10)
    assert get_time() == start + 10


@on_virtual_time
async def test_a_wait_ends_after_its_timeout_and_may_be_repeated() -> None:
    signal, start = Signal(), get_time()
    for seconds in (10, 20, 30):
        assert not await signal.wait(10)
        assert get_time() == start + seconds
    asyncio.get_running_loop().call_later(5, signal.wake)
    assert await signal.wait(10)
    assert get_time() == start + 35


@on_virtual_time
async def test_a_timer_of_an_earlier_wait_does_not_end_a_later_one() -> None:
    signal, start = Signal(), get_time()
    signal.wake()
    await signal.wait(1)
    asyncio.get_running_loop().call_later(0.5, signal.wake)
    assert await signal.wait(1)
    assert not await signal.wait(100)
    assert get_time() == start + 100.5


@on_virtual_time
async def test_a_wake_up_at_the_time_of_the_timeout_is_not_lost() -> None:
    signal = Signal()
    asyncio.get_running_loop().call_later(10, signal.wake)
    woken = [await signal.wait(10), await signal.wait(1)]
    assert sorted(woken) == [False, True]


@on_virtual_time
async def test_a_forgotten_wake_up_ends_no_wait() -> None:
    signal = Signal()
    signal.wake()
    signal.clear()
    assert not await signal.wait(1)


@on_virtual_time
async def test_a_wait_that_is_cancelled_leaves_nothing_behind() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait(5))
    await let_tasks_run()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    signal.wake()
    assert await signal.wait(1)


@on_virtual_time
async def test_a_wait_cancelled_right_after_the_wake_up_leaves_it_to_the_next_wait() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait())
    await let_tasks_run()
    signal.wake()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await signal.wait(1)


@on_virtual_time
async def test_a_second_task_cannot_wait_for_the_same_signal() -> None:
    signal = Signal()
    first = asyncio.create_task(signal.wait())
    await let_tasks_run()
    with pytest.raises(RuntimeError, match="another task"):
        await signal.wait()
    signal.wake()
    assert await first


@on_virtual_time
async def test_no_work_is_missed_however_wake_ups_and_waits_interleave() -> None:
    signal, queue, seen = Signal(), list[int](), list[int]()

    async def consume() -> None:
        while len(seen) < 100:
            if queue:
                seen.append(queue.pop(0))
                await asyncio.sleep(0)
            else:
                await signal.wait()

    consumer = asyncio.create_task(consume())
    for number in range(100):
        queue.append(number)
        signal.wake()
        for _ in range(number % 4):
            await asyncio.sleep(0)
    await consumer
    assert seen == list(range(100))


# --- revisions ---


@on_virtual_time
async def test_a_wait_ends_when_its_revision_or_a_later_one_is_reached() -> None:
    waiters = RevisionWaiters()
    waits = {revision: waiters.add(revision) for revision in (3, 1, 2, 2)}
    done = []
    for revision in (0, 1, 3):
        waiters.advance(revision)
        done.append([each for each, wait in waits.items() if wait.done()])
    assert done == [[], [1], [3, 1, 2]]


@on_virtual_time
async def test_a_wait_for_a_revision_that_is_cancelled_is_dropped() -> None:
    waiters = RevisionWaiters()
    cancelled, other = waiters.add(1), waiters.add(2)
    cancelled.cancel()
    waiters.advance(1)
    waiters.advance(2)
    assert other.done() and not other.cancelled()
    assert waiters._waiters == []


@on_virtual_time
async def test_a_failure_ends_current_waits_but_not_later_ones() -> None:
    waiters = RevisionWaiters()
    waits, cancelled = [waiters.add(1), waiters.add(2)], waiters.add(3)
    cancelled.cancel()
    waiters.fail(lambda: ValueError("over"))
    results = await asyncio.gather(*waits, return_exceptions=True)
    assert [str(each) for each in results] == ["over", "over"] and results[0] is not results[1]
    later = waiters.add(1)
    waiters.advance(1)
    await later


# --- the end of tasks ---


@on_virtual_time
async def test_tasks_have_ended_when_they_are_said_to_whatever_they_raise() -> None:
    steps: list[str] = []

    async def finish_slowly() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1)
            steps.append("finished")
            raise ValueError("a fault at the end")

    async def return_at_once() -> None:
        steps.append("returned")

    tasks = asyncio.create_task(finish_slowly()), asyncio.create_task(return_at_once())
    await let_tasks_run()
    await end_tasks(*tasks)
    assert steps == ["returned", "finished"]
    assert isinstance(tasks[0].exception(), ValueError)
    await end_tasks()


@on_virtual_time
async def test_a_task_is_held_until_it_has_ended() -> None:
    tasks: set[asyncio.Task[str]] = set()
    task = start_task(tasks, asyncio.sleep(60, "result"), "a name")
    assert tasks == {task}
    assert task.get_name() == "a name"
    assert await task == "result"
    await let_tasks_run()
    assert not tasks


@on_virtual_time
async def test_a_background_task_ends_with_its_block_also_if_that_fails() -> None:
    with pytest.raises(ValueError, match="the block"):
        async with background_task(asyncio.sleep(60), "a name") as task:
            await let_tasks_run()
            assert not task.done()
            assert task.get_name() == "a name"
            raise ValueError("the block")
    assert task.cancelled()


@on_virtual_time
async def test_the_result_of_a_background_task_that_ends_before_its_block_is_kept() -> None:
    async with background_task(asyncio.sleep(1, "result")) as task:
        await asyncio.sleep(2)
    assert task.result() == "result"


@on_virtual_time
async def test_what_runs_to_its_end_also_does_so_if_the_caller_is_cancelled() -> None:
    steps: list[str] = []

    async def work() -> None:
        await asyncio.sleep(1)
        steps.append("ended")

    caller = asyncio.create_task(run_to_end(work()))
    await let_tasks_run()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert steps == ["ended"]


# --- the end of the process ---


@on_virtual_time
async def test_the_wait_for_the_end_returns_when_it_is_requested() -> None:
    stop, before = asyncio.Event(), len(asyncio.all_tasks())
    work = asyncio.create_task(asyncio.sleep(1_000))
    asyncio.get_running_loop().call_later(5, stop.set)
    await wait_until_stopped(stop, work)
    assert not work.done()
    work.cancel()
    await let_tasks_run()
    assert len(asyncio.all_tasks()) == before


@on_virtual_time
async def test_the_wait_for_the_end_raises_what_ended_background_work() -> None:
    async def fail() -> None:
        await asyncio.sleep(5)
        raise ValueError("a bug")

    before = len(asyncio.all_tasks())
    with pytest.raises(ValueError, match="a bug"):
        await wait_until_stopped(asyncio.Event(), asyncio.create_task(fail()))
    await let_tasks_run()
    assert len(asyncio.all_tasks()) == before


@on_virtual_time
async def test_a_sleep_returns_the_time_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    start = get_time()
    monkeypatch.setattr("time.monotonic", lambda: get_time() + 1_000)
    assert await sleep_monotonic(5) == start + 1_005 == get_time() + 1_000
