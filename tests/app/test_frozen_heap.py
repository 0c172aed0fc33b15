"""What stays is not looked through for garbage."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from fairlead.app import FULL_COLLECTION_THRESHOLD, LONG_COLLECTION_SECONDS, FullCollectionHook, freeze_heap, frozen_gc


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.unfreeze()
    gc.enable()
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks


def test_what_is_made_meanwhile_is_set_aside_and_the_collector_goes_on_afterwards() -> None:
    with frozen_gc():
        assert not gc.isenabled()
        stays = [[] for _ in range(100)]  # type: list[list[int]]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(stays)
    assert all(each is not stays for each in gc.get_objects())


def test_a_load_that_fails_leaves_the_collector_as_it_was() -> None:
    frozen = gc.get_freeze_count()
    with pytest.raises(RuntimeError), frozen_gc():
        raise RuntimeError
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with frozen_gc():
        pass
    assert not gc.isenabled()


def test_a_server_that_is_ready_is_not_looked_through_again() -> None:
    stays = [[] for _ in range(100)]  # type: list[list[int]]
    garbage: list[object] = []
    garbage.append(garbage)
    gone = weakref.ref(holder := Holder(garbage))
    garbage.append(holder)
    del garbage, holder
    freeze_heap()
    assert gone() is None
    assert all(each is not stays for each in gc.get_objects())


class Holder:
    """Something in a circle."""

    def __init__(self, circle: list[object]) -> None:
        self.circle = circle


@pytest.mark.parametrize(
    ("generation", "seconds", "is_set_aside"),
    [
        (2, 2 * LONG_COLLECTION_SECONDS, True),
        (2, LONG_COLLECTION_SECONDS / 2, False),
        (1, 2 * LONG_COLLECTION_SECONDS, False),
    ],
)
def test_what_makes_full_rounds_long_is_set_aside(generation: int, seconds: float, is_set_aside: bool) -> None:
    clock, set_aside = iter((5.0, 5.0 + seconds)), list[bool]()
    rounds = FullCollectionHook(lambda: next(clock), lambda: set_aside.append(True))
    rounds("start", {"generation": generation})
    rounds("stop", {"generation": generation})
    assert set_aside == [True] * is_set_aside


def test_a_server_that_grows_is_not_held_up_for_longer_and_longer() -> None:
    """Each full round is given as many new objects; however many there are by then, it looks at no more."""
    freeze_heap()
    assert gc.get_threshold()[2] == FULL_COLLECTION_THRESHOLD
    assert sum(isinstance(each, FullCollectionHook) for each in gc.callbacks) == 1
    freeze_heap()
    assert sum(isinstance(each, FullCollectionHook) for each in gc.callbacks) == 1
    gc.callbacks[:] = [FullCollectionHook(iter(range(1_000)).__next__)]  # each round takes a second
    grown, looked_at = [], []
    for _ in range(5):
        grown.append([[each] for each in range(10_000)])
        looked_at.append(len(gc.get_objects()))
        gc.collect()
    assert max(looked_at) < 2 * min(looked_at)


def test_what_was_set_aside_goes_when_nobody_refers_to_it() -> None:
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    freeze_heap()
    del thing
    assert gone() is None
