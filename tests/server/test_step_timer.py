"""Steps of a request on the event loop: how long each takes, and that nothing remains of a finished request."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.core.call import Call, Handler, Reply
from fairlead.server.pipeline import Pipeline, PipelineOptions
from tests.harness.calls import always_reply, call
from tests.server.http.clocks import Clocks

OK = Reply(200, b"ok")


def build_pipeline_with_timeout(seconds: float, serve: Handler) -> Pipeline:
    return Pipeline((), serve, (), (), PipelineOptions(seconds, [0, 0]))


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def slow_steps() -> list[float]:
    return []


@pytest.fixture
def build_timed_pipeline(clocks: Clocks, slow_steps: list[float]) -> Callable[[Handler], Pipeline]:
    """Builds a pipeline that reports slow steps, with fake clocks."""

    def build(serve: Handler) -> Pipeline:
        wall, cpu = clocks.both
        options = PipelineOptions(60, [0, 0], lambda _, seconds: slow_steps.append(seconds), wall, cpu)
        return Pipeline((), serve, (), (), options)

    return build


async def test_each_slow_step_is_reported_on_its_own(
    build_timed_pipeline: Callable[[Handler], Pipeline], clocks: Clocks, slow_steps: list[float]
) -> None:
    async def serve(call: Call) -> Reply:
        clocks.work(0.1)
        await asyncio.sleep(0)
        clocks.work(0.0001)
        await asyncio.sleep(0)
        clocks.work(0.2)
        return OK

    assert await build_timed_pipeline(serve)(call()) is OK
    assert slow_steps == pytest.approx([0.1, 0.2])


async def test_a_step_that_waited_for_the_cpu_counts_its_cpu_time_only(
    build_timed_pipeline: Callable[[Handler], Pipeline], clocks: Clocks, slow_steps: list[float]
) -> None:
    async def serve(call: Call) -> Reply:
        await asyncio.sleep(0)
        clocks.wall += 1.0
        await asyncio.sleep(0)
        clocks.wall += 1.0
        clocks.work(0.1)
        return OK

    await build_timed_pipeline(serve)(call())
    assert slow_steps == pytest.approx([0.1])


async def test_a_step_that_fails_is_reported_as_well(
    build_timed_pipeline: Callable[[Handler], Pipeline], clocks: Clocks, slow_steps: list[float]
) -> None:
    async def serve(call: Call) -> Reply:
        await asyncio.sleep(0)
        clocks.work(0.1)
        raise LookupError

    assert (await build_timed_pipeline(serve)(call())).status == 500
    assert slow_steps == pytest.approx([0.1])


async def test_a_request_served_in_one_step_is_reported(
    build_timed_pipeline: Callable[[Handler], Pipeline], clocks: Clocks, slow_steps: list[float]
) -> None:
    def serve(call: Call) -> Reply:
        clocks.work(0.3)
        return OK

    await build_timed_pipeline(serve)(call())
    assert slow_steps == pytest.approx([0.3])
    await build_timed_pipeline(always_reply(OK))(call())
    assert len(slow_steps) == 1


async def test_the_timer_measures_busy_and_elapsed_time(
    build_timed_pipeline: Callable[[Handler], Pipeline], clocks: Clocks
) -> None:
    steps: list[float] = []

    async def serve(call: Call) -> Reply:
        call.step_timer.on_step = steps.append
        clocks.work(0.1)
        await asyncio.sleep(0)
        clocks.work(0.2)
        assert call.step_timer.busy_seconds() == pytest.approx(0.3)
        return OK

    request = call()
    await build_timed_pipeline(serve)(request)
    assert steps == pytest.approx([0.1, 0.2])
    clocks.wall += 1.0
    assert request.step_timer.elapsed_seconds() == pytest.approx(1.3)


async def test_a_cancelled_handler_may_continue() -> None:
    started = asyncio.Event()

    async def serve(call: Call) -> Reply:
        try:
            started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return OK

    task = asyncio.ensure_future(build_pipeline_with_timeout(60, serve)(call()))
    await started.wait()
    task.cancel()
    assert await task is OK


async def test_an_abandoned_request_is_closed() -> None:
    closed: list[str] = []

    async def serve(call: Call) -> Reply:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append("closed")
        return OK

    steps: Any = build_pipeline_with_timeout(60, serve)(call())
    steps.send(None)
    steps.close()
    assert closed == ["closed"]


class Content:
    """Stands for data that a request refers to, such as a body that the HTTP server still has to read."""


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
async def test_a_request_that_timed_out_leaves_no_references() -> None:
    """The HTTP server closes the connection of an incomplete body only once nothing refers to the request."""
    references: list[weakref.ref[Content]] = []

    async def wait_for_body(content: Content) -> Reply:
        await asyncio.Event().wait()
        return Reply(200, repr(content).encode())

    def serve(_: Call) -> Any:
        content = Content()
        references.append(weakref.ref(content))
        return wait_for_body(content)

    pipeline = build_pipeline_with_timeout(0.02, serve)

    async def run() -> int:
        return (await pipeline(call())).status

    assert await asyncio.create_task(run()) == 504
    assert references[0]() is None
