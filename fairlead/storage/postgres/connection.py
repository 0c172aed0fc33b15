"""The database URL, connections, the writer's session, and error messages.

asyncpg reads host, user, password and TLS options from the URL and from PostgreSQL's environment variables
(PGPASSWORD, PGSSLROOTCERT and so on).
"""

import asyncio
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

from fairlead.storage.commit import PreparedCommit
from fairlead.storage.contract import StoreUnavailable

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

DEFAULT_SCHEMA = "fairlead"
CONNECT_TIMEOUT = 5.0
RETRY_TIMEOUT = 3.0
"""How long to retry while the database is unreachable, so that most restarts go unnoticed."""
RETRY_DELAYS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between attempts to connect; the last one repeats."""

DATABASE_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""All errors that a query can raise. OSError covers broken connections, TLS and timeouts."""

SERVER_SETTINGS = {
    "application_name": "fairlead",
    "default_transaction_isolation": "read committed",  # each statement of the commit function sees the latest commits
    "statement_timeout": "0",  # the client has its own timeouts
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "30000",  # a paused replica must not block the others
    "jit": "off",  # compiling takes longer than these queries
    # Every query has an index. The planner must not fall back to reading and sorting everything, because of missing
    # or outdated statistics or a plan that was cached when the tables were small.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

RESTARTING_ADVICE = "it is starting up or shutting down; the store recovers by itself once it is back"
ERROR_ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (asyncpg.InvalidPasswordError, "the password is rejected; correct it in the URL or in PGPASSWORD"),
    (asyncpg.InvalidAuthorizationSpecificationError, "the user is rejected; check the user in the URL and pg_hba.conf"),
    (asyncpg.InvalidCatalogNameError, "there is no such database; create it with `createdb`, or correct the URL"),
    (asyncpg.InsufficientPrivilegeError, "the user lacks a privilege; make it the owner of the server's schema"),
    (asyncpg.TooManyConnectionsError, "it has no free connections; raise max_connections or stop other clients"),
    (asyncpg.CannotConnectNowError, RESTARTING_ADVICE),
    (asyncpg.AdminShutdownError, RESTARTING_ADVICE),
    (asyncpg.CrashShutdownError, RESTARTING_ADVICE),
    (asyncpg.DiskFullError, "its disk is full; free some space, and the store recovers by itself"),
    (asyncpg.ReadOnlySQLTransactionError, "it is read-only, perhaps a standby; use the primary in the URL"),
    (asyncpg.TargetServerAttributeNotMatched, "it is read-only, perhaps a standby; use the primary in the URL"),
    (asyncpg.UndefinedTableError, "its tables are missing; restore a backup, or restart the server to start empty"),
    (asyncpg.UndefinedFunctionError, "its schema is incomplete; restore a backup"),
    (ssl.SSLError, "TLS fails; check sslmode, sslrootcert, sslcert and sslkey in the URL"),
    (TimeoutError, "it does not respond in time; check whether it is overloaded, stopped or unreachable"),
    (OSError, "it cannot be reached; check that it is running, and that host and port are correct"),
    (asyncpg.InterfaceError, "the connection is broken; the store recovers by itself once the database is back"),
)


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    dsn: str
    schema: str
    name: str
    """For messages: without user and password."""

    @property
    def channel(self) -> str:
        """The NOTIFY channel of commits. Channels are per database, so the name contains the schema."""
        return f"fairlead_{self.schema}"


def parse_address(url: str) -> PostgresAddress:
    """Parse a store URL. ValueError messages never quote the URL, which may contain a password."""
    parts = urlsplit(url)
    database = parts.path.removeprefix("/")
    if parts.scheme not in ("postgres", "postgresql") or not parts.netloc or not database or "/" in database:
        raise ValueError("a host and a database name are required")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = options.pop("schema", DEFAULT_SCHEMA)
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", schema):
        raise ValueError("schema must be up to 48 lower-case letters, digits and underscores")
    host = parts.netloc.rpartition("@")[2]
    return PostgresAddress(
        parts._replace(query=urlencode(options)).geturl(), schema, f"PostgreSQL at {host}/{database}"
    )


def connection_arguments(address: PostgresAddress) -> dict[str, Any]:
    return {
        "dsn": address.dsn,
        "timeout": CONNECT_TIMEOUT,
        "server_settings": {**SERVER_SETTINGS, "search_path": address.schema},
        # A standby rejects commits and lags behind.
        "target_session_attrs": "read-write",
    }


