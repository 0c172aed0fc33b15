"""Delays after failures: they double up to a limit, with a random part, and begin again after a success."""

import pytest

from fairlead.core.backoff import Backoff, BackoffPolicy, add_jitter


def test_the_delay_doubles_up_to_a_limit_and_a_reset_begins_again() -> None:
    backoff = Backoff(BackoffPolicy(first_seconds=1.0, max_seconds=30.0))
    assert [backoff.next_delay() for _ in range(8)] == [1, 2, 4, 8, 16, 30, 30, 30]
    backoff.reset()
    assert backoff.next_delay() == 1


def test_some_attempts_may_have_no_delay() -> None:
    policy = BackoffPolicy(first_seconds=0.25, max_seconds=10.0, free_attempts=3)
    assert [policy.delay(failures) for failures in range(6)] == [0, 0, 0, 0.25, 0.5, 1]


@pytest.mark.parametrize("failures", [61, 5_000, 10**9])
def test_any_number_of_failures_has_the_longest_delay(failures: int) -> None:
    assert BackoffPolicy(first_seconds=0.001, max_seconds=60.0).delay(failures) == 60


def test_the_random_part_is_taken_from_the_delay_and_never_added() -> None:
    policy = BackoffPolicy(first_seconds=8.0, max_seconds=8.0, jitter=0.5)
    delays = [policy.delay(1) for _ in range(200)]
    assert 4 <= min(delays) < max(delays) <= 8


def test_periods_vary_by_a_fifth() -> None:
    periods = [add_jitter(10.0) for _ in range(200)]
    assert 8 <= min(periods) < 10 < max(periods) <= 12
