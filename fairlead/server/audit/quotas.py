"""Audit quotas: how many events per minute a source (a user, address or object) may write. The rest is counted.

A flood from one source must not displace the events of others. So the first requests of each source are recorded one by
one, and the rest in one summary per minute and source: how many, when, and samples. The number of tracked sources is
limited as well, because an attacker can use more addresses than fit into memory; the others share one counter.
`intake.py` calls this, on the event loop only.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct, field

from fairlead.core.clock import Clock

WINDOW_SECONDS = 60.0
MAX_SOURCES = 4_096
MAX_SUMMARIES = 256
"""Summaries written per window. The sources with the fewest requests are merged into one summary."""
MAX_SAMPLES = 8
MAX_SAMPLED_PATH_LENGTH = 256
OTHER_SOURCES = "(others)"
"""The source name of the shared counter. No user or address has this name."""

SampledRequest = tuple[str, int, str]
"""Verb, status code and path of a sampled request."""


class SourceCounter(Struct, eq=False):
    """The requests of one source in the current window."""

    source: str
    recorded_count: int = 0
    suppressed_count: int = 0
    source_count: int = 1
    """More than one in a counter that several sources share."""
    first_time: datetime | None = None
    last_time: datetime | None = None
    samples: dict[SampledRequest, int] = field(default_factory=dict)

    def add_suppressed(self, verb: str, code: int, path: str, moment: datetime) -> None:
        self.suppressed_count += 1
        self.first_time, self.last_time = self.first_time or moment, moment
        request = verb, code, path[:MAX_SAMPLED_PATH_LENGTH]
        if request in self.samples or len(self.samples) < MAX_SAMPLES:
            self.samples[request] = self.samples.get(request, 0) + 1

    def merge(self, other: "SourceCounter") -> None:
        self.suppressed_count += other.suppressed_count
        self.source_count += other.source_count
        moments = [
            each for each in (self.first_time, self.last_time, other.first_time, other.last_time) if each is not None
        ]
        self.first_time = min(moments, default=None)
        self.last_time = max(moments, default=None)
        self.samples = dict((Counter(self.samples) + Counter(other.samples)).most_common(MAX_SAMPLES))


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """Events per minute: `per_source`, and in `total` for all sources. 0 means no limit."""

    per_source: int
    total: int
    share_overflow: bool = True
    """Whether sources beyond MAX_SOURCES share one counter. Otherwise all of their events are recorded."""


class Quota:
    """A quota per source. `write` gets the counters of a finished window; it returns False if it cannot write now."""

    def __init__(self, limit: QuotaLimit, clock: Clock, write: Callable[[list[SourceCounter]], bool]) -> None:
        self._per_source, self._total, self._share_overflow = (
            limit.per_source,
            limit.total or (1 << 62),
            limit.share_overflow,
        )
        self._clock = clock
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._counters: dict[str, SourceCounter] = {}
        self._window_end = 0.0
        self._recorded_count = 0
        self.suppressed_count = 0
        """Requests since the start that were counted instead of recorded."""

    def try_acquire(self, source: str) -> bool:
        """Takes one event from the source's quota. If False, the caller must call `record_suppressed`."""
        if not self._per_source:
            return True
        if self._clock.monotonic() >= self._window_end:
            self._start_window()
        counter = self._counters.get(source)
        if counter is None:
            if not self._share_overflow and len(self._counters) >= MAX_SOURCES:
                return True
            counter = self._add_counter(source)
        if counter.recorded_count >= self._per_source or self._recorded_count >= self._total:
            return False
        counter.recorded_count += 1
        self._recorded_count += 1
        return True

    def has_capacity(self, source: str) -> bool:
        """Whether the source has quota left. Takes nothing from it."""
        if not self._per_source or self._clock.monotonic() >= self._window_end:
            return True
        counter = self._counters.get(source)
        return (counter is None or counter.recorded_count < self._per_source) and self._recorded_count < self._total

    def record_suppressed(self, source: str, verb: str, code: int, path: str) -> None:
        """Counts a request that is not recorded."""
        self.suppressed_count += 1
        counter = self._counters.get(source) or self._add_counter(source)
        counter.add_suppressed(verb, code, path, self._clock.now())
        if self._timer is None:
            self._timer = self._loop.call_later(WINDOW_SECONDS, self.flush)

    def flush(self) -> None:
        """Writes the summaries of the requests counted so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counted = [counter for counter in self._counters.values() if counter.suppressed_count]
        if counted and not self._write(list(_merge_smallest(counted))):
            # Keep the counters, and write them together with those of the next window.
            self._counters = {counter.source: counter for counter in counted}
            self._timer = self._loop.call_later(WINDOW_SECONDS, self.flush)
        else:
            self._counters = {}
        self._recorded_count = 0
        for counter in self._counters.values():
            counter.recorded_count = 0

    def _start_window(self) -> None:
        self.flush()
        self._window_end = self._clock.monotonic() + WINDOW_SECONDS

    def _add_counter(self, source: str) -> SourceCounter:
        if len(self._counters) >= MAX_SOURCES:
            counter = self._counters.get(OTHER_SOURCES)
            if counter is None:
                counter = self._counters[OTHER_SOURCES] = SourceCounter(OTHER_SOURCES, source_count=0)
            return counter
        counter = self._counters[source] = SourceCounter(source)
        return counter


def _merge_smallest(counters: list[SourceCounter]) -> Iterator[SourceCounter]:
    counters.sort(key=lambda counter: counter.suppressed_count, reverse=True)
    yield from counters[:MAX_SUMMARIES]
    if len(counters) > MAX_SUMMARIES:
        others = SourceCounter(OTHER_SOURCES, source_count=0)
        for counter in counters[MAX_SUMMARIES:]:
            others.merge(counter)
        yield others
