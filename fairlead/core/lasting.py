"""Loading what stays for as long as the process does. Used by `app` around the start of the view, and when it is ready.

Python's collector looks for cycles among everything that was made. While a million objects are loaded it would look
through them again and again, and afterwards with every full round, and none of them ever is garbage that it could find.

A full round takes up to a microsecond for each object that it looks at, and nothing else runs meanwhile. So rounds are
made often enough to have little to look at, and what has survived a long one is set aside, too: else a server that is
given more and more objects would be held up for longer and longer. What is set aside still goes when nobody refers to
it any more; only a circle of references that is closed already then, and dropped later, stays in memory.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FULL_ROUND_AFTER = 4
"""Middle rounds, each after ten young ones. Python's own ten would leave seventy thousand objects to look at."""
LONG_ROUND_SECONDS = 0.01
"""Processor time of a full round from which on what it has left over is set aside."""


@contextmanager
def lasting() -> Iterator[None]:
    """What is made meanwhile, and all that was there before, is never looked through again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


def keep_everything() -> None:
    """Sets aside all that there is now, and from now on what makes full rounds long: they should only look at what was
    made lately."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], FULL_ROUND_AFTER)
    if _full_rounds not in gc.callbacks:
        gc.callbacks.append(_full_rounds)


class FullRounds:
    """Called by the collector before and after each round, in whichever thread it runs."""

    def __init__(self, used: Callable[[], float] = time.thread_time, set_aside: Callable[[], None] = gc.freeze) -> None:
        self._used = used
        self._set_aside = set_aside
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < len(gc.get_threshold()) - 1:
            return
        if phase == "start":
            self._began = self._used()
        elif self._used() - self._began > LONG_ROUND_SECONDS:
            self._set_aside()


_full_rounds = FullRounds()
