"""Turns with helm: a few at once, and none for a project that has its share already."""

import pytest

from fairlead.controllers.helm.helm import WAITING_FOR_HELM_SLOT, HelmSlots
from fairlead.controllers.instances.remote_errors import InstanceError


def test_one_project_cannot_take_all_turns() -> None:
    turns = HelmSlots(max_runs=3, max_per_project=2)
    with turns.acquire("greedy"), turns.acquire("greedy"):
        with pytest.raises(InstanceError) as caught, turns.acquire("greedy"):
            pass
        assert caught.value.reason == WAITING_FOR_HELM_SLOT
        with turns.acquire("other"), pytest.raises(InstanceError), turns.acquire("third"):
            pass
        with turns.acquire("third"):
            pass
    with turns.acquire("greedy"):
        pass


def test_a_turn_is_given_back_after_a_failure() -> None:
    turns = HelmSlots(max_runs=1)
    with pytest.raises(ZeroDivisionError), turns.acquire("p"):
        raise ZeroDivisionError
    with turns.acquire("p"):
        pass
