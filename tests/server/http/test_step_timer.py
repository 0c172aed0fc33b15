"""Steps of a request on the event loop: how long each took, and that nothing is left of a request that is over."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.core.call import Call, Reply
from fairlead.server.api.errors import render_errors
from fairlead.server.http.pipeline import build_pipeline, deadline_stage
from fairlead.server.http.step_timer import await_and_time
from fairlead.server.metrics.stage import LabelResolver, RequestMetrics
from tests.harness.calls import answering
from tests.server.http.clocks import Clocks, asked
from tests.server.metrics.test_stage import CATALOG


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def noted() -> Iterator[list[float]]:
    yield []


async def test_each_step_of_an_answer_is_timed_alone(clocks: Clocks, noted: list[float]) -> None:
    async def answer() -> Reply:
        clocks.work(0.1)
        await asyncio.sleep(0)
        clocks.work(0.0001)
        await asyncio.sleep(0)
        clocks.work(0.2)
        return Reply(204)

    reply = await await_and_time(answer(), asked(), lambda _, seconds: noted.append(seconds), *clocks.both)
    assert reply.status == 204
    assert noted == pytest.approx([0.1, 0.2])


async def test_a_step_that_waited_for_the_processor_took_no_longer_than_it_worked(
    clocks: Clocks, noted: list[float]
) -> None:
    async def answer() -> Reply:
        clocks.wall += 1.0
        await asyncio.sleep(0)
        clocks.wall += 1.0
        clocks.work(0.1)
        return Reply(204)

    await await_and_time(answer(), asked(), lambda _, seconds: noted.append(seconds), *clocks.both)
    assert noted == pytest.approx([0.1])


async def test_what_goes_wrong_in_a_step_is_handed_on_and_timed(clocks: Clocks, noted: list[float]) -> None:
    async def answer() -> Reply:
        clocks.work(0.1)
        raise LookupError

    with pytest.raises(LookupError):
        await await_and_time(answer(), asked(), lambda _, seconds: noted.append(seconds), *clocks.both)
    assert noted == pytest.approx([0.1])


async def test_an_answer_can_be_cancelled_and_may_go_on_all_the_same() -> None:
    begun, ended = asyncio.Event(), list[str]()

    async def answer() -> Reply:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            await asyncio.sleep(0)
        return Reply(200)

    async def await_answer() -> Reply:
        return await await_and_time(answer(), asked(), lambda *_: None)

    task = asyncio.create_task(await_answer())
    await begun.wait()
    task.cancel()
    assert (await task).status == 200
    assert ended == ["cancelled"]


async def test_an_answer_that_is_given_up_is_closed() -> None:
    closed = list[str]()

    async def answer() -> Reply:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append("closed")
        return Reply(200)

    steps: Any = await_and_time(answer(), asked(), lambda *_: None)
    steps.send(None)
    steps.close()
    assert closed == ["closed"]


async def test_the_stage_hands_over_what_is_answered_at_once_and_later(clocks: Clocks, noted: list[float]) -> None:
    requests = RequestMetrics(LabelResolver(CATALOG), lambda: clocks.wall, lambda _, seconds: noted.append(seconds))

    def at_once(_: Call) -> Reply:
        clocks.work(0.3)
        return Reply(200)

    await requests.measure(asked(), at_once)
    assert noted == pytest.approx([0.3])
    await requests.measure(asked(), answering(Reply(200)))
    assert len(noted) == 1


class Content:
    """Stands for what a request holds on to, such as the body that the HTTP server still has to read."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_nothing_is_left_of_a_request_that_ran_out_of_time() -> None:
    """The HTTP server closes the connection of an unfinished body only once nothing refers to the request."""
    kept = list[weakref.ref[Content]]()

    async def wait_for_body(content: Content) -> Reply:
        await asyncio.Event().wait()
        return Reply(200, repr(content).encode())

    def serve(_: Call) -> Any:
        content = Content()
        kept.append(weakref.ref(content))
        return wait_for_body(content)

    handle = build_pipeline(
        [RequestMetrics(LabelResolver(CATALOG)).measure, render_errors, deadline_stage(0.01)], serve
    )

    async def run() -> int:
        return (await handle(asked())).status

    assert await asyncio.create_task(run()) == 504
    assert kept[0]() is None
