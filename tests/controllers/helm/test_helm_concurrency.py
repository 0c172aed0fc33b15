"""Tests of `HelmSlots` in `fairlead.controllers.helm.helm`: limits for concurrent runs, in total and per project."""

import pytest

from fairlead.controllers.helm.helm import WAITING_FOR_HELM_SLOT, HelmSlots
from fairlead.controllers.instances.remote_errors import InstanceError


def test_one_project_cannot_use_all_slots() -> None:
    slots = HelmSlots(max_runs=3, max_per_project=2)
    with slots.acquire("greedy"), slots.acquire("greedy"):
        with pytest.raises(InstanceError) as caught, slots.acquire("greedy"):
            pass
        assert caught.value.reason == WAITING_FOR_HELM_SLOT
        with slots.acquire("other"), pytest.raises(InstanceError), slots.acquire("third"):
            pass
        with slots.acquire("third"):
            pass
    with slots.acquire("greedy"):
        pass


def test_a_slot_is_released_after_a_failure() -> None:
    slots = HelmSlots(max_runs=1)
    with pytest.raises(ZeroDivisionError), slots.acquire("p"):
        raise ZeroDivisionError
    with slots.acquire("p"):
        pass
