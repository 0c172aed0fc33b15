"""The event loop's watchdog: what counts as a hold, whose it was, and that nothing is made up by a busy machine."""

import asyncio
import io
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from fairlead.core.call import Call, Reply, Target
from fairlead.core.log import set_up_logging
from fairlead.core.user import User
from fairlead.server import event_loop
from fairlead.server.event_loop import (
    HOLD_LIMIT,
    IDLE_INTERVAL,
    INTERVAL,
    LOG_SECONDS,
    Watchdog,
    running,
    stack_of,
    timed_steps,
)
from fairlead.server.metrics.event_loop import event_loop_families
from fairlead.server.metrics.labels import Known
from fairlead.server.metrics.stage import Requests
from tests.authn.calls import answering, call
from tests.server.test_metrics import CATALOG


class Clocks:
    """The wall clock, and the processor time of the loop's thread, which pass only when a test says so."""

    def __init__(self) -> None:
        self.wall = 100.0
        self.used = 5.0

    def work(self, seconds: float) -> None:
        self.wall += seconds
        self.used += seconds

    @property
    def both(self) -> tuple[Callable[[], float], Callable[[], float]]:
        return lambda: self.wall, lambda: self.used


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def watchdog(clocks: Clocks) -> Watchdog:
    watchdog = Watchdog(lambda: clocks.wall, lambda: clocks.used)
    watchdog.begin()
    return watchdog


def asked() -> Call:
    made = call("/x", headers={"content-length": "3000000"})
    made.method, made.audit_id, made.user = "POST", "an-id", User("mallory")
    made.target = Target("create", "/x", group="example.com", resource="apps", subresource="clone")
    return made


