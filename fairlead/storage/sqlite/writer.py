"""The writer thread, which combines all pending commits into one transaction with one fsync (group commit).

SqliteStore submits jobs from the event loop. The jobs of one loop iteration are passed on together, because each
hand-over wakes the thread, which then competes with the loop for the GIL. Results come back through
`call_soon_threadsafe`, once per transaction: the loop publishes the events and then resolves the callers' futures.

Only this thread of this process writes (the file is locked), so the newest row id of every key is kept in a dict and
conflicts are detected without a query.

Every SQL statement releases the GIL and has to get it back from the event loop's thread. So a group is inserted with
as few statements as possible, many rows each. With Python's default switch interval of 5 ms, a busy loop that polls
for I/O every millisecond takes the GIL back each time before this thread wakes up. A shorter interval makes the
difference between thousands of commits per second and a few hundred.

Compaction runs in small steps between the groups, so that a commit waits for at most one of them.
"""

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from msgspec import Struct

from fairlead.core.thread_activity import track_thread
from fairlead.storage.commit import PreparedCommit, find_conflict
from fairlead.storage.contract import Event, StorageError, StoreUnavailable
from fairlead.storage.sqlite.database import (
    SEQUENCE_BITS,
    SET_COMPACTED,
    Database,
    explain_error,
    first_id,
    last_id,
    transaction,
)

MAX_GROUP_COMMITS = 512
ROWS_PER_INSERT = 64
COLUMNS = 4
INSERTS = [
    "INSERT INTO log (id, key, value, previous) VALUES " + ", ".join(["(?, ?, ?, ?)"] * rows)
    for rows in range(ROWS_PER_INSERT + 1)
]

SWEEP_ROWS = 500
SWEEP_END = "SELECT max(id) FROM (SELECT id FROM log WHERE id > ? AND id <= ? ORDER BY id LIMIT ?)"
# Every row references the one it supersedes, so only new history is scanned, never the rows that stay.
SWEEP_SUPERSEDED = "DELETE FROM log WHERE id IN (SELECT previous FROM log WHERE id > ? AND id <= ? AND previous <> 0)"
SWEEP_DELETIONS = "DELETE FROM log WHERE id > ? AND id <= ? AND value IS NULL"

SET_SWEPT = "UPDATE meta SET value = ? WHERE name = 'swept'"
PROBE = "INSERT INTO meta VALUES ('probe', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"

VACUUM_PAGES = 256
MIN_FREE_PAGES = 1024
"""Free pages to keep for new data. Above this and a quarter of the file, space is returned to the file system."""

JobResult = int | StorageError | None
T = TypeVar("T")


class CommitJob(Struct, frozen=True):
    prepared: PreparedCommit
    done: asyncio.Future[int]


@dataclass(frozen=True, slots=True)
class CompactionJob:
    before: int
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class ProbeJob:
    """Try whether a write succeeds."""

    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class PurgeJob:
    """Rewrite the file without deleted data."""

    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class StopJob:
    """Stop the thread after this job."""


Job = CommitJob | CompactionJob | ProbeJob | PurgeJob | StopJob


class WriterReport(Struct, frozen=True):
    """What the thread reports to the event loop: commits to publish, the compacted revision, futures to resolve."""

    results: Sequence[tuple[asyncio.Future[Any], JobResult]] = ()
    commits: Sequence[tuple[int, Sequence[Event]]] = ()
    compacted: int = 0
    is_stopped: bool = False


