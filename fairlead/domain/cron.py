"""Cron expressions of sleep schedules: five fields, in a time zone. Pure.

    minute hour day-of-month month day-of-week

A field is `*`, a number, a range `1-5`, either of them with a step `*/15`, or a list of these. Months and days of the
week also have their English names, and Sunday is 0 and 7. If both days are restricted, either of them is enough, as in
every cron. A time that the clocks skip in spring happens as much later as they are put forward; one that exists twice
in autumn happens the first time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import product
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MAX_TEXT_LENGTH = 256
MAX_DAYS_AHEAD = 8 * 366
"""How far ahead a time is looked for: 29 February is missing from seven years in a row around 2100."""
MAX_ZONE_LENGTH = 64

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SUNDAY = 7
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""At most, by month."""
_MINUTE_SECONDS, _DAY_SECONDS = 60, 86_400


class InvalidSchedule(ValueError):
    """The text is not a schedule. The message says why."""


@dataclass(frozen=True, slots=True)
class _Field:
    title: str
    first: int
    last: int
    names: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of the month", 1, 31, {}),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field("day of the week", 0, _SUNDAY, {name: number for number, name in enumerate(_DAYS)}),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    minutes: tuple[int, ...]
    """In ascending order, as are the hours."""
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """Sunday is 0."""
    is_any_day: bool
    is_any_weekday: bool
    zone: tzinfo

    def next_after(self, seconds: int) -> int:
        """The first time after `seconds`, both as Unix time; 0 if there is none in the next years."""
        # A day that clocks skip as a whole, as on the date line, happens on the next one.
        day = datetime.fromtimestamp(seconds, self.zone).date() - timedelta(days=1)
        last = day + timedelta(days=MAX_DAYS_AHEAD)
        while day < last:
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            found = self._next_of_day(day, seconds) if self._has_day(day) else 0
            if found:
                return found
            day += timedelta(days=1)
        return 0

    def has(self, seconds: int) -> bool:
        """Whether this is one of its times."""
        return seconds > 0 and self.next_after(seconds - 1) == seconds

    def _next_of_day(self, day: date, seconds: int) -> int:
        """The first time of a day that is later than `seconds`; 0 if there is none."""
        midnight = self.seconds_at(day, time())
        if self.seconds_at(day + timedelta(days=1), time()) - midnight == _DAY_SECONDS:
            # Without asking the zone for each time of the day: that may take milliseconds.
            first = max(0, (seconds - midnight) // _MINUTE_SECONDS + 1)
            found = self._next_minute(first)
            return midnight + found * _MINUTE_SECONDS if found is not None else 0
        times = _list_times(self, day)
        later = bisect_right(times, seconds)
        return times[later] if later < len(times) else 0

    def _next_minute(self, first: int) -> int | None:
        """The first minute of a day, from `first` on, counted from midnight."""
        hour, minute = divmod(first, 60)
        for each in self.hours[bisect_left(self.hours, hour) :]:
            later = bisect_left(self.minutes, minute) if each == hour else 0
            if later < len(self.minutes):
                return each * 60 + self.minutes[later]
        return None

    def seconds_at(self, day: date, moment: time) -> int:
        return int(datetime.combine(day, moment, self.zone).timestamp())

    def _has_day(self, day: date) -> bool:
        is_day = day.day in self.days
        is_weekday = day.isoweekday() % _SUNDAY in self.weekdays
        if self.is_any_day or self.is_any_weekday:
            return is_day and is_weekday
        return is_day or is_weekday


@lru_cache(maxsize=64)
def _list_times(schedule: Schedule, day: date) -> Sequence[int]:
    """All times of a day on which clocks are changed: the order of those that they skip is not that of the clock."""
    moments = (time(hour, minute) for hour, minute in product(schedule.hours, schedule.minutes))
    return sorted(schedule.seconds_at(day, each) for each in moments)


@lru_cache(maxsize=1024)
def parse_schedule(text: str, zone: str = "") -> Schedule:
    """Without a zone: UTC. Raises InvalidSchedule."""
    parts = text.lower().split() if len(text) <= MAX_TEXT_LENGTH else []
    if len(parts) != len(_FIELDS):
        raise InvalidSchedule("it must have five fields, such as `0 19 * * mon-fri`: minute, hour, day, month, weekday")
    minutes, hours, days, months, weekdays = (
        _parse_field(part, field) for part, field in zip(parts, _FIELDS, strict=True)
    )
    is_any_day = parts[2].startswith("*")
    is_any_weekday = parts[4].startswith("*")
    if (is_any_day or is_any_weekday) and min(days) > max(_MONTH_DAYS[month - 1] for month in months):
        raise InvalidSchedule("it never happens: none of its months has such a day")
    return Schedule(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset(each % _SUNDAY for each in weekdays),
        is_any_day=is_any_day,
        is_any_weekday=is_any_weekday,
        zone=_parse_zone(zone),
    )


def _parse_zone(name: str) -> tzinfo:
    if name in ("", "UTC"):  # also where no time zones are installed
        return UTC
    try:
        if len(name) > MAX_ZONE_LENGTH:
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise InvalidSchedule("its time zone is not known; use one such as `Europe/Berlin`") from None


def _parse_field(text: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, mark, step_text = part.partition("/")
        step = _parse_number(step_text, field) if mark else 1
        if not step:
            raise InvalidSchedule(f"the step of its {field.title} is 0")
        first_text, dash, last_text = span.partition("-")
        if span == "*":
            first = field.first
            last = field.last
        else:
            first = _parse_number(first_text, field)
            last = _parse_number(last_text, field) if dash else (field.last if mark else first)
        if not field.first <= first <= last <= field.last:
            raise InvalidSchedule(f"its {field.title} must be within {field.first} and {field.last}: `{part}`")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _parse_number(text: str, field: _Field) -> int:
    if text in field.names:
        return field.names[text]
    if not text.isascii() or not text.isdecimal():
        raise InvalidSchedule(f"its {field.title} is not a number, a range, a step or a list of them: `{text}`")
    return int(text)
