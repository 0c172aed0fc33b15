"""fairlead.cli.ui.durations: durations and ages as users type and read them."""

from datetime import UTC, datetime

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli.ui.durations import age, coarse_duration, format_duration, parse_duration, parse_time


@pytest.mark.parametrize(
    ("text", "total"),
    [("30d", 2_592_000), ("12h", 43_200), ("90m", 5_400), ("45s", 45), ("1h30m", 5_400), ("1d2h3m4s", 93_784)],
)
def test_durations_are_parsed(text: str, total: int) -> None:
    assert parse_duration(text) == total


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5h", "1w", "30m1h", "0s", "1 d", "9999999d", "\u0661d"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_duration(text)


@given(st.integers(min_value=1, max_value=10**9))
def test_a_formatted_duration_can_be_parsed_and_is_never_longer(total: int) -> None:
    assert parse_duration(format_duration(total)) <= total
    assert parse_duration(format_duration(total)) > total * 0.95


def test_ages_are_shown_in_their_largest_unit() -> None:
    now = datetime(2026, 1, 3, 12, tzinfo=UTC)
    assert age("2026-01-01T00:00:00Z", now) == "2d"
    assert age("2026-01-03T11:59:30.123456Z", now) == "29s"
    assert age("2027-01-01T00:00:00Z", now) == "0s"
    assert age(None, now) == age("yesterday", now) == "-"
    assert (coarse_duration(3_599), coarse_duration(3_600)) == ("59m", "1h")
    assert parse_time("2026-01-01T00:00:00") == datetime(2026, 1, 1, tzinfo=UTC)
