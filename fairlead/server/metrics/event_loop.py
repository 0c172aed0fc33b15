"""What the event loop's watchdog has measured, as metrics."""

from collections.abc import Iterator

from fairlead.server.event_loop import Watchdog
from fairlead.server.metrics.exposition import GAUGE, HISTOGRAM, Family


def event_loop_families(watchdog: Watchdog) -> Iterator[Family]:
    watchdog.settle()
    yield Family(
        "fairlead_event_loop_hold_seconds",
        HISTOGRAM,
        "Seconds of processor time that the event loop was held without a break, up to fifty samples a second.",
        [("", watchdog.holds.copy())],
    )
    yield Family(
        "fairlead_event_loop_hold_max_seconds",
        GAUGE,
        "The longest hold of the event loop since the start.",
        [("", watchdog.longest)],
    )
    yield Family(
        "fairlead_event_loop_lag_seconds",
        HISTOGRAM,
        "Seconds that a timer was late by the wall clock, whatever the reason.",
        [("", watchdog.lags.copy())],
    )
