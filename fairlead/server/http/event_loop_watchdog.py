"""Event loop watchdog: measures how long the loop was blocked, and by which request.

All requests, watches and controllers share one event loop. Code that runs without awaiting blocks everything else. Such
a period must not last longer than `MAX_BLOCKED_SECONDS`. The watchdog measures these periods in two ways:

- A timer fires every `TICK_SECONDS` and measures its own delay. It covers requests and background work, but misses the
  part of a period before the timer was due.
- The pipeline times each step of a request, from one await to the next (`server/pipeline.py`), and reports the long
  ones. That is exact, and attributes the period to a request.

A period is capped by the CPU time that the loop's thread used in the meantime, because a busy machine delays the timer
as well. The delay in wall-clock time is a separate metric (lag).

Other threads can stop the loop as well: while one of them holds the interpreter in a call into C code, the timer is
late although the loop's thread uses no CPU time. So what is left of the delay, without the time that the loop's thread
waited for a CPU, counts as held by threads, capped by the CPU time that they used (`core/concurrency.py`). While
jobs run in the compute pool, the timer fires every `THREADS_TICK_SECONDS`, so that it misses little.

A monitor thread polls the loop twice a second and logs the stack of the loop's thread if the loop is stuck for seconds.

`app` runs the watchdog while the server listens; `server/metrics/families.py` exposes the measurements.
"""

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager

import structlog

from fairlead.core.call import Call
from fairlead.core.concurrency import INTERPRETER_POOLS
from fairlead.core.thread_activity import THREADS, ThreadActivity, ThreadTask
from fairlead.server.metrics.exposition import Histogram

TICK_SECONDS = 0.02
"""Interval of the timer while the loop is busy."""
IDLE_TICK_SECONDS, IDLE_CPU_SECONDS = 0.1, 0.001
"""Interval of the timer after a tick in which the loop used less than `IDLE_CPU_SECONDS`: ten wakeups a second, which
cost about 0.1 % of a CPU."""
MAX_BLOCKED_SECONDS = 0.05
"""Longer periods are logged."""
STUCK_SECONDS = 1.0
"""A loop blocked for longer than this is stuck, and its stack is logged."""
POLL_SECONDS = 0.5
LOG_INTERVAL_SECONDS = 10.0
"""At most one period is logged in this interval; the others are counted."""
STACK_LOG_INTERVAL_SECONDS = 60.0
THREADS_TICK_SECONDS = 0.005
"""Interval of the timer while jobs run in threads."""
MIN_HELD_SECONDS = 0.002
"""Shorter periods are neither recorded nor attributed: a thread may run for as long as the switch interval anyway."""
BUCKET_BOUNDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.015,
    0.02,
    0.025,
    0.03,
    0.035,
    0.04,
    0.045,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    1.0,
)

log = structlog.get_logger(__name__)


