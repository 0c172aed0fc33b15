"""SqliteStore: implements the contract with one SQLite file, on the event loop.

Reads go to the reader threads, writes to the writer's queue, watches to the `WatchFeed`. The writer's reports arrive
in `_on_report`, on the loop and in order: first the events are published, then the callers' futures are resolved.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fairlead.storage.commit import PreparedCommit, prepare_commit, resolve_future
from fairlead.storage.contract import (
    FIRST_REVISION,
    Compacted,
    Event,
    Key,
    Page,
    Precondition,
    Record,
    StoreUnavailable,
    Write,
)
from fairlead.storage.sqlite.database import SEQUENCE_BITS, Database, open_database
from fairlead.storage.sqlite.reader import SqliteReaderPool, read_record, replay_events, scan_records
from fairlead.storage.sqlite.writer import (
    CommitJob,
    CompactionJob,
    ProbeJob,
    PurgeJob,
    SqliteWriter,
    StopJob,
    WriterReport,
)
from fairlead.storage.watch_feed import SingleWriterStore, WatchFeed

CLOSED_MESSAGE = "the store is closed"
STOPPED_MESSAGE = "the store has stopped after an internal error; see the log and restart the server"

T = TypeVar("T")


class SqliteStore(SingleWriterStore):
    def __init__(self, database: Database) -> None:
        super().__init__(WatchFeed(database.revision, database.compacted, self._replay))
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._pending: set[asyncio.Future[Any]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._readers = SqliteReaderPool(database.path)
        self._writer = SqliteWriter(database, self._loop, self._on_report)

    @classmethod
    async def open(cls, path: str | Path, first: int = FIRST_REVISION) -> "SqliteStore":
        """Open or create the file. Its revision is then at least `first`; raising it discards the history.

        Raises StoreUnavailable with advice.
        """
        return cls(await asyncio.to_thread(open_database, Path(path), first))

    async def read(self, key: Key) -> Record | None:
        _, record = await self._query_latest(lambda at, connection: read_record(connection, key, at))
        return record

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        def query(at: int, connection: sqlite3.Connection) -> tuple[list[Record], bool]:
            return scan_records(connection, prefix, after, limit, at)

        if at is None:
            at, (records, more) = await self._query_latest(query)
        else:
            at = min(at, self._feed.revision)
            self._check_not_compacted(at)
            records, more = await self._query(partial(query, at))
            # Check again: a compaction may have deleted rows during the query.
            self._check_not_compacted(at)
        return Page(records, at, more)

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition] = ()) -> int:
        return await self.submit_commit(prepare_commit(writes, preconditions))

    def submit_commit(self, commit: PreparedCommit) -> "asyncio.Future[int]":
        if len(commit.writes) >> SEQUENCE_BITS:
            raise ValueError(f"a commit must have fewer than {1 << SEQUENCE_BITS:,} writes; split it")
        done: asyncio.Future[int] = self._new_result()
        self._writer.submit(CommitJob(commit, done))
        return done

    async def compact(self, before: int) -> None:
        done: asyncio.Future[None] = self._new_result()
        self._writer.submit(CompactionJob(min(before, self._feed.revision), done))
        await done

    async def purge_deleted(self) -> None:
        done: asyncio.Future[None] = self._new_result()
        self._writer.submit(PurgeJob(done))
        await done

    async def check_writable(self) -> None:
        self._check_open()
        if self._writer.failure is not None:
            done: asyncio.Future[None] = self._new_result()
            self._writer.submit(ProbeJob(done))
            await done

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close the store")
        # Shielded: a cancelled caller must not cancel the close for the others.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._writer.submit(StopJob())
        await self._stopped.wait()
        self._feed.close()
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        self._writer.join()
        # The last connection to close checkpoints and removes the WAL, so close the writer's last.
        self._readers.close()
        self._database.connection.close()
        os.close(self._database.lock)

    def _on_report(self, report: WriterReport) -> None:
        """Handle a report of the writer, on the event loop."""
        self._feed.set_oldest(report.compacted)
        for revision, events in report.commits:
            self._feed.publish(revision, events)
        for done, result in report.results:
            self._pending.discard(done)
            resolve_future(done, result)
        if report.is_stopped:
            self._stopped.set()
            for done in self._pending:
                resolve_future(done, StoreUnavailable(CLOSED_MESSAGE if self._closing else STOPPED_MESSAGE))
            self._pending.clear()

    def _new_result(self) -> "asyncio.Future[Any]":
        self._check_open()
        done: asyncio.Future[Any] = self._loop.create_future()
        self._pending.add(done)
        return done

    async def _query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        return await self._readers.run_query(query)

    async def _query_latest(self, query: Callable[[int, sqlite3.Connection], T]) -> tuple[int, T]:
        """The result at the newest published revision, and that revision."""
        while True:
            at = self._feed.revision
            answer = await self._query(partial(query, at))
            if at >= self._feed.oldest:
                return at, answer
            # Compacted past `at` during the query, which may have missed rows. Retry at the current revision.

    async def _replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        # Also allowed while closing: the feed is closed before the readers and starts no replays after that.
        return await self._readers.run_query(lambda connection: replay_events(connection, prefix, since, upto))

    def _check_not_compacted(self, at: int) -> None:
        if at < self._feed.oldest:
            raise Compacted(at, self._feed.oldest)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreUnavailable(CLOSED_MESSAGE)
        if self._stopped.is_set():
            raise StoreUnavailable(STOPPED_MESSAGE)
