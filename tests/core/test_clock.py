"""The clock of the system."""

from datetime import UTC, datetime

from fairlead.core.clock import SystemClock


def test_the_time_is_in_utc() -> None:
    before = datetime.now(UTC)
    now = SystemClock().now()
    assert now.tzinfo is UTC
    assert before <= now <= datetime.now(UTC)
