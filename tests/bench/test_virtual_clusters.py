"""What `bench.virtual_clusters` makes of the histogram of holds."""

from bench.virtual_clusters import MAX_HOLD_SECONDS, count_between, count_longer

BEFORE = {0.005: 10, 0.02: 12, 0.025: 12, float("inf"): 12}
AFTER = {0.005: 30, 0.02: 35, 0.025: 36, float("inf"): 37}


def test_turns_are_counted_by_the_bounds_between_which_they_were() -> None:
    assert count_between(BEFORE, AFTER) == {0.005: 20, 0.02: 3, 0.025: 1, float("inf"): 1}
    assert count_between(AFTER, AFTER) == {}


def test_turns_above_the_aim_are_counted() -> None:
    assert count_longer(count_between(BEFORE, AFTER), MAX_HOLD_SECONDS) == 2
    assert count_longer({0.02: 5}, MAX_HOLD_SECONDS) == 0
