"""The pipeline: the order of the stages, errors and deadlines."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from fairlead.core.call import Call, Handler, Reply
from fairlead.core.errors import Forbidden, NotFound
from fairlead.server.pipeline import After, Before, Pipeline, PipelineOptions, reject_malformed
from tests.harness.calls import always_raise, always_reply, call
from tests.harness.virtual_time import on_virtual_time

OK = Reply(200, b"ok")
SHORT = 0.02


def record_before(name: str, trace: list[str], result: Awaitable[Reply | None] | None = None) -> Before:
    def stage(call: Call) -> Awaitable[Reply | None] | None:
        trace.append(name)
        return result

    return stage


def record_after(name: str, trace: list[str], result: Awaitable[Reply] | None = None) -> After:
    def stage(call: Call, reply: Reply) -> Awaitable[Reply] | None:
        trace.append(f"{name} {reply.status}")
        return result

    return stage


def raise_forbidden(call: Call) -> None:
    raise Forbidden("no")


async def test_stages_run_in_order_before_and_after_the_handler() -> None:
    trace: list[str] = []

    def serve(call: Call) -> Reply:
        trace.append("serve")
        return OK

    before = [record_before("first", trace), record_before("second", trace)]
    after = [record_after("third", trace), record_after("fourth", trace)]
    assert await Pipeline(before, serve, after)(call()) is OK
    assert trace == ["first", "second", "serve", "third 200", "fourth 200"]


async def test_a_pipeline_without_stages_only_runs_the_handler() -> None:
    assert await Pipeline((), always_reply(OK))(call()) is OK


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_reply_before_the_handler_skips_the_rest_but_not_the_stages_after(is_async: bool) -> None:
    trace: list[str] = []
    rejection = always_reply(Reply(403))(call()) if is_async else Reply(403)
    before = [record_before("first", trace, rejection), record_before("second", trace)]
    reply = await Pipeline(before, always_reply(OK), [record_after("after", trace)])(call())
    assert reply.status == 403
    assert trace == ["first", "after 403"]


async def test_a_stage_can_wait_before_the_next_one_runs() -> None:
    trace: list[str] = []

    async def wait() -> None:
        await asyncio.sleep(0)
        trace.append("waited")

    before = [record_before("first", trace, wait()), record_before("second", trace)]
    assert await Pipeline(before, always_reply(OK))(call()) is OK
    assert trace == ["first", "waited", "second"]


async def test_a_stage_after_the_handler_can_replace_the_reply() -> None:
    trace: list[str] = []
    after = [record_after("one", trace, Reply(429)), record_after("two", trace, always_reply(Reply(503))(call()))]
    reply = await Pipeline((), always_reply(OK), [*after, record_after("three", trace)])(call())
    assert reply.status == 503
    assert trace == ["one 200", "two 429", "three 503"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_becomes_a_response_that_passes_the_stages_after(is_async: bool) -> None:
    trace: list[str] = []
    pipeline = (
        Pipeline((), always_raise(Forbidden("no")), [record_after("after", trace)])
        if is_async
        else Pipeline((raise_forbidden,), always_reply(OK), [record_after("after", trace)])
    )
    assert (await pipeline(call())).status == 403
    assert trace == ["after 403"]


async def test_a_malformed_request_is_rejected() -> None:
    malformed = call()
    malformed.malformed_reason = "two Content-Length headers"
    reply = await Pipeline((reject_malformed,), always_reply(OK))(malformed)
    assert reply.status == 400 and b"two Content-Length headers" in reply.body


def test_a_request_that_does_not_wait_is_served_in_one_step() -> None:
    in_flight = [0, 0]
    options = PipelineOptions(60, in_flight)
    steps: Any = Pipeline((), lambda call: Reply(200, repr(in_flight).encode()), (), (), options)(call())
    with pytest.raises(StopIteration) as end:
        steps.send(None)
    assert end.value.value.body == b"[0, 0]"


@pytest.mark.parametrize(("method", "expected"), [("GET", [1, 0]), ("POST", [0, 1])])
async def test_a_request_that_waits_is_in_flight(method: str, expected: list[int]) -> None:
    in_flight, released = [0, 0], asyncio.Event()

    async def serve(call: Call) -> Reply:
        await released.wait()
        return OK

    pending = call()
    pending.method = method
    task = asyncio.ensure_future(Pipeline((), serve, (), (), PipelineOptions(60, in_flight))(pending))
    await asyncio.sleep(0)
    assert in_flight == expected
    released.set()
    await task
    assert in_flight == [0, 0]


# --- deadlines ---


def reply_after(seconds: float) -> Handler:
    async def serve(call: Call) -> Reply:
        await asyncio.sleep(seconds)
        return OK

    return serve


async def wait_forever(call: Call) -> Reply:
    await asyncio.Event().wait()
    return OK


def build_pipeline_with_timeout(seconds: float, serve: Handler, after: tuple[After, ...] = ()) -> Pipeline:
    return Pipeline((), serve, after, (), PipelineOptions(seconds, [0, 0]))


@on_virtual_time
async def test_a_request_that_takes_too_long_is_cancelled_and_gets_504() -> None:
    cancelled = asyncio.Event()

    async def serve(call: Call) -> Reply:
        try:
            return await wait_forever(call)
        finally:
            cancelled.set()

    assert (await build_pipeline_with_timeout(SHORT, serve)(call())).status == 504
    assert cancelled.is_set()


async def test_a_request_within_its_deadline_is_served() -> None:
    assert await build_pipeline_with_timeout(60, reply_after(0))(call()) is OK


@on_virtual_time
async def test_each_request_has_its_own_deadline() -> None:
    pipeline, started_at = build_pipeline_with_timeout(SHORT, wait_forever), asyncio.get_running_loop().time()

    async def measure_timeout(pause: float) -> float:
        await asyncio.sleep(pause)
        assert (await pipeline(call())).status == 504
        return asyncio.get_running_loop().time() - started_at

    first, second, third = await asyncio.gather(*map(measure_timeout, (0, SHORT / 2, 3 * SHORT)))
    assert SHORT * 0.9 <= first < second < third
    assert third >= SHORT * 3.9


@on_virtual_time
async def test_finished_requests_do_not_keep_others_from_timing_out() -> None:
    durations = iter((0, 0, 0, 3600))

    async def serve(call: Call) -> Reply:
        await asyncio.sleep(next(durations))
        return OK

    pipeline = build_pipeline_with_timeout(SHORT, serve)
    assert [(await pipeline(call())).status for _ in range(4)] == [200, 200, 200, 504]


@on_virtual_time
async def test_a_task_is_not_left_cancelled_after_a_timeout() -> None:
    task = asyncio.current_task()
    assert task is not None
    await build_pipeline_with_timeout(SHORT, wait_forever)(call())
    assert task.cancelling() == 0
    await asyncio.sleep(0)


@on_virtual_time
async def test_a_handler_that_replies_in_spite_of_the_timeout_leaves_no_cancellation() -> None:
    async def serve(call: Call) -> Reply:
        try:
            return await wait_forever(call)
        except asyncio.CancelledError:
            return OK

    task = asyncio.current_task()
    assert task is not None
    assert await build_pipeline_with_timeout(SHORT, serve)(call()) is OK
    assert task.cancelling() == 0


@on_virtual_time
async def test_a_response_that_is_ready_is_not_replaced_by_a_timeout() -> None:
    async def compress_slowly(reply: Reply) -> Reply:
        await asyncio.sleep(0.6)
        return reply

    pipeline = build_pipeline_with_timeout(0.5, reply_after(0), (lambda call, reply: compress_slowly(reply),))
    assert await pipeline(call()) is OK


async def test_cancellation_is_not_a_timeout_and_runs_the_aborted_stages() -> None:
    aborted: list[Call] = []
    trace: list[str] = []
    pipeline = Pipeline((), wait_forever, [record_after("after", trace)], [aborted.append], PipelineOptions(60, [0, 0]))
    pending = call()
    task = asyncio.ensure_future(pipeline(pending))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (aborted, trace) == ([pending], [])


@on_virtual_time
async def test_a_request_that_is_cancelled_when_its_time_is_up_is_aborted() -> None:
    aborted: list[Call] = []
    tasks: list[asyncio.Task[Reply]] = []

    async def serve(call: Call) -> Reply:
        try:
            return await wait_forever(call)
        except asyncio.CancelledError:
            tasks[0].cancel()  # the client disconnects while the timeout is being handled
            raise

    pending = call()
    pipeline = Pipeline((), serve, (), [aborted.append], PipelineOptions(SHORT, [0, 0]))
    tasks.append(asyncio.ensure_future(pipeline(pending)))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert aborted == [pending]


@on_virtual_time
async def test_a_timeout_runs_no_aborted_stages() -> None:
    aborted: list[Call] = []
    assert (
        await Pipeline((), wait_forever, (), [aborted.append], PipelineOptions(SHORT, [0, 0]))(call())
    ).status == 504
    assert aborted == []


async def test_errors_pass_unchanged() -> None:
    assert (await build_pipeline_with_timeout(60, always_raise(NotFound("not here")))(call())).status == 404