class Watchdog:
    """Measures how long one event loop is blocked. All methods run in the thread of the loop, as `cpu_clock` is per
    thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
        threads: Collection[ThreadActivity] = THREADS,
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._threads = threads
        self.read_wait: Callable[[], float] = lambda: 0.0
        """Returns the seconds that the loop's thread has waited for a CPU."""
        self.has_jobs: Callable[[], bool] = lambda: any(pool.unfinished for pool in INTERPRETER_POOLS)
        """Whether threads have something to do."""
        self.blocked = Histogram(BUCKET_BOUNDS)
        self.held = Histogram(BUCKET_BOUNDS)
        self.longest_held = 0.0
        """The longest time that threads held the interpreter while the loop waited, in seconds since the start."""
        self.lags = Histogram(BUCKET_BOUNDS)
        self.longest_blocked = 0.0
        """In seconds, since the start."""
        self.last_tick = self._next_tick = clock()
        """When the timer last fired; the monitor thread reads it."""
        self._cpu_at_last_tick = 0.0
        self._longest_step = 0.0
        self._longest_step_call: Call | None = None
        self._log = _LimitedLog()
        self._last_wait = 0.0
        self._thread_seconds: dict[ThreadActivity, float] = {}

    def start(self) -> None:
        """Starts measuring."""
        self.last_tick = self._clock()
        self._next_tick = self.last_tick + TICK_SECONDS
        self._cpu_at_last_tick = self._cpu_clock()
        self._last_wait = self.read_wait()
        self._thread_seconds = {thread: thread.cpu_seconds() for thread in self._threads}

    def expect_tick(self, seconds: float) -> None:
        """The timer was set again, so that it fires after so many seconds."""
        self._next_tick = self._clock() + seconds

    def tick(self) -> float:
        """Measures the time since the last tick. Returns the delay in seconds until the next one."""
        now = self._clock()
        used = self._cpu_clock()
        lag, worked = max(0.0, now - self._next_tick), used - self._cpu_at_last_tick
        self.lags.observe(lag)
        self._observe(now, max(self._longest_step, min(lag, worked)))
        self._observe_threads(now, lag - min(lag, worked))
        pause = TICK_SECONDS if worked > IDLE_CPU_SECONDS else IDLE_TICK_SECONDS
        if self.has_jobs():
            pause = THREADS_TICK_SECONDS
        self.last_tick, self._next_tick, self._cpu_at_last_tick = now, now + pause, used
        return pause

    def _observe_threads(self, now: float, late: float) -> None:
        """Records how long threads held the interpreter. `late` is the delay of the timer, without the loop's work."""
        before = self._thread_seconds
        self._thread_seconds = {thread: thread.cpu_seconds() for thread in self._threads}
        if late < MIN_HELD_SECONDS and self.has_jobs():
            return  # reading a file lets other threads run, for which the loop would have to wait
        waited = self.read_wait()
        late -= waited - self._last_wait
        self._last_wait = waited
        used = {thread: seconds - before.get(thread, 0.0) for thread, seconds in self._thread_seconds.items()}
        held = min(late, sum(used.values()))
        if held < MIN_HELD_SECONDS:
            return
        thread = max(used, key=lambda each: used[each])
        task = thread.take_longest_task()
        self.held.observe(held)
        self.longest_held = max(self.longest_held, held)
        if held > MAX_BLOCKED_SECONDS:
            self._log.warn(now, "a thread held the interpreter", held, {"thread": thread.name, **_task_fields(task)})

    def flush(self) -> None:
        """Records the longest step since the last tick, so that a scrape of the metrics is complete."""
        if self._longest_step:
            self._observe(self._clock(), self._longest_step)

    def _observe(self, now: float, seconds: float) -> None:
        self.blocked.observe(seconds)
        self.longest_blocked = max(self.longest_blocked, seconds)
        if seconds > MAX_BLOCKED_SECONDS:
            self._log_blocked(now, seconds)
        self._longest_step, self._longest_step_call = 0.0, None

    def record_step(self, call: Call, elapsed: float) -> None:
        """Reports one step of a request, in wall-clock seconds. Only the longest since the last tick is recorded."""
        seconds = min(elapsed, self._cpu_clock() - self._cpu_at_last_tick)
        if seconds > self._longest_step:
            self._longest_step, self._longest_step_call = seconds, call

    def _log_blocked(self, now: float, seconds: float) -> None:
        # If the tick was delayed much longer than the longest step, something else caused it.
        call = self._longest_step_call if self._longest_step > seconds / 2 else None
        cause = _request_fields(call) if call is not None else {"by": "background work, or many requests at once"}
        self._log.warn(now, "the event loop was blocked", seconds, cause)


class _LimitedLog:
    """Logs one line in `LOG_INTERVAL_SECONDS`, and counts the others."""

    def __init__(self) -> None:
        self._last_logged = -LOG_INTERVAL_SECONDS
        self._suppressed = 0

    def warn(self, now: float, event: str, seconds: float, fields: dict[str, str]) -> None:
        if now - self._last_logged < LOG_INTERVAL_SECONDS:
            self._suppressed += 1
            return
        log.warning(event, seconds=round(seconds, 3), not_logged_before=self._suppressed, **fields)
        self._last_logged, self._suppressed = now, 0


