"""Searches the audit logs from the newest line backwards, page by page.

A page ends at its limit, or when the request has searched as many bytes as it may; then it can be empty, and
`next_page` continues there. Positions never change, so new events do not shift pages. A request is returned once, with
its latest stage: searching backwards, that is the first line of it. The few requests that were open at the end of a
page are part of the continue token, so that the next page leaves out their earlier stages.

There is no index. One in SQLite was measured with a million events: 144 bytes for each, where the compressed line has
104, and 50 microseconds to add it, four times what writing the event costs. It found rows in a millisecond, but the
lines are still in compressed files; and following the files, adding to it and rebuilding it is more code than this.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b

import orjson

from fairlead.core.clock import micro_timestamp, parse_rfc3339
from fairlead.core.errors import BadRequest
from fairlead.server.audit.log_query import LOG_NAMES, EventQuery, LoggedEvent, parse_line
from fairlead.server.audit.log_segments import (
    FINGERPRINT_BYTES,
    Position,
    ScanBudget,
    SegmentedLog,
    UnreadableFile,
    is_intact,
    iter_lines_backwards,
)
from fairlead.server.audit.policy import COMPLETE

MAX_SCANNED_BYTES = 32 * 1024 * 1024
"""How much of the logs one page searches."""
MAX_LOOKUP_BYTES = 128 * 1024 * 1024
"""How much of each log is searched for one id. Hardly any line is decoded for that, so it is at least twice as much."""
MAX_PAGE_BYTES = 8 * 1024 * 1024
"""The size of the lines of one page."""
MAX_OPEN_REQUESTS = 200
"""How many requests a continue token contains that were open at the end of its page."""
ORDER_TOLERANCE = timedelta(minutes=5)
"""Workers write in turns, and wait for a full disk: lines may be out of order by as much."""
PRUNE_EVERY = 10_000

_OFFSET_BYTES, _ID_BYTES, _SECONDS_BYTES = 6, 6, 5
_POSITION_BYTES = FINGERPRINT_BYTES + _OFFSET_BYTES
_NO_SEGMENT = bytes(FINGERPRINT_BYTES)

Positions = tuple[Position, ...]
"""A position in each log."""


def encode_positions(positions: Positions) -> str:
    """The positions as a resourceVersion."""
    packed = b"".join((each.segment or _NO_SEGMENT) + each.offset.to_bytes(_OFFSET_BYTES, "big") for each in positions)
    return base64.urlsafe_b64encode(packed).decode()


def decode_positions(text: str) -> Positions | None:
    """None if the text is not a value that `encode_positions` has returned."""
    try:
        packed = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(packed) != len(LOG_NAMES) * _POSITION_BYTES:
        return None
    return tuple(
        _decode_position(packed[start : start + _POSITION_BYTES]) for start in range(0, len(packed), _POSITION_BYTES)
    )


def _decode_position(packed: bytes) -> Position:
    segment, offset = packed[:FINGERPRINT_BYTES], int.from_bytes(packed[FINGERPRINT_BYTES:], "big")
    return Position() if segment == _NO_SEGMENT else Position(segment, offset)


@dataclass(frozen=True, slots=True)
class PageStart:
    """Where a page starts: the end of the log when the first page was read, the position in each log, and the requests
    that were open there, with the second in which they were received."""

    snapshot: Positions
    positions: Positions
    open_requests: dict[bytes, int] = field(default_factory=dict)

    def encode(self) -> str:
        packed = b"".join(key + second.to_bytes(_SECONDS_BYTES, "big") for key, second in self.open_requests.items())
        open_requests = base64.urlsafe_b64encode(packed).decode()
        document = [encode_positions(self.snapshot), encode_positions(self.positions), open_requests]
        return base64.urlsafe_b64encode(orjson.dumps(document)).decode()


def parse_continue_token(token: str) -> PageStart:
    try:
        document = orjson.loads(base64.b64decode(token.encode(), altchars=b"-_", validate=True))
        snapshot, positions, packed = document
        found = decode_positions(snapshot), decode_positions(positions)
        requests = base64.b64decode(packed.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError, TypeError, AttributeError):
        found, requests = (None, None), b""
    size = _ID_BYTES + _SECONDS_BYTES
    if found[0] is None or found[1] is None or len(requests) > size * MAX_OPEN_REQUESTS or len(requests) % size:
        raise BadRequest("invalid continue token: pass metadata.continue of the previous page unchanged")
    entries = [requests[start : start + size] for start in range(0, len(requests), size)]
    open_requests = {entry[:_ID_BYTES]: int.from_bytes(entry[_ID_BYTES:], "big") for entry in entries}
    return PageStart(found[0], found[1], open_requests)


@dataclass(slots=True)
class Page:
    """The lines found, newest first. `next_page` is None after the last page. `unreadable` lines were skipped."""

    snapshot: Positions
    lines: list[bytes] = field(default_factory=list)
    next_page: PageStart | None = None
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class _Head:
    """The next line of one log."""

    event: LoggedEvent
    line: bytes
    position: Position


class _LogScan:
    """The lines of one log, backwards. `position` is before the last one that was taken."""

    def __init__(self, search: "_Search", log: int, start: Position) -> None:
        self._search = search
        self._log = log
        self.position = start
        self.is_exhausted = False
        """There are no further lines. Otherwise, the budget was spent."""
        self._lines = self._iter_lines(start)

    def next_head(self) -> _Head | None:
        search = self._search
        for position, line in self._lines:
            event = parse_line(line) if line is not None else None
            if line is None or event is None:
                search.page.unreadable += bool(line is None or line.strip())
                self.position = position
                continue
            if search.is_before_range(event, self._log):
                self.is_exhausted = True
                return None
            return _Head(event, line, position)
        return None

    def _iter_lines(self, start: Position) -> Iterator[tuple[Position, bytes | None]]:
        search, log, budget, needle = self._search, self._log, self._search.budget, self._search.query.needle
        if not start.segment:
            self.is_exhausted = True
            return
        has_read = False
        for segment, older in search.logs[log].iter_segments_from(start):
            if has_read and budget.is_spent():  # each page gets further in each log
                return
            if search.is_file_before_range(segment.rotated_at):
                break
            if log != AGENTS_LOG and search.is_file_after_range(older.rotated_at if older is not None else None):
                continue
            try:
                with search.logs[log].open(segment, budget) as reader:
                    end = start.offset if segment.fingerprint == start.segment else reader.size
                    offset = end
                    for offset, line in iter_lines_backwards(reader, min(end, reader.size), budget, needle):
                        has_read = True
                        if line is not None and needle not in line and is_intact(line):
                            self.position = Position(segment.fingerprint, offset)
                            continue
                        yield Position(segment.fingerprint, offset), line
                    if offset > 0 and budget.is_spent():
                        return
            except UnreadableFile:
                search.page.unreadable += 1
        self.is_exhausted = True


AGENTS_LOG = LOG_NAMES.index("agents")
"""Agents report events later, so this log is not in the order of time."""


class _Search:
    """One page."""

    def __init__(self, logs: Sequence[SegmentedLog], start: PageStart, query: EventQuery, max_bytes: int) -> None:
        self.logs = logs
        self.query = query
        self.budget = ScanBudget(max_bytes)
        self.page = Page(start.snapshot)
        self._start = start
        self._carried = dict(start.open_requests)
        self._received: dict[str, str] = {}
        self._since = parse_rfc3339(query.since)
        self._until = parse_rfc3339(query.until)
        self._stop_before = micro_timestamp(self._since - ORDER_TOLERANCE) if self._since is not None else ""

    def is_before_range(self, event: LoggedEvent, log: int) -> bool:
        """Whether all older lines of the log are before the range, too."""
        return log != AGENTS_LOG and event.stageTimestamp < self._stop_before

    def is_file_before_range(self, rotated_at: datetime | None) -> bool:
        """Whether a file was rotated before the range: its events are even older."""
        return self._since is not None and rotated_at is not None and rotated_at < self._since

    def is_file_after_range(self, older_rotated_at: datetime | None) -> bool:
        """Whether a file was begun after the range, when the next older one was rotated."""
        if self._until is None or older_rotated_at is None:
            return False
        return older_rotated_at > self._until + ORDER_TOLERANCE

    def run(self, limit: int) -> Page:
        scans = {log: _LogScan(self, log, self._start.positions[log]) for log in self.query.logs}
        heads: dict[int, _Head] = {}
        size, count, last = 0, 0, ""
        while _find_heads(scans, heads) and len(self.page.lines) < limit and size < MAX_PAGE_BYTES:
            log, head = max(heads.items(), key=lambda entry: entry[1].event.stageTimestamp)
            scan, last = scans[log], head.event.stageTimestamp
            scan.position = head.position
            if self._is_latest_stage(head.event) and self.query.matches(head.event, log):
                self.page.lines.append(head.line)
                size += len(head.line)
            count += 1
            if count % PRUNE_EVERY == 0:
                self._forget_received_after(last)
            del heads[log]
            if self.query.needle and len(self.page.lines) >= limit:
                break  # the next line with it may be far away
        if heads or any(not scan.is_exhausted for scan in scans.values()):
            self.page.next_page = self._next_start(scans, last)
        return self.page

    def _is_latest_stage(self, event: LoggedEvent) -> bool:
        """Whether there is no later line of the same request. Notes the request for earlier lines."""
        audit_id = event.auditID
        if not audit_id:
            return True
        if event.stage != COMPLETE and (audit_id in self._received or _request_key(audit_id) in self._carried):
            return False
        self._received[audit_id] = event.requestReceivedTimestamp
        return True

    def _forget_received_after(self, moment: str) -> None:
        """Forgets the requests that were received later: they have no lines before."""
        self._received = {name: received for name, received in self._received.items() if received <= moment}

    def _next_start(self, scans: dict[int, _LogScan], last: str) -> PageStart:
        positions = tuple(
            scans[log].position if log in scans else position for log, position in enumerate(self._start.positions)
        )
        end = _seconds(last)
        if not last:
            return PageStart(self._start.snapshot, positions, self._start.open_requests)
        self._forget_received_after(last)
        found = {_request_key(name): _seconds(received) for name, received in self._received.items()}
        still_open = {key: second for key, second in (self._carried | found).items() if second <= end}
        oldest = sorted(still_open.items(), key=lambda entry: entry[1])[:MAX_OPEN_REQUESTS]
        return PageStart(self._start.snapshot, positions, dict(oldest))


def _find_heads(scans: Mapping[int, _LogScan], heads: dict[int, _Head]) -> bool:
    """Adds the next line of each log. False if there is none, or if the budget was spent before one was found: then it
    is not known which log has the newest."""
    for log, scan in scans.items():
        if log in heads or scan.is_exhausted:
            continue
        head = scan.next_head()
        if head is not None:
            heads[log] = head
        elif not scan.is_exhausted:
            return False
    return bool(heads)


def _request_key(audit_id: str) -> bytes:
    return blake2b(audit_id.encode(), digest_size=_ID_BYTES).digest()


def _seconds(timestamp: str) -> int:
    moment = parse_rfc3339(timestamp)
    return max(int(moment.timestamp()), 0) if moment is not None else 0


def search_page(logs: Sequence[SegmentedLog], start: PageStart | None, query: EventQuery, limit: int) -> Page:
    """One page of events. Without a start, the first one."""
    if start is None:
        snapshot = tuple(log.end() for log in logs)
        start = PageStart(snapshot, snapshot)
    return _Search(logs, start, query, MAX_SCANNED_BYTES).run(limit)


def find_request(logs: Sequence[SegmentedLog], query: EventQuery) -> tuple[Page, bool]:
    """The latest line of one request, and whether all lines were searched."""
    snapshot = tuple(log.end() for log in logs)
    is_complete, page = True, Page(snapshot)
    for log in query.logs:
        only = tuple(end if index == log else Position() for index, end in enumerate(snapshot))
        page = _Search(logs, PageStart(snapshot, only), query, MAX_LOOKUP_BYTES).run(1)
        if page.lines:
            return page, True
        is_complete = is_complete and page.next_page is None
    return page, is_complete
