"""Garbage collection: long-lived objects are frozen, so that full collections skip them."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from fairlead.app.garbage_collection import (
    FULL_COLLECTION_THRESHOLD,
    LONG_COLLECTION_SECONDS,
    FullCollectionHook,
    freeze_heap,
    frozen_gc,
)


@pytest.fixture(autouse=True)
def restore_gc() -> Iterator[None]:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.unfreeze()
    gc.enable()
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks


def test_objects_created_in_frozen_gc_are_frozen_and_collection_resumes() -> None:
    with frozen_gc():
        assert not gc.isenabled()
        survivors = [[] for _ in range(100)]  # type: list[list[int]]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(survivors)
    assert all(obj is not survivors for obj in gc.get_objects())


def test_an_exception_in_frozen_gc_restores_the_collector() -> None:
    frozen = gc.get_freeze_count()
    with pytest.raises(RuntimeError), frozen_gc():
        raise RuntimeError
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    with frozen_gc():
        pass
    assert not gc.isenabled()


def test_freeze_heap_collects_garbage_and_freezes_the_rest() -> None:
    survivors = [[] for _ in range(100)]  # type: list[list[int]]
    garbage: list[object] = []
    garbage.append(garbage)
    reference = weakref.ref(holder := Holder(garbage))
    garbage.append(holder)
    del garbage, holder
    freeze_heap()
    assert reference() is None
    assert all(obj is not survivors for obj in gc.get_objects())


class Holder:
    """A member of a reference cycle."""

    def __init__(self, cycle: list[object]) -> None:
        self.cycle = cycle


@pytest.mark.parametrize(
    ("generation", "seconds", "is_frozen"),
    [
        (2, 2 * LONG_COLLECTION_SECONDS, True),
        (2, LONG_COLLECTION_SECONDS / 2, False),
        (1, 2 * LONG_COLLECTION_SECONDS, False),
    ],
)
def test_the_heap_is_frozen_after_a_long_full_collection(generation: int, seconds: float, is_frozen: bool) -> None:
    clock, freezes = iter((5.0, 5.0 + seconds)), list[bool]()
    hook = FullCollectionHook(lambda: next(clock), lambda: freezes.append(True))
    hook("start", {"generation": generation})
    hook("stop", {"generation": generation})
    assert freezes == [True] * is_frozen


def test_full_collections_do_not_take_longer_as_the_heap_grows() -> None:
    """Each full collection follows the same number of new objects, and examines no more than these."""
    freeze_heap()
    assert gc.get_threshold()[2] == FULL_COLLECTION_THRESHOLD
    assert sum(isinstance(obj, FullCollectionHook) for obj in gc.callbacks) == 1
    freeze_heap()
    assert sum(isinstance(obj, FullCollectionHook) for obj in gc.callbacks) == 1
    gc.callbacks[:] = [FullCollectionHook(iter(range(1_000)).__next__)]  # each collection takes a second
    allocated, tracked_counts = [], []
    for _ in range(5):
        allocated.append([[obj] for obj in range(10_000)])
        tracked_counts.append(len(gc.get_objects()))
        gc.collect()
    assert max(tracked_counts) < 2 * min(tracked_counts)


def test_a_frozen_object_is_freed_with_its_last_reference() -> None:
    class Object:
        pass

    obj = Object()
    reference = weakref.ref(obj)
    freeze_heap()
    del obj
    assert reference() is None


def test_the_first_full_collection_after_the_start_does_not_wait_for_a_quarter_of_the_heap() -> None:
    heap = [[each] for each in range(600_000)]
    freeze_heap()
    tracked_counts: list[int] = []

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            tracked_counts.append(len(gc.get_objects()))

    gc.callbacks[:] = [on_collection]
    added = [[each] for each in range(len(heap) // 8)]
    assert added and tracked_counts
    assert tracked_counts[0] < 2 * FULL_COLLECTION_THRESHOLD * gc.get_threshold()[0] * gc.get_threshold()[1]
