"""What stays is not looked through for garbage."""

import gc
from collections.abc import Iterator

import pytest

from fairlead.core.lasting import lasting


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
