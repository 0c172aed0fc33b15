"""Tests of `fairlead.domain.deploy_timeouts`."""

import pytest

from fairlead.domain.deploy_timeouts import parse_timeout


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m0s", 300), ("1m30s", 90), ("0.5m", 30), ("1000ms", 1), ("30m", 1800), ("0h10m", 600)],
)
def test_durations_are_read_as_helm_reads_them(text: str, seconds: int) -> None:
    assert parse_timeout(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "-5s", "0s", "999ms", "31m", "1h", "5 m", "5mm", "1d", "9" * 40 + "s", "٣s"])
def test_anything_else_is_refused(text: str) -> None:
    assert parse_timeout(text) is None