def test_an_idle_loop_is_not_held(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.wall += INTERVAL
    watchdog.tick()
    assert watchdog.longest == 0
    assert watchdog.holds.counts[0] == watchdog.lags.counts[0] == 1


def test_work_that_delays_the_timer_is_a_hold(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.wall += INTERVAL
    clocks.work(0.2)
    watchdog.tick()
    assert watchdog.longest == pytest.approx(0.2)
    assert watchdog.holds.sum == pytest.approx(0.2)


def test_a_delay_without_processor_time_is_lag_and_no_hold(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.work(0.001)
    clocks.wall += 3.0
    watchdog.tick()
    assert watchdog.longest == pytest.approx(0.001)
    assert watchdog.lags.sum == pytest.approx(3.001 - INTERVAL)


def test_work_of_many_small_steps_is_no_hold(clocks: Clocks, watchdog: Watchdog) -> None:
    for _ in range(100):
        clocks.work(INTERVAL)
        watchdog.tick()
    assert watchdog.longest == pytest.approx(0, abs=1e-9)


def test_the_longest_hold_can_be_forgotten(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.work(0.3)
    watchdog.tick()
    watchdog.reset()
    clocks.work(INTERVAL + 0.01)
    watchdog.tick()
    assert watchdog.longest == pytest.approx(0.01)


def test_a_step_of_a_request_counts_whole(clocks: Clocks, watchdog: Watchdog) -> None:
    """The timer alone would miss what fell into the time before it was due."""
    clocks.work(INTERVAL + 0.04)
    watchdog.note(asked(), INTERVAL + 0.04)
    watchdog.tick()
    assert watchdog.longest == pytest.approx(INTERVAL + 0.04)


def test_a_step_that_waited_for_the_processor_is_no_hold(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.wall += 2.0
    clocks.work(0.01)
    watchdog.note(asked(), 2.01)
    watchdog.tick()
    assert watchdog.longest == pytest.approx(0.01)


def test_whoever_reads_the_figures_has_the_last_request_in_them(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.work(0.03)
    watchdog.note(asked(), 0.03)
    list(event_loop_families(watchdog))
    assert watchdog.longest == pytest.approx(0.03)
    assert watchdog.holds.sum == pytest.approx(0.03)
    watchdog.tick()
    assert watchdog.holds.sum == pytest.approx(0.03 + 0.03 - INTERVAL)


def test_the_log_says_whose_request_it_was(clocks: Clocks, watchdog: Watchdog) -> None:
    with capture_logs() as lines:
        clocks.work(0.5)
        watchdog.note(asked(), 0.5)
        watchdog.tick()
    (line,) = lines
    assert line["event"] == "the event loop was held"
    assert line["seconds"] == 0.5
    assert (line["method"], line["resource"], line["user"]) == ("POST", "example.com/apps/clone", "mallory")
    assert (line["bytes"], line["audit_id"]) == ("3000000", "an-id")


def test_background_work_is_not_blamed_on_a_request(clocks: Clocks, watchdog: Watchdog) -> None:
    with capture_logs() as lines:
        watchdog.note(asked(), 0.003)
        clocks.work(0.5)
        watchdog.tick()
    (line,) = lines
    assert "user" not in line
    assert "background" in line["by"]


def test_holds_are_logged_once_in_a_while_and_counted_meanwhile(clocks: Clocks, watchdog: Watchdog) -> None:
    with capture_logs() as lines:
        for _ in range(5):
            clocks.work(INTERVAL + HOLD_LIMIT + 0.01)
            watchdog.tick()
        clocks.wall += LOG_SECONDS
        watchdog.tick()
        clocks.work(IDLE_INTERVAL + HOLD_LIMIT + 0.01)
        watchdog.tick()
    assert [line["not_logged_before"] for line in lines] == [0, 4]


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

    reply = await timed_steps(answer(), asked(), lambda _, seconds: noted.append(seconds), *clocks.both)
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

    await timed_steps(answer(), asked(), lambda _, seconds: noted.append(seconds), *clocks.both)
    assert noted == pytest.approx([0.1])


async def test_what_goes_wrong_in_a_step_is_handed_on_and_timed(clocks: Clocks, noted: list[float]) -> None:
    async def answer() -> Reply:
        clocks.work(0.1)
        raise LookupError

    with pytest.raises(LookupError):
        await timed_steps(answer(), asked(), lambda _, seconds: noted.append(seconds), *clocks.both)
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
        return await timed_steps(answer(), asked(), lambda *_: None)

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

    steps: Any = timed_steps(answer(), asked(), lambda *_: None)
    steps.send(None)
    steps.close()
    assert closed == ["closed"]


async def test_the_stage_hands_over_what_is_answered_at_once_and_later(clocks: Clocks, noted: list[float]) -> None:
    requests = Requests(Known(CATALOG), lambda: clocks.wall, lambda _, seconds: noted.append(seconds))

    def at_once(_: Call) -> Reply:
        clocks.work(0.3)
        return Reply(200)

    await requests.measured(asked(), at_once)
    assert noted == pytest.approx([0.3])
    await requests.measured(asked(), answering(Reply(200)))
    assert len(noted) == 1


async def test_a_running_watchdog_sees_what_holds_its_loop() -> None:
    held = asyncio.Event()

    class Telling(Watchdog):
        def tick(self) -> float:
            pause = super().tick()
            if self.longest > INTERVAL:
                held.set()
            return pause

    watchdog = Telling()
    async with running(watchdog):
        until = time.thread_time() + 2 * IDLE_INTERVAL  # so that at least half of it is after the timer was due
        while time.thread_time() < until:
            pass
        await held.wait()
    assert watchdog.longest <= 2 * IDLE_INTERVAL + 1


def test_an_idle_loop_is_seldom_woken(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.wall += INTERVAL
    assert watchdog.tick() == IDLE_INTERVAL
    clocks.work(IDLE_INTERVAL)
    assert watchdog.tick() == INTERVAL
    assert watchdog.longest == pytest.approx(0, abs=1e-9)


class Lines(io.StringIO):
    """A log that tells when something was written into it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        length = super().write(text)
        if "stuck" in text:
            self.written.set()
        return length


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.usefixtures("restored_logging")
async def test_a_loop_that_is_stuck_has_its_stack_logged(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines()
    set_up_logging("error", form, lines)
    monkeypatch.setattr(event_loop, "log", structlog.get_logger())
    monkeypatch.setattr(event_loop, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(event_loop, "STUCK_SECONDS", 0.05)
    async with running(Watchdog()):
        await asyncio.sleep(0)
        while not lines.written.is_set():  # holds the loop until somebody complains
            pass
    assert "the event loop is stuck" in lines.getvalue()
    assert "test_a_loop_that_is_stuck" in lines.getvalue()


def test_a_thread_that_is_gone_has_no_stack() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert stack_of(thread.ident or 0) == ""
