"""Reads the audit log for requests: pages, single events, and watches that follow the files.

The work is done in a pool of two threads, so there are never more searches at once; others wait, fairly by user. One
task follows the files for all watches of this process, as long as there are any. All workers of a server write to the
same files, so each of them sees all events.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass

import structlog

from fairlead.core.concurrency import WorkerPool
from fairlead.core.errors import Details, Expired, MethodNotAllowed, TooManyRequests
from fairlead.server.audit.log_query import EventQuery, LoggedEvent, parse_line
from fairlead.server.audit.log_search import (
    MAX_LOOKUP_BYTES,
    MAX_SCANNED_BYTES,
    Page,
    PageStart,
    Positions,
    encode_positions,
    find_request,
    search_page,
)
from fairlead.server.audit.log_segments import Position, SegmentedLog, read_lines

POOL = WorkerPool("audit-reader", 2)
POLL_SECONDS = 0.25
MAX_FOLLOW_BYTES = 1024 * 1024
"""How much of each log is read in one step."""
MAX_CATCH_UP_BYTES = 64 * 1024 * 1024
"""How far a watch may start before the end of the log."""
MAX_WATCHES, MAX_OWN_WATCHES, MAX_WATCHES_PER_USER = 32, 24, 4
"""In all; of users who see only their own requests; and of each of these. So auditors find a place."""
MAX_QUEUED_EVENTS, MAX_QUEUED_BYTES = 2_000, 4 * 1024 * 1024
"""What waits for a slow client. Beyond that, its watch ends."""
RETRY_AFTER_SECONDS = 5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FollowedLine:
    """A line that a watch sends. `version` is the resourceVersion after it."""

    event: LoggedEvent
    line: bytes
    version: str


@dataclass(frozen=True, slots=True)
class _Batch:
    """New lines with the log of each, in the order of time, and the positions after them."""

    lines: Sequence[tuple[int, LoggedEvent, bytes, str]]
    positions: Positions
    byte_count: int

    def select(self, query: EventQuery) -> list[FollowedLine]:
        return [
            FollowedLine(event, line, version)
            for log, event, line, version in self.lines
            if log in query.logs and query.matches(event, log)
        ]


class Subscription:
    """The events of one watch, in a bounded queue."""

    def __init__(self, query: EventQuery) -> None:
        self.query = query
        self._lines: deque[FollowedLine] = deque()
        self._bytes = 0
        self._ready = asyncio.Event()
        self._has_missed_events = False
        self.is_ended = False

    def add(self, lines: Sequence[FollowedLine]) -> None:
        if self._has_missed_events or not lines:
            return
        self._lines.extend(lines)
        self._bytes += sum(len(each.line) for each in lines)
        if len(self._lines) > MAX_QUEUED_EVENTS or self._bytes > MAX_QUEUED_BYTES:
            self.expire()
        self._ready.set()

    def expire(self) -> None:
        """Ends the watch with an error, because it has missed events."""
        self._has_missed_events = True
        self._lines.clear()
        self._ready.set()

    def end(self) -> None:
        self.is_ended = True
        self._ready.set()

    async def wait(self, seconds: float) -> list[FollowedLine]:
        """The new lines; none after so many seconds, or at the end."""
        if not self._lines and not self.is_ended:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ready.wait(), seconds)
        self._ready.clear()
        if self._has_missed_events:
            raise Expired(
                "this watch has missed events of the audit log: it could not keep up, or files were removed; "
                "list again and watch from there"
            )
        lines, self._bytes = list(self._lines), 0
        self._lines.clear()
        return lines


class AuditLogReader:
    """`logs` are in the order of `LOG_NAMES`. Without any, the server has no audit log files."""

    def __init__(self, logs: Sequence[SegmentedLog]) -> None:
        self._logs = logs
        self._subscriptions: set[Subscription] = set()
        self._positions: Positions = ()
        self._task: asyncio.Task[None] | None = None
        self._start_lock = asyncio.Lock()
        self._is_stopped = False

    async def search(self, start: PageStart | None, query: EventQuery, limit: int) -> Page:
        self._require_files()
        return await POOL.run(MAX_SCANNED_BYTES, search_page, self._logs, start, query, limit)

    async def find(self, query: EventQuery) -> tuple[Page, bool]:
        """The latest line of one request, and whether all files were searched."""
        self._require_files()
        return await POOL.run(MAX_LOOKUP_BYTES, find_request, self._logs, query)

    def _require_files(self) -> None:
        if not self._logs:
            raise MethodNotAllowed(
                "this server has no audit log files to read: set audit_path to the path of a file (docs: audit.md)"
            )

    def require_room(self, query: EventQuery) -> None:
        """Raises TooManyRequests if there may not be another watch with this query."""
        self._require_files()
        limits = [(len(self._subscriptions), MAX_WATCHES)]
        if query.own is not None:
            owners = [each.query.own for each in self._subscriptions if each.query.own is not None]
            limits += [(len(owners), MAX_OWN_WATCHES), (owners.count(query.own), MAX_WATCHES_PER_USER)]
        for count, limit in limits:
            if count >= limit:
                message = f"{limit} watches of the audit log are open, which is the limit; try again later"
                raise TooManyRequests(message, Details(retry_after=RETRY_AFTER_SECONDS))

    @asynccontextmanager
    async def subscribe(self, query: EventQuery) -> AsyncIterator[tuple[Subscription, Positions]]:
        """The events from now on, and where that is."""
        self.require_room(query)
        subscription = Subscription(query)
        if self._is_stopped:
            subscription.end()
        async with self._start_lock:
            if not self._positions:
                self._positions = await POOL.run(MAX_FOLLOW_BYTES, self._end_positions)
            start = self._positions
            self._subscriptions.add(subscription)
            if self._task is None:  # it reads for all watches, so it is not charged to the user of this one
                self._task = asyncio.get_running_loop().create_task(self._follow(), context=Context())
        try:
            yield subscription, start
        finally:
            self._subscriptions.discard(subscription)

    async def catch_up(self, query: EventQuery, start: Positions, end: Positions) -> AsyncIterator[list[FollowedLine]]:
        """The lines between two positions. Raises Expired if they are too far apart, or a file was removed."""
        positions, total = start, 0
        while positions != end:
            batch = await POOL.run(MAX_FOLLOW_BYTES, self._read_batch, positions, end)
            if batch.positions == positions:
                return
            positions, total = batch.positions, total + batch.byte_count
            if total > MAX_CATCH_UP_BYTES:
                raise Expired("this resourceVersion is too old for a watch; list again and watch from there")
            yield batch.select(query)

    def end_watches(self) -> None:
        """For shutdown: ends all watches regularly."""
        self._is_stopped = True
        for subscription in self._subscriptions:
            subscription.end()

    async def _follow(self) -> None:
        """Distributes new lines, as long as there are watches."""
        try:
            while self._subscriptions and not self._is_stopped:
                await self._follow_step()
        except Exception:  # the watches must not wait forever
            log.exception("following the audit log failed")
            for subscription in self._subscriptions:
                subscription.end()
        finally:
            self._task, self._positions = None, ()

    async def _follow_step(self) -> None:
        watched = list(self._subscriptions)
        try:
            batch, selected = await POOL.run(MAX_FOLLOW_BYTES, self._read_selected, [each.query for each in watched])
        except Expired:  # the files were removed, perhaps with events that no watch has got
            for subscription in self._subscriptions:
                subscription.expire()
            self._positions = await POOL.run(MAX_FOLLOW_BYTES, self._end_positions)
            return
        # Watches that were added in the meantime start here, so they get these lines, too.
        for subscription in self._subscriptions - set(watched):
            subscription.add(batch.select(subscription.query))
        for subscription, lines in zip(watched, selected, strict=True):
            subscription.add(lines)
        self._positions = batch.positions
        if not batch.byte_count:
            await asyncio.sleep(POLL_SECONDS)

    def _end_positions(self) -> Positions:
        return tuple(log.end() for log in self._logs)

    def _read_selected(self, queries: Sequence[EventQuery]) -> tuple[_Batch, list[list[FollowedLine]]]:
        batch = self._read_batch(self._positions, None)
        return batch, [batch.select(query) for query in queries]

    def _read_batch(self, start: Positions, stop: Positions | None) -> _Batch:
        found, ends, byte_count = [], [], 0
        for index, each in enumerate(self._logs):
            lines: list[tuple[Position, bytes]] = []
            end = start[index]
            if stop is None or end != stop[index]:
                lines, end = read_lines(each, start[index], stop[index] if stop is not None else None, MAX_FOLLOW_BYTES)
            found.append(_parse_lines(index, lines))
            ends.append(end)
            byte_count += sum(len(line) + 1 for _, line in lines)
        merged = heapq.merge(*found, key=lambda entry: entry[2].stageTimestamp)
        return _Batch(_with_versions(merged, start), tuple(ends), byte_count)


_ParsedLine = tuple[int, Position, LoggedEvent, bytes]


def _parse_lines(index: int, lines: Sequence[tuple[Position, bytes]]) -> list[_ParsedLine]:
    parsed = ((position, parse_line(line), line) for position, line in lines)
    return [(index, position, event, line) for position, event, line in parsed if event is not None]


def _with_versions(merged: Iterable[_ParsedLine], start: Positions) -> list[tuple[int, LoggedEvent, bytes, str]]:
    positions, found = list(start), []
    for index, position, event, line in merged:
        positions[index] = position
        found.append((index, event, line, encode_positions(tuple(positions))))
    return found
