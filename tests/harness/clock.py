"""A clock that only tests advance; its wall clock can also be set."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class ManualClock:
    def __init__(self) -> None:
        self._wall = START
        self._monotonic = 1_000.0

    def now(self) -> datetime:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def tick(self, seconds: float) -> None:
        """Advances both clocks."""
        self.jump(seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Sets the wall clock forward; the monotonic clock stays."""
        self._wall += timedelta(seconds=seconds)
