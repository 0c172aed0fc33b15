"""Measures how long a request occupies the event loop: its steps between awaits, without the time spent waiting.

The metrics stage times the steps of every request that is not served synchronously. Long steps are reported to the
event loop watchdog; flow control charges all of them to the client.
"""

import time
from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any

from fairlead.core.call import Call, Reply

NOTICEABLE = 0.002
"""Shorter steps are not reported to the watchdog."""

Note = Callable[[Call, float], None]
"""Called with a request and the seconds that one of its steps took."""


class Steps:
    """Times the steps of one request. `on_step`, if set, is called with the seconds of each step when it ends."""

    __slots__ = ("_began", "_now", "_seconds", "spend")

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._seconds = 0.0
        self._began = now()
        self.spend: Callable[[float], None] | None = None

    def begin(self) -> None:
        self._began = self._now()

    def end(self) -> float:
        """Adds the step since `start_step` to the total, and returns its seconds."""
        seconds = self._now() - self._began
        self._seconds += seconds
        if self.spend is not None:
            self.spend(seconds)
        return seconds

    def seconds(self) -> float:
        """The total of all steps, including the current one. Only valid within a step."""
        return self._seconds + self._now() - self._began


@coroutine
def timed_steps(
    answer: Awaitable[Reply],
    call: Call,
    note: Note,
    now: Callable[[], float] = time.perf_counter,
    used: Callable[[], float] = time.thread_time,
) -> Generator[Any, Any, Reply]:
    """Awaits a reply and times its steps. Passes steps over `MIN_REPORTED_SECONDS` of CPU time to `observe`."""
    call.steps = timer = Steps(now)
    steps = answer.__await__()
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        used_before = used()
        timer.begin()
        try:
            waits_for = steps.send(sent) if thrown is None else steps.throw(thrown)
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            # The traceback of an error refers to this frame. A reference from here would be a cycle, which keeps the
            # request and the client's connection alive until the next garbage collection.
            sent = thrown = None
            if timer.end() > NOTICEABLE and (seconds := used() - used_before) > NOTICEABLE:
                note(call, seconds)
        try:
            sent = yield waits_for
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:  # noqa: BLE001 - thrown into the coroutine, as `await` does
            thrown = error
