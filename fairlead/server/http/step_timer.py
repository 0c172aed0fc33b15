"""How long a request keeps the event loop busy: the time of its steps, not of what it waits for between them.

The metrics stage times the steps of every request that is not answered at once. The event loop's watchdog hears of the
long ones, and flow control charges all of them to the client. One pass over the steps serves both.
"""

import time
from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any

from fairlead.core.call import Call, Reply

NOTICEABLE = 0.002
"""Shorter steps are not reported to the watchdog."""

Note = Callable[[Call, float], None]
"""Takes a request, and how many seconds one step of it took."""


class Steps:
    """The steps of one request so far. `spend`, if set, is called with the seconds of each step as it ends."""

    __slots__ = ("_began", "_now", "_seconds", "spend")

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._seconds = 0.0
        self._began = now()
        self.spend: Callable[[float], None] | None = None

    def begin(self) -> None:
        self._began = self._now()

    def end(self) -> float:
        """Counts the step that `begin` began, and returns its seconds."""
        seconds = self._now() - self._began
        self._seconds += seconds
        if self.spend is not None:
            self.spend(seconds)
        return seconds

    def seconds(self) -> float:
        """What all steps took, the current one included. Only valid within a step."""
        return self._seconds + self._now() - self._began


@coroutine
def timed_steps(
    answer: Awaitable[Reply],
    call: Call,
    note: Note,
    now: Callable[[], float] = time.perf_counter,
    used: Callable[[], float] = time.thread_time,
) -> Generator[Any, Any, Reply]:
    """Awaits an answer and times its steps. Steps of noticeable processor time are handed to `note`."""
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
            # The error has this frame in its traceback. Kept here, it would keep the request, and with it the client's
            # connection, until the garbage collector finds the cycle.
            sent = thrown = None
            if timer.end() > NOTICEABLE and (seconds := used() - used_before) > NOTICEABLE:
                note(call, seconds)
        try:
            sent = yield waits_for
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:  # noqa: BLE001 - handed on, as `await` itself does
            thrown = error
