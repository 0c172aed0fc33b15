"""How long a request may take: the stage that gives up what takes longer.

There is one timer for all requests, not one for each: nearly every request is answered long before its time, and a
timer that is set and called off again costs more than all the rest of this stage. All get the same time, so whoever
came first is due first, and the timer only ever looks at the front of the line. What is answered at once is never in
line at all.
"""

import asyncio
from collections.abc import Awaitable

from fairlead.core.call import Call, Reply
from fairlead.server.pipeline import Proceed, Stage


def deadline(seconds: float) -> Stage:
    """The stage that bounds how long a request may take. Streams have begun by then and end by their own rules."""
    return _Line(seconds).stage


class _Line:
    """The requests under way, in the order in which they are due."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[asyncio.Task[object], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def stage(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        answer = proceed(call)
        return answer if isinstance(answer, Reply) else self._in_time(answer)

    async def _in_time(self, answer: Awaitable[Reply]) -> Reply:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("requests are tasks of the event loop")
        loop = asyncio.get_running_loop()
        self._due[task] = due = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(due, self._look, loop)
        cancelled = task.cancelling()
        try:
            return await answer
        except asyncio.CancelledError:
            # It was us if the task is no longer in line; somebody else may have given it up besides.
            if task not in self._due and task.cancelling() - 1 <= cancelled:
                raise TimeoutError from None
            raise
        finally:
            if self._due.pop(task, None) is None:
                task.uncancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Gives up whatever is due, and comes again when the next one is."""
        self._timer = None
        now = loop.time()
        while self._due:
            task, due = next(iter(self._due.items()))
            if due > now:
                self._timer = loop.call_at(due, self._look, loop)
                return
            del self._due[task]
            task.cancel()
