"""server.http.event_loop_watchdog: what counts as blocking, which request caused it, and no false alarms under load."""

import asyncio
import io
import threading
import time

import pytest
import structlog
from structlog.testing import capture_logs

from fairlead.core.concurrency import COMPUTE_POOL
from fairlead.core.log import configure_logging
from fairlead.core.thread_activity import ThreadActivity, ThreadTask
from fairlead.server.http import event_loop_watchdog
from fairlead.server.http.event_loop_watchdog import (
    IDLE_TICK_SECONDS,
    LOG_INTERVAL_SECONDS,
    MAX_BLOCKED_SECONDS,
    THREADS_TICK_SECONDS,
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


# --- threads that hold the interpreter


class Thread(ThreadActivity):
    """A thread whose CPU time the test sets."""

    seconds = 1.0

    def __init__(self, name: str = "compute-0") -> None:
        super().__init__(name, 0)

    def cpu_seconds(self) -> float:
        return self.seconds


@pytest.fixture
def threads() -> list[Thread]:
    return [Thread("compute-0"), Thread("audit")]


@pytest.fixture
def beside_threads(clocks: Clocks, threads: list[Thread]) -> Watchdog:
    watchdog = Watchdog(lambda: clocks.wall, lambda: clocks.cpu, threads)
    watchdog.has_jobs = lambda: True
    watchdog.start()
    return watchdog


def hold(clocks: Clocks, thread: Thread, seconds: float) -> None:
    """The thread works, and the loop cannot run."""
    clocks.wall += seconds
    thread.seconds += seconds


def test_a_thread_that_delays_the_timer_holds_the_interpreter(
    clocks: Clocks, beside_threads: Watchdog, threads: list[Thread]
) -> None:
    clocks.wall += TICK_SECONDS
    hold(clocks, threads[0], 0.3)
    beside_threads.tick()
    assert beside_threads.longest_held == pytest.approx(0.3)
    assert beside_threads.held.sum == pytest.approx(0.3)
    assert beside_threads.longest_blocked == 0


def test_a_thread_that_works_beside_the_loop_holds_nothing(
    clocks: Clocks, beside_threads: Watchdog, threads: list[Thread]
) -> None:
    for _ in range(100):
        pause = beside_threads.tick()
        hold(clocks, threads[0], pause)
    assert beside_threads.longest_held == 0 and not any(beside_threads.held.counts)


def test_the_delay_of_a_busy_machine_is_not_attributed_to_threads(
    clocks: Clocks, beside_threads: Watchdog, threads: list[Thread]
) -> None:
    """Neither if the threads hardly work, nor if the loop's thread waits for a CPU while they do."""
    hold(clocks, threads[0], 0.004)
    clocks.wall += 2.0
    beside_threads.tick()
    assert beside_threads.longest_held == pytest.approx(0.004)
    waited = 0.0
    beside_threads.read_wait = lambda: waited
    clocks.wall += THREADS_TICK_SECONDS
    hold(clocks, threads[0], 0.5)
    waited = 0.49
    beside_threads.tick()
    assert beside_threads.longest_held == pytest.approx(0.01)


def test_the_work_of_the_loop_itself_is_not_attributed_to_threads(
    clocks: Clocks, beside_threads: Watchdog, threads: list[Thread]
) -> None:
    clocks.wall += TICK_SECONDS
    clocks.work(0.2)
    threads[0].seconds += 0.2
    beside_threads.tick()
    assert beside_threads.longest_blocked == pytest.approx(0.2)
    assert beside_threads.longest_held == 0


def test_the_log_names_the_thread_its_function_and_the_request(
    clocks: Clocks, beside_threads: Watchdog, threads: list[Thread]
) -> None:
    """Also if the job has ended before the timer could fire."""
    request = build_request()
    threads[0].begin(ThreadTask("parse_json", 3_000_000, request))
    threads[0].end(0.4)
    threads[0].begin(ThreadTask("another", 1))
    with capture_logs() as lines:
        clocks.wall += TICK_SECONDS
        hold(clocks, threads[1], 0.01)
        hold(clocks, threads[0], 0.4)
        beside_threads.tick()
    (line,) = lines
    assert (line["event"], line["seconds"]) == ("a thread held the interpreter", 0.41)
    assert (line["thread"], line["function"], line["audit_id"]) == ("compute-0", "parse_json", "an-id")
    assert (line["user"], line["bytes"]) == ("mallory", "3000000")


def test_a_task_without_a_request_is_named_by_its_function_and_size(
    clocks: Clocks, beside_threads: Watchdog, threads: list[Thread]
) -> None:
    threads[1].begin(ThreadTask("compress", 12_345))
    with capture_logs() as lines:
        clocks.wall += TICK_SECONDS
        hold(clocks, threads[1], MAX_BLOCKED_SECONDS + 0.01)
        beside_threads.tick()
    assert (lines[0]["thread"], lines[0]["function"], lines[0]["bytes"]) == ("audit", "compress", "12345")


def test_the_timer_fires_more_often_while_threads_have_jobs(clocks: Clocks, beside_threads: Watchdog) -> None:
    assert beside_threads.tick() == THREADS_TICK_SECONDS
    beside_threads.has_jobs = lambda: False
    assert beside_threads.tick() == IDLE_TICK_SECONDS


def test_the_metrics_have_what_threads_held(clocks: Clocks, beside_threads: Watchdog, threads: list[Thread]) -> None:
    clocks.wall += TICK_SECONDS
    hold(clocks, threads[0], 0.2)
    beside_threads.tick()
    families = {family.name: family for family in event_loop_families(beside_threads)}
    assert "fairlead_interpreter_held_seconds" in families
    assert "fairlead_interpreter_held_max_seconds" in families


async def test_a_running_watchdog_detects_a_job_that_holds_the_interpreter() -> None:
    """With real clocks. One call into C code holds the interpreter until it returns."""
    watchdog = Watchdog()
    async with run_watchdog(watchdog):
        while not any(watchdog.held.counts):
            await COMPUTE_POOL.run(1, sum, range(3_000_000))
            await asyncio.sleep(THREADS_TICK_SECONDS)
    assert watchdog.longest_held > 0
    assert COMPUTE_POOL.on_submit is None


async def test_a_job_makes_an_idle_watchdog_measure_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a job would be over before the next measurement."""
    monkeypatch.setattr(event_loop_watchdog, "TICK_SECONDS", 3_600.0)
    ticked, release = asyncio.Event(), threading.Event()

    class NotifyingWatchdog(Watchdog):
        def tick(self) -> float:
            ticked.set()
            return super().tick()

    async with run_watchdog(NotifyingWatchdog()):
        job = asyncio.create_task(COMPUTE_POOL.run(1, release.wait, 20))
        await ticked.wait()
        release.set()
        assert await job
    assert COMPUTE_POOL.unfinished == 0
