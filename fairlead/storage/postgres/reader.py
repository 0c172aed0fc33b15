"""Read queries and their connection pool. Used by the store, the follower and compaction.

Each query is one statement, so that it sees one snapshot. It also returns the current and the compacted revision, so
that a row deleted by compaction is not mistaken for one that never existed.

The LISTEN connection, which delivers the commits of all replicas to this process's watches, in order.

PostgreSQL notifies of each group of commits; polling covers lost notifications. Either way the events are read from
the log after the last published revision, so a reconnect causes neither gaps nor duplicates, and watches do not
notice it.

The writer publishes this process's own commits directly, unless commits of other replicas come before them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TypeVar, cast

import asyncpg
import structlog

from fairlead.core.waiting import RevisionWaiters, Signal, end_tasks
from fairlead.storage.commit import pack_key, prefix_range, unpack_key
from fairlead.storage.contract import Event, Key, Record
from fairlead.storage.postgres.connection import (
    DATABASE_ERRORS,
    RETRY_DELAYS,
    RETRY_TIMEOUT,
    Connection,
    PostgresAddress,
    connect,
    connection_arguments,
    explain_error,
)
from fairlead.storage.postgres.schema import SELECT_STATE
from fairlead.storage.watch_feed import CHUNK_BYTES, EVENT_OVERHEAD_BYTES, WatchFeed

MAX_READ_CONNECTIONS = 4
READ_TIMEOUT = 30.0
CHUNK_ROWS = 512
MAX_REVISION = 2**63 - 1
"""Greater than any revision."""

READ = "SELECT value, revision FROM log WHERE key = $1 ORDER BY revision DESC LIMIT 1"

SCAN = f"""
    WITH now AS MATERIALIZED ({SELECT_STATE})
    SELECT now.revision AS now, now.compacted, page.key, page.value, page.revision
    FROM now LEFT JOIN (
        SELECT * FROM (
            SELECT DISTINCT ON (key) key, value, revision FROM log
            WHERE key >= $1 AND key < $2 AND revision <= $3 ORDER BY key, revision DESC
        ) AS state
        WHERE value IS NOT NULL ORDER BY key LIMIT $4
    ) AS page ON true
    ORDER BY page.key
"""

# Reads the sizes of some rows first, without fetching their values, and then whole commits of about one chunk. IS
# TRUE keeps PostgreSQL from using the index on keys and then sorting; the primary key is already in history order.
REPLAY = f"""
    WITH now AS MATERIALIZED ({SELECT_STATE}), row AS (
        SELECT revision, place, {EVENT_OVERHEAD_BYTES} + coalesce(octet_length(value), 0) AS weight FROM log
        WHERE revision > $1 AND revision <= $2 AND (key >= $3 AND key < $4) IS TRUE
        ORDER BY revision, place LIMIT {CHUNK_ROWS}
    ), span AS (
        SELECT revision, sum(weight) OVER (ORDER BY revision, place) - weight AS before FROM row
    ), bound AS MATERIALIZED (
        SELECT CASE WHEN count(*) < {CHUNK_ROWS} AND coalesce(max(before), 0) <= {CHUNK_BYTES} THEN $2
            ELSE max(revision) FILTER (WHERE before <= {CHUNK_BYTES}) END AS reached FROM span
    )
    SELECT now.revision AS now, now.compacted, bound.reached, log.revision, log.key, log.value
    FROM now CROSS JOIN bound LEFT JOIN log
        ON log.revision > $1 AND log.revision <= bound.reached AND (log.key >= $3 AND log.key < $4) IS TRUE
    ORDER BY log.revision, log.place
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreState:
    revision: int
    compacted: int


@dataclass(frozen=True, slots=True)
class EventChunk:
    """A part of the history: whole commits, and the revision they reach."""

    events: Sequence[Event]
    reached: int
    state: StoreState


