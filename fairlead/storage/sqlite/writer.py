"""The one thread that writes. All that waits when it turns around becomes one transaction: one wait for the disk.

Called by SqliteStore, which puts jobs on its queue from the event loop: all those of one turn of the loop in one piece,
because each hand-over wakes the thread, and a thread that wakes fights the loop for the interpreter's lock. It answers
by `call_soon_threadsafe`, once per transaction: the loop publishes the events and only then resolves the callers'
futures.

Only this thread of this process writes (the file is locked), so the newest row of every key is kept in a dict and a
commit is judged without asking the database.

Every statement gives up the interpreter's lock and has to win it back from the event loop's thread. So a group is
inserted with as few statements as possible, many rows each, and while the loop is busy the lock must change hands more
often than Python's 5 ms: a loop that looks for I/O every millisecond takes it back each time before a waiting thread
wakes up, and a waiting thread only insists once the interval has passed undisturbed. Measured, that is the difference
between thousands of commits per second and a few hundred.

Compaction comes in small steps between the groups, so that no commit ever waits for more than one of them.
"""

import asyncio
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from fairlead.storage.commit import Prepared, find_conflict
from fairlead.storage.contract import Event, StorageError, Unavailable
from fairlead.storage.sqlite.database import (
    SEQUENCE_BITS,
    SET_COMPACTED,
    Database,
    explain,
    first_id,
    last_id,
    transaction,
)

GROUP_COMMITS = 512
ROWS_PER_INSERT = 64
COLUMNS = 4
INSERTS = [
    "INSERT INTO log (id, key, value, previous) VALUES " + ", ".join(["(?, ?, ?, ?)"] * rows)
    for rows in range(ROWS_PER_INSERT + 1)
]

SWEEP_ROWS = 500
SWEEP_END = "SELECT max(id) FROM (SELECT id FROM log WHERE id > ? AND id <= ? ORDER BY id LIMIT ?)"
# Every row says which one it supersedes, so only history is looked through, never the rows that stay.
SWEEP_SUPERSEDED = "DELETE FROM log WHERE id IN (SELECT previous FROM log WHERE id > ? AND id <= ? AND previous <> 0)"
SWEEP_DELETIONS = "DELETE FROM log WHERE id > ? AND id <= ? AND value IS NULL"

SET_SWEPT = "UPDATE meta SET value = ? WHERE name = 'swept'"
PROBE = "INSERT INTO meta VALUES ('probe', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"

SWITCH_SECONDS = 0.0001

VACUUM_PAGES = 256
SPARE_PAGES = 1024
"""Free pages that are kept for what is written next. Beyond these and a quarter of the file, space is given back."""

Answer = int | StorageError | None
T = TypeVar("T")


@dataclass(slots=True)
class Commit:
    prepared: Prepared
    done: asyncio.Future[int]


@dataclass(frozen=True, slots=True)
class Compaction:
    before: int
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Probe:
    """Find out whether a write succeeds."""

    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Scrub:
    """Write the file anew, without what was deleted."""

    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Stop:
    """The last job."""


Job = Commit | Compaction | Probe | Scrub | Stop


@dataclass(frozen=True, slots=True)
class Report:
    """What the loop is told in one piece: the commits to publish, the state of history, the futures to settle."""

    answers: Sequence[tuple[asyncio.Future[Any], Answer]] = ()
    commits: Sequence[tuple[int, Sequence[Event]]] = ()
    compacted: int = 0
    stopped: bool = False


