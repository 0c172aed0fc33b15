"""server.http.event_loop_watchdog: what counts as blocking, which request caused it, and no false alarms under load."""

import asyncio
import io
import threading
import time

import pytest
import structlog
from structlog.testing import capture_logs

from fairlead.core.log import configure_logging
from fairlead.server.http import event_loop_watchdog
from fairlead.server.http.event_loop_watchdog import (
    IDLE_TICK_SECONDS,
    LOG_INTERVAL_SECONDS,
    MAX_BLOCKED_SECONDS,
    TICK_SECONDS,
    Watchdog,
    format_stack,
    run_watchdog,
)
from fairlead.server.metrics.families import event_loop_families
from tests.server.http.clocks import Clocks, build_request


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def watchdog(clocks: Clocks) -> Watchdog:
    watchdog = Watchdog(lambda: clocks.wall, lambda: clocks.cpu)
    watchdog.start()
    return watchdog


def test_an_idle_loop_is_not_blocked(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.wall += TICK_SECONDS
    watchdog.tick()
    assert watchdog.longest_blocked == 0
    assert watchdog.blocked.counts[0] == watchdog.lags.counts[0] == 1


def test_work_that_delays_the_timer_is_blocking(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.wall += TICK_SECONDS
    clocks.work(0.2)
    watchdog.tick()
    assert watchdog.longest_blocked == pytest.approx(0.2)
    assert watchdog.blocked.sum == pytest.approx(0.2)


def test_a_delay_without_cpu_time_is_lag_and_not_blocking(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.work(0.001)
    clocks.wall += 3.0
    watchdog.tick()
    assert watchdog.longest_blocked == pytest.approx(0.001)
    assert watchdog.lags.sum == pytest.approx(3.001 - TICK_SECONDS)


def test_many_small_steps_are_not_blocking(clocks: Clocks, watchdog: Watchdog) -> None:
    for _ in range(100):
        clocks.work(TICK_SECONDS)
        watchdog.tick()
    assert watchdog.longest_blocked == pytest.approx(0, abs=1e-9)


def test_the_longest_blocked_time_can_be_reset(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.work(0.3)
    watchdog.tick()
    watchdog.reset_longest_blocked()
    clocks.work(TICK_SECONDS + 0.01)
    watchdog.tick()
    assert watchdog.longest_blocked == pytest.approx(0.01)


def test_a_step_of_a_request_counts_in_full(clocks: Clocks, watchdog: Watchdog) -> None:
    """The timer alone would miss the part of the step before it was due."""
    clocks.work(TICK_SECONDS + 0.04)
    watchdog.record_step(build_request(), TICK_SECONDS + 0.04)
    watchdog.tick()
    assert watchdog.longest_blocked == pytest.approx(TICK_SECONDS + 0.04)


def test_a_step_that_waited_for_the_cpu_is_not_blocking(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.wall += 2.0
    clocks.work(0.01)
    watchdog.record_step(build_request(), 2.01)
    watchdog.tick()
    assert watchdog.longest_blocked == pytest.approx(0.01)


def test_the_metrics_include_the_last_request(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.work(0.03)
    watchdog.record_step(build_request(), 0.03)
    list(event_loop_families(watchdog))
    assert watchdog.longest_blocked == pytest.approx(0.03)
    assert watchdog.blocked.sum == pytest.approx(0.03)
    watchdog.tick()
    assert watchdog.blocked.sum == pytest.approx(0.03 + 0.03 - TICK_SECONDS)


def test_the_log_names_the_request_and_its_user(clocks: Clocks, watchdog: Watchdog) -> None:
    with capture_logs() as lines:
        clocks.work(0.5)
        watchdog.record_step(build_request(), 0.5)
        watchdog.tick()
    (line,) = lines
    assert line["event"] == "the event loop was blocked"
    assert line["seconds"] == 0.5
    assert (line["method"], line["resource"], line["user"]) == ("POST", "example.com/apps/clone", "mallory")
    assert (line["bytes"], line["audit_id"]) == ("3000000", "an-id")


def test_background_work_is_not_attributed_to_a_request(clocks: Clocks, watchdog: Watchdog) -> None:
    with capture_logs() as lines:
        watchdog.record_step(build_request(), 0.003)
        clocks.work(0.5)
        watchdog.tick()
    (line,) = lines
    assert "user" not in line
    assert "background" in line["by"]


def test_blocking_is_logged_at_intervals_and_counted_in_between(clocks: Clocks, watchdog: Watchdog) -> None:
    with capture_logs() as lines:
        for _ in range(5):
            clocks.work(TICK_SECONDS + MAX_BLOCKED_SECONDS + 0.01)
            watchdog.tick()
        clocks.wall += LOG_INTERVAL_SECONDS
        watchdog.tick()
        clocks.work(IDLE_TICK_SECONDS + MAX_BLOCKED_SECONDS + 0.01)
        watchdog.tick()
    assert [line["not_logged_before"] for line in lines] == [0, 4]


async def test_a_running_watchdog_detects_blocking() -> None:
    blocked = asyncio.Event()

    class NotifyingWatchdog(Watchdog):
        def tick(self) -> float:
            pause = super().tick()
            if self.longest_blocked > TICK_SECONDS:
                blocked.set()
            return pause

    watchdog = NotifyingWatchdog()
    async with run_watchdog(watchdog):
        deadline = time.thread_time() + 2 * IDLE_TICK_SECONDS  # at least half of it is after the timer was due
        while time.thread_time() < deadline:
            pass
        await blocked.wait()
    assert watchdog.longest_blocked <= 2 * IDLE_TICK_SECONDS + 1


def test_an_idle_loop_is_woken_rarely(clocks: Clocks, watchdog: Watchdog) -> None:
    clocks.wall += TICK_SECONDS
    assert watchdog.tick() == IDLE_TICK_SECONDS
    clocks.work(IDLE_TICK_SECONDS)
    assert watchdog.tick() == TICK_SECONDS
    assert watchdog.longest_blocked == pytest.approx(0, abs=1e-9)


class NotifyingStream(io.StringIO):
    """A log stream that signals when the message about a stuck loop was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        length = super().write(text)
        if "stuck" in text:
            self.written.set()
        return length


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.usefixtures("restored_logging")
async def test_the_stack_of_a_stuck_loop_is_logged(log_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = NotifyingStream()
    configure_logging("error", log_format, lines)
    monkeypatch.setattr(event_loop_watchdog, "log", structlog.get_logger())
    monkeypatch.setattr(event_loop_watchdog, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(event_loop_watchdog, "STUCK_SECONDS", 0.05)
    async with run_watchdog(Watchdog()):
        await asyncio.sleep(0)
        while not lines.written.is_set():  # blocks the loop until the watchdog logs it
            pass
    assert "the event loop is stuck" in lines.getvalue()
    assert "test_the_stack_of_a_stuck_loop" in lines.getvalue()


def test_a_finished_thread_has_no_stack() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert format_stack(thread.ident or 0) == ""
