"""Time, handed in wherever it is needed so that tests can turn the clock themselves.

Durations are measured on the monotonic clock; the wall clock only dates things.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


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
