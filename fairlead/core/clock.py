"""Time, handed in wherever it is needed so that tests can turn the clock themselves.

Durations are measured on the monotonic clock; the wall clock only dates things.
"""

import re
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Protocol

from fairlead.core.objects import Object


class Clock(Protocol):
    def now(self) -> datetime:
        """The date and time in UTC."""

    def monotonic(self) -> float:
        """Seconds that never go backwards, for durations."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC to the second, as `metadata` carries it."""
    return moment.isoformat(timespec="seconds")[:19] + "Z"  # strftime would take four times as long


def micro_timestamp(moment: datetime) -> str:
    """The same with six digits of a second, for the fields that Kubernetes types as MicroTime."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


# DOC-MERGED kinds/times
# Dates in core kinds: whatever zone and precision a client sends, the answer is in UTC with a fixed number of digits.
#
# The schema's `date-time` format refuses what is no date at all; this only rewrites what is one.


# Stricter than the standard library's parser, which also reads dates without a time or a zone.
_RFC_3339 = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def parsed(value: Any) -> datetime | None:
    """The moment that a text stands for, in UTC; None if it is no date and time."""
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def rewrite(part: Object, fields: Iterable[str], form: Callable[[datetime], str]) -> None:
    """Puts each of the fields that holds a date into `form`."""
    for field in fields:
        moment = parsed(part.get(field))
        if moment is not None:
            part[field] = form(moment)
