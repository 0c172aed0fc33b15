"""Tests of `bench/figures.py`: the arithmetic of the table."""

import pytest

from bench.figures import Compared, Reading, compute_median, percentile
from bench.lines import format_percent


def build_readings(*figures: float) -> list[Reading]:
    return [Reading(figure, None, 0.0) for figure in figures]


def test_the_share_is_the_median_of_the_pairs_and_not_the_quotient_of_the_medians() -> None:
    row = Compared("GET", "requests/s", False, build_readings(50, 90, 10), build_readings(100, 100, 100))
    assert row.shares == [0.5, 0.9, 0.1]
    assert row.share == 0.5
    unstable = Compared("GET", "requests/s", False, build_readings(50, 5, 40), build_readings(100, 10, 50))
    assert unstable.share == 0.5


def test_a_delay_twice_as_long_as_the_ceilings_is_half_of_the_ceiling() -> None:
    assert Compared("WATCH", "ms", True, build_readings(20), build_readings(10)).share == 0.5


def test_twice_the_processor_time_of_the_ceiling_is_a_share_of_half() -> None:
    ours, ceiling = [Reading(1, None, 80), Reading(9, None, 90)], [Reading(7, None, 40), Reading(5, None, 45)]
    assert Compared("GET", "requests/s", False, ours, ceiling).cpu_share == 0.5


def test_the_processor_time_of_a_peer_is_unknown() -> None:
    unknown = [Reading(1, None, None)]
    assert Compared("GET", "requests/s", False, unknown, unknown).cpu_share is None


def test_rounds_without_a_pair_are_rejected() -> None:
    with pytest.raises(ValueError):
        _ = Compared("GET", "requests/s", False, build_readings(1, 2), build_readings(1)).shares


def test_each_figure_has_its_own_median() -> None:
    result = compute_median([Reading(1, 30, 200), Reading(2, 10, 300), Reading(3, 20, 100)])
    assert result == Reading(2, 20, 200)


def test_the_longest_latency_is_that_of_all_rounds() -> None:
    readings = [Reading(1, None, None, None, p50, longest) for p50, longest in ((1, 7), (2, 9), (3, 8))]
    assert compute_median(readings) == Reading(1, None, None, None, 2, 9)


def test_a_row_without_a_ceiling_has_no_share() -> None:
    row = Compared("GET", "requests/s", False, build_readings(1), [])
    assert (row.shares, row.share, row.cpu_share) == ([], None, None)


def test_untimed_readings_have_no_percentile() -> None:
    assert compute_median(build_readings(1, 2, 3)).p99_ms is None


@pytest.mark.parametrize(
    ("values", "percentage", "expected"),
    [([3.0], 99, 3.0), ([*map(float, range(1, 101))], 99, 99.0), ([*map(float, range(1, 101))], 100, 100.0)],
)
def test_a_percentile_is_one_of_the_values(values: list[float], percentage: float, expected: float) -> None:
    assert percentile(list(reversed(values)), percentage) == expected


def test_a_percentile_without_values_is_rejected() -> None:
    with pytest.raises(ValueError):
        percentile([], 99)


@pytest.mark.parametrize(("share", "text"), [(0.5, "50%"), (1.004, "100%"), (0.0042, "0.4%"), (0.0949, "9.5%")])
def test_small_shares_are_shown_with_a_decimal(share: float, text: str) -> None:
    assert format_percent(share) == text
