"""The event loop's watchdog: how long the loop was held, and by which request.

Every request, watch and controller shares one event loop. Whatever runs on it without awaiting holds up all the others,
so nothing may hold it for longer than `HOLD_LIMIT`. The watchdog measures that in two ways:

- A timer that is due every `INTERVAL` notes how late it is. It sees requests and background work alike, but not the
  part of a hold that was before it was due.
- The stage that counts requests times each step of a request, from one await to the next (`step_timer.py`), and hands over
  those that are worth a second look. That measure is exact, and it knows whose request it was.

A hold is at most the processor time that the loop's thread has used meanwhile: a machine that is busy with other
things delays the timer, too, and that is no request's fault. How late the timer was by the wall clock is kept apart.

A thread looks at the loop twice a second and writes its stack into the log when it has been held for seconds.

`app` runs the watchdog for as long as the server listens; `metrics/event_loop.py` shows what it has measured.
"""

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from fairlead.core.call import Call
from fairlead.server.metrics.exposition import Histogram

INTERVAL = 0.02
"""Seconds between two looks at a loop that has work to do."""
IDLE_INTERVAL, IDLE = 0.1, 0.001
"""Seconds between two looks at a loop that has used less than `IDLE` since the last one: ten wakeups a second, which
cost about a thousandth of a processor."""
HOLD_LIMIT = 0.05
"""Seconds that nothing on the event loop may take without awaiting."""
STUCK_SECONDS = 1.0
"""How long the loop is held before its stack is written into the log."""
LOOK_SECONDS = 0.5
LOG_SECONDS = 10.0
"""How often holds are logged at most; those in between are counted."""
STACK_SECONDS = 60.0
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0)

log = structlog.get_logger(__name__)


class Watchdog:
    """What is known about the holds of one event loop. Both clocks are those of the loop's thread."""

    def __init__(
        self, now: Callable[[], float] = time.perf_counter, used: Callable[[], float] = time.thread_time
    ) -> None:
        self._now = now
        self._used = used
        self.holds = Histogram(BOUNDS)
        self.lags = Histogram(BOUNDS)
        self.longest = 0.0
        """The longest hold since the start, or since `reset`."""
        self.ticked = self._due = now()
        """When the loop was last seen at work."""
        self._used_before = 0.0
        self._step = 0.0
        self._call: Call | None = None
        self._logged = -LOG_SECONDS
        self._unlogged = 0

    def reset(self) -> None:
        """Forgets the longest hold, so that the next one can be told."""
        self.longest = 0.0

    def begin(self) -> None:
        """From here on, time counts. Called in the loop's thread, like everything else here."""
        self.ticked = self._now()
        self._due = self.ticked + INTERVAL
        self._used_before = self._used()

    def tick(self) -> float:
        """Measures what has gone by since the last tick, and says in how many seconds to call it again."""
        now, used = self._now(), self._used()
        lag, worked = max(0.0, now - self._due), used - self._used_before
        self.lags.observe(lag)
        self._observe(now, max(self._step, min(lag, worked)))
        pause = INTERVAL if worked > IDLE else IDLE_INTERVAL
        self.ticked, self._due, self._used_before = now, now + pause, used
        return pause

    def settle(self) -> None:
        """Counts what requests took since the last tick, so that whoever reads the figures now has all of them."""
        if self._step:
            self._observe(self._now(), self._step)

    def _observe(self, now: float, hold: float) -> None:
        self.holds.observe(hold)
        self.longest = max(self.longest, hold)
        if hold > HOLD_LIMIT:
            self._log_hold(now, hold)
        self._step, self._call = 0.0, None

    def note(self, call: Call, seconds: float) -> None:
        """One step of a request took so long by the wall clock. The longest since the last tick counts."""
        hold = min(seconds, self._used() - self._used_before)
        if hold > self._step:
            self._step, self._call = hold, call

    def _log_hold(self, now: float, hold: float) -> None:
        if now - self._logged < LOG_SECONDS:
            self._unlogged += 1
            return
        # A tick late by much more than the longest step was delayed by something else.
        call = self._call if self._step > hold / 2 else None
        about = _describe(call) if call is not None else {"by": "background work, or many requests at once"}
        log.warning("the event loop was held", seconds=round(hold, 3), not_logged_before=self._unlogged, **about)
        self._logged, self._unlogged = now, 0


def _describe(call: Call) -> dict[str, str]:
    target, user = call.target, call.user
    resource = "/".join(filter(None, (target.group, target.resource, target.subresource)))
    return {
        "method": call.method,
        "resource": resource or call.path[:256],
        "user": user.name if user is not None else "",
        "bytes": call.headers.get("content-length", "0"),
        "audit_id": call.audit_id,
    }


class _Sentry:
    """The thread that writes down where the loop is stuck."""

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
        looked, used, silent_until = time.perf_counter(), time.clock_gettime(loop_clock), 0.0
        while not self._stop.wait(LOOK_SECONDS):
            before, used_before = looked, used
            looked, used = time.perf_counter(), time.clock_gettime(loop_clock)
            held = looked - self._watchdog.ticked
            # Who comes late itself waited for the loop's thread, which was busy then, or the whole process was asleep.
            was_asleep = looked - before > 2 * LOOK_SECONDS and used - used_before < (looked - before) / 2
            if held > STUCK_SECONDS and looked > silent_until and not was_asleep:
                silent_until = looked + STACK_SECONDS
                log.error("the event loop is stuck", seconds=round(held, 1), stack=stack_of(self._loop_thread))


def stack_of(thread: int) -> str:
    """Where a thread is, the innermost function last, one a line. Files and functions, no values."""
    frame = sys._current_frames().get(thread)
    found = traceback.extract_stack(frame) if frame is not None else []
    return "\n".join([f"{each.filename}:{each.lineno} {each.name}" for each in found[-40:]])


@asynccontextmanager
async def running(watchdog: Watchdog) -> AsyncIterator[None]:
    """Watches the loop that this is called in while the context lasts."""
    loop = asyncio.get_running_loop()
    sentry = _Sentry(watchdog, threading.get_ident())
    watchdog.begin()
    timer: asyncio.TimerHandle

    def tick() -> None:
        nonlocal timer
        timer = loop.call_later(watchdog.tick(), tick)

    timer = loop.call_later(INTERVAL, tick)
    sentry.start()
    try:
        yield
    finally:
        sentry.stop()
        timer.cancel()
