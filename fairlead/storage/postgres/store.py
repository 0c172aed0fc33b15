"""PostgresStore: implements the contract with a PostgreSQL database.

Reads go to the connection pool, writes to the writer's queue, watches to the follower's feed. Every read queries the
database, because other replicas may have written.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg

from fairlead.storage.commit import prefix_range, prepare_commit
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
from fairlead.storage.postgres.connection import (
    DATABASE_ERRORS,
    Connection,
    PostgresAddress,
    connect,
    explain_error,
    parse_address,
)
from fairlead.storage.postgres.reader import (
    MAX_REVISION,
    PostgresFollower,
    PostgresReaderPool,
    StoreState,
    fetch_state,
    read_record,
    scan_records,
)
from fairlead.storage.postgres.schema import check_tables_exist, migrate, purge_deleted, set_compacted, sweep
from fairlead.storage.postgres.writer import CLOSED_MESSAGE, CommitJob, MaintenanceJob, PostgresWriter

MAX_KEY_BYTES = 2_500
"""Slightly less than the maximum size of an index entry."""

T = TypeVar("T")


@asynccontextmanager
async def _connected(address: PostgresAddress) -> AsyncIterator[Connection]:
    """A connection for one task. Raises ValueError and StoreUnavailable like `PostgresStore.open`."""
    try:
        connection = await connect(address)
        try:
            yield connection
        finally:
            connection.terminate()
    except asyncpg.ClientConfigurationError as error:
        raise ValueError(str(error)) from error
    except DATABASE_ERRORS as error:
        raise explain_error(address, error) from error


async def check_store_exists(url: str) -> None:
    """Raises StoreUnavailable if the schema of the URL contains no store. Changes nothing."""
    address = parse_address(url)
    async with _connected(address) as connection:
        await check_tables_exist(connection, address)


class PostgresStore:
    def __init__(self, address: PostgresAddress, readers: PostgresReaderPool, state: StoreState) -> None:
        self._address = address
        self._readers = readers
        self._follower = PostgresFollower(address, readers, state)
        self._writer = PostgresWriter(address, self._follower)
        self._closing: asyncio.Task[None] | None = None
        self._state_lock = asyncio.Lock()
        self._state_query: asyncio.Task[StoreState] | None = None

    @classmethod
    async def open(cls, url: str, first: int = FIRST_REVISION) -> "PostgresStore":
        """Open the store, creating or upgrading its tables. Its revision is then at least `first`; raising it
        discards the history.

        Raises ValueError for an invalid URL, StoreUnavailable with advice otherwise.
        """
        address = parse_address(url)
        async with _connected(address) as connection:
            await migrate(connection, address, first)
            state = await fetch_state(connection)
            return cls(address, await PostgresReaderPool.open(address), state)

    async def read(self, key: Key) -> Record | None:
        return await self._query(lambda connection: read_record(connection, key))

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        bounds = prefix_range(prefix, after)
        upto = MAX_REVISION if at is None else at
        records, more, state = await self._query(lambda connection: scan_records(connection, bounds, limit, upto))
        at = min(upto, state.revision)
        if at < state.compacted:
            raise Compacted(at, state.compacted)
        return Page(records, at, more)

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition] = ()) -> int:
        commit = prepare_commit(writes, preconditions)
        if any(len(packed) > MAX_KEY_BYTES for packed in commit.write_keys):
            raise ValueError(f"a key may have at most {MAX_KEY_BYTES:,} bytes; use shorter names")
        self._check_open()
        return await self._writer.submit(CommitJob(commit, asyncio.get_running_loop().create_future()))

    def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        return self._follower.watch(prefix, since)

    async def revision(self) -> int:
        state = await self._fetch_state()
        self._follower.notify(state.revision)
        return state.revision

    def local_revision(self) -> None:
        return None

    async def oldest(self) -> int:
        return (await self._fetch_state()).compacted

    async def compact(self, before: int) -> None:
        state = await self._fetch_state()
        before = min(before, state.revision)
        # So that compaction does not overtake this replica's own watches.
        if not await self._follower.wait_until(before):
            raise StoreUnavailable(self._follower.failure or f"{self._address.name}: following its history is too slow")
        await self._query(lambda connection: set_compacted(connection, before))
        self._follower.feed.set_oldest(before)
        while await self._query(sweep):
            pass

    async def purge_deleted(self) -> None:
        self._check_open()
        await self._submit(
            MaintenanceJob(lambda: purge_deleted(self._address), asyncio.get_running_loop().create_future())
        )

    async def check_writable(self) -> None:
        self._check_open()
        if self._writer.failure is not None or self._follower.failure is not None:
            await self._submit(MaintenanceJob(None, asyncio.get_running_loop().create_future()))

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close the store")
        # Shielded: a cancelled caller must not cancel the close for the others.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._writer.close()
        await self._follower.close()
        await self._readers.close()

    async def _submit(self, job: MaintenanceJob) -> None:
        await self._writer.submit(job)

    async def _query(self, query: Callable[[Connection], Awaitable[T]]) -> T:
        self._check_open()
        return await self._readers.run_query(query)

    async def _fetch_state(self) -> StoreState:
        """The state of the store, queried after this call. Calls that arrive while a query waits for the previous one
        share it."""
        self._check_open()
        if self._state_query is None:
            self._state_query = asyncio.create_task(self._query_state())
        return await asyncio.shield(self._state_query)

    async def _query_state(self) -> StoreState:
        async with self._state_lock:
            # Later calls must not share this query any more.
            self._state_query = None
            return await self._readers.run_query(fetch_state)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreUnavailable(CLOSED_MESSAGE)
        if self._follower.fatal_error is not None:
            raise StoreUnavailable(self._follower.fatal_error)
