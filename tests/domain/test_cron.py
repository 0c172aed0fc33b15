"""Tests of `fairlead.domain.cron`: schedules of sleep, also where clocks are changed."""

from datetime import datetime, time, timedelta
from time import thread_time
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


def test_a_day_that_does_not_come_in_the_next_years() -> None:
    """A Sunday that is the 29 February: in 2032, and then not before 2060."""
    assert parse_schedule("0 0 29 2 */7").next_after(seconds("2032-03-01T00:00:00")) == 0


def test_times_of_each_zone_are_those_of_its_clock() -> None:
    """Every minute for three days, around changes of clocks at different hours, and a day that was skipped."""
    for zone, day in (
        ("Europe/Berlin", "2026-03-28T12:00:00"),
        ("Europe/Berlin", "2026-10-24T12:00:00"),
        ("America/Havana", "2026-03-07T12:00:00"),
        ("America/Havana", "2026-10-31T12:00:00"),
        ("Australia/Lord_Howe", "2026-04-04T03:00:00"),
        ("Pacific/Apia", "2011-12-29T00:00:00"),
        ("Asia/Kathmandu", "2026-11-18T00:00:00"),
    ):
        schedule = parse_schedule("*/7 */3 * * *", zone)
        first = seconds(day)
        moment = first
        found = []
        while (moment := schedule.next_after(moment)) <= first + 2 * 86_400:
            found.append(moment)
        clock = ZoneInfo(zone)
        start = datetime.fromtimestamp(first, clock).date() - timedelta(days=2)
        days = [start + timedelta(days=number) for number in range(6)]
        moments = [time(hour, minute) for hour in range(0, 24, 3) for minute in range(0, 60, 7)]
        expected = {int(datetime.combine(day, each, clock).timestamp()) for day in days for each in moments}
        assert found == sorted(each for each in expected if first < each <= first + 2 * 86_400), zone


@pytest.mark.parametrize("day", ["2026-11-18T12:00:00", "2026-03-29T00:30:00"])
@pytest.mark.parametrize("text", ["* * * * *", "0 0 29 2 *"])
def test_the_next_time_is_found_at_once(text: str, day: str) -> None:
    """The event loop waits for it. Looking at each minute of two days would take 6 ms."""
    schedule = parse_schedule(text, "Europe/Berlin")
    began = thread_time()
    for number in range(100):
        schedule.next_after(seconds(day) + number)
    assert (thread_time() - began) / 100 < 0.001


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
        ("0 0 30 2 *", "", "never happens"),
        ("0 0 31 feb,4,6 *", "", "never happens"),
        ("0 0 * * *", "Mars/Olympus", "time zone"),
        ("0 0 * * *", "../etc/passwd", "time zone"),
        ("0 0 * * *", "x" * 300, "time zone"),
        (f"0 0 {','.join(['1'] * 300)} * *", "", "five fields"),
    ],
)
def test_what_is_no_schedule(text: str, zone: str, expected: str) -> None:
    with pytest.raises(InvalidSchedule, match=expected):
        parse_schedule(text, zone)
