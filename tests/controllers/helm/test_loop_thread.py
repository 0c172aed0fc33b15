"""Tests of `controllers/helm/loop_thread.py`: results, errors and cancellation of work in another thread."""

import asyncio
import threading

import pytest

from fairlead.controllers.helm.loop_thread import run_in_loop_thread


def test_the_result_comes_from_another_thread() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    assert asyncio.run(run_in_loop_thread("work", work)) != threading.get_ident()


def test_an_error_is_raised_in_the_caller() -> None:
    async def work() -> None:
        raise LookupError("missing")

    with pytest.raises(LookupError, match="missing"):
        asyncio.run(run_in_loop_thread("work", work))


def test_a_cancelled_caller_waits_until_the_work_has_ended() -> None:
    steps = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        started = asyncio.Event()

        async def work() -> None:
            loop.call_soon_threadsafe(started.set)
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0.05)
                steps.append("work")

        caller = asyncio.create_task(run_in_loop_thread("work", work))
        await started.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        steps.append("caller")

    asyncio.run(scenario())
    assert steps == ["work", "caller"]


def test_a_timeout_of_the_caller_ends_the_work() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(0.05):
            await run_in_loop_thread("work", lambda: asyncio.sleep(3600))

    with pytest.raises(TimeoutError):
        asyncio.run(scenario())
    for thread in threading.enumerate():
        if thread.name == "work":
            thread.join(10)
            assert not thread.is_alive()
