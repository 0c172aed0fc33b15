"""The probes of a day in the status of a cluster."""

import pytest

from fairlead.domain.probe_day import (
    MAX_DAY_TEXT_LENGTH,
    MAX_QUARTERS,
    QUARTER_SECONDS,
    ProbeQuarter,
    add_samples,
    decode_day,
    encode_day,
)
from fairlead.domain.probe_history import MAX_LATENCY_MILLISECONDS, ProbeSample

START = 1_763_337_600
"""The start of a quarter."""


def test_samples_are_summed_up_by_quarters() -> None:
    samples = [
        ProbeSample(START, 10),
        ProbeSample(START + 5, 20),
        ProbeSample(START + 8, None, "TimedOut"),
        ProbeSample(START + QUARTER_SECONDS - 1, 33, "NotReady"),
        ProbeSample(START + QUARTER_SECONDS, None, "TimedOut"),
    ]
    first, second = add_samples([], samples)
    assert first == ProbeQuarter(START, probes=4, failed=2, silent=1, total_latency=63, max_latency=33)
    assert first.mean_latency == 21
    assert second == ProbeQuarter(START + QUARTER_SECONDS, probes=1, failed=1, silent=1)
    assert second.mean_latency is None


def test_more_samples_of_a_quarter_are_added_to_it() -> None:
    day = add_samples([], [ProbeSample(START, 10)])
    [quarter] = add_samples(day, [ProbeSample(START + 5, 30)])
    assert (quarter.probes, quarter.mean_latency, quarter.max_latency) == (2, 20, 30)


def test_quarters_older_than_a_day_are_left_out_and_gaps_stay() -> None:
    day = add_samples([], [ProbeSample(START, 10), ProbeSample(START + QUARTER_SECONDS, 10)])
    later = START + MAX_QUARTERS * QUARTER_SECONDS
    assert [each.time for each in add_samples(day, [ProbeSample(later, 10)])] == [START + QUARTER_SECONDS, later]
    assert add_samples(day, []) == day
    assert add_samples([], []) == []


def test_a_day_is_encoded_in_a_few_bytes_and_decoded() -> None:
    day = [
        ProbeQuarter(START, probes=180, total_latency=2520, max_latency=52),
        ProbeQuarter(START + 900, probes=184, failed=9, silent=4, total_latency=2700, max_latency=61),
        ProbeQuarter(START + 2700, probes=3, failed=3, silent=3),
    ]
    assert encode_day(day) == "1763337600/180/2520/52 900/184!9~4/2700/61 1800/3!3~3/0/0"
    assert decode_day(encode_day(day)) == day


def test_the_longest_day_fits_its_field() -> None:
    """A probe a second, all of them slow."""
    slow = ProbeSample(0, MAX_LATENCY_MILLISECONDS, "NotReady")
    samples = [
        ProbeSample(START + second, slow.latency, slow.reason) for second in range(MAX_QUARTERS * QUARTER_SECONDS)
    ]
    assert len(encode_day(add_samples([], samples))) < MAX_DAY_TEXT_LENGTH / 2


@pytest.mark.parametrize("text", [None, 7, "x", "1/2", "1/2/3", "1//3/4", "-1/2/3/4", "1/2/3/4" + " 1/2/3/4" * 10_000])
def test_a_text_that_is_not_valid_has_no_quarters(text: object) -> None:
    assert decode_day(text) == []


def test_only_the_last_quarters_of_a_long_text_are_read() -> None:
    assert len(decode_day(" ".join(["900/1/1/1"] * (MAX_QUARTERS + 5)))) == MAX_QUARTERS
