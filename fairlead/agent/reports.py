"""Reports to the server: a bounded queue of audit events and token usage, sent in batches.

The agent's own audit log is complete and written first; the server gets a copy. While the server is unreachable the
queue fills up. Events that do not fit are dropped, and their number is reported.
"""

import asyncio
import threading
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import orjson
import structlog

from fairlead.agent.control_plane import Home, HomeProblem, Unfit
from fairlead.core.clock import Clock, timestamp
from fairlead.core.objects import Object

QUEUE_EVENTS, QUEUE_BYTES = 20_000, 32 * 1024 * 1024
BATCH_EVENTS, BATCH_BYTES = 500, 512 * 1024
EVERY_SECONDS = 5.0
MOST_TOKENS = 10_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of one report. `activity` maps token ids to user name and time of last use."""

    lines: tuple[bytes, ...]
    dropped: int
    activity: dict[str, tuple[str, str]]

    def spec(self) -> Object:
        uses = [{"token": token, "user": user, "lastUse": use} for token, (user, use) in self.activity.items()]
        return {"events": [orjson.Fragment(each) for each in self.lines], "dropped": self.dropped, "activity": uses}


class Reports:
    """Bounded queue. `add` is called from the audit log's writer thread, everything else on the event loop."""

    def __init__(self, clock: Clock, most_events: int = QUEUE_EVENTS, most_bytes: int = QUEUE_BYTES) -> None:
        self._clock = clock
        self._most_events, self._most_bytes = most_events, most_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = self._dropped = 0
        self._activity: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def add(self, line: bytes) -> None:
        with self._lock:
            full = len(self._lines) >= self._most_events or self._bytes + len(line) > self._most_bytes
            if full or len(line) > BATCH_BYTES:
                self._dropped += 1
                return
            self._lines.append(line)
            self._bytes += len(line)

    def used(self, token: str, user: str) -> None:
        """Records the use of a token."""
        if token in self._activity or len(self._activity) < MOST_TOKENS:
            self._activity[token] = user, timestamp(self._clock.now())

    def take(self) -> Batch | None:
        """Removes and returns the content of the next report; None if the queue is empty."""
        with self._lock:
            lines: list[bytes] = []
            size = 0
            while self._lines and len(lines) < BATCH_EVENTS and size + len(self._lines[0]) <= BATCH_BYTES:
                lines.append(self._lines.popleft())
                size += len(lines[-1])
            self._bytes -= size
            dropped, self._dropped = self._dropped, 0
        activity, self._activity = self._activity, {}
        return Batch(tuple(lines), dropped, activity) if lines or dropped or activity else None

    def put_back(self, batch: Batch, *, lost: bool = False) -> None:
        """Puts a failed batch back. With `drop_events`, its events are counted as dropped instead."""
        with self._lock:
            if lost:
                self._dropped += len(batch.lines)
            else:
                self._lines.extendleft(reversed(batch.lines))
                self._bytes += sum(map(len, batch.lines))
            self._dropped += batch.dropped
        self._activity = {**batch.activity, **self._activity}

    async def run(self, home: Home) -> None:
        """Sends reports periodically, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await self.tell(home)

    async def tell(self, home: Home) -> None:
        """Sends all queued reports. Stops at the first failure."""
        while (batch := self.take()) is not None:
            try:
                await home.report(batch.spec())
            except Unfit as error:
                # Retrying it forever would block all later reports.
                log.error("the server rejected a report; its events are only in the agent's log", reason=str(error))
                self.put_back(Batch(batch.lines, batch.dropped, {}), lost=True)
                return
            except HomeProblem:  # already logged by `config_cache.py`
                self.put_back(batch)
                return


class Sink(Protocol):
    """Output of the audit log writer."""

    def make_ready(self, size: int) -> None: ...

    def write(self, data: memoryview) -> int: ...

    def close(self) -> None: ...


class Copied:
    """A sink that also adds each written line to the report queue."""

    def __init__(self, sink: Sink, reports: Reports) -> None:
        self._sink = sink
        self._reports = reports
        self._begun = b""

    def make_ready(self, size: int) -> None:
        self._sink.make_ready(size)

    def write(self, data: memoryview) -> int:
        count = self._sink.write(data)
        *lines, self._begun = (self._begun + bytes(data[:count])).split(b"\n")
        for line in lines:
            if line:
                self._reports.add(line)
        return count

    def close(self) -> None:
        self._sink.close()
