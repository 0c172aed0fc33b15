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
MOST_SOURCES = 4_096
MOST_SUMMARIES = 256
"""Summaries written per window. The sources with the fewest requests are merged into one summary."""
MOST_SAMPLES = 8
SAMPLED_PATH = 256
OTHERS = "(others)"
"""The source name of the shared counter. No user or address has this name."""

Request = tuple[str, int, str]
"""Verb, status code and path of a sampled request."""


class Tally(Struct, eq=False):
    """The requests of one source in the current window."""

    source: str
    whole: int = 0
    suppressed: int = 0
    sources: int = 1
    """More than one in a counter that several sources share."""
    first: datetime | None = None
    last: datetime | None = None
    samples: dict[Request, int] = field(default_factory=dict)

    def count(self, verb: str, code: int, path: str, moment: datetime) -> None:
        self.suppressed += 1
        self.first, self.last = self.first or moment, moment
        request = verb, code, path[:SAMPLED_PATH]
        if request in self.samples or len(self.samples) < MOST_SAMPLES:
            self.samples[request] = self.samples.get(request, 0) + 1

    def merge(self, other: "Tally") -> None:
        self.suppressed += other.suppressed
        self.sources += other.sources
        moments = [each for each in (self.first, self.last, other.first, other.last) if each is not None]
        self.first, self.last = min(moments, default=None), max(moments, default=None)
        self.samples = dict((Counter(self.samples) + Counter(other.samples)).most_common(MOST_SAMPLES))


@dataclass(frozen=True, slots=True)
class Allowance:
    """Events per minute: `per_source`, and in `total` for all sources. 0 means no limit."""

    each: int
    all: int
    shares: bool = True
    """Whether sources beyond MAX_SOURCES share one counter. Otherwise all of their events are recorded."""


class Quota:
    """A quota per source. `write` gets the counters of a finished window; it returns False if it cannot write now."""

    def __init__(self, allowance: Allowance, clock: Clock, write: Callable[[list[Tally]], bool]) -> None:
        self._each, self._all, self._shares = allowance.each, allowance.all or (1 << 62), allowance.shares
        self._clock = clock
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tallies: dict[str, Tally] = {}
        self._until = 0.0
        self._whole = 0
        self.suppressed = 0
        """Requests since the start that were counted instead of recorded."""

    def admits(self, source: str) -> bool:
        """Takes one event from the source's quota. If False, the caller must call `record_suppressed`."""
        if not self._each:
            return True
        if self._clock.monotonic() >= self._until:
            self._begin_window()
        counter = self._tallies.get(source)
        if counter is None:
            if not self._shares and len(self._tallies) >= MOST_SOURCES:
                return True
            counter = self._begin_tally(source)
        if counter.whole >= self._each or self._whole >= self._all:
            return False
        counter.whole += 1
        self._whole += 1
        return True

    def has_room(self, source: str) -> bool:
        """Whether the source has quota left. Takes nothing from it."""
        if not self._each or self._clock.monotonic() >= self._until:
            return True
        counter = self._tallies.get(source)
        return (counter is None or counter.whole < self._each) and self._whole < self._all

    def count(self, source: str, verb: str, code: int, path: str) -> None:
        """Counts a request that is not recorded."""
        self.suppressed += 1
        counter = self._tallies.get(source) or self._begin_tally(source)
        counter.count(verb, code, path, self._clock.now())
        if self._timer is None:
            self._timer = self._loop.call_later(WINDOW_SECONDS, self.flush)

    def flush(self) -> None:
        """Writes the summaries of the requests counted so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counted = [counter for counter in self._tallies.values() if counter.suppressed]
        if counted and not self._write(list(_largest(counted))):
            # Keep the counters, and write them together with those of the next window.
            self._tallies = {counter.source: counter for counter in counted}
            self._timer = self._loop.call_later(WINDOW_SECONDS, self.flush)
        else:
            self._tallies = {}
        self._whole = 0
        for counter in self._tallies.values():
            counter.whole = 0

    def _begin_window(self) -> None:
        self.flush()
        self._until = self._clock.monotonic() + WINDOW_SECONDS

    def _begin_tally(self, source: str) -> Tally:
        if len(self._tallies) >= MOST_SOURCES:
            counter = self._tallies.get(OTHERS)
            if counter is None:
                counter = self._tallies[OTHERS] = Tally(OTHERS, sources=0)
            return counter
        counter = self._tallies[source] = Tally(source)
        return counter


def _largest(tallies: list[Tally]) -> Iterator[Tally]:
    tallies.sort(key=lambda counter: counter.suppressed, reverse=True)
    yield from tallies[:MOST_SUMMARIES]
    if len(tallies) > MOST_SUMMARIES:
        others = Tally(OTHERS, sources=0)
        for counter in tallies[MOST_SUMMARIES:]:
            others.merge(counter)
        yield others
