"""Tests of worker threads in `core/concurrency.py`: order, errors, contexts and cancelled work."""

import asyncio
import contextvars
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Awaitable

import pytest

from fairlead.core.call import current_call, set_current_call
from fairlead.core.concurrency import (
    BUSY_SWITCH_SECONDS,
    COMPUTE_POOL,
    CURRENT_ACCOUNT,
    HASHING_POOL,
    IDLE_SWITCH_SECONDS,
    LARGE_JSON_BYTES,
    Account,
    WorkerPool,
    compute,
)
from fairlead.core.thread_activity import THREADS, ThreadTask
from tests.harness.calls import call
from tests.harness.eventually import eventually

caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="none")


class Gate:
    """Work that starts and then waits until it is released."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.go_on.wait(20)
        return "through"


async def wait_until_started(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.begun.wait, 20)


async def test_work_runs_in_another_thread() -> None:
    assert await COMPUTE_POOL.run(1, threading.get_ident) != threading.get_ident()
    assert await HASHING_POOL.run(1, lambda: threading.current_thread().name.partition("-")[0]) == "hashing"


@pytest.mark.parametrize(("limit", "arguments"), [(LARGE_JSON_BYTES, {}), (10, {"inline_size": 10})])
async def test_the_size_decides_whether_work_runs_on_the_loop_or_in_a_thread(
    limit: int, arguments: dict[str, int]
) -> None:
    assert await compute(limit, threading.get_ident, **arguments) == threading.get_ident()
    assert await compute(limit + 1, threading.get_ident, **arguments) != threading.get_ident()
    for size in (limit, limit + 1):
        assert await compute(size, pow, 2, 5, **arguments) == 32
        with pytest.raises(ZeroDivisionError):
            await compute(size, divmod, 1, 0, **arguments)


async def test_an_error_is_raised_where_the_work_is_awaited() -> None:
    with pytest.raises(ZeroDivisionError):
        await COMPUTE_POOL.run(1, lambda: 1 / 0)
    assert await COMPUTE_POOL.run(1, pow, 2, 5) == 32


class ThreadRecorder:
    """Records the thread in which it is deleted."""

    def __init__(self, threads: list[int]) -> None:
        self._threads = threads

    def __del__(self) -> None:
        self._threads.append(threading.get_ident())


async def test_objects_of_failed_work_are_deleted_in_its_thread() -> None:
    threads: list[int] = []

    def fail() -> None:
        large = ThreadRecorder(threads)
        raise LookupError(str(type(large)))

    with pytest.raises(LookupError):
        await COMPUTE_POOL.run(1, fail)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_work_runs_in_the_context_of_its_caller() -> None:
    caller.set("alice")
    assert await COMPUTE_POOL.run(1, caller.get) == "alice"


async def test_the_smallest_work_runs_first() -> None:
    workers, gate, order = WorkerPool("test", 1), Gate(), list[int]()
    first = asyncio.create_task(workers.run(10**9, gate))
    await wait_until_started(gate)
    rest = [asyncio.create_task(workers.run(size, order.append, size)) for size in (300, 100, 200)]
    await asyncio.sleep(0)
    gate.go_on.set()
    await asyncio.gather(first, *rest)
    assert order == [100, 200, 300]


async def charge_to(account: Account, work: Awaitable[None]) -> None:
    CURRENT_ACCOUNT.set(account)
    await work


async def test_accounts_take_turns_however_much_work_one_has_queued() -> None:
    workers, gate, order = WorkerPool("test", 1), Gate(), list[str]()
    loud, quiet = Account(), Account()
    first = asyncio.create_task(workers.run(10**9, gate))
    await wait_until_started(gate)
    jobs = [charge_to(loud, workers.run(100, order.append, "loud")) for _ in range(20)]
    jobs += [charge_to(quiet, workers.run(500, order.append, "quiet")) for _ in range(2)]
    rest = [asyncio.create_task(job) for job in jobs]
    await asyncio.sleep(0)
    gate.go_on.set()
    await asyncio.gather(first, *rest)
    assert order.index("quiet") == 1, "the smaller work first, then the account that has had no turn yet"
    assert [at for at, name in enumerate(order) if name == "quiet"][1] <= 7


async def test_processor_time_in_threads_is_charged_to_the_account() -> None:
    account = Account()

    def work() -> None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    await asyncio.create_task(charge_to(account, COMPUTE_POOL.run(1, work)))
    assert account.collect_cpu_seconds() >= 0.02
    assert account.collect_cpu_seconds() == 0.0


async def test_no_more_work_runs_at_once_than_there_are_threads() -> None:
    workers, gates = WorkerPool("test", 2), [Gate() for _ in range(3)]
    tasks = [asyncio.create_task(workers.run(0, gate)) for gate in gates]
    await wait_until_started(gates[0])
    await wait_until_started(gates[1])
    assert not gates[2].begun.is_set()
    for gate in gates:
        gate.go_on.set()
    assert await asyncio.gather(*tasks) == ["through"] * 3


async def test_a_cancelled_caller_continues_and_queued_work_is_dropped() -> None:
    workers, gate, done = WorkerPool("test", 1), Gate(), list[str]()
    running = asyncio.create_task(workers.run(0, gate))
    await wait_until_started(gate)
    waiting = asyncio.create_task(workers.run(0, done.append, "never"))
    await asyncio.sleep(0)
    for task in (running, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    gate.go_on.set()
    await workers.run(1, done.append, "afterwards")
    assert done == ["afterwards"]


def test_work_that_ends_after_its_event_loop_does_no_harm() -> None:
    workers, gate = WorkerPool("test", 1), Gate()

    async def cancel_work() -> None:
        task = asyncio.create_task(workers.run(0, gate))
        await wait_until_started(gate)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancel_work())
    gate.go_on.set()
    assert asyncio.run(workers.run(0, pow, 2, 3)) == 8


async def test_threads_that_compute_yield_to_the_event_loop_quickly() -> None:
    gates = Gate(), Gate()
    jobs = [asyncio.ensure_future(COMPUTE_POOL.run(1, gate)) for gate in gates]
    await wait_until_started(gates[0])
    assert sys.getswitchinterval() == pytest.approx(BUSY_SWITCH_SECONDS)
    jobs[0].cancel()  # it goes on in its thread
    gates[1].go_on.set()
    await jobs[1]
    assert sys.getswitchinterval() == pytest.approx(BUSY_SWITCH_SECONDS)
    gates[0].go_on.set()
    await eventually(lambda: sys.getswitchinterval() == pytest.approx(IDLE_SWITCH_SECONDS), 20)


async def test_password_hashes_release_the_interpreter_and_need_no_short_interval() -> None:
    await eventually(
        lambda: sys.getswitchinterval() == pytest.approx(IDLE_SWITCH_SECONDS), 20
    )  # no other test computes
    gate = Gate()
    job = asyncio.ensure_future(HASHING_POOL.run(1, gate))
    await wait_until_started(gate)
    assert sys.getswitchinterval() == pytest.approx(IDLE_SWITCH_SECONDS)
    gate.go_on.set()
    await job


async def test_passwords_are_checked_with_lower_processor_priority() -> None:
    def read_niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    own, is_linux = read_niceness(), sys.platform == "linux"
    assert await HASHING_POOL.run(0, read_niceness) == (min(own + 5, 19) if is_linux else own)
    assert await COMPUTE_POOL.run(0, read_niceness) == own
    assert read_niceness() == own


class LargeResult:
    """A result that can be weakly referenced."""


async def test_an_unused_result_is_freed_at_once() -> None:
    """Without waiting for the garbage collector, which runs rarely."""
    gc.disable()
    try:
        gone = weakref.ref(await COMPUTE_POOL.run(1, LargeResult))
        assert await COMPUTE_POOL.run(1, lambda: "what the thread has in hand now") and gone() is None
    finally:
        gc.enable()


async def test_a_job_is_known_with_its_function_its_size_and_its_request() -> None:
    """The watchdog of the event loop names them."""
    pool, found, request = WorkerPool("known", 1), list[ThreadTask | None](), call("/x")
    set_current_call(request)

    def look() -> None:
        found.extend(thread.take_longest_task() for thread in THREADS if thread.name == "known-0")

    await pool.run(123, look)
    (task,) = found
    assert task is not None and task.name.endswith("look") and task.size == 123
    assert task.call is request


async def test_tasks_that_outlive_a_request_do_not_keep_it_in_memory() -> None:
    request = call("/x")
    set_current_call(request)
    context, gone = contextvars.copy_context(), weakref.ref(request)
    assert context.run(current_call) is request
    del request
    assert gone() is None and context.run(current_call) is None


async def test_the_pool_counts_unfinished_jobs_and_says_when_there_is_one() -> None:
    pool, gate, submitted = WorkerPool("counted", 1), Gate(), list[int]()
    pool.on_submit = lambda: submitted.append(pool.unfinished)
    first, second = asyncio.create_task(pool.run(1, gate)), asyncio.create_task(pool.run(1, gate))
    await wait_until_started(gate)
    assert submitted == [1, 2]
    second.cancel()
    gate.go_on.set()
    assert await first == "through"
    await asyncio.gather(second, return_exceptions=True)
    assert pool.unfinished == 0