def _task_fields(task: ThreadTask | None) -> dict[str, str]:
    """The function that a thread ran and the request that it worked for."""
    if task is None:
        return {}
    request = {"bytes": str(task.size)} if task.call is None else _request_fields(task.call)
    return {"function": task.name, **request}


def _request_fields(call: Call) -> dict[str, str]:
    target, user = call.target, call.user
    resource = "/".join(filter(None, (target.group, target.resource, target.subresource)))
    return {
        "method": call.method,
        "resource": resource or call.path[:256],
        "user": user.name if user is not None else "",
        "bytes": call.headers.get("content-length", "0"),
        "audit_id": call.audit_id,
    }


class _StuckLoopMonitor:
    """The thread that logs the stack of a stuck event loop."""

    def __init__(self, watchdog: Watchdog, loop_thread: int) -> None:
        self._watchdog = watchdog
        self._loop_thread = loop_thread
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="event-loop-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        loop_clock = time.pthread_getcpuclockid(self._loop_thread)
        now = time.perf_counter()
        used = time.clock_gettime(loop_clock)
        silent_until = 0.0
        while not self._stop.wait(POLL_SECONDS):
            before, used_before = now, used
            now = time.perf_counter()
            used = time.clock_gettime(loop_clock)
            stuck = now - self._watchdog.last_tick
            # If this thread woke late, either the loop's thread held the GIL, or the whole process was suspended.
            was_suspended = now - before > 2 * POLL_SECONDS and used - used_before < (now - before) / 2
            if stuck > STUCK_SECONDS and now > silent_until and not was_suspended:
                silent_until = now + STACK_LOG_INTERVAL_SECONDS
                log.error("the event loop is stuck", seconds=round(stuck, 1), stack=format_stack(self._loop_thread))


def format_stack(thread: int) -> str:
    """The stack of a thread, innermost frame last, one frame per line. Contains no values of variables."""
    frame = sys._current_frames().get(thread)
    entries = traceback.extract_stack(frame) if frame is not None else []
    return "\n".join([f"{entry.filename}:{entry.lineno} {entry.name}" for entry in entries[-40:]])


@asynccontextmanager
async def run_watchdog(watchdog: Watchdog) -> AsyncIterator[None]:
    """Measures the running event loop while the context is open."""
    loop = asyncio.get_running_loop()
    sentry = _StuckLoopMonitor(watchdog, threading.get_ident())
    timer: asyncio.TimerHandle

    def tick() -> None:
        nonlocal timer
        timer = loop.call_later(watchdog.tick(), tick)

    def tick_soon() -> None:
        nonlocal timer
        if timer.when() > loop.time() + THREADS_TICK_SECONDS:
            timer.cancel()
            watchdog.expect_tick(THREADS_TICK_SECONDS)
            timer = loop.call_later(THREADS_TICK_SECONDS, tick)

    with open_wait_clock() as watchdog.read_wait:
        watchdog.start()
        timer = loop.call_later(TICK_SECONDS, tick)
        for pool in INTERPRETER_POOLS:
            pool.on_submit = tick_soon
        sentry.start()
        try:
            yield
        finally:
            for pool in INTERPRETER_POOLS:
                pool.on_submit = None
            sentry.stop()
            timer.cancel()
            watchdog.read_wait = lambda: 0.0


@contextmanager
def open_wait_clock() -> Iterator[Callable[[], float]]:
    """A function that returns the seconds that this thread has waited for a CPU. Elsewhere than on Linux, it is 0."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield lambda: 0.0
        return
    try:
        yield lambda: int(os.pread(file, 100, 0).split()[1]) / 1e9
    finally:
        os.close(file)
