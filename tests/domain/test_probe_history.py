"""The compact history of probes in the status of a cluster."""

import pytest

from fairlead.domain.probe_history import MAX_SAMPLES, ProbeSample, decode_samples, encode_samples

SAMPLES = [
    ProbeSample(1_763_337_600, 12),
    ProbeSample(1_763_337_605, 0),
    ProbeSample(1_763_337_608, None, "TimedOut"),
    ProbeSample(1_763_337_608, 14, "NotReady"),
]


def test_samples_are_encoded_in_a_few_bytes_and_decoded() -> None:
    assert encode_samples(SAMPLES) == "1763337600/12 5/0 3/!TimedOut 0/14!NotReady"
    assert decode_samples(encode_samples(SAMPLES)) == SAMPLES


def test_only_the_last_samples_are_kept() -> None:
    many = [ProbeSample(1_763_337_600 + 5 * number, number) for number in range(3 * MAX_SAMPLES)]
    text = encode_samples(many)
    assert decode_samples(text) == many[-MAX_SAMPLES:]
    assert len(text) < 1024


def test_a_clock_that_goes_back_does_not_break_the_history() -> None:
    samples = decode_samples(encode_samples([ProbeSample(100, 1), ProbeSample(90, 2), ProbeSample(110, 10**9)]))
    assert samples == [ProbeSample(100, 1), ProbeSample(100, 2), ProbeSample(110, 60_000)]


@pytest.mark.parametrize("text", [None, 5, "", "x", "1/2 -3/4", "1/2/3", "1/2!<b>", "1/" + "2" * 20_000])
def test_an_invalid_history_is_empty(text: object) -> None:
    assert decode_samples(text) == []
