"""SqliteStore: the contract over one SQLite file, seen from the event loop.

Opened by `open_store`. Reads go to Readers, writes to the Writer's queue, watches to the Feed. What the writer reports
arrives in `_receive`, in the loop's thread and in order: first the events, then the answers to whoever waits.
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
DIED = "the store has stopped after an internal error, which the log shows; restart the server"

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
        """Opens the file, or creates it. It then stands at `first` at least: a store that is below forgets its history.

        Raises Unavailable with a message that says what to do.
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
            # Again: a compaction meanwhile may have taken records from under the query.
            self._refuse_compacted(at)
        return Page(records, at, more)

    async def commit(self, changes: Sequence[Change], checks: Sequence[Check] = ()) -> int:
        commit = prepare(changes, checks)
        if len(changes) >> SEQUENCE_BITS:
            raise ValueError(f"a commit holds less than {1 << SEQUENCE_BITS:,} changes; make several of it")
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
        # Whoever else waits for the end, or gives up waiting, does not disturb it.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._writer.put(Stop())
        await self._stopped.wait()
        self._feed.close()
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        self._writer.join()
        # The last connection to close moves SQLite's log into the file and removes it, so the writer's comes last.
        self._readers.close()
        self._database.connection.close()
        os.close(self._database.lock)

    def _receive(self, report: Report) -> None:
        """What the writer has done, in the loop's thread."""
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
            return  # the caller was cancelled and no longer wants to know
        if isinstance(answer, StorageError):
            done.set_exception(answer)
        else:
            done.set_result(answer)

    async def _ask(self, query: Callable[[sqlite3.Connection], T]) -> T:
        self._refuse_closed()
        return await self._readers.ask(query)

    async def _ask_now(self, query: Callable[[int, sqlite3.Connection], T]) -> tuple[int, T]:
        """The answer as of the newest revision that the loop knows, and that revision."""
        while True:
            at = self._feed.revision
            answer = await self._ask(partial(query, at))
            if at >= self._feed.oldest:
                return at, answer
            # Compacted past `at` while the query ran: what it saw may have holes. Now is later by now; ask again.

    async def _replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        # Also while closing: the feed is closed before the readers are, and asks for nothing from then on.
        return await self._readers.ask(lambda connection: replay_events(connection, prefix, since, upto))

    def _refuse_compacted(self, at: int) -> None:
        if at < self._feed.oldest:
            raise Compacted(at, self._feed.oldest)

    def _refuse_closed(self) -> None:
        if self._closing is not None:
            raise Unavailable(CLOSED)
        if self._stopped.is_set():
            raise Unavailable(DIED)
