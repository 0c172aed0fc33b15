"""What the threads beside the event loop do, and how much CPU time they use: for the watchdog of the event loop.

Threads share one interpreter. A call into C code, such as a parser, holds it until it returns, and the event loop
waits. The loop's thread uses no CPU time meanwhile, so only the CPU time of the others shows which one held it.
"""

import threading
import time
import weakref
from typing import NamedTuple

from fairlead.core.call import Call

MIN_REMEMBERED_SECONDS = 0.002
"""Tasks that took less CPU time are not remembered after their end."""


class ThreadTask(NamedTuple):
    """A job of a thread: the name of its function, the size of its input in bytes, and the request that it is for."""

    name: str
    size: int
    call: Call | None = None


class ThreadActivity:
    """The CPU time of one thread, and its tasks. The thread writes it, the watchdog reads it."""

    __slots__ = ("__weakref__", "_clock", "_longest", "_task", "name")

    def __init__(self, name: str, clock: int) -> None:
        self.name = name
        self._clock = clock
        self._task: ThreadTask | None = None
        self._longest: tuple[float, ThreadTask | None] = 0.0, None

    def begin(self, task: ThreadTask) -> None:
        self._task = task

    def end(self, cpu_seconds: float) -> None:
        if cpu_seconds > max(MIN_REMEMBERED_SECONDS, self._longest[0]):
            self._longest = cpu_seconds, self._task
        self._task = None

    def take_longest_task(self) -> ThreadTask | None:
        """The task that took longest of those that ended since the last call; otherwise the current one."""
        (_, task), self._longest = self._longest, (0.0, None)
        return task or self._task

    def cpu_seconds(self) -> float:
        """CPU time of the thread so far; 0 if it has ended."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return 0.0


THREADS: "weakref.WeakSet[ThreadActivity]" = weakref.WeakSet()
"""The threads that run Python code beside the event loop. Each is here as long as it keeps its `ThreadActivity`."""


def track_thread() -> ThreadActivity:
    """Adds the current thread to `THREADS`."""
    activity = ThreadActivity(threading.current_thread().name, time.pthread_getcpuclockid(threading.get_ident()))
    THREADS.add(activity)
    return activity
