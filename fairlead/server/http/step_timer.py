"""Measures how long a request occupies the event loop: its steps between awaits, without the time spent waiting.

The metrics stage times the steps of every request that is not served synchronously. Long steps are reported to the
event loop watchdog; flow control charges all of them to the client.
"""

import time
from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any

from fairlead.core.call import Call, Reply

MIN_REPORTED_SECONDS = 0.002
"""Shorter steps are not reported to the watchdog."""

StepObserver = Callable[[Call, float], None]
"""Called with a request and the seconds that one of its steps took."""


class RequestStepTimer:
    """Times the steps of one request. `on_step`, if set, is called with the seconds of each step when it ends."""

    __slots__ = ("_clock", "_finished_seconds", "_step_start", "on_step")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._finished_seconds = 0.0
        self._step_start = clock()
        self.on_step: Callable[[float], None] | None = None

    def start_step(self) -> None:
        self._step_start = self._clock()

    def end_step(self) -> float:
        """Adds the step since `start_step` to the total, and returns its seconds."""
        seconds = self._clock() - self._step_start
        self._finished_seconds += seconds
        if self.on_step is not None:
            self.on_step(seconds)
        return seconds

    def busy_seconds(self) -> float:
        """The total of all steps, including the current one. Only valid within a step."""
        return self._finished_seconds + self._clock() - self._step_start


@coroutine
def await_and_time(
    answer: Awaitable[Reply],
    call: Call,
    observe: StepObserver,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.thread_time,
) -> Generator[Any, Any, Reply]:
    """Awaits a reply and times its steps. Passes steps over `MIN_REPORTED_SECONDS` of CPU time to `observe`."""
    call.step_timer = timer = RequestStepTimer(clock)
    steps = answer.__await__()
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        used_before = cpu_clock()
        timer.start_step()
        try:
            waits_for = steps.send(sent) if thrown is None else steps.throw(thrown)
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            # The traceback of an error refers to this frame. A reference from here would be a cycle, which keeps the
            # request and the client's connection alive until the next garbage collection.
            sent = thrown = None
            if (
                timer.end_step() > MIN_REPORTED_SECONDS
                and (seconds := cpu_clock() - used_before) > MIN_REPORTED_SECONDS
            ):
                observe(call, seconds)
        try:
            sent = yield waits_for
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:  # noqa: BLE001 - thrown into the coroutine, as `await` does
            thrown = error
