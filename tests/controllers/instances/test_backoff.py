"""Tests of `InstanceBackoff`: retries with growing delays, and without delay after a change."""

from typing import Any

import pytest

from fairlead.controllers.instances.instance_reconciler import REQUEUE_SECONDS, RETRY, InstanceBackoff
from fairlead.controllers.instances.remote_errors import ERROR, INFO, InstanceError

KEY = ("demo", "one")
FAILED, IN_PROGRESS = InstanceError("Invalid", "", ERROR), InstanceError("Waiting", "", INFO)


class FakeClock:
    def __init__(self) -> None:
        self.time = 100.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> Any:
        raise NotImplementedError


def test_each_delay_is_about_twice_the_previous_one_up_to_a_limit() -> None:
    backoff = InstanceBackoff(FakeClock())
    delays = [backoff.record_failure(KEY, 1, FAILED) for _ in range(10)]
    for number, delay in enumerate(delays):
        expected = min(RETRY.max_seconds, RETRY.first_seconds * 2**number)
        assert 0.8 * expected <= delay <= 1.2 * expected


def test_an_unchanged_object_waits_and_a_changed_one_does_not() -> None:
    clock = FakeClock()
    backoff = InstanceBackoff(clock)
    delay = backoff.record_failure(KEY, 1, FAILED)
    assert backoff.remaining_seconds(KEY, 1) == pytest.approx(delay)
    assert backoff.remaining_seconds(KEY, 2) == 0
    assert backoff.remaining_seconds(("demo", "two"), 1) == 0
    clock.time += delay + 0.001
    assert backoff.remaining_seconds(KEY, 1) == 0


def test_a_change_resets_the_delay() -> None:
    backoff = InstanceBackoff(FakeClock())
    for _ in range(5):
        backoff.record_failure(KEY, 1, FAILED)
    assert backoff.record_failure(KEY, 2, FAILED) <= 1.2 * RETRY.first_seconds
    backoff.forget(KEY)
    assert backoff.remaining_seconds(KEY, 2) == 0


def test_an_operation_in_progress_is_no_failure() -> None:
    backoff = InstanceBackoff(FakeClock())
    delays = [backoff.record_failure(KEY, 1, IN_PROGRESS) for _ in range(5)]
    assert max(delays) <= 1.2 * REQUEUE_SECONDS
    assert backoff.remaining_seconds(KEY, 1) == 0
