"""Tests of `bench/wrk.py`: a round counts only if all responses were as expected."""

import msgspec
import pytest

from bench.failure import Failure
from bench.wrk import Request, Summary, check_summary

VALID = Summary(
    requests=100,
    duration_us=1_000_000,
    bytes=100_000,
    p50_us=500,
    p99_us=900,
    max_us=950,
    refused=0,
    broken=0,
    late=0,
)


def test_a_round_without_faults_counts() -> None:
    check_summary(VALID, "GET /", response_bytes=1000)


@pytest.mark.parametrize("fault", [{"refused": 1}, {"broken": 1}, {"late": 1}, {"requests": 0}, {"bytes": 99_999}])
def test_a_single_wrong_late_short_or_missing_response_fails_the_round(fault: dict[str, int]) -> None:
    with pytest.raises(Failure, match="GET /"):
        check_summary(msgspec.structs.replace(VALID, **fault), "GET /", response_bytes=1000)


def test_a_create_succeeds_with_201_and_everything_else_with_200() -> None:
    assert [Request(method, "/").success for method in ("GET", "POST", "PATCH")] == [200, 201, 200]
