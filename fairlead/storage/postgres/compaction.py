"""Forgetting history, in small transactions, so that no commit waits for long. Called by PostgresStore.

First the revision compacted to is made known, then rows go: whoever misses one in an old state sees, in the same
statement, that it was too old. Several replicas may compact at the same time; the row in `store` lets one of them step.
"""

from contextlib import suppress

import asyncpg

from fairlead.storage.postgres.address import Address, Connection, connect
from fairlead.storage.postgres.schema import WRITE_LOCK

SWEEP_ROWS = 1_000
SCRUB_IDLE_MILLISECONDS = 5_000
"""After this time without a word from us the database lets go of the lock: a replica that stands still must not keep
all others from committing."""
SET_COMPACTED = "UPDATE store SET compacted = $1 WHERE compacted < $1"
SWEPT = "SELECT swept, compacted FROM store FOR UPDATE"
SWEEP_END = """
    SELECT CASE WHEN count(*) < $3 THEN $2 ELSE max(revision) END FROM (
        SELECT revision FROM log WHERE revision > $1 AND revision <= $2 ORDER BY revision, place LIMIT $3
    ) AS row
"""
# Every row says which one it supersedes, so only history is looked through, never the rows that stay.
SWEEP_SUPERSEDED = """
    DELETE FROM log USING log AS later
    WHERE later.revision > $1 AND later.revision <= $2 AND later.previous <> 0
        AND log.key = later.key AND log.revision = later.previous
"""
SWEEP_DELETIONS = "DELETE FROM log WHERE revision > $1 AND revision <= $2 AND value IS NULL"
SET_SWEPT = "UPDATE store SET swept = $1"
# Of writers that are no more. None that still lives waits for an answer from so long ago.
SWEEP_GROUPS = "DELETE FROM groups WHERE made < now() - interval '1 day'"


async def set_compacted(connection: Connection, before: int) -> None:
    await connection.execute(SET_COMPACTED, before)


async def sweep(connection: Connection) -> bool:
    """Deletes what the next few rows of history supersede. False if there is nothing left to do."""
    async with connection.transaction():
        row = await connection.fetchrow(SWEPT)
        assert row is not None
        start, target = row["swept"], row["compacted"]
        if start >= target:
            await connection.execute(SWEEP_GROUPS)
            return False
        end = await connection.fetchval(SWEEP_END, start, target, SWEEP_ROWS)
        await connection.execute(SWEEP_SUPERSEDED, start, end)
        await connection.execute(SWEEP_DELETIONS, start, end)
        await connection.execute(SET_SWEPT, end)
    return True


async def scrub(address: Address) -> None:
    """Writes the table anew, without what was deleted. All replicas' commits wait meanwhile."""
    connection = await connect(address)
    try:
        with suppress(asyncpg.UndefinedObjectError):  # PostgreSQL has this since version 14
            await connection.execute(f"SET idle_session_timeout = {SCRUB_IDLE_MILLISECONDS}")
        # Of the session: VACUUM cannot be part of a transaction. Closing the connection lets go of it.
        await connection.execute(f"SELECT pg_advisory_lock({WRITE_LOCK})")
        await connection.execute("VACUUM (FULL) log")
    finally:
        connection.terminate()
