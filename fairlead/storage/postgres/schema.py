"""Tables, the commit function, migrations and compaction.

MIGRATIONS is the history of the schema: each entry upgrades it by one version, and none is ever changed once
released. If several replicas start at the same time, a lock lets one of them migrate. Older replicas may still run
during an upgrade, so a migration only adds to what they use. The comment of the table `store` says who can use it.

Compaction runs in small transactions, so that commits are not delayed. The compacted revision is published before
rows are deleted, so that a query that misses a row sees in the same statement that its revision was compacted.
Several replicas may compact at the same time; the row in `store` serializes them.
"""

from contextlib import suppress
from dataclasses import dataclass

import asyncpg
import msgspec

from fairlead.storage.contract import FIRST_REVISION, StoreUnavailable
from fairlead.storage.data_version import LayoutNeeds, check_layout, parse_needs
from fairlead.storage.postgres.connection import Connection, PostgresAddress, connect

LOCK_CLASS = 0x46414952
"""The first half of our advisory lock ids, to avoid collisions. The second half identifies the schema."""

WRITE_LOCK = f"{LOCK_CLASS}, 'log'::regclass::oid::int"

SELECT_STATE = "SELECT greatest(compacted, (SELECT max(revision) FROM log)) AS revision, compacted FROM store"
"""The current and the compacted revision. The newest row may have been compacted, hence the maximum."""

SCHEMA_V1 = f"""
    CREATE TABLE log (
        revision bigint NOT NULL,
        place integer NOT NULL,      -- position within the commit
        key bytea NOT NULL,          -- packed, see commit.py; bytea sorts by bytes, like collation "C"
        value bytea,                 -- NULL: the key was deleted
        previous bigint NOT NULL,    -- the revision of the row that this one supersedes, 0 if none
        PRIMARY KEY (revision, place)
    );
    CREATE UNIQUE INDEX log_key ON log (key, revision DESC);

    CREATE TABLE store (
        single boolean PRIMARY KEY DEFAULT true CHECK (single),
        version integer NOT NULL,
        compacted bigint NOT NULL,    -- the oldest readable revision
        swept bigint NOT NULL         -- up to this revision, compacted rows are deleted
    );
    INSERT INTO store (version, compacted, swept) VALUES (0, {FIRST_REVISION}, 0);

    -- The result of a writer's newest group of commits, for a writer whose connection broke before the response.
    CREATE SEQUENCE writers;
    CREATE TABLE groups (
        writer bigint,
        number bigint,
        made timestamptz NOT NULL DEFAULT now(),
        base bigint,           -- NULL: it was abandoned, and can no longer be committed
        revisions bigint[],    -- of each commit; NULL for one that conflicts
        wrong integer[],       -- the position of the conflict
        actual bigint[],       -- and the actual revision
        PRIMARY KEY (writer, number)
    );

    -- No key is named in two commits of a group, unless both only check it, so all can be checked at once.
    CREATE FUNCTION commit_group(
        writer_ bigint, number_ bigint, spent bigint, channel text,
        commits integer[], places integer[], keys bytea[], vals bytea[], expected bigint[], writes boolean[],
        OUT base bigint, OUT revisions bigint[], OUT wrong integer[], OUT actual bigint[]
    ) LANGUAGE plpgsql AS $$
    BEGIN
        -- Held until the transaction ends. The statements below start after it and see all earlier commits.
        PERFORM pg_advisory_xact_lock({WRITE_LOCK});
        SELECT now.revision INTO base FROM ({SELECT_STATE}) AS now;
        WITH wish AS MATERIALIZED (
            SELECT w.*, coalesce(newest.revision, 0) AS actual
            FROM unnest(commits, places, keys, vals, expected, writes)
                AS w (commit, place, key, value, expected, writes)
            LEFT JOIN LATERAL (
                SELECT CASE WHEN log.value IS NULL THEN 0 ELSE log.revision END AS revision
                FROM log WHERE log.key = w.key ORDER BY log.revision DESC LIMIT 1
            ) AS newest ON true
        ), verdict AS (
            SELECT commit, min(place) FILTER (WHERE wish.actual <> wish.expected) AS wrong FROM wish GROUP BY commit
        ), numbered AS (
            SELECT commit, verdict.wrong,
                CASE WHEN verdict.wrong IS NULL
                    THEN commit_group.base + count(*) FILTER (WHERE verdict.wrong IS NULL) OVER (ORDER BY commit)
                END AS revision
            FROM verdict
        ), written AS (
            INSERT INTO log (revision, place, key, value, previous)
            SELECT numbered.revision, wish.place, wish.key, wish.value, wish.expected
            FROM wish JOIN numbered USING (commit) WHERE wish.writes AND numbered.revision IS NOT NULL
        )
        SELECT array_agg(numbered.revision ORDER BY commit), array_agg(numbered.wrong ORDER BY commit),
            array_agg(wish.actual ORDER BY commit)
        INTO revisions, wrong, actual
        FROM numbered LEFT JOIN wish USING (commit) WHERE wish.place = coalesce(numbered.wrong, 0);
        IF array_remove(revisions, NULL) <> '{{}}' THEN
            DELETE FROM groups WHERE writer = writer_ AND number = spent;
            -- Fails, and rolls back all of the above, if the writer has abandoned this group meanwhile.
            INSERT INTO groups (writer, number, base, revisions, wrong, actual)
            VALUES (writer_, number_, base, revisions, wrong, actual);
            PERFORM pg_notify(channel, (SELECT max(r) FROM unnest(revisions) AS r)::text);
        END IF;
    END $$;
"""


