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

from fairlead.agent.control_plane import ControlPlane, ControlPlaneError, ReportRejected
from fairlead.core.clock import Clock, timestamp
from fairlead.core.objects import Object

MAX_QUEUED_EVENTS, MAX_QUEUED_BYTES = 20_000, 32 * 1024 * 1024
MAX_BATCH_EVENTS, MAX_BATCH_BYTES = 500, 512 * 1024
REPORT_SECONDS = 5.0
MAX_TOKENS = 10_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReportBatch:
    """The content of one report. `activity` maps token ids to user name and time of last use."""

    lines: tuple[bytes, ...]
    dropped: int
    activity: dict[str, tuple[str, str]]

    def spec(self) -> Object:
        uses = [{"token": token, "user": user, "lastUse": use} for token, (user, use) in self.activity.items()]
        return {"events": [orjson.Fragment(each) for each in self.lines], "dropped": self.dropped, "activity": uses}


class ReportQueue:
    """Bounded queue. `add` is called from the audit log's writer thread, everything else on the event loop."""

    def __init__(self, clock: Clock, max_events: int = MAX_QUEUED_EVENTS, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._clock = clock
        self._max_events, self._max_bytes = max_events, max_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = self._dropped = 0
        self._activity: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def add(self, line: bytes) -> None:
        with self._lock:
            full = len(self._lines) >= self._max_events or self._bytes + len(line) > self._max_bytes
            if full or len(line) > MAX_BATCH_BYTES:
                self._dropped += 1
                return
            self._lines.append(line)
            self._bytes += len(line)

    def record_use(self, token_id: str, user: str) -> None:
        """Records the use of a token."""
        if token_id in self._activity or len(self._activity) < MAX_TOKENS:
            self._activity[token_id] = user, timestamp(self._clock.now())

    def next_batch(self) -> ReportBatch | None:
        """Removes and returns the content of the next report; None if the queue is empty."""
        with self._lock:
            lines: list[bytes] = []
            size = 0
            while self._lines and len(lines) < MAX_BATCH_EVENTS and size + len(self._lines[0]) <= MAX_BATCH_BYTES:
                lines.append(self._lines.popleft())
                size += len(lines[-1])
            self._bytes -= size
            dropped, self._dropped = self._dropped, 0
        activity, self._activity = self._activity, {}
        return ReportBatch(tuple(lines), dropped, activity) if lines or dropped or activity else None

    def requeue(self, batch: ReportBatch, *, drop_events: bool = False) -> None:
        """Puts a failed batch back. With `drop_events`, its events are counted as dropped instead."""
        with self._lock:
            if drop_events:
                self._dropped += len(batch.lines)
            else:
                self._lines.extendleft(reversed(batch.lines))
                self._bytes += sum(map(len, batch.lines))
            self._dropped += batch.dropped
        self._activity = {**batch.activity, **self._activity}

    async def run(self, control_plane: ControlPlane) -> None:
        """Sends reports periodically, until cancelled."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            await self.flush(control_plane)

    async def flush(self, control_plane: ControlPlane) -> None:
        """Sends all queued reports. Stops at the first failure."""
        while (batch := self.next_batch()) is not None:
            try:
                await control_plane.send_report(batch.spec())
            except ReportRejected as error:
                # Retrying it forever would block all later reports.
                log.error("the server rejected a report; its events are only in the agent's log", reason=str(error))
                self.requeue(ReportBatch(batch.lines, batch.dropped, {}), drop_events=True)
                return
            except ControlPlaneError:  # already logged by `config_cache.py`
                self.requeue(batch)
                return


class LogSink(Protocol):
    """Output of the audit log writer."""

    def prepare_write(self, size: int) -> None: ...

    def write(self, data: memoryview) -> int: ...

    def end_write(self) -> None: ...

    def close(self) -> None: ...


class TeeSink:
    """A sink that also adds each written line to the report queue."""

    def __init__(self, sink: LogSink, reports: ReportQueue) -> None:
        self._sink = sink
        self._reports = reports
        self._partial_line = b""

    def prepare_write(self, size: int) -> None:
        self._sink.prepare_write(size)

    def write(self, data: memoryview) -> int:
        count = self._sink.write(data)
        *lines, self._partial_line = (self._partial_line + bytes(data[:count])).split(b"\n")
        for line in lines:
            if line:
                self._reports.add(line)
        return count

    def end_write(self) -> None:
        self._sink.end_write()

    def close(self) -> None:
        self._sink.close()
