"""What has failed is tried again, later each time, and at once when something has changed."""

from typing import Any

import pytest

from fairlead.controllers.instances.remote_errors import ERROR, INFO, InstanceError
from fairlead.controllers.runtime.backoff import MAX_DELAY_SECONDS, MIN_DELAY_SECONDS, REQUEUE_SECONDS, Backoff

WHERE = ("demo", "one")
BROKEN, ON_ITS_WAY = InstanceError("Invalid", "", ERROR), InstanceError("Waiting", "", INFO)


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> Any:
        raise NotImplementedError


def test_each_wait_is_about_twice_the_one_before_up_to_a_limit() -> None:
    backoff = Backoff(Clock())
    waits = [backoff.record_failure(WHERE, 1, BROKEN) for _ in range(10)]
    for number, wait in enumerate(waits):
        wanted = min(MAX_DELAY_SECONDS, MIN_DELAY_SECONDS * 2**number)
        assert 0.8 * wanted <= wait <= 1.2 * wanted


def test_whoever_comes_early_waits_and_whoever_has_changed_does_not() -> None:
    clock = Clock()
    backoff = Backoff(clock)
    wait = backoff.record_failure(WHERE, 1, BROKEN)
    assert backoff.remaining_seconds(WHERE, 1) == pytest.approx(wait)
    assert backoff.remaining_seconds(WHERE, 2) == 0
    assert backoff.remaining_seconds(("demo", "two"), 1) == 0
    clock.time += wait + 0.001
    assert backoff.remaining_seconds(WHERE, 1) == 0


def test_a_change_starts_over() -> None:
    backoff = Backoff(Clock())
    for _ in range(5):
        backoff.record_failure(WHERE, 1, BROKEN)
    assert backoff.record_failure(WHERE, 2, BROKEN) <= 1.2 * MIN_DELAY_SECONDS
    backoff.forget(WHERE)
    assert backoff.remaining_seconds(WHERE, 2) == 0


def test_what_is_on_its_way_has_not_failed() -> None:
    backoff = Backoff(Clock())
    waits = [backoff.record_failure(WHERE, 1, ON_ITS_WAY) for _ in range(5)]
    assert max(waits) <= 1.2 * REQUEUE_SECONDS
    assert backoff.remaining_seconds(WHERE, 1) == 0
