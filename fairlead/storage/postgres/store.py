"""PostgresStore: implements the contract with a PostgreSQL database.

Reads go to the connection pool, writes to the writer's queue, watches to the follower's feed. Every read queries the
database, because other replicas may have written.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg

from fairlead.storage.commit import prefix_range, prepare
from fairlead.storage.contract import (
    FIRST_REVISION,
    Change,
    Check,
    Compacted,
    Event,
    Key,
    Page,
    Record,
    Unavailable,
)
from fairlead.storage.postgres.connection import TROUBLE, Address, Connection, connect, explain, parse_address
from fairlead.storage.postgres.follower import Follower
from fairlead.storage.postgres.reader import LAST, Readers, Standing, ask_standing, read_record, scan_records
from fairlead.storage.postgres.schema import migrate, scrub, set_compacted, sweep
from fairlead.storage.postgres.writer import CLOSED, Commit, Errand, Writer

MAX_KEY_BYTES = 2_500
"""Slightly less than the maximum size of an index entry."""

T = TypeVar("T")


class PostgresStore:
    def __init__(self, address: Address, readers: Readers, standing: Standing) -> None:
        self._address = address
        self._readers = readers
        self._follower = Follower(address, readers, standing)
        self._writer = Writer(address, self._follower)
        self._closing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._question: asyncio.Task[Standing] | None = None

    @classmethod
    async def open(cls, url: str, first: int = FIRST_REVISION) -> "PostgresStore":
        """Open the store, creating or upgrading its tables. Its revision is then at least `first`; raising it
        discards the history.

        Raises ValueError for an invalid URL, StoreUnavailable with advice otherwise.
        """
        address = parse_address(url)
        try:
            connection = await connect(address)
            try:
                await migrate(connection, address, first)
                standing = await ask_standing(connection)
            finally:
                connection.terminate()
            return cls(address, await Readers.open(address), standing)
        except asyncpg.ClientConfigurationError as error:
            raise ValueError(str(error)) from error
        except TROUBLE as error:
            raise explain(address, error) from error

    async def read(self, key: Key) -> Record | None:
        return await self._ask(lambda connection: read_record(connection, key))

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        bounds = prefix_range(prefix, after)
        upto = LAST if at is None else at
        records, more, standing = await self._ask(lambda connection: scan_records(connection, bounds, limit, upto))
        at = min(upto, standing.revision)
        if at < standing.compacted:
            raise Compacted(at, standing.compacted)
        return Page(records, at, more)

    async def commit(self, changes: Sequence[Change], checks: Sequence[Check] = ()) -> int:
        commit = prepare(changes, checks)
        if any(len(packed) > MAX_KEY_BYTES for packed in commit.changed):
            raise ValueError(f"a key may have at most {MAX_KEY_BYTES:,} bytes; use shorter names")
        self._refuse_closed()
        return await self._writer.do(Commit(commit, asyncio.get_running_loop().create_future()))

    def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        return self._follower.watch(prefix, since)

    async def revision(self) -> int:
        standing = await self._standing()
        self._follower.hint(standing.revision)
        return standing.revision

    def known_revision(self) -> None:
        return None

    async def oldest(self) -> int:
        return (await self._standing()).compacted

    async def compact(self, before: int) -> None:
        standing = await self._standing()
        before = min(before, standing.revision)
        # So that compaction does not overtake this replica's own watches.
        if not await self._follower.reach(before):
            raise Unavailable(self._follower.failure or f"{self._address.name}: following its history is too slow")
        await self._ask(lambda connection: set_compacted(connection, before))
        self._follower.feed.compacted(before)
        while await self._ask(sweep):
            pass

    async def scrub(self) -> None:
        self._refuse_closed()
        await self._do(Errand(lambda: scrub(self._address), asyncio.get_running_loop().create_future()))

    async def check(self) -> None:
        self._refuse_closed()
        if self._writer.failure is not None or self._follower.failure is not None:
            await self._do(Errand(None, asyncio.get_running_loop().create_future()))

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close the store")
        # Shielded: a cancelled caller must not cancel the close for the others.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._writer.close()
        await self._follower.close()
        await self._readers.close()

    async def _do(self, errand: Errand) -> None:
        await self._writer.do(errand)

    async def _ask(self, query: Callable[[Connection], Awaitable[T]]) -> T:
        self._refuse_closed()
        return await self._readers.ask(query)

    async def _standing(self) -> Standing:
        """The state of the store, queried after this call. Calls that arrive while a query waits for the previous one
        share it."""
        self._refuse_closed()
        if self._question is None:
            self._question = asyncio.create_task(self._ask_standing())
        return await asyncio.shield(self._question)

    async def _ask_standing(self) -> Standing:
        async with self._turn:
            # Later calls must not share this query any more.
            self._question = None
            return await self._readers.ask(ask_standing)

    def _refuse_closed(self) -> None:
        if self._closing is not None:
            raise Unavailable(CLOSED)
        if self._follower.lost is not None:
            raise Unavailable(self._follower.lost)
