"""SqliteStore: implements the contract with one SQLite file, on the event loop.

Reads go to the reader threads, writes to the writer's queue, watches to the `WatchFeed`. The writer's reports arrive
in `_on_report`, on the loop and in order: first the events are published, then the callers' futures are resolved.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fairlead.storage.commit import prepare
from fairlead.storage.contract import (
    FIRST_REVISION,
    Change,
    Check,
    Compacted,
    Event,
    Key,
    Page,
    Record,
    StorageError,
    Unavailable,
)
from fairlead.storage.sqlite.database import SEQUENCE_BITS, Database, open_database
from fairlead.storage.sqlite.reader import Readers, read_record, replay_events, scan_records
from fairlead.storage.sqlite.writer import Answer, Commit, Compaction, Probe, Report, Scrub, Stop, Writer
from fairlead.storage.watch_feed import Feed

CLOSED = "the store is closed"
DIED = "the store has stopped after an internal error; see the log and restart the server"

T = TypeVar("T")


class SqliteStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._feed = Feed(database.revision, database.compacted, self._replay)
        self._waiting: set[asyncio.Future[Any]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._readers = Readers(database.path)
        self._writer = Writer(database, self._loop, self._receive)

    @classmethod
    async def open(cls, path: str | Path, first: int = FIRST_REVISION) -> "SqliteStore":
        """Open or create the file. Its revision is then at least `first`; raising it discards the history.

        Raises StoreUnavailable with advice.
        """
        return cls(await asyncio.to_thread(open_database, Path(path), first))

    async def read(self, key: Key) -> Record | None:
        _, record = await self._ask_now(lambda at, connection: read_record(connection, key, at))
        return record

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        def query(at: int, connection: sqlite3.Connection) -> tuple[list[Record], bool]:
            return scan_records(connection, prefix, after, limit, at)

        if at is None:
            at, (records, more) = await self._ask_now(query)
        else:
            at = min(at, self._feed.revision)
            self._refuse_compacted(at)
            records, more = await self._ask(partial(query, at))
            # Check again: a compaction may have deleted rows during the query.
            self._refuse_compacted(at)
        return Page(records, at, more)

    async def commit(self, changes: Sequence[Change], checks: Sequence[Check] = ()) -> int:
        commit = prepare(changes, checks)
        if len(changes) >> SEQUENCE_BITS:
            raise ValueError(f"a commit must have fewer than {1 << SEQUENCE_BITS:,} writes; split it")
        done: asyncio.Future[int] = self._expect()
        self._writer.put(Commit(commit, done))
        return await done

    def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        return self._feed.follow(prefix, since)

    async def revision(self) -> int:
        return self._feed.revision

    def known_revision(self) -> int:
        return self._feed.revision

    async def oldest(self) -> int:
        return self._feed.oldest

    async def compact(self, before: int) -> None:
        done: asyncio.Future[None] = self._expect()
        self._writer.put(Compaction(min(before, self._feed.revision), done))
        await done

    async def scrub(self) -> None:
        done: asyncio.Future[None] = self._expect()
        self._writer.put(Scrub(done))
        await done

    async def check(self) -> None:
        self._refuse_closed()
        if self._writer.failure is not None:
            done: asyncio.Future[None] = self._expect()
            self._writer.put(Probe(done))
            await done

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close the store")
        # Shielded: a cancelled caller must not cancel the close for the others.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._writer.put(Stop())
        await self._stopped.wait()
        self._feed.close()
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        self._writer.join()
        # The last connection to close checkpoints and removes the WAL, so close the writer's last.
        self._readers.close()
        self._database.connection.close()
        os.close(self._database.lock)

    def _receive(self, report: Report) -> None:
        """Handle a report of the writer, on the event loop."""
        self._feed.compacted(report.compacted)
        for revision, events in report.commits:
            self._feed.publish(revision, events)
        for done, answer in report.answers:
            self._settle(done, answer)
        if report.stopped:
            self._stopped.set()
            for done in list(self._waiting):
                self._settle(done, Unavailable(CLOSED if self._closing else DIED))

    def _expect(self) -> "asyncio.Future[Any]":
        self._refuse_closed()
        done: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(done)
        return done

    def _settle(self, done: "asyncio.Future[Any]", answer: Answer) -> None:
        self._waiting.discard(done)
        if done.done():
            return  # the caller was cancelled
        if isinstance(answer, StorageError):
            done.set_exception(answer)
        else:
            done.set_result(answer)

    async def _ask(self, query: Callable[[sqlite3.Connection], T]) -> T:
        self._refuse_closed()
        return await self._readers.ask(query)

    async def _ask_now(self, query: Callable[[int, sqlite3.Connection], T]) -> tuple[int, T]:
        """The result at the newest published revision, and that revision."""
        while True:
            at = self._feed.revision
            answer = await self._ask(partial(query, at))
            if at >= self._feed.oldest:
                return at, answer
            # Compacted past `at` during the query, which may have missed rows. Retry at the current revision.

    async def _replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        # Also allowed while closing: the feed is closed before the readers and starts no replays after that.
        return await self._readers.ask(lambda connection: replay_events(connection, prefix, since, upto))

    def _refuse_compacted(self, at: int) -> None:
        if at < self._feed.oldest:
            raise Compacted(at, self._feed.oldest)

    def _refuse_closed(self) -> None:
        if self._closing is not None:
            raise Unavailable(CLOSED)
        if self._stopped.is_set():
            raise Unavailable(DIED)
