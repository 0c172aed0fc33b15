"""Tests of `fairlead.domain.cron`: schedules of sleep, also where clocks are changed."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from fairlead.domain.cron import InvalidSchedule, parse_schedule

BERLIN = ZoneInfo("Europe/Berlin")


def seconds(text: str) -> int:
    """Of a time in UTC."""
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp())


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("0 19 * * *", "2026-11-18T18:59:59", "2026-11-18T19:00:00"),
        ("0 19 * * *", "2026-11-18T19:00:00", "2026-11-19T19:00:00"),
        ("*/15 * * * *", "2026-11-18T19:00:00", "2026-11-18T19:15:00"),
        ("30 8,20 * * *", "2026-11-18T09:00:00", "2026-11-18T20:30:00"),
        ("0 19 * * mon-fri", "2026-11-20T19:00:00", "2026-11-23T19:00:00"),
        ("0 0 * * 7", "2026-11-18T00:00:00", "2026-11-22T00:00:00"),
        ("0 0 29 feb *", "2026-11-18T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 13 * fri", "2026-11-18T00:00:00", "2026-11-20T00:00:00"),  # the day of the month or that of the week
        ("5/20 0 1-7 jan,jul *", "2026-11-18T00:00:00", "2027-01-01T00:05:00"),
    ],
)
def test_the_next_time(schedule: str, after: str, expected: str) -> None:
    assert parse_schedule(schedule).next_after(seconds(after)) == seconds(expected)


def test_a_time_zone() -> None:
    assert parse_schedule("0 19 * * *", "Europe/Berlin").next_after(seconds("2026-11-18T12:00:00")) == seconds(
        "2026-11-18T18:00:00"
    )


def test_clocks_that_are_put_forward() -> None:
    """In Berlin, 02:00 to 03:00 did not exist on 29 March 2026: what is due then is due an hour later."""
    schedule = parse_schedule("30 2 * * *", "Europe/Berlin")
    first = schedule.next_after(seconds("2026-03-28T12:00:00"))
    assert datetime.fromtimestamp(first, BERLIN).isoformat() == "2026-03-29T03:30:00+02:00"
    assert datetime.fromtimestamp(schedule.next_after(first), BERLIN).isoformat() == "2026-03-30T02:30:00+02:00"


def test_clocks_that_are_put_back() -> None:
    """02:30 existed twice on 25 October 2026: it is due once."""
    schedule = parse_schedule("30 2 * * *", "Europe/Berlin")
    first = schedule.next_after(seconds("2026-10-24T12:00:00"))
    assert datetime.fromtimestamp(first, BERLIN).isoformat() == "2026-10-25T02:30:00+02:00"
    assert datetime.fromtimestamp(schedule.next_after(first), BERLIN).isoformat() == "2026-10-26T02:30:00+01:00"


def test_all_times_of_a_day_without_an_hour_are_in_order() -> None:
    schedule = parse_schedule("0,50 2,3 * * *", "Europe/Berlin")
    moment = seconds("2026-03-28T23:00:00")
    found = []
    for _ in range(3):
        moment = schedule.next_after(moment)
        found.append(datetime.fromtimestamp(moment, BERLIN).strftime("%d %H:%M"))
    assert found == ["29 03:00", "29 03:50", "30 02:00"]


def test_one_of_its_times() -> None:
    schedule = parse_schedule("0 19 * * *")
    assert schedule.has(seconds("2026-11-18T19:00:00"))
    assert not schedule.has(seconds("2026-11-18T19:00:01"))
    assert not schedule.has(0)


def test_a_day_that_never_comes() -> None:
    assert parse_schedule("0 0 30 2 *").next_after(seconds("2026-11-18T00:00:00")) == 0


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("", "", "five fields"),
        ("@daily", "", "five fields"),
        ("0 0 * * * *", "", "five fields"),
        ("60 0 * * *", "", "minute must be within 0 and 59"),
        ("0 24 * * *", "", "hour"),
        ("0 0 0 * *", "", "day of the month"),
        ("0 0 * 13 *", "", "month"),
        ("0 0 * * 8", "", "day of the week"),
        ("*/0 0 * * *", "", "step"),
        ("5-1 0 * * *", "", "minute"),
        ("x 0 * * *", "", "not a number"),
        ("-1 0 * * *", "", "not a number"),
        ("² 0 * * *", "", "not a number"),
        ("0 0 * * *", "Mars/Olympus", "time zone"),
        ("0 0 * * *", "../etc/passwd", "time zone"),
        ("0 0 * * *", "x" * 300, "time zone"),
        (f"0 0 {','.join(['1'] * 300)} * *", "", "five fields"),
    ],
)
def test_what_is_no_schedule(text: str, zone: str, expected: str) -> None:
    with pytest.raises(InvalidSchedule, match=expected):
        parse_schedule(text, zone)
