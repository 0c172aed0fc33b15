"""The clock, injected so that tests can control it, and RFC 3339 timestamps.

Durations use the monotonic clock; the wall clock is for timestamps only. Timestamps from clients may have any zone
and precision; `normalize_times` rewrites them to UTC with a fixed precision. The schema's `date-time` format rejects
values that are not timestamps.
"""

import re
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from fairlead.core.objects import Object


class Clock(Protocol):
    def now(self) -> datetime:
        """The current time in UTC."""

    def monotonic(self) -> float:
        """Monotonic seconds, for durations."""


class SystemClock:
    """The clocks of the system. Each method is a function of the standard library, as every request reads them."""

    # A partial in a class becomes a method in Python 3.14, which would pass the clock as an argument.
    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with a precision of seconds, as in `metadata`."""
    return moment.isoformat(timespec="seconds")[:19] + "Z"  # strftime takes four times as long


def micro_timestamp(moment: datetime) -> str:
    """RFC 3339 with microseconds, for fields of Kubernetes' type MicroTime."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


# Stricter than the standard library's parser, which also accepts dates without a time or zone.
_RFC_3339 = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def parse_rfc3339(value: Any) -> datetime | None:
    """Parse a timestamp to UTC; None if the value is not an RFC 3339 timestamp."""
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def normalize_times(obj: Object, fields: Iterable[str], format_time: Callable[[datetime], str]) -> None:
    """Rewrite each of the fields that holds a timestamp with `format_time`."""
    for field in fields:
        moment = parse_rfc3339(obj.get(field))
        if moment is not None:
            obj[field] = format_time(moment)