class PostgresReaderPool:
    def __init__(self, address: PostgresAddress, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._address = address
        self._pool = pool

    @classmethod
    async def open(cls, address: PostgresAddress) -> "PostgresReaderPool":
        """Connections are opened on demand."""
        pool = asyncpg.create_pool(min_size=0, max_size=MAX_READ_CONNECTIONS, **connection_arguments(address))
        return cls(address, await pool)

    async def run_query(self, query: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a query, with retries while the connection breaks, so it must be idempotent. Raises StoreUnavailable."""
        started = time.monotonic()
        for attempt in range(1_000):
            try:
                async with asyncio.timeout(READ_TIMEOUT), self._pool.acquire() as connection:
                    # The pool returns a proxy with all methods of a connection.
                    return await query(cast(Connection, connection))
            except DATABASE_ERRORS as error:
                if not is_transient(error) or time.monotonic() - started > RETRY_TIMEOUT:
                    raise explain_error(self._address, error) from error
            await asyncio.sleep(RETRY_DELAYS[min(attempt, len(RETRY_DELAYS) - 1)])
        raise AssertionError("the timeout expires long before the attempts run out")

    async def close(self) -> None:
        try:
            async with asyncio.timeout(RETRY_TIMEOUT):
                await self._pool.close()
        except DATABASE_ERRORS:
            self._pool.terminate()


def is_transient(error: BaseException) -> bool:
    """Whether a retry may help: the connection broke, or the database is restarting."""
    if isinstance(error, TimeoutError):
        return False
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "")[:2] in ("08", "57")
    return True


async def fetch_state(connection: Connection) -> StoreState:
    row = await connection.fetchrow(SELECT_STATE)
    assert row is not None
    return StoreState(row["revision"], row["compacted"])


async def read_record(connection: Connection, key: Key) -> Record | None:
    row = await connection.fetchrow(READ, pack_key(key))
    return Record(key, row["value"], row["revision"]) if row is not None and row["value"] is not None else None


async def scan_records(
    connection: Connection, bounds: tuple[bytes, bytes], limit: int, at: int
) -> tuple[list[Record], bool, StoreState]:
    """The records, whether there are more, and the state of the store."""
    rows = await connection.fetch(SCAN, *bounds, at, limit + 1 if limit else None)
    state = StoreState(rows[0]["now"], rows[0]["compacted"])
    records = [Record(unpack_key(row["key"]), row["value"], row["revision"]) for row in rows if row["key"] is not None]
    return records[: limit or None], bool(limit) and len(records) > limit, state


async def replay_events(connection: Connection, prefix: Key, since: int, upto: int) -> EventChunk:
    rows = await connection.fetch(REPLAY, since, upto, *prefix_range(prefix))
    events = [Event(unpack_key(row["key"]), row["value"], row["revision"]) for row in rows if row["key"] is not None]
    return EventChunk(events, rows[0]["reached"], StoreState(rows[0]["now"], rows[0]["compacted"]))


POLL_SECONDS = 1.0
CHUNK_TIMEOUT = 10.0

log = structlog.get_logger(__name__)


class PostgresFollower:
    def __init__(self, address: PostgresAddress, readers: PostgresReaderPool, state: StoreState) -> None:
        self._address = address
        self._readers = readers
        self._signal = Signal()
        self._waiters = RevisionWaiters()
        self.feed = WatchFeed(state.revision, state.compacted, self._replay)
        self.failure: str | None = None
        """Why the database cannot be followed at the moment; None while it can."""
        self.fatal_error: str | None = None
        """A permanent error: the database is inconsistent with what was published."""
        self._task = asyncio.create_task(self._run(), name="follow PostgreSQL")

    async def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        """See `Store.watch`. Continues with the new feed after `_skip_compacted` has replaced it."""
        feed: WatchFeed | None = None
        while feed is not self.feed:
            feed = self.feed
            async with aclosing(feed.subscribe(prefix, since)) as batches:  # type: ignore[type-var]
                async for batch in batches:
                    since = batch[-1].revision
                    yield batch
            since = max(since, feed.revision)

    def publish(self, commits: Iterable[tuple[int, Sequence[Event]]]) -> None:
        """Publish commits, in order and without gaps. Those already published are skipped."""
        for revision, events in commits:
            if revision > self.feed.revision:
                self.feed.publish(revision, events)
        self._waiters.advance(self.feed.revision)

    def notify(self, revision: int) -> None:
        """Wake up if the database has reached a newer revision."""
        if revision > self.feed.revision:
            self._signal.wake()

    async def wait_until(self, revision: int) -> bool:
        """Wait until everything up to this revision is published. False on timeout."""
        if revision > self.feed.revision:
            reached = self._waiters.add(revision)
            self._signal.wake()
            await asyncio.wait([reached], timeout=RETRY_TIMEOUT)
        return revision <= self.feed.revision

    async def close(self) -> None:
        self.feed.close()
        await end_tasks(self._task)

    async def _run(self) -> None:
        attempt = 0
        while True:
            try:
                async for _ in self._catch_up_rounds():
                    attempt, self.failure = 0, self.fatal_error
            except DATABASE_ERRORS as error:
                if self.failure is None:
                    log.warning("following the database failed; retrying", reason=str(error))
                self.failure = str(explain_error(self._address, error))
            await asyncio.sleep(RETRY_DELAYS[min(attempt, len(RETRY_DELAYS) - 1)])
            attempt += 1

    async def _catch_up_rounds(self) -> AsyncIterator[None]:
        """Yields each time it has caught up, for as long as the connection lasts."""
        connection = await connect(self._address)
        try:
            connection.add_termination_listener(lambda _: self._signal.wake())
            await connection.add_listener(self._address.channel, self._on_notify)
            while True:
                self._signal.clear()
                await self._catch_up(connection)
                yield
                await self._signal.wait(POLL_SECONDS)
        finally:
            connection.terminate()

    def _on_notify(self, _connection: object, _process: int, _channel: str, payload: object) -> None:
        self.notify(int(str(payload)))

    async def _catch_up(self, connection: Connection) -> None:
        reached = 0
        while reached < MAX_REVISION:
            since = self.feed.revision
            async with asyncio.timeout(CHUNK_TIMEOUT):
                piece = await replay_events(connection, (), since, MAX_REVISION)
            reached = piece.reached
            if piece.state.revision < since:
                self.mark_inconsistent(piece.state.revision, since)
                return
            # Compare with the current revision: the writer may have published meanwhile.
            if piece.state.compacted > self.feed.revision:
                self._skip_compacted(piece.state.compacted)
                reached = 0
                continue
            self.feed.set_oldest(piece.state.compacted)
            self.publish((revision, list(events)) for revision, events in groupby(piece.events, attrgetter("revision")))

    def _skip_compacted(self, compacted: int) -> None:
        """History was compacted before it was read. Start a new feed after it; the watches of the old one continue
        there and get Compacted."""
        old = self.feed
        self.feed = WatchFeed(compacted, compacted, self._replay)
        old.set_oldest(compacted)
        old.close()
        self.publish(())

    def mark_inconsistent(self, revision: int, since: int) -> None:
        """Acknowledged commits are lost. Revisions would be reused, so this process must not continue."""
        if self.fatal_error is not None:
            return
        self.fatal_error = (
            f"{self._address.name}: the database has gone back from revision {since} to {revision}, perhaps after a "
            "failover or a restore from a backup; restart the server, and its clients list again"
        )
        log.error("the database has lost acknowledged commits", reason=self.fatal_error)

    async def _replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        piece: EventChunk = await self._readers.run_query(
            lambda connection: replay_events(connection, prefix, since, upto)
        )
        self.feed.set_oldest(piece.state.compacted)
        return piece.events, piece.reached
