"""The LISTEN connection, which delivers the commits of all replicas to this process's watches, in order.

PostgreSQL notifies of each group of commits; polling covers lost notifications. Either way the events are read from
the log after the last published revision, so a reconnect causes neither gaps nor duplicates, and watches do not
notice it.

The writer publishes this process's own commits directly, unless commits of other replicas come before them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from itertools import groupby
from operator import attrgetter

import structlog

from fairlead.core.waiting import RevisionWaiters, Signal
from fairlead.storage.contract import Event, Key
from fairlead.storage.postgres.connection import (
    DATABASE_ERRORS,
    RETRY_DELAYS,
    RETRY_TIMEOUT,
    Connection,
    PostgresAddress,
    connect,
    explain_error,
)
from fairlead.storage.postgres.reader import MAX_REVISION, EventChunk, PostgresReaderPool, StoreState, replay_events
from fairlead.storage.watch_feed import WatchFeed

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
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

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
