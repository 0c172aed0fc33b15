"""Threads for large work: order, errors, contexts, and what becomes of work that nobody waits for any more."""

import asyncio
import contextvars
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Iterator

import pytest

from fairlead.core.concurrency import (
    COMPUTE_POOL,
    CURRENT_ACCOUNT,
    HASHING_POOL,
    SWITCH_INTERVAL_SECONDS,
    Account,
    WorkerPool,
    set_switch_interval,
)

asked_by: contextvars.ContextVar[str] = contextvars.ContextVar("asked_by", default="nobody")


class Gate:
    """Work that begins and then waits until it is let on."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.go_on.wait(20)
        return "through"


async def begun(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.begun.wait, 20)


async def test_work_is_done_in_a_thread_of_its_own() -> None:
    assert await COMPUTE_POOL.run(1, threading.get_ident) != threading.get_ident()
    assert await HASHING_POOL.run(1, lambda: threading.current_thread().name.partition("-")[0]) == "hashing"


async def test_what_goes_wrong_is_raised_where_it_is_awaited() -> None:
    with pytest.raises(ZeroDivisionError):
        await COMPUTE_POOL.run(1, lambda: 1 / 0)
    assert await COMPUTE_POOL.run(1, pow, 2, 5) == 32


class Noted:
    """Says in which thread it goes."""

    def __init__(self, threads: list[int]) -> None:
        self._threads = threads

    def __del__(self) -> None:
        self._threads.append(threading.get_ident())


async def test_what_failed_work_had_in_hand_goes_in_its_thread() -> None:
    threads: list[int] = []

    def fail() -> None:
        large = Noted(threads)
        raise LookupError(str(type(large)))

    with pytest.raises(LookupError):
        await COMPUTE_POOL.run(1, fail)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_work_has_the_context_of_whoever_asked_for_it() -> None:
    asked_by.set("alice")
    assert await COMPUTE_POOL.run(1, asked_by.get) == "alice"


async def test_what_is_smallest_is_done_first() -> None:
    workers, gate, order = WorkerPool("test", 1), Gate(), list[int]()
    first = asyncio.create_task(workers.run(10**9, gate))
    await begun(gate)
    rest = [asyncio.create_task(workers.run(size, order.append, size)) for size in (300, 100, 200)]
    await asyncio.sleep(0)
    gate.go_on.set()
    await asyncio.gather(first, *rest)
    assert order == [100, 200, 300]


async def put_down_to(account: Account, work: Awaitable[None]) -> None:
    CURRENT_ACCOUNT.set(account)
    await work


async def test_accounts_take_turns_however_much_one_has_waiting() -> None:
    workers, gate, order = WorkerPool("test", 1), Gate(), list[str]()
    loud, quiet = Account(), Account()
    first = asyncio.create_task(workers.run(10**9, gate))
    await begun(gate)
    jobs = [put_down_to(loud, workers.run(100, order.append, "loud")) for _ in range(20)]
    jobs += [put_down_to(quiet, workers.run(500, order.append, "quiet")) for _ in range(2)]
    rest = [asyncio.create_task(job) for job in jobs]
    await asyncio.sleep(0)
    gate.go_on.set()
    await asyncio.gather(first, *rest)
    assert order.index("quiet") == 1, "the smaller one first, and then whoever has had nothing yet"
    assert [at for at, name in enumerate(order) if name == "quiet"][1] <= 7


async def test_processor_time_in_threads_is_put_down_to_the_account() -> None:
    account = Account()

    def work() -> None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    await asyncio.create_task(put_down_to(account, COMPUTE_POOL.run(1, work)))
    assert account.collect_cpu_seconds() >= 0.02
    assert account.collect_cpu_seconds() == 0.0


async def test_no_more_is_done_at_once_than_there_are_threads() -> None:
    workers, gates = WorkerPool("test", 2), [Gate() for _ in range(3)]
    tasks = [asyncio.create_task(workers.run(0, gate)) for gate in gates]
    await begun(gates[0])
    await begun(gates[1])
    assert not gates[2].begun.is_set()
    for gate in gates:
        gate.go_on.set()
    assert await asyncio.gather(*tasks) == ["through"] * 3


async def test_who_is_cancelled_goes_on_and_work_not_begun_is_left_undone() -> None:
    workers, gate, done = WorkerPool("test", 1), Gate(), list[str]()
    running = asyncio.create_task(workers.run(0, gate))
    await begun(gate)
    waiting = asyncio.create_task(workers.run(0, done.append, "never"))
    await asyncio.sleep(0)
    for task in (running, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    gate.go_on.set()
    await workers.run(1, done.append, "afterwards")
    assert done == ["afterwards"]


def test_work_that_ends_after_its_event_loop_harms_nobody() -> None:
    workers, gate = WorkerPool("test", 1), Gate()

    async def give_up() -> None:
        task = asyncio.create_task(workers.run(0, gate))
        await begun(gate)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(give_up())
    gate.go_on.set()
    assert asyncio.run(workers.run(0, pow, 2, 3)) == 8


@pytest.fixture
def usual_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("usual_interval")
def test_threads_give_way_to_the_event_loop_soon() -> None:
    set_switch_interval()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_SECONDS)


async def test_passwords_are_checked_with_a_lower_claim_on_the_processor() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    own, is_linux = niceness(), sys.platform == "linux"
    assert await HASHING_POOL.run(0, niceness) == (min(own + 5, 19) if is_linux else own)
    assert await COMPUTE_POOL.run(0, niceness) == own
    assert niceness() == own


class Large:
    """A result that can be watched."""


async def test_a_result_goes_when_nobody_wants_it_any_more() -> None:
    """Without waiting for the garbage collector, which comes seldom and knows nothing of megabytes."""
    gc.disable()
    try:
        gone = weakref.ref(await COMPUTE_POOL.run(1, Large))
        assert await COMPUTE_POOL.run(1, lambda: "what the thread has in hand now") and gone() is None
    finally:
        gc.enable()
