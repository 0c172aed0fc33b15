"""How many records one source may have written whole in a minute. What is beyond that is counted, and not lost.

A flood must not push the records of others out of the log. So the first requests of each source are recorded whole, and
of the rest there is one summary for each minute and source: how many, when, and what for. The sources that are tracked
are bounded as well, because an attacker can have more addresses than the server has memory: what does not fit shares
one bucket. `intake.py` asks; only the event loop calls this.
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
"""Summaries written for one window. The sources with fewer requests are merged into one."""
MOST_SAMPLES = 8
SAMPLED_PATH = 256
OTHERS = "(others)"
"""No user or address is called that."""

Request = tuple[str, int, str]
"""Verb, code and path of a sampled request."""


class Tally(Struct, eq=False):
    """What one source has done in the current window."""

    source: str
    whole: int = 0
    suppressed: int = 0
    sources: int = 1
    """More than one in a bucket that several share."""
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
    """Whole records in a minute: of `each` source, and of `all` of them together. 0 is no limit."""

    each: int
    all: int
    shares: bool = True
    """Whether sources that are too many to be tracked share one bucket. Otherwise all of theirs are recorded whole."""


class Quota:
    """`write` takes the tallies of a window that is over. It returns False if it cannot take them yet."""

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
        """How many records were not written whole since the start."""

    def admits(self, source: str) -> bool:
        """Whether one more request of the source is recorded whole. What is not must be counted."""
        if not self._each:
            return True
        if self._clock.monotonic() >= self._until:
            self._begin_window()
        tally = self._tallies.get(source)
        if tally is None:
            if not self._shares and len(self._tallies) >= MOST_SOURCES:
                return True
            tally = self._begin_tally(source)
        if tally.whole >= self._each or self._whole >= self._all:
            return False
        tally.whole += 1
        self._whole += 1
        return True

    def has_room(self, source: str) -> bool:
        """The same question without a request."""
        if not self._each or self._clock.monotonic() >= self._until:
            return True
        tally = self._tallies.get(source)
        return (tally is None or tally.whole < self._each) and self._whole < self._all

    def count(self, source: str, verb: str, code: int, path: str) -> None:
        """Notes a request that is not recorded whole."""
        self.suppressed += 1
        tally = self._tallies.get(source) or self._begin_tally(source)
        tally.count(verb, code, path, self._clock.now())
        if self._timer is None:
            self._timer = self._loop.call_later(WINDOW_SECONDS, self.flush)

    def flush(self) -> None:
        """Writes the summaries of what was counted until now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counted = [tally for tally in self._tallies.values() if tally.suppressed]
        if counted and not self._write(list(_largest(counted))):
            # The numbers are kept and written later, together with those to come.
            self._tallies = {tally.source: tally for tally in counted}
            self._timer = self._loop.call_later(WINDOW_SECONDS, self.flush)
        else:
            self._tallies = {}
        self._whole = 0
        for tally in self._tallies.values():
            tally.whole = 0

    def _begin_window(self) -> None:
        self.flush()
        self._until = self._clock.monotonic() + WINDOW_SECONDS

    def _begin_tally(self, source: str) -> Tally:
        if len(self._tallies) >= MOST_SOURCES:
            tally = self._tallies.get(OTHERS)
            if tally is None:
                tally = self._tallies[OTHERS] = Tally(OTHERS, sources=0)
            return tally
        tally = self._tallies[source] = Tally(source)
        return tally


def _largest(tallies: list[Tally]) -> Iterator[Tally]:
    tallies.sort(key=lambda tally: tally.suppressed, reverse=True)
    yield from tallies[:MOST_SUMMARIES]
    if len(tallies) > MOST_SUMMARIES:
        others = Tally(OTHERS, sources=0)
        for tally in tallies[MOST_SUMMARIES:]:
            others.merge(tally)
        yield others
