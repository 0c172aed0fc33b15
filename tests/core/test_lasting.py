"""What stays is not looked through for garbage."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from fairlead.core.lasting import keep_everything, lasting


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_what_is_made_meanwhile_is_set_aside_and_the_collector_goes_on_afterwards() -> None:
    with lasting():
        assert not gc.isenabled()
        stays = [[] for _ in range(100)]  # type: list[list[int]]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(stays)
    assert all(each is not stays for each in gc.get_objects())


def test_a_load_that_fails_leaves_the_collector_as_it_was() -> None:
    frozen = gc.get_freeze_count()
    with pytest.raises(RuntimeError), lasting():
        raise RuntimeError
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with lasting():
        pass
    assert not gc.isenabled()


def test_a_server_that_is_ready_is_not_looked_through_again() -> None:
    stays = [[] for _ in range(100)]  # type: list[list[int]]
    garbage: list[object] = []
    garbage.append(garbage)
    gone = weakref.ref(holder := Holder(garbage))
    garbage.append(holder)
    del garbage, holder
    keep_everything()
    assert gone() is None
    assert all(each is not stays for each in gc.get_objects())


class Holder:
    """Something in a circle."""

    def __init__(self, circle: list[object]) -> None:
        self.circle = circle