async def connect(address: PostgresAddress) -> Connection:
    """Raises DATABASE_ERRORS, or ValueError for invalid connection options."""
    return await asyncpg.connect(**connection_arguments(address))


def explain_error(address: PostgresAddress, error: BaseException) -> StoreUnavailable:
    meanings = [meaning for error_type, meaning in ERROR_ADVICE if isinstance(error, error_type)]
    meaning = meanings[0] if meanings else "it reports an error; see its log"
    detail = str(error) or type(error).__name__
    return StoreUnavailable(f"{address.name}: {meaning} ({detail})")


COMMIT_TIMEOUT = 15.0
PROBE_TIMEOUT = 5.0

# A commit must be on disk before it is acknowledged, whatever the database's default.
OPEN_SESSION = """
    SELECT nextval('writers'),
        CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END
"""
COMMIT = "SELECT base, revisions, wrong, actual FROM commit_group($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
# Blocks if another transaction is writing the same row.
ABANDON_GROUP = "INSERT INTO groups (writer, number) VALUES ($1, $2) ON CONFLICT DO NOTHING"
FIND_GROUP = "SELECT base, revisions, wrong, actual FROM groups WHERE writer = $1 AND number = $2"
PROBE = """
    INSERT INTO groups (writer, number) VALUES ($1, 0)
    ON CONFLICT (writer, number) DO UPDATE SET made = excluded.made
"""


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The result of a group: for each commit its revision, or the position of the conflict and the actual revision."""

    base: int
    """The revision before the group."""
    revisions: Sequence[int | None]
    conflict_positions: Sequence[int | None]
    actual: Sequence[int]


class WriterSession:
    def __init__(self, connection: Connection, writer: int) -> None:
        self._connection = connection
        self._writer = writer
        self._number = 0
        self._last_recorded = 0

    @classmethod
    async def open(cls, address: PostgresAddress) -> "WriterSession":
        connection = await connect(address)
        async with asyncio.timeout(COMMIT_TIMEOUT):
            return cls(connection, await connection.fetchval(OPEN_SESSION))

    def is_closed(self) -> bool:
        return self._connection.is_closed()

    def close(self) -> None:
        self._connection.terminate()

    def next_group_id(self) -> tuple[int, int]:
        """The id of the next group, by which it can be looked up if the response is lost."""
        self._number += 1
        return self._writer, self._number

    async def commit(self, group: Sequence[PreparedCommit], channel: str) -> GroupOutcome:
        async with asyncio.timeout(COMMIT_TIMEOUT):
            row = await self._connection.fetchrow(
                COMMIT, self._writer, self._number, self._last_recorded, channel, *_group_columns(group)
            )
        outcome = _read_outcome(row)
        assert outcome is not None
        if any(outcome.revisions):
            self._last_recorded = self._number
        return outcome

    async def resolve_group(self, writer: int, number: int) -> GroupOutcome | None:
        """The result of an earlier group. None if it was not committed; it then never will be."""
        async with asyncio.timeout(COMMIT_TIMEOUT):
            await self._connection.execute(ABANDON_GROUP, writer, number)
            return _read_outcome(await self._connection.fetchrow(FIND_GROUP, writer, number))

    async def probe(self) -> None:
        async with asyncio.timeout(PROBE_TIMEOUT):
            await self._connection.execute(PROBE, self._writer)


def _read_outcome(row: asyncpg.Record | None) -> GroupOutcome | None:
    if row is None or row["base"] is None:
        return None
    return GroupOutcome(row["base"], row["revisions"], row["wrong"], row["actual"])


def _group_columns(group: Sequence[PreparedCommit]) -> tuple[list[object], ...]:
    """The parameters of `commit_group`: commit, position, key, value, expected revision, and whether it is a write."""
    columns: tuple[list[object], ...] = ([], [], [], [], [], [])
    for number, commit in enumerate(group):
        count = len(commit.writes) + len(commit.preconditions)
        columns[0].extend([number] * count)
        columns[1].extend(range(count))
        columns[2].extend(commit.write_keys)
        columns[2].extend(commit.precondition_keys)
        columns[3].extend([change.value for change in commit.writes] + [None] * len(commit.preconditions))
        columns[4].extend([change.expected_revision for change in commit.writes])
        columns[4].extend([check.expected_revision for check in commit.preconditions])
        columns[5].extend([True] * len(commit.writes) + [False] * len(commit.preconditions))
    return columns