@dataclass(frozen=True, slots=True)
class SchemaMigration:
    """One step of the schema, and who can use the schema afterwards."""

    sql: str
    needs: LayoutNeeds


MIGRATIONS = (SchemaMigration(SCHEMA_V1, LayoutNeeds(1, "0.1.0")),)

RAISE_REVISION = f"UPDATE store SET compacted = $1 WHERE $1 > (SELECT now.revision FROM ({SELECT_STATE}) AS now)"

SELECT_NEEDS = "SELECT obj_description('store'::regclass)"
FIND_SCHEMA = "SELECT 1 FROM pg_namespace WHERE nspname = $1"
FIND_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"


async def migrate(connection: Connection, address: PostgresAddress, first: int = FIRST_REVISION) -> None:
    """Upgrade the schema; the revision is then at least `first`. Raises StoreUnavailable for an unsupported schema."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", LOCK_CLASS, address.schema)
        version = await _schema_version(connection, address)
        if version > len(MIGRATIONS):
            needs = parse_needs(await connection.fetchval(SELECT_NEEDS))
            check_layout(address.name, version, len(MIGRATIONS), needs)
        for step in MIGRATIONS[version:]:
            await connection.execute(step.sql)
        if version < len(MIGRATIONS):
            await connection.execute("UPDATE store SET version = $1", len(MIGRATIONS))
            needs_text = msgspec.json.encode(MIGRATIONS[-1].needs).decode()
            await connection.execute(f"COMMENT ON TABLE store IS '{needs_text}'")
        if first > FIRST_REVISION:
            # Take the write lock: a commit reads the newest revision before it writes.
            await connection.execute(f"SELECT pg_advisory_xact_lock({WRITE_LOCK})")
            await connection.execute(RAISE_REVISION, first)


async def check_tables_exist(connection: Connection, address: PostgresAddress) -> None:
    """Raises StoreUnavailable if the schema does not exist or is empty. Changes nothing."""
    if await connection.fetchval(FIND_SCHEMA, address.schema) is None or not await _list_tables(connection, address):
        raise StoreUnavailable(
            f"{address.name}: there is no store in the schema {address.schema}; check the URL that the servers use, "
            "with its ?schema="
        )


async def _list_tables(connection: Connection, address: PostgresAddress) -> set[str]:
    return {row[0] for row in await connection.fetch(FIND_TABLES, address.schema)}


async def _schema_version(connection: Connection, address: PostgresAddress) -> int:
    """The version of the schema; 0 if it is empty. Creates the schema if it does not exist."""
    if await connection.fetchval(FIND_SCHEMA, address.schema) is None:
        try:
            await connection.execute(f'CREATE SCHEMA "{address.schema}"')
        except asyncpg.InsufficientPrivilegeError as error:
            raise StoreUnavailable(
                f"{address.name}: the user may not create the schema {address.schema}; an administrator must run "
                f'`CREATE SCHEMA "{address.schema}" AUTHORIZATION` and the user\'s name ({error})'
            ) from error
    tables = await _list_tables(connection, address)
    if not tables:
        return 0
    if not {"log", "store", "groups"} <= tables:
        raise StoreUnavailable(
            f"{address.name}: the schema {address.schema} contains another program's tables; "
            "select another one with ?schema= in the URL"
        )
    version: int = await connection.fetchval("SELECT version FROM store")
    return version


SWEEP_ROWS = 1_000
PURGE_IDLE_TIMEOUT_MILLISECONDS = 5_000
"""The session is closed after this idle time, which releases the lock: a paused replica must not block all commits."""
SET_COMPACTED = "UPDATE store SET compacted = $1 WHERE compacted < $1"
SELECT_SWEPT = "SELECT swept, compacted FROM store FOR UPDATE"
SWEEP_END = """
    SELECT CASE WHEN count(*) < $3 THEN $2 ELSE max(revision) END FROM (
        SELECT revision FROM log WHERE revision > $1 AND revision <= $2 ORDER BY revision, place LIMIT $3
    ) AS row
"""
# Every row references the one it supersedes, so only new history is scanned, never the rows that stay.
SWEEP_SUPERSEDED = """
    DELETE FROM log USING log AS later
    WHERE later.revision > $1 AND later.revision <= $2 AND later.previous <> 0
        AND log.key = later.key AND log.revision = later.previous
"""
SWEEP_DELETIONS = "DELETE FROM log WHERE revision > $1 AND revision <= $2 AND value IS NULL"
SET_SWEPT = "UPDATE store SET swept = $1"
# Rows of writers that no longer exist. No live writer waits that long for a response.
SWEEP_GROUPS = "DELETE FROM groups WHERE made < now() - interval '1 day'"


async def set_compacted(connection: Connection, before: int) -> None:
    await connection.execute(SET_COMPACTED, before)


async def sweep(connection: Connection) -> bool:
    """Delete the rows that the next rows of history supersede. False if there is nothing left to do."""
    async with connection.transaction():
        row = await connection.fetchrow(SELECT_SWEPT)
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


async def purge_deleted(address: PostgresAddress) -> None:
    """Rewrite the table without deleted data. The commits of all replicas are blocked meanwhile."""
    connection = await connect(address)
    try:
        with suppress(asyncpg.UndefinedObjectError):  # available since PostgreSQL 14
            await connection.execute(f"SET idle_session_timeout = {PURGE_IDLE_TIMEOUT_MILLISECONDS}")
        # A session-level lock, because VACUUM cannot run in a transaction. Closing the connection releases it.
        await connection.execute(f"SELECT pg_advisory_lock({WRITE_LOCK})")
        await connection.execute("VACUUM (FULL) log")
    finally:
        connection.terminate()
