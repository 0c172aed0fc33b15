"""Tuning of Python's garbage collector.

A full collection takes up to a microsecond per object and stops everything else. The objects that are loaded at startup
are long-lived and free of cycles, so they are frozen: excluded from collection. Full collections run often, so that
each has little to scan. Objects that survive a long one are frozen as well; otherwise pauses would grow with the number
of stored objects. Frozen objects are still freed by reference counting. Only a reference cycle that is frozen, and
unreachable later, leaks.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FULL_COLLECTION_THRESHOLD = 4
"""The third threshold of `gc`. With Python's default of 10, a full collection would scan seventy thousand objects."""
LONG_COLLECTION_SECONDS = 0.01
"""CPU time of a full collection after which the surviving objects are frozen."""


@contextmanager
def frozen_gc() -> Iterator[None]:
    """Disables the collector while the context is open, then freezes all objects."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


def freeze_heap() -> None:
    """Freezes all objects now, and from now on those that survive a long full collection."""
    gc.collect()
    gc.freeze()
    # Python puts a full collection off until a quarter of what the last one has left was added. That was the whole
    # heap, so the next one would take 40 ms. Nothing is left for this one.
    gc.collect()
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION_THRESHOLD)
    if _full_collection_hook not in gc.callbacks:
        gc.callbacks.append(_full_collection_hook)


class FullCollectionHook:
    """A `gc` callback that freezes objects after long full collections. Called in the thread that triggers it."""

    def __init__(
        self, cpu_clock: Callable[[], float] = time.thread_time, freeze: Callable[[], None] = gc.freeze
    ) -> None:
        self._cpu_clock = cpu_clock
        self._freeze = freeze
        self._cpu_at_start = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < len(gc.get_threshold()) - 1:
            return
        if phase == "start":
            self._cpu_at_start = self._cpu_clock()
        elif self._cpu_clock() - self._cpu_at_start > LONG_COLLECTION_SECONDS:
            self._freeze()


_full_collection_hook = FullCollectionHook()