class SqliteWriter:
    def __init__(
        self, database: Database, loop: asyncio.AbstractEventLoop, receive: Callable[[WriterReport], None]
    ) -> None:
        self._path = database.path
        self._connection = database.connection
        self._newest_ids = database.newest_ids
        self._revision = database.revision
        self._compacted = database.compacted
        self._swept = database.swept
        self._loop = loop
        self._receive = receive
        self._pending: list[Job] = []
        self._jobs: SimpleQueue[list[Job]] = SimpleQueue()
        self._compactions: deque[Iterator[None]] = deque()
        self._running = True
        self.failure: str | None = None
        """Why the last write failed; None if it succeeded. Set by the thread, read by the loop."""
        self._thread = threading.Thread(target=self._run, name="fairlead-write", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Submit a job from the event loop. It is passed to the thread at the end of the loop iteration."""
        if not self._pending:
            self._loop.call_soon(self._flush_pending)
        self._pending.append(job)

    def _flush_pending(self) -> None:
        jobs, self._pending = self._pending, []
        self._jobs.put(jobs)

    def join(self) -> None:
        """Wait for the thread to end, after it has reported that it stopped."""
        self._thread.join()

    def _run(self) -> None:
        activity = track_thread()  # kept as long as the thread runs
        try:
            while self._running:
                self._process(self._next_jobs())
        finally:
            # Also if the thread crashes: callers must not wait forever.
            del activity
            self._report(WriterReport(is_stopped=True))

    def _next_jobs(self) -> list[Job]:
        """All pending jobs; waits for one unless a compaction is in progress."""
        jobs = [] if self._compactions else self._jobs.get()
        try:
            while len(jobs) < MAX_GROUP_COMMITS:
                jobs += self._jobs.get_nowait()
        except Empty:
            pass
        return jobs

    def _process(self, jobs: list[Job]) -> None:
        if group := [job for job in jobs if isinstance(job, CommitJob)]:
            self._commit(group)
        for job in jobs:
            if isinstance(job, CompactionJob):
                self._compactions.append(self._compact(job))
            elif isinstance(job, ProbeJob):
                self._run_maintenance(job.done, lambda connection: connection.execute(PROBE))
            elif isinstance(job, PurgeJob):
                self._run_maintenance(job.done, _purge_deleted)
            elif isinstance(job, StopJob):
                self._running = False
        if self._compactions and next(self._compactions[0], self) is self:
            self._compactions.popleft()

    def _commit(self, group: list[CommitJob]) -> None:
        """Check each commit on top of the previous ones, and write those without conflict."""
        batch = CommitBatch(self._newest_ids, self._revision)
        answers: list[tuple[asyncio.Future[int], JobResult]] = [(job.done, batch.add(job.prepared)) for job in group]
        try:
            if batch.rows:
                self._write(batch.insert)
        except StoreUnavailable as failure:
            # Fail the conflicting ones as well: they may conflict with a commit that was not written.
            self._report(WriterReport(results=[(job.done, StoreUnavailable(*failure.args)) for job in group]))
            return
        batch.update_newest_ids()
        self._revision = batch.revision
        self._report(WriterReport(results=answers, commits=batch.commits))

    def _run_maintenance(self, done: "asyncio.Future[None]", work: Callable[[sqlite3.Connection], object]) -> None:
        try:
            self._write(work)
        except StoreUnavailable as failure:
            self._report(WriterReport(results=[(done, failure)]))
        else:
            self._report(WriterReport(results=[(done, None)]))

    def _compact(self, job: CompactionJob) -> Iterator[None]:
        """A generator that runs one small transaction per step."""
        answer: JobResult = None
        try:
            yield from self._compact_to(job.before)
        except StoreUnavailable as failure:
            answer = failure
        self._report(WriterReport(results=[(job.done, answer)]))

    def _compact_to(self, before: int) -> Iterator[None]:
        if before > self._compacted:
            self._write(lambda connection: connection.execute(SET_COMPACTED, (before,)))
            self._compacted = before
            # Reported before the first row is deleted, so that a reader that misses one knows its revision was
            # compacted.
            self._report(WriterReport(compacted=before))
            yield
        while self._swept < last_id(self._compacted):
            self._swept = self._write(self._sweep)
            yield
        while self._write(_vacuum_step):
            yield

    def _sweep(self, connection: sqlite3.Connection) -> int:
        """Delete the rows that the next rows of history supersede. Returns the id up to which this is done."""
        start, target = self._swept, last_id(self._compacted)
        (found,) = connection.execute(SWEEP_END, (start, target, SWEEP_ROWS)).fetchone()
        end: int = target if found is None else found
        with transaction(connection):
            connection.execute(SWEEP_SUPERSEDED, (start, end))
            connection.execute(SWEEP_DELETIONS, (start, end))
            connection.execute(SET_SWEPT, (end,))
        return end

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run one statement or one transaction; raises StoreUnavailable if nothing was written."""
        try:
            result = work(self._connection)
        except sqlite3.Error as error:
            self.failure = explain_error(self._path, error)
            raise StoreUnavailable(self.failure) from error
        self.failure = None
        return result

    def _report(self, report: WriterReport) -> None:
        try:
            self._loop.call_soon_threadsafe(self._receive, report)
        except RuntimeError:
            # The loop was closed before the store, so there are no callers left.
            self._running = False


class CommitBatch:
    """The commits of one transaction."""

    __slots__ = ("_newest_ids", "_staged", "commits", "revision", "rows")

    def __init__(self, newest: dict[bytes, int], revision: int) -> None:
        self._newest_ids = newest
        self._staged: dict[bytes, int] = {}
        self.revision = revision
        self.rows: list[int | bytes | None] = []
        """The columns of all rows, concatenated."""
        self.commits: list[tuple[int, Sequence[Event]]] = []

    def add(self, commit: PreparedCommit) -> JobResult:
        """The commit's revision, or its conflict."""
        if conflict := find_conflict(commit, self._revision_of):
            return conflict
        self.revision += 1
        id = first_id(self.revision)
        for change, packed in zip(commit.writes, commit.write_keys, strict=True):
            self.rows += (id, packed, change.value, self._id_of(packed))
            self._staged[packed] = 0 if change.value is None else id
            id += 1
        self.commits.append((self.revision, [Event(c.key, c.value, self.revision) for c in commit.writes]))
        return self.revision

    def insert(self, connection: sqlite3.Connection) -> None:
        step = COLUMNS * ROWS_PER_INSERT
        if len(self.rows) <= step:
            # A single statement is its own transaction and needs a third of the GIL hand-overs.
            connection.execute(INSERTS[len(self.rows) // COLUMNS], self.rows)
            return
        with transaction(connection):
            for start in range(0, len(self.rows), step):
                columns = self.rows[start : start + step]
                connection.execute(INSERTS[len(columns) // COLUMNS], columns)

    def update_newest_ids(self) -> None:
        """Called after the transaction has committed."""
        for packed, id in self._staged.items():
            if id:
                self._newest_ids[packed] = id
            else:
                self._newest_ids.pop(packed, None)

    def _id_of(self, packed: bytes) -> int:
        id = self._staged.get(packed)
        return self._newest_ids.get(packed, 0) if id is None else id

    def _revision_of(self, packed: bytes) -> int:
        return self._id_of(packed) >> SEQUENCE_BITS


def _purge_deleted(connection: sqlite3.Connection) -> None:
    """Rewrite the file so that only current table content remains.

    `secure_delete` is not enough: rows that SQLite has moved between pages leave copies in unused parts of pages, and
    the WAL still contains old pages.
    """
    connection.execute("VACUUM")
    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StoreUnavailable(
            "the WAL of the database cannot be truncated while it is read; close other programs' connections"
        )


def _vacuum_step(connection: sqlite3.Connection) -> bool:
    """Shrink the file by some pages if much of it is free. True if there was something to do."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if free <= MIN_FREE_PAGES + pages // 4:
        return False
    # As a script: execute() would run a single step of this pragma, which frees a single page.
    connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
    return True
