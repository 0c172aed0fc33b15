"""Requests that take too long are given up, each when its own time is over, and nothing else is."""

import asyncio

import pytest

from fairlead.core.call import Call, Reply
from fairlead.core.errors import NotFound
from fairlead.server.api.errors import render_errors
from fairlead.server.http.pipeline import Handler, build_pipeline, deadline_stage
from tests.harness.calls import call

DONE = Reply(200, b"done")
SHORT = 0.02


def taking(seconds: float) -> Handler:
    async def serve(call: Call) -> Reply:
        await asyncio.sleep(seconds)
        return DONE

    return serve


async def never(call: Call) -> Reply:
    await asyncio.Event().wait()
    return DONE


async def test_a_request_that_takes_too_long_is_given_up() -> None:
    given_up = asyncio.Event()

    async def serve(call: Call) -> Reply:
        try:
            return await never(call)
        finally:
            given_up.set()

    reply = await build_pipeline([render_errors, deadline_stage(SHORT)], serve)(call())
    assert reply.status == 504
    assert given_up.is_set()


async def test_a_request_in_time_is_answered() -> None:
    assert await build_pipeline([deadline_stage(60)], taking(0))(call()) is DONE


async def test_each_request_has_its_own_time() -> None:
    stage, begun = deadline_stage(SHORT), asyncio.get_running_loop().time()

    async def given_up_after(pause: float) -> float:
        await asyncio.sleep(pause)
        with pytest.raises(TimeoutError):
            await stage(call(), never)
        return asyncio.get_running_loop().time() - begun

    first, second, third = await asyncio.gather(*map(given_up_after, (0, SHORT / 2, 3 * SHORT)))
    assert SHORT * 0.9 <= first < second < third
    assert third >= SHORT * 3.9


async def test_requests_that_are_done_do_not_keep_the_others_from_being_given_up() -> None:
    stage = deadline_stage(SHORT)
    for _ in range(3):
        assert await stage(call(), taking(0)) is DONE
    with pytest.raises(TimeoutError):
        await stage(call(), never)


async def test_a_task_is_not_left_cancelled_when_its_request_was_given_up() -> None:
    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(TimeoutError):
        await deadline_stage(SHORT)(call(), never)
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_whoever_answers_although_it_was_given_up_leaves_no_trace() -> None:
    async def stubborn(call: Call) -> Reply:
        try:
            return await never(call)
        except asyncio.CancelledError:
            return DONE

    task = asyncio.current_task()
    assert task is not None
    assert await deadline_stage(SHORT)(call(), stubborn) is DONE
    assert task.cancelling() == 0


async def test_a_request_that_somebody_else_gives_up_did_not_take_too_long() -> None:
    asking = asyncio.ensure_future(deadline_stage(60)(call(), never))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_errors_pass_as_they_are() -> None:
    async def missing(call: Call) -> Reply:
        raise NotFound("not here")

    with pytest.raises(NotFound):
        await deadline_stage(60)(call(), missing)
