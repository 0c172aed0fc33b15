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

from fairlead.storage.contract import Event, Key
from fairlead.storage.postgres.connection import (
    PATIENCE_SECONDS,
    PAUSES,
    TROUBLE,
    Address,
    Connection,
    connect,
    explain,
)
from fairlead.storage.postgres.reader import LAST, Piece, Readers, Standing, replay_events
from fairlead.storage.watch_feed import Feed

POLL_SECONDS = 1.0
PIECE_SECONDS = 10.0

log = structlog.get_logger(__name__)


class Follower:
    def __init__(self, address: Address, readers: Readers, standing: Standing) -> None:
        self._address = address
        self._readers = readers
        self._wake = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.feed = Feed(standing.revision, standing.compacted, self._replay)
        self.failure: str | None = None
        """Why the database cannot be followed at the moment; None while it can."""
        self.lost: str | None = None
        """A permanent error: the database is inconsistent with what was published."""
        self._task = asyncio.create_task(self._run(), name="follow PostgreSQL")

    async def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        """See `Store.watch`. Continues with the new feed after `_skip_compacted` has replaced it."""
        feed: Feed | None = None
        while feed is not self.feed:
            feed = self.feed
            async with aclosing(feed.follow(prefix, since)) as batches:  # type: ignore[type-var]
                async for batch in batches:
                    since = batch[-1].revision
                    yield batch
            since = max(since, feed.revision)

    def publish(self, commits: Iterable[tuple[int, Sequence[Event]]]) -> None:
        """Publish commits, in order and without gaps. Those already published are skipped."""
        for revision, events in commits:
            if revision > self.feed.revision:
                self.feed.publish(revision, events)
        still = []
        for awaited, reached in self._waiting:
            if awaited > self.feed.revision:
                still.append((awaited, reached))
            else:
                reached.set_result(None)
        self._waiting = still

    def hint(self, revision: int) -> None:
        """Wake up if the database has reached a newer revision."""
        if revision > self.feed.revision:
            self._wake.set()

    async def reach(self, revision: int) -> bool:
        """Wait until everything up to this revision is published. False on timeout."""
        if revision > self.feed.revision:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((revision, reached))
            self._wake.set()
            await asyncio.wait([reached], timeout=PATIENCE_SECONDS)
        return revision <= self.feed.revision

    async def close(self) -> None:
        self.feed.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        attempt = 0
        while True:
            try:
                async for _ in self._rounds():
                    attempt, self.failure = 0, self.lost
            except TROUBLE as error:
                if self.failure is None:
                    log.warning("following the database failed; retrying", reason=str(error))
                self.failure = str(explain(self._address, error))
            await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            attempt += 1

    async def _rounds(self) -> AsyncIterator[None]:
        """Yields each time it has caught up, for as long as the connection lasts."""
        connection = await connect(self._address)
        try:
            connection.add_termination_listener(lambda _: self._wake.set())
            await connection.add_listener(self._address.channel, self._hear)
            while True:
                self._wake.clear()
                await self._catch_up(connection)
                yield
                await self._pause()
        finally:
            connection.terminate()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _hear(self, _connection: object, _process: int, _channel: str, payload: object) -> None:
        self.hint(int(str(payload)))

    async def _catch_up(self, connection: Connection) -> None:
        reached = 0
        while reached < LAST:
            since = self.feed.revision
            async with asyncio.timeout(PIECE_SECONDS):
                piece = await replay_events(connection, (), since, LAST)
            reached = piece.reached
            if piece.standing.revision < since:
                self.mistrust(piece.standing.revision, since)
                return
            # Compare with the current revision: the writer may have published meanwhile.
            if piece.standing.compacted > self.feed.revision:
                self._skip(piece.standing.compacted)
                reached = 0
                continue
            self.feed.compacted(piece.standing.compacted)
            self.publish((revision, list(events)) for revision, events in groupby(piece.events, attrgetter("revision")))

    def _skip(self, compacted: int) -> None:
        """History was compacted before it was read. Start a new feed after it; the watches of the old one continue
        there and get Compacted."""
        old = self.feed
        self.feed = Feed(compacted, compacted, self._replay)
        old.compacted(compacted)
        old.close()
        self.publish(())

    def mistrust(self, revision: int, since: int) -> None:
        """Acknowledged commits are lost. Revisions would be reused, so this process must not continue."""
        if self.lost is not None:
            return
        self.lost = (
            f"{self._address.name}: the database has gone back from revision {since} to {revision}, perhaps after a "
            "failover or a restore from a backup; restart the server, and its clients list again"
        )
        log.error("the database has lost acknowledged commits", reason=self.lost)

    async def _replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        piece: Piece = await self._readers.ask(lambda connection: replay_events(connection, prefix, since, upto))
        self.feed.compacted(piece.standing.compacted)
        return piece.events, piece.reached