class Writer:
    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop, receive: Callable[[Report], None]) -> None:
        self._path = database.path
        self._connection = database.connection
        self._newest = database.newest
        self._revision = database.revision
        self._compacted = database.compacted
        self._swept = database.swept
        self._loop = loop
        self._receive = receive
        self._gathered: list[Job] = []
        self._jobs: SimpleQueue[list[Job]] = SimpleQueue()
        self._compactions: deque[Iterator[None]] = deque()
        self._running = True
        self.failure: str | None = None
        """Why the last attempt to write failed; None while all is well. Set in the thread, read in the loop."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        self._thread = threading.Thread(target=self._run, name="fairlead-write", daemon=True)
        self._thread.start()

    def put(self, job: Job) -> None:
        """Called in the loop's thread; the job goes over when the loop has come around."""
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(job)

    def _hand_over(self) -> None:
        jobs, self._gathered = self._gathered, []
        self._jobs.put(jobs)

    def join(self) -> None:
        """Waits for the thread to be gone, once it has reported that it stopped."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._running:
                self._turn(self._take())
        finally:
            # Also when the thread dies of a bug: its callers must not wait for ever.
            self._tell(Report(stopped=True))

    def _take(self) -> list[Job]:
        """All that waits; at least one job, unless there is a compaction to get on with."""
        jobs = [] if self._compactions else self._jobs.get()
        try:
            while len(jobs) < GROUP_COMMITS:
                jobs += self._jobs.get_nowait()
        except Empty:
            pass
        return jobs

    def _turn(self, jobs: list[Job]) -> None:
        if group := [job for job in jobs if isinstance(job, Commit)]:
            self._commit(group)
        for job in jobs:
            if isinstance(job, Compaction):
                self._compactions.append(self._compact(job))
            elif isinstance(job, Probe):
                self._errand(job.done, lambda connection: connection.execute(PROBE))
            elif isinstance(job, Scrub):
                self._errand(job.done, _scrub)
            elif isinstance(job, Stop):
                self._running = False
        if self._compactions and next(self._compactions[0], self) is self:
            self._compactions.popleft()

    def _commit(self, group: list[Commit]) -> None:
        """Judges the commits one after the other, each on top of those before it, and writes those that hold."""
        batch = Batch(self._newest, self._revision)
        answers: list[tuple[asyncio.Future[int], Answer]] = [(job.done, batch.add(job.prepared)) for job in group]
        try:
            if batch.rows:
                self._write(batch.insert)
        except Unavailable as failure:
            # All of them, the conflicting ones too: they may have met a commit that now has not happened.
            self._tell(Report(answers=[(job.done, Unavailable(*failure.args)) for job in group]))
            return
        batch.settle()
        self._revision = batch.revision
        self._tell(Report(answers=answers, commits=batch.commits))

    def _errand(self, done: "asyncio.Future[None]", work: Callable[[sqlite3.Connection], object]) -> None:
        try:
            self._write(work)
        except Unavailable as failure:
            self._tell(Report(answers=[(done, failure)]))
        else:
            self._tell(Report(answers=[(done, None)]))

    def _compact(self, job: Compaction) -> Iterator[None]:
        """One small transaction for each `next`."""
        answer: Answer = None
        try:
            yield from self._compact_to(job.before)
        except Unavailable as failure:
            answer = failure
        self._tell(Report(answers=[(job.done, answer)]))

    def _compact_to(self, before: int) -> Iterator[None]:
        if before > self._compacted:
            self._write(lambda connection: connection.execute(SET_COMPACTED, (before,)))
            self._compacted = before
            # Told before the first row goes: whoever then misses one in an old state also knows that it was too old.
            self._tell(Report(compacted=before))
            yield
        while self._swept < last_id(self._compacted):
            self._swept = self._write(self._sweep)
            yield
        while self._write(_give_back_space):
            yield

    def _sweep(self, connection: sqlite3.Connection) -> int:
        """Deletes what the next few rows of history supersede, and returns the id up to which that is now done."""
        start, target = self._swept, last_id(self._compacted)
        (found,) = connection.execute(SWEEP_END, (start, target, SWEEP_ROWS)).fetchone()
        end: int = target if found is None else found
        with transaction(connection):
            connection.execute(SWEEP_SUPERSEDED, (start, end))
            connection.execute(SWEEP_DELETIONS, (start, end))
            connection.execute(SET_SWEPT, (end,))
        return end

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, or Unavailable and nothing written. It makes one statement or one transaction."""
        try:
            result = work(self._connection)
        except sqlite3.Error as error:
            self.failure = explain(self._path, error)
            raise Unavailable(self.failure) from error
        self.failure = None
        return result

    def _tell(self, report: Report) -> None:
        try:
            self._loop.call_soon_threadsafe(self._receive, report)
        except RuntimeError:
            # The loop was closed and the store was not: nobody is left to work for.
            self._running = False


class Batch:
    """The commits of one transaction while it is being put together."""

    __slots__ = ("_newest", "_staged", "commits", "revision", "rows")

    def __init__(self, newest: dict[bytes, int], revision: int) -> None:
        self._newest = newest
        self._staged: dict[bytes, int] = {}
        self.revision = revision
        self.rows: list[int | bytes | None] = []
        """The columns of all rows, one after the other."""
        self.commits: list[tuple[int, Sequence[Event]]] = []

    def add(self, commit: Prepared) -> Answer:
        """The commit's revision, or why it cannot be."""
        if conflict := find_conflict(commit, self._revision_of):
            return conflict
        self.revision += 1
        id = first_id(self.revision)
        for change, packed in zip(commit.changes, commit.changed, strict=True):
            self.rows += (id, packed, change.value, self._id_of(packed))
            self._staged[packed] = 0 if change.value is None else id
            id += 1
        self.commits.append((self.revision, [Event(c.key, c.value, self.revision) for c in commit.changes]))
        return self.revision

    def insert(self, connection: sqlite3.Connection) -> None:
        step = COLUMNS * ROWS_PER_INSERT
        if len(self.rows) <= step:
            # Alone, a statement is a transaction of its own, at a third of the price in handing the lock around.
            connection.execute(INSERTS[len(self.rows) // COLUMNS], self.rows)
            return
        with transaction(connection):
            for start in range(0, len(self.rows), step):
                columns = self.rows[start : start + step]
                connection.execute(INSERTS[len(columns) // COLUMNS], columns)

    def settle(self) -> None:
        """It is on the disk: what was staged is now the newest."""
        for packed, id in self._staged.items():
            if id:
                self._newest[packed] = id
            else:
                self._newest.pop(packed, None)

    def _id_of(self, packed: bytes) -> int:
        id = self._staged.get(packed)
        return self._newest.get(packed, 0) if id is None else id

    def _revision_of(self, packed: bytes) -> int:
        return self._id_of(packed) >> SEQUENCE_BITS


def _scrub(connection: sqlite3.Connection) -> None:
    """Leaves only what is in the tables.

    Overwriting what is deleted (`secure_delete`) is not enough: rows that SQLite has moved from page to page leave
    copies in the unused parts of pages, and the log still has the pages from before.
    """
    connection.execute("VACUUM")
    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise Unavailable(
            "the log of the database cannot be emptied while it is read; close other programs' connections"
        )


def _give_back_space(connection: sqlite3.Connection) -> bool:
    """Shortens the file a little if much of it is free. True if there was something to do."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if free <= SPARE_PAGES + pages // 4:
        return False
    # As a script: execute() would take a single step of this pragma, and each step frees a single page.
    connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
    return True
